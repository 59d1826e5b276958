/*evo
contract = 1
name = "Hopper: pipelined blocks that stay, split keys for few queries"
targets = ["sm_90a"]
supports = "(head_dim == 64 or head_dim == 96 or head_dim == 128 or head_dim == 192 or head_dim == 256) and batch < 32768 and heads < 65536"

# _64, _128, _192, _256: for that head_dim (96 goes with 128). _SHORT: for a few queries.
[knobs]
SHORT_TO = { value = 16, choices = [16], layer = "algorithm" }           # queries, at most, in the short form
LAZY_RESCALE = { value = 8, choices = [8], layer = "algorithm" }          # at 192 and 256: powers of two
WARPGROUPS_64 = { value = 3, choices = [2, 3], layer = "schedule" }             # that compute
KEYS_64 = { value = 128, choices = [128], layer = "schedule" }              # keys of one tile
KEYS_128 = { value = 128, choices = [96, 128], layer = "schedule" }
KEYS_192 = { value = 96, choices = [96], layer = "schedule" }
KEYS_256 = { value = 80, choices = [80], layer = "schedule" }
KEYS_256_1K = { value = 64, choices = [64], layer = "schedule" }            # where there are at most 1024 keys
KEYS_SHORT = { value = 64, choices = [64], layer = "schedule" }            # up to head_dim 128; 64 beyond
L2_MIB = { value = 16, choices = [8, 16, 32], layer = "schedule" }          # keys and values of heads at work together
Q_REGISTERS_128 = { value = 1, choices = [0, 1], layer = "memory" }             # queries as fragments, a third key stage
STAGES_64 = { value = 3, choices = [3], layer = "memory" }
STAGES_SHORT = { value = 2, choices = [2], layer = "memory" }
EARLY_64 = { value = 5, choices = [5], layer = "instructions" }        # see EARLY_STEPS
SPLIT_BLOCKS = { value = 4, choices = [4], layer = "launch" }      # per multiprocessor, when keys are split

[defines]
HEAD_DIM = "head_dim"
SHORT = "seqlen_q <= SHORT_TO"
WIDE = "not SHORT and head_dim > 128"
CAUSAL = "causal and not SHORT"
Q_REGISTERS = "not SHORT and (head_dim == 96 or head_dim == 128) and Q_REGISTERS_128 > 0"
CONSUMERS = "1 if SHORT else WARPGROUPS_64 if head_dim == 64 else 2"
BLOCK_M = "16 if SHORT else 64 * CONSUMERS"
KEYS_LONG = "KEYS_64 if head_dim == 64 else KEYS_128 if head_dim <= 128 else KEYS_192 if head_dim == 192 else KEYS_256_1K if seqlen_k <= 1024 else KEYS_256"
BLOCK_N = "KEYS_LONG if not SHORT else KEYS_SHORT if head_dim <= 128 else 64"
V_STAGES = "STAGES_SHORT if SHORT else STAGES_64 if head_dim == 64 else 2"
K_STAGES = "V_STAGES + Q_REGISTERS"
Q_BUFFERS = "2 if not SHORT and not WIDE and not Q_REGISTERS else 1"
O_BUFFERS = "not SHORT and not WIDE"

[[tensor_map]]
tensor = "q"
box = ["64", "1", "64", "1"]
swizzle = "128"
when = "not SHORT"

[[tensor_map]]
tensor = "k"
box = ["64", "1", "BLOCK_N", "1"]
swizzle = "128"
when = "not SHORT"

[[tensor_map]]
tensor = "v"
box = ["64", "1", "BLOCK_N", "1"]
swizzle = "128"
when = "not SHORT"

[[tensor_map]]
tensor = "o"
box = ["64", "1", "64", "1"]
swizzle = "128"
when = "not SHORT"

# Long: a block for each multiprocessor. Short: blocks for each kv head, tile of packed rows and part of the keys, and a
# second kernel. The number of parts is the "min(32, ...)": blocks for SPLIT_BLOCKS a multiprocessor, but no part under
# two tiles.
[[launch]]
kernel = "attention"
grid = [
    "batch * kv_heads if SHORT else min(sm_count, batch * heads * cdiv(seqlen_q, BLOCK_M))",
    "cdiv(heads // kv_heads * seqlen_q, 16) if SHORT else 1",
    "min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16))) if SHORT else 1",
]
block = ["128 if SHORT else 128 * (CONSUMERS + 1)"]
shared_bytes = "((Q_BUFFERS + O_BUFFERS) * BLOCK_M + (K_STAGES + V_STAGES) * BLOCK_N) * cdiv(head_dim, 64) * 128 + (0 if SHORT else 1024)"

[[launch]]
kernel = "join_parts"
when = "SHORT"
grid = ["batch * heads * seqlen_q"]
block = ["32", "min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16)))"]

[[workspace]]
when = "SHORT"
bytes = "batch * heads * seqlen_q * (head_dim + 1) * 4 * min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16)))"
*/

// Attention on Hopper: one pass over the keys in tiles, an online softmax, and nothing of the scores in memory (Dao, arXiv
// 2205.14135 and 2307.08691; Shah and others, arXiv 2407.08608). Two forms of it.
//
// Long. One block for each multiprocessor takes one job, a tile of BLOCK_M queries of one head, after the other (Schedule).
// One warpgroup starts the copies (Producer); CONSUMERS others own 64 query rows each and compute with wgmma. What it lives by:
//   * The pipeline runs on over the jobs' borders. The products S = Q K^T of a tile and O += P V of the tile before it are
//     started together, and so are the first S of a job and the last P V of the job before.
//   * Warpgroups take turns to start products, so that the exponentials of one run beside the products of the others. At
//     head_dim 64 the exponentials weigh as much as the products, and three warpgroups hide them better than two.
//   * No running maximum (head_dim to 128). Exponents are relative to a reference for each row: the maximum of the first tile
//     that it took. Later tiles need no maximum, shuffle or rescaling, only one vote whether all sums stayed below LIMIT.
//     Where one did not, the warp computes its scores once more by mma.sync, from the same K, and moves the references. That
//     is right for any scores, and rare for most: a floating-point P loses nothing by a reference that is too low.
//   * Tiles are taken from the last key to the first, so that masked ones come first, and a causal row starts with its diagonal.
//   * At head_dim 128 the queries sit in registers as the first product's operand: it reads a third less of shared memory, and
//     their second buffer becomes a third stage of K, which is held until the vote. At 96, columns 96 to 127 are TMA's zeros.
//   * At 192 and 256 O takes the registers and K and V the shared memory: the maximum runs, and the products hide it; each
//     warpgroup's queries have one place, given back after the job's last S; and O goes from registers straight to memory.
//
// Short (up to SHORT_TO queries, as in decoding): a matter of memory. Query heads that share a kv head are packed into the rows
// of one tile, so K and V are read once for all of them; keys are split over blocks, and over the warps of a block, which
// all own the same 16 rows (mma.sync); each block leaves its part of o and of the sum's logarithm in the workspace, and
// join_parts adds them up.
//
// A row of scores of which all keys are hidden keeps a sum of 0, and comes out as zeros with an lse of -inf.
// softmax_scale is taken to be positive.

#include "attention.cuh"

#define DEVICE __device__ __forceinline__

// ------------------------------------------------------------------------------------------------------------ common

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;
constexpr int SLABS = (HEAD_DIM + 63) / 64;  // of 64 columns: a row of a slab is 128 bytes
constexpr int WIDTH = SLABS * 64;            // head_dim 96 is computed as 128 with columns of zeros

#if defined(EVO_BF16)
#define MMA_TYPES "f32.bf16.bf16"
#define TO_PAIR __floats2bfloat162_rn
#else
#define MMA_TYPES "f32.f16.f16"
#define TO_PAIR __floats2half2_rn
#endif

DEVICE uint32_t pack(float low, float high) {
    auto pair = TO_PAIR(low, high);
    return *reinterpret_cast<uint32_t*>(&pair);
}

// Approximations that are one instruction: a call would not do while products are under way.
DEVICE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The largest, and the sum, over the four lanes that share a row.
DEVICE float row_maximum(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

DEVICE float row_total(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// What exponents are taken relative to: a row that has seen no key must not compute -inf - -inf.
DEVICE float reference_of(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// The natural logarithm of a row's sum, from the two parts of its logarithm to base 2.
DEVICE float natural_log(float exponent, float sum) { return sum > 0.0f ? (exponent + log2f(sum)) * LN_2 : -INFINITY; }

// Loads four 8x8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
DEVICE void load_matrices(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}

// c += a b, 16 rows by 8 columns, 16 between. A lane holds c[0..1] in row lane / 4, columns lane % 4 * 2 and the next, and
// c[2..3] eight rows below.
DEVICE void multiply_warp(float* c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col." MMA_TYPES ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#if !SHORT

// ------------------------------------------------------------------------- barriers, copies and products of Hopper

DEVICE uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

DEVICE void init_barrier(uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

DEVICE void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DEVICE void arrive_at(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

DEVICE void expect_bytes(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Returns once the barrier's phase of this parity is complete; at once for parity 1 on a barrier that is new.
DEVICE void await_barrier(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{ .reg .pred P; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1; @P bra DONE; bra AGAIN; DONE: }"
        ::"r"(barrier), "r"(parity) : "memory");
}

// A box of 64 columns from (column, head, row, batch). What lies outside the tensor arrives as zeros, and counts as bytes.
DEVICE void copy_box(uint32_t to, const TensorMap* map, uint32_t barrier, int column, int head, int row, int batch) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
        ::"r"(to), "l"(map), "r"(barrier), "r"(column), "r"(head), "r"(row), "r"(batch) : "memory");
}

DEVICE void store_box(uint32_t from, const TensorMap* map, int column, int head, int row, int batch) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%1, {%2, %3, %4, %5}], [%0];"
                 ::"r"(from), "l"(map), "r"(column), "r"(head), "r"(row), "r"(batch) : "memory");
}

DEVICE void await_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// Named barriers, for some of the block's threads.
DEVICE void sync_some(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEVICE void arrive_some(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }

// Keeps the compiler from moving what it does with registers across this place: wgmma works on them behind its back.
template <int N>
DEVICE void pin(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

template <int N>
DEVICE void pin(uint32_t (&x)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; ++i)
        asm volatile("" : "+r"(x[i][0]), "+r"(x[i][1]), "+r"(x[i][2]), "+r"(x[i][3])::"memory");
}

DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int N>
DEVICE void await_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// Descriptors of matrices in shared memory with rows of 128 swizzled bytes, eight rows in 1024. The upper half is always
// the same; the lower is address / 16, of which only sums are formed, with one of these added: the leading offset, / 16,
// does not matter where rows run along the product's inner dimension (Q, K), and is the step from slab to slab for V.
constexpr uint64_t MATRIX_HIGH = (uint64_t(1024 >> 4) << 32) | (uint64_t(1) << 62);
constexpr uint32_t ALONG_INNER = 1u << 16;
constexpr uint32_t ACROSS_INNER = uint32_t(BLOCK_N * 128 >> 4) << 16;
DEVICE uint64_t describe(uint32_t low) { return MATRIX_HIGH | uint64_t(low); }
DEVICE uint32_t matrix_address(uint32_t address) { return (address & 0x3FFFFu) >> 4; }

#define REGS_32                                                                                                  \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                     \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS_40 REGS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define REGS_48 REGS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define REGS_64                                                                                                  \
    REGS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGS_96                                                                                                  \
    REGS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                 \
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define REGS_128                                                                                                 \
    REGS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "     \
            "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define FLOATS_8(i)                                                                                              \
    "+f"(c[(i)]), "+f"(c[(i) + 1]), "+f"(c[(i) + 2]), "+f"(c[(i) + 3]), "+f"(c[(i) + 4]), "+f"(c[(i) + 5]),      \
        "+f"(c[(i) + 6]), "+f"(c[(i) + 7])
#define FLOATS_32 FLOATS_8(0), FLOATS_8(8), FLOATS_8(16), FLOATS_8(24)
#define FLOATS_40 FLOATS_32, FLOATS_8(32)
#define FLOATS_48 FLOATS_40, FLOATS_8(40)
#define FLOATS_64 FLOATS_48, FLOATS_8(48), FLOATS_8(56)
#define FLOATS_96 FLOATS_64, FLOATS_8(64), FLOATS_8(72), FLOATS_8(80), FLOATS_8(88)
#define FLOATS_128 FLOATS_96, FLOATS_8(96), FLOATS_8(104), FLOATS_8(112), FLOATS_8(120)

#define WGMMA(N, REGS, A, B, P, FLAGS)                                                                           \
    "{ .reg .pred p; setp.ne.b32 p, " P ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16." MMA_TYPES             \
    " {" REGS "}, " A ", " B ", p, 1, 1, " FLAGS "; }"

#define WGMMA_SHARED(N, REGS, FLOATS, A, B, P)                                                                   \
    if constexpr (COLUMNS == N)                                                                                  \
    asm volatile(WGMMA(N, REGS, A, B, P, "0, 0") : FLOATS : "l"(a), "l"(b), "r"(accumulate))

#define WGMMA_REGISTERS(N, REGS, FLOATS, A, B, P, T)                                                             \
    if constexpr (COLUMNS == N)                                                                                  \
    asm volatile(WGMMA(N, REGS, "{" A "}", B, P, T)                                                              \
                 : FLOATS                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TRANSPOSED))

// c = a b, or c += a b, for 64 rows, so many columns and 16 between; both operands run along the 16. A lane holds of c what
// it would of mma.sync's: c[4 n .. 4 n + 1] in row lane / 4 of its warp's 16, the next two eight rows below.
template <int COLUMNS>
DEVICE void multiply_shared(float (&c)[COLUMNS / 2], uint64_t a, uint64_t b, int accumulate) {
    static_assert(COLUMNS == 64 || COLUMNS == 80 || COLUMNS == 96 || COLUMNS == 128, "no instruction here");
    WGMMA_SHARED(64, REGS_32, FLOATS_32, "%32", "%33", "%34");
    WGMMA_SHARED(80, REGS_40, FLOATS_40, "%40", "%41", "%42");
    WGMMA_SHARED(96, REGS_48, FLOATS_48, "%48", "%49", "%50");
    WGMMA_SHARED(128, REGS_64, FLOATS_64, "%64", "%65", "%66");
}

// The same with a in registers, and where TRANSPOSED with b's columns contiguous.
template <int COLUMNS, int TRANSPOSED>
DEVICE void multiply_registers(float (&c)[COLUMNS / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {
    static_assert(COLUMNS % 64 == 0 || COLUMNS == 96, "no instruction here");
    WGMMA_REGISTERS(64, REGS_32, FLOATS_32, "%32, %33, %34, %35", "%36", "%37", "%38");
    WGMMA_REGISTERS(96, REGS_48, FLOATS_48, "%48, %49, %50, %51", "%52", "%53", "%54");
    WGMMA_REGISTERS(128, REGS_64, FLOATS_64, "%64, %65, %66, %67", "%68", "%69", "%70");
    WGMMA_REGISTERS(192, REGS_96, FLOATS_96, "%96, %97, %98, %99", "%100", "%101", "%102");
    WGMMA_REGISTERS(256, REGS_128, FLOATS_128, "%128, %129, %130, %131", "%132", "%133", "%134");
}

// --------------------------------------------------------------------------------------- products and rows of the long form

constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int Q_BYTES = BLOCK_M * SLABS * 128;       // all query rows of the block
constexpr int Q_GROUP_BYTES = 64 * SLABS * 128;      // those of one warpgroup: slab after slab, 64 rows each
constexpr int TILE_BYTES = BLOCK_N * SLABS * 128;    // a tile of K or V: slab after slab, BLOCK_N rows each
constexpr int STEPS = BLOCK_N / 16;                  // of the second product along the keys
constexpr int Q_STEPS = Q_REGISTERS ? HEAD_DIM / 16 : 1;
constexpr float NO_REFERENCE = -1e30f;               // of a row that has seen no key: any score at all outgrows it

static_assert(TILE_BYTES % 1024 == 0 && BLOCK_N % 16 == 0, "tiles lie at multiples of what the swizzle repeats over");

typedef float Scores[BLOCK_N / 2];
typedef float Output[WIDTH / 2];
typedef uint32_t Weights[STEPS][4];    // P, rounded: as S lies, in pairs, it is the second product's first operand
typedef uint32_t Queries[Q_STEPS][4];  // where Q_REGISTERS, the warp's 16 rows of Q

struct Job {
    int first_row, batch, head, tiles;  // tiles of keys: at least one, though no row may see a key of it
};

// Who does which job. Heads (of all batch entries) are taken in sections, one after the other, and a section's jobs are dealt
// out to the blocks round by round. Without a mask jobs are equal: one section, head after head. Under a causal mask a
// section is the heads whose keys and values fit into the L2 together; its longest jobs come first, over all its heads, and
// every second round is dealt out in the opposite order, so that who got the longer job of one round gets the shorter of
// the next. Heads that a section's last round has room for are added to it, since they cost no time.
struct Schedule {
    int row_tiles, groups, section, rounds;

    DEVICE explicit Schedule(const AttentionParams& params) {
        row_tiles = (params.seqlen_q + BLOCK_M - 1) / BLOCK_M;
        section = groups = params.batch * params.heads;
        if (params.causal) {
            const int pack = params.heads / params.kv_heads;
            const int64_t fit = max(1LL, (int64_t(L2_MIB) << 20) / (int64_t(params.seqlen_k) * HEAD_DIM * 4));
            section = int(min(int64_t(groups), fit * pack));
            section = min(groups, max(section, rounds_of(section) * int(gridDim.x) / row_tiles / pack * pack));
        }
        rounds = rounds_of(section);
    }

    DEVICE int rounds_of(int heads) const { return (heads * row_tiles + int(gridDim.x) - 1) / int(gridDim.x); }

    // Job number n of this block, or where n has none, of the next n that has; false after the last.
    DEVICE bool find(Job& job, int& n, const AttentionParams& params) const {
        for (;; ++n) {
            const int number = n / rounds, round = n - number * rounds, first = number * section;
            if (first >= groups) return false;
            const bool turned = params.causal && ((round + number) & 1);
            const int block = int(turned ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
            const int item = round * int(gridDim.x) + block, width = min(section, groups - first);
            if (item >= width * row_tiles) continue;
            int group = item / row_tiles, row_tile = item - group * row_tiles, keys = params.seqlen_k;
            if (params.causal) {
                row_tile = row_tiles - 1 - item / width;
                group = first + item % width;
                // The last row sees one key more than its number, moved by what there are more keys than queries.
                keys = min((row_tile + 1) * BLOCK_M, params.seqlen_q) + params.seqlen_k - params.seqlen_q;
            }
            job.first_row = row_tile * BLOCK_M;
            job.batch = group / params.heads;
            job.head = group % params.heads;
            job.tiles = max((keys + BLOCK_N - 1) / BLOCK_N, 1);  // for keys <= 0 the quotient is 0 or less
            return true;
        }
    }
};

// The stages of K and V, and their barriers: `full` when a tile has landed, `empty` when all are done with it. Tile number
// `at` of the block lies in stage at % STAGES, for the time at / STAGES.
struct Ring {
    uint32_t barriers, k_matrix;  // where the barriers begin, and the matrix address of the first stage of K; V's follow K's

    DEVICE uint32_t k_full(uint32_t at) const { return barriers + at % K_STAGES * 8; }
    DEVICE uint32_t k_empty(uint32_t at) const { return barriers + (K_STAGES + at % K_STAGES) * 8; }
    DEVICE uint32_t v_full(uint32_t at) const { return barriers + (2 * K_STAGES + at % V_STAGES) * 8; }
    DEVICE uint32_t v_empty(uint32_t at) const { return barriers + (2 * K_STAGES + V_STAGES + at % V_STAGES) * 8; }
    DEVICE uint32_t k_tile(uint32_t at) const { return k_matrix + at % K_STAGES * (TILE_BYTES / 16); }
    DEVICE uint32_t v_tile(uint32_t at) const { return k_matrix + (K_STAGES + at % V_STAGES) * (TILE_BYTES / 16); }
    DEVICE void await_k(uint32_t at) const { await_barrier(k_full(at), at / K_STAGES & 1); }
    DEVICE void await_v(uint32_t at) const { await_barrier(v_full(at), at / V_STAGES & 1); }

    DEVICE void init(int k_arrivals, int v_arrivals) const {
        for (uint32_t i = 0; i < K_STAGES; ++i) {
            init_barrier(k_full(i), 1);
            init_barrier(k_empty(i), k_arrivals);
        }
        for (uint32_t i = 0; i < V_STAGES; ++i) {
            init_barrier(v_full(i), 1);
            init_barrier(v_empty(i), v_arrivals);
        }
    }

    DEVICE void load_k(const TensorMap& map, uint32_t at, int kv_head, int tile, int batch) const {
        await_barrier(k_empty(at), (at / K_STAGES & 1) ^ 1);
        load(map, k_tile(at) * 16, k_full(at), kv_head, tile, batch);
    }
    DEVICE void load_v(const TensorMap& map, uint32_t at, int kv_head, int tile, int batch) const {
        await_barrier(v_empty(at), (at / V_STAGES & 1) ^ 1);
        load(map, v_tile(at) * 16, v_full(at), kv_head, tile, batch);
    }
    DEVICE static void load(const TensorMap& map, uint32_t to, uint32_t full, int kv_head, int tile, int batch) {
        expect_bytes(full, TILE_BYTES);
#pragma unroll
        for (int slab = 0; slab < SLABS; ++slab)
            copy_box(to + slab * (BLOCK_N * 128), &map, full, slab * 64, kv_head, tile * BLOCK_N, batch);
    }
};

// S = Q K^T, begun and started; `q` and `k` are matrix addresses, of the warpgroup's rows and of the tile.
DEVICE void start_scores(Scores& s, const Queries& queries, uint32_t q, uint32_t k) {
    begin_products();
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; ++step) {
        const uint64_t b = describe(k + (ALONG_INNER + uint32_t((step / 4 * (BLOCK_N * 128) + step % 4 * 32) / 16)));
        if constexpr (Q_REGISTERS)
            multiply_registers<BLOCK_N, 0>(s, queries[step], b, step > 0);
        else
            multiply_shared<BLOCK_N>(s, describe(q + (ALONG_INNER + uint32_t((step / 4 * 8192 + step % 4 * 32) / 16))), b, step > 0);
    }
    close_products();
}

// O += P V, started, after begin_products; `v` is the tile's matrix address. 16 keys are 2048 bytes of each slab.
DEVICE void start_values(Output& o, const Weights& p, uint32_t v) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
        multiply_registers<WIDTH, 1>(o, p[step], describe(v + (ACROSS_INNER + uint32_t(step * 2048 / 16))), 1);
    close_products();
}

// Hides the keys that a row does not see, where the lane's first number is of row `row` and of key `key`: an element i is
// of row `row` + i % 4 / 2 * 8 and of key `key` + i / 4 * 8 + i % 2.
DEVICE void hide_keys(Scores& s, int row, int key, bool causal, int seqlen_k, int offset) {
    int last0 = seqlen_k - 1, last1 = seqlen_k - 1;  // the last keys that the two rows see
    if (causal) {
        last0 = min(last0, row + offset);
        last1 = min(last1, row + offset + 8);
    }
    last0 -= key;
    last1 -= key;
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i)
        if (i / 4 * 8 + i % 2 > (i % 4 < 2 ? last0 : last1)) s[i] = -INFINITY;
}

// The exponentials of 16 keys, relative to the references; `sums` are two of each row.
DEVICE void exponentiate_step(Scores& s, int step, const float (&reference)[2], float (&sums)[4], float scale) {
#pragma unroll
    for (int i = 2 * step; i < 2 * step + 2; ++i) {
        s[4 * i] = power_of_two(s[4 * i] * scale - reference[0]);
        s[4 * i + 1] = power_of_two(s[4 * i + 1] * scale - reference[0]);
        s[4 * i + 2] = power_of_two(s[4 * i + 2] * scale - reference[1]);
        s[4 * i + 3] = power_of_two(s[4 * i + 3] * scale - reference[1]);
        sums[0] += s[4 * i];
        sums[1] += s[4 * i + 1];
        sums[2] += s[4 * i + 2];
        sums[3] += s[4 * i + 3];
    }
}

// The exponentials of a tile in the place of its scores, relative to a reference for each row, in powers of two: the row's
// maximum, moved up to that of this tile; or, where LAZY, the old one while no row of the warp has outgrown it by more than
// LAZY_RESCALE. True where references moved; the sums have moved with them, and O has to be multiplied by `factor`. Any
// reference gives the same quotient O / sum while nothing overflows. One is finite even where all keys so far are hidden, so
// 2^(-inf - reference) is 0.
template <bool LAZY>
DEVICE bool exponentiate(Scores& s, float (&reference)[2], float (&sum)[2], float (&factor)[2], float scale) {
    float even0 = s[0], odd0 = s[1], even1 = s[2], odd1 = s[3];
#pragma unroll
    for (int i = 1; i < BLOCK_N / 8; ++i) {
        even0 = fmaxf(even0, s[4 * i]);
        even1 = fmaxf(even1, s[4 * i + 2]);
        odd0 = fmaxf(odd0, s[4 * i + 1]);
        odd1 = fmaxf(odd1, s[4 * i + 3]);
    }
    const float next[2] = {fmaxf(reference[0], row_maximum(fmaxf(even0, odd0)) * scale),
                           fmaxf(reference[1], row_maximum(fmaxf(even1, odd1)) * scale)};
    const bool moved = !LAZY || __any_sync(~0u, fmaxf(next[0] - reference[0], next[1] - reference[1]) > float(LAZY_RESCALE));
    if (moved) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            factor[i] = power_of_two(reference[i] - next[i]);
            reference[i] = next[i];
            sum[i] *= factor[i];
        }
    }
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int step = 0; step < STEPS; ++step) exponentiate_step(s, step, reference, sums, scale);
    sum[0] += sums[0] + sums[1];
    sum[1] += sums[2] + sums[3];
    return moved;
}

DEVICE void rescale_output(Output& o, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) o[i] *= factor[(i >> 1) & 1];
}

DEVICE void pack_scores(Weights& p, const Scores& s) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) p[step][i] = pack(s[step * 8 + i * 2], s[step * 8 + i * 2 + 1]);
    }
    pin(p);
}

// A warpgroup's 64 rows of O, divided by their sums, on their way out: into swizzled rows of shared memory (`staged`, slab
// after slab) and from there by TMA, which leaves out what lies beyond the last query and the last column.
DEVICE void store_staged(const Output& o, const float (&inverse)[2], uint32_t staged, const TensorMap* map, int first_row,
                         int head, int batch, int named_barrier) {
    const int thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4;
    if (thread == 0) await_stores_read();  // of the store before, from the same place
    sync_some(named_barrier, 128);
#pragma unroll
    for (int d = 0; d < WIDTH / 8; ++d) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int at = row + i * 8;
            const uint32_t to = staged + d / 8 * 8192 + at * 128 + (((d % 8) ^ (at & 7)) << 4) + thread % 4 * 4;
            const uint32_t pair = pack(o[d * 4 + i * 2] * inverse[i], o[d * 4 + i * 2 + 1] * inverse[i]);
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(pair) : "memory");
        }
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    sync_some(named_barrier, 128);
    if (thread == 0) {
#pragma unroll
        for (int slab = 0; slab < SLABS; ++slab) store_box(staged + slab * 8192, map, slab * 64, head, first_row, batch);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

// ------------------------------------------------------------------------------------------------------- long form

// Where WIDE, each warpgroup's queries come and go by themselves.
constexpr int Q_PLACES = WIDE ? CONSUMERS : Q_BUFFERS;
constexpr int Q_PLACE_BYTES = WIDE ? Q_GROUP_BYTES : Q_BYTES;
constexpr int EARLY_STEPS = HEAD_DIM == 64 ? EARLY_64 : STEPS;  // of exponentials, before the wait for O += P V
#if defined(EVO_BF16)
constexpr float LIMIT = 1099511627776.0f;                  // 2^40: P, the sums and O are floating point and keep their precision
#else
constexpr float LIMIT = 32768.0f;                          // P is at most 65504
#endif

static_assert(EARLY_STEPS <= STEPS, "no more steps than there are");

// What a thread of a computing warpgroup needs all the time.
struct Lane : Ring {
    int my_turn, next_turn;  // named barriers, on which a warpgroup waits for its turn and gives the next one its own
    int thread, row, column, seqlen_k, offset;
    float scale;

    DEVICE void release_k(uint32_t at) const {  // by each warp
        if ((thread & 31) == 0) arrive_at(k_empty(at));
    }
    DEVICE void release_v(uint32_t at) const {  // by each warpgroup
        if (thread == 0) arrive_at(v_empty(at));
    }
    DEVICE void hide(Scores& s, int tile, int first_row) const {
        hide_keys(s, first_row + row, tile * BLOCK_N + column, CAUSAL, seqlen_k, offset);
    }
};

// The warp's 16 rows of Q as fragments; `address` is the lane's row, lane % 16.
DEVICE void load_query_fragments(Queries& queries, uint32_t address, int thread) {
    __syncwarp();
#pragma unroll
    for (int step = 0; step < Q_STEPS; ++step)
        load_matrices(queries[step], address + step / 4 * 8192 + (((step % 4 * 2 + ((thread >> 4) & 1)) ^ (thread & 7)) << 4));
}

DEVICE uint32_t load_word(uint32_t address) {
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

// Rare: the warp's 16 rows of scores once more, by mma.sync, which leaves them in the same registers as wgmma does; from K,
// which is still in shared memory, and Q: the fragments, or the buffer. `q` and `k` are matrix addresses.
DEVICE void compute_again(Scores& s, const Queries& queries, uint32_t q, uint32_t k) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / 2; ++i) s[i] = 0.0f;
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));  // volatile: nothing of this takes registers in the usual loop
    if constexpr (Q_REGISTERS) {
        // Four matrices: keys 0-7 and 8-15 of 16, columns 0-7 and 8-15 of a step; the swizzle is an exclusive or of bits 4 to 6.
        const uint32_t row = thread & 7, from = k * 16 + ((thread >> 4) & 1) * 1024 + row * 128 + ((((thread >> 3) & 1) ^ row) << 4);
#pragma unroll
        for (int step = 0; step < Q_STEPS; ++step) {
            const uint32_t along = (from ^ uint32_t(step % 4 * 32)) + step / 4 * (BLOCK_N * 128);
#pragma unroll
            for (int i = 0; i < BLOCK_N / 16; ++i) {
                uint32_t b[4];
                load_matrices(b, along + i * 2048);
                multiply_warp(s + 8 * i, queries[step], b[0], b[1]);
                multiply_warp(s + 8 * i + 4, queries[step], b[2], b[3]);
            }
        }
    } else {
        // A lane's elements of Q are in rows lane / 4 and 8 below, of K in row lane / 4 of each 8; two words of a step, 16 bytes apart.
        const uint32_t row = (thread & 31) >> 2, word = row * 128 + (thread & 3) * 4;
        const uint32_t q_from = q * 16 + ((thread >> 5) & 3) * 2048 + word, k_from = k * 16 + word;
#pragma unroll 1
        for (uint32_t step = 0; step < HEAD_DIM / 16; ++step) {
            const uint32_t low = (((2 * step) & 7) ^ row) << 4, high = low ^ 16;
            const uint32_t q_at = q_from + (step >> 2) * 8192, k_at = k_from + (step >> 2) * (BLOCK_N * 128);
            const uint32_t a[4] = {load_word(q_at + low), load_word(q_at + low + 1024), load_word(q_at + high),
                                   load_word(q_at + high + 1024)};
#pragma unroll
            for (int i = 0; i < BLOCK_N / 8; ++i)
                multiply_warp(s + 4 * i, a, load_word(k_at + low + i * 1024), load_word(k_at + high + i * 1024));
        }
    }
}

// One tile of keys, number `at` of the block's and `tile` of the head's, in the steady state: S = Q K^T of this tile and
// O += P V of the one before are started in this warpgroup's turn, and the exponentials follow while others have theirs.
// K is released only once the sums have shown that the references held, for the rare path reads it.
// Where WIDE, the maximum runs, which is hidden beside the products there, and K is released at once, and so are the queries,
// by `q_empty`, in the job's last tile: no second place for them is there to hide the time that the next ones take.
template <bool MASKED>
DEVICE void take_tile(Output& o, Weights& p, float (&reference)[2], float (&sum)[2], const Queries& queries, uint32_t q,
                      uint32_t q_empty, uint32_t at, int tile, int first_row, const Lane& lane) {
    Scores s;
    lane.await_k(at);
    sync_some(lane.my_turn, 256);
    start_scores(s, queries, q, lane.k_tile(at));
    lane.await_v(at - 1);
    start_values(o, p, lane.v_tile(at - 1));
    arrive_some(lane.next_turn, 256);
    await_products<1>();
    pin(s);
#if WIDE
    float factor[2] = {};
    lane.release_k(at);
    if (tile == 0 && (lane.thread & 31) == 0) arrive_at(q_empty);
    if (MASKED) lane.hide(s, tile, first_row);
    const bool moved = exponentiate<true>(s, reference, sum, factor, lane.scale);
    await_products<0>();
    pin(o);
    lane.release_v(at - 1);
    if (moved) rescale_output(o, factor);
    pin(o);
    pack_scores(p, s);
#else
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (MASKED) lane.hide(s, tile, first_row);
#pragma unroll
    for (int step = 0; step < EARLY_STEPS; ++step) exponentiate_step(s, step, reference, sums, lane.scale);
    await_products<0>();  // P's registers are free, and V
    pin(o);
    lane.release_v(at - 1);
#pragma unroll
    for (int step = EARLY_STEPS; step < STEPS; ++step) exponentiate_step(s, step, reference, sums, lane.scale);
    pack_scores(p, s);
    const float sum0 = sums[0] + sums[1], sum1 = sums[2] + sums[3];
    if (__builtin_expect(__any_sync(~0u, !(fmaxf(sum0, sum1) < LIMIT)), 0)) {
        float factor[2] = {};
        compute_again(s, queries, q, lane.k_tile(at));
        if (MASKED) lane.hide(s, tile, first_row);
        exponentiate<false>(s, reference, sum, factor, lane.scale);
        rescale_output(o, factor);
        pin(o);
        pack_scores(p, s);
        __syncwarp();
    } else {
        sum[0] += sum0;
        sum[1] += sum1;
    }
    lane.release_k(at);
#endif
}

// The end of a job's rows: writes their lse, leaves 1 / sum in `inverse`, and resets references and sums.
DEVICE void close_rows(float (&reference)[2], float (&sum)[2], float (&inverse)[2], float* lse, int row, int seqlen_q, int thread) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float total = row_total(sum[i]);
        inverse[i] = total > 0.0f ? reciprocal(total) : 0.0f;
        if ((thread & 3) == 0 && row + 8 * i < seqlen_q) lse[row + 8 * i] = natural_log(reference[i], total);
        reference[i] = NO_REFERENCE;
        sum[i] = 0.0f;
    }
}

// As store_staged, but straight from the registers, where shared memory has no room. The four lanes of a row hold two columns
// each of every eight; of four such eights, two exchanges leave each lane with one whole, which is 16 bytes.
DEVICE void store_straight(const Output& o, const float (&inverse)[2], Element* to, int64_t row_step, int row, int seqlen_q) {
    const int lane = threadIdx.x % 4;
    const bool odd = lane & 1, upper = lane & 2;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int d = 0; d < WIDTH / 8; d += 4) {
            uint32_t x[4];
#pragma unroll
            for (int j = 0; j < 4; ++j)
                x[j] = pack(o[(d + j) * 4 + i * 2] * inverse[i], o[(d + j) * 4 + i * 2 + 1] * inverse[i]);
#pragma unroll
            for (int j = 0; j < 4; j += 2) {  // now x[j], x[j + 1]: of eight d + j + (lane & 1), words lane & 2 and the next
                const uint32_t got = __shfl_xor_sync(~0u, odd ? x[j] : x[j + 1], 1);
                if (odd) x[j] = got;
                else x[j + 1] = got;
            }
#pragma unroll
            for (int j = 0; j < 2; ++j) {  // now x: the four words of eight d + lane
                const uint32_t got = __shfl_xor_sync(~0u, upper ? x[j] : x[j + 2], 2);
                if (upper) x[j] = got;
                else x[j + 2] = got;
            }
            if (row + 8 * i < seqlen_q)
                *reinterpret_cast<uint4*>(to + (row + 8 * i) * row_step + (d + lane) * 8) = make_uint4(x[0], x[1], x[2], x[3]);
        }
    }
}

// The warpgroup that starts all copies, in the order in which they are waited for; one thread of it.
struct Producer {
    const Ring& ring;
    const TensorMap &q_map, &k_map, &v_map;
    uint32_t q_shared, q_full, q_empty, words;

    // A job's queries, the `count`-th of the block, and what the job is; none where it is the end.
    DEVICE void load_queries(uint32_t count, int first_row, int batch, int head, int tiles) const {
#pragma unroll
        for (int group = 0; group < (WIDE ? CONSUMERS : 1); ++group) {
            const uint32_t place = WIDE ? group : count % Q_BUFFERS;
            await_barrier(q_empty + 8 * place, ((count / Q_BUFFERS) & 1) ^ 1);
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %3};" ::"r"(words + 16 * place), "r"(first_row),
                         "r"(batch << 16 | head), "r"(tiles) : "memory");
            if (tiles == 0) {
                arrive_at(q_full + 8 * place);
                continue;
            }
            expect_bytes(q_full + 8 * place, Q_PLACE_BYTES);
#pragma unroll
            for (int box = 0; box < Q_PLACE_BYTES / 8192; ++box)  // 64 rows of 64 columns
                copy_box(q_shared + place * Q_PLACE_BYTES + box * 8192, &q_map, q_full + 8 * place, box % SLABS * 64, head,
                         first_row + (WIDE ? group : box / SLABS) * 64, batch);
        }
    }

    // K of a tile goes before V of the one before it, over the jobs' borders too. Queries with a buffer to spare come first;
    // those that soon leave their only buffer for registers just after the job's first K; those that hold it to the end of
    // the job before, last, so that nothing that this job waits for stands behind them.
    DEVICE void run(const AttentionParams& params) const {
        const Schedule schedule(params);
        uint32_t at = 0, count = 0;
        int v_head = 0, v_tile = 0, v_batch = 0;
        Job job;
        for (int n = 0; schedule.find(job, n, params); ++n, ++count) {
            const int kv_head = job.head / (params.heads / params.kv_heads);
            if (Q_BUFFERS == 2) load_queries(count, job.first_row, job.batch, job.head, job.tiles);
            for (int tile = job.tiles - 1; tile >= 0; --tile) {
                const bool first = tile == job.tiles - 1;
                ring.load_k(k_map, at, kv_head, tile, job.batch);
                if (Q_REGISTERS && first) load_queries(count, job.first_row, job.batch, job.head, job.tiles);
                if (at > 0) ring.load_v(v_map, at - 1, v_head, v_tile, v_batch);
                if (WIDE && first) load_queries(count, job.first_row, job.batch, job.head, job.tiles);
                v_head = kv_head;
                v_tile = tile;
                v_batch = job.batch;
                ++at;
            }
        }
        if (at > 0) ring.load_v(v_map, at - 1, v_head, v_tile, v_batch);
        load_queries(count, 0, 0, 0, 0);
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
attention(const __grid_constant__ AttentionParams params, const __grid_constant__ TensorMap q_map,
          const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
          const __grid_constant__ TensorMap o_map) {
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ alignas(16) uint64_t barriers[4 * Q_PLACES + 2 * K_STAGES + 2 * V_STAGES];
    const uint32_t q_shared = (shared_address(shared) + 1023u) & ~1023u;
    const uint32_t o_shared = q_shared + Q_BUFFERS * Q_BYTES;
    const uint32_t words = shared_address(barriers);  // of each place of Q: what the job is; 16 bytes
    const uint32_t q_full = words + 16 * Q_PLACES, q_empty = q_full + 8 * Q_PLACES;
    const int warpgroup = __shfl_sync(~0u, int(threadIdx.x >> 7), 0);
    Lane lane;
    lane.barriers = q_empty + 8 * Q_PLACES;
    lane.k_matrix = matrix_address(o_shared + O_BUFFERS * Q_BYTES);
    if (threadIdx.x == 0) {
        for (int i = 0; i < Q_PLACES; ++i) {
            init_barrier(q_full + 8 * i, 1);
            init_barrier(q_empty + 8 * i, WIDE ? 4 : 4 * CONSUMERS);
        }
        lane.init(4 * CONSUMERS, CONSUMERS);
        publish_barriers();
    }
    __syncthreads();
    if (warpgroup == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(CONSUMERS == 2 ? 40 : 32));
        if (threadIdx.x == 0) {
            const Producer producer = {lane, q_map, k_map, v_map, q_shared, q_full, q_empty, words};
            producer.run(params);
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMERS == 2 ? 232 : 160));
    const int group = warpgroup - 1, thread = threadIdx.x & 127;
    lane.my_turn = 1 + group;
    lane.next_turn = group == CONSUMERS - 1 ? 1 : 2 + group;
    lane.thread = thread;
    lane.row = thread / 32 * 16 + thread % 32 / 4;
    lane.column = thread % 4 * 2;
    lane.seqlen_k = params.seqlen_k;
    lane.offset = params.seqlen_k - params.seqlen_q;
    lane.scale = params.softmax_scale * LOG2_E;
    const int own_barrier = 4 + group;
    Output o = {};
    Weights p = {};
    float reference[2] = {NO_REFERENCE, NO_REFERENCE}, sum[2] = {0.0f, 0.0f};
    const uint32_t q_group = q_shared + group * Q_GROUP_BYTES;
    uint32_t before = 0;            // tiles of the jobs before this one
    bool pending = false;           // whether the last P V of a job is still to be started: of rows and head
    int pending_row = 0, pending_head = 0;
    auto close_pending = [&](float (&inverse)[2]) {
        const int64_t batch_head = int64_t(pending_head >> 16) * params.heads + (pending_head & 0xffff);
        close_rows(reference, sum, inverse, params.lse + batch_head * params.seqlen_q, pending_row + lane.row, params.seqlen_q, thread);
    };
    auto store_pending = [&](const float (&inverse)[2]) {
        const int head = pending_head & 0xffff, batch = pending_head >> 16;
        if constexpr (O_BUFFERS) {
            store_staged(o, inverse, o_shared + group * Q_GROUP_BYTES, &o_map, pending_row, head, batch, own_barrier);
        } else {
            const int64_t row_step = int64_t(params.heads) * HEAD_DIM;
            Element* to = params.o + int64_t(batch) * params.seqlen_q * row_step + head * HEAD_DIM;
            store_straight(o, inverse, to, row_step, pending_row + lane.row, params.seqlen_q);
        }
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) o[i] = 0.0f;
        pin(o);
    };
    if (group == CONSUMERS - 1) arrive_some(1, 256);  // the first turn is warpgroup 0's; all have one for each tile
    for (uint32_t count = 0;; ++count) {
        const uint32_t place = WIDE ? group : count % Q_BUFFERS;
        await_barrier(q_full + 8 * place, (count / Q_BUFFERS) & 1);
        int job_row, job_head, tiles, unused;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(job_row), "=r"(job_head), "=r"(tiles), "=r"(unused) : "r"(words + 16 * place) : "memory");
        job_row = __shfl_sync(~0u, job_row, 0);
        job_head = __shfl_sync(~0u, job_head, 0);
        tiles = __shfl_sync(~0u, tiles, 0);
        Queries queries = {};
        if constexpr (Q_REGISTERS) {
            // No product of this warpgroup is under way here. Before anything that waits for K, V or a turn, since the
            // producer loads the next queries ahead of the last values of this job.
            load_query_fragments(queries, q_group + (thread / 32 * 16 + thread % 16) * 128, thread);
            uint32_t used = 0;
#pragma unroll
            for (int step = 0; step < Q_STEPS; ++step) used |= queries[step][3];
            // blockIdx.y is 0, and only makes the release wait for the data.
            if ((thread & 31) == 0) arrive_at(q_empty + (used & blockIdx.y));
        }

        // The last tiles may lie beyond what any row of this warpgroup sees; a row that sees none sees the first, masked.
        const int first_row = job_row + group * 64;
        int seen = tiles;
        if (CAUSAL) seen = min(max((first_row + 64 + lane.offset + BLOCK_N - 1) / BLOCK_N, 1), tiles);
        if (first_row >= params.seqlen_q) seen = 0;
        const int skipped = tiles - seen;
        const uint32_t released = q_empty + 8 * place;  // where this warp is done with the job's queries in shared memory
        const uint32_t end = before + tiles;
        const bool flush = pending && (skipped > 0 || tiles == 0);
        if (flush) {  // nothing to start together with the last values of the job before: in the turn of the first skipped tile
            float inverse[2];
            lane.await_v(before - 1);
            if (tiles > 0) sync_some(lane.my_turn, 256);
            begin_products();
            start_values(o, p, lane.v_tile(before - 1));
            if (tiles > 0) arrive_some(lane.next_turn, 256);
            close_pending(inverse);
            await_products<0>();
            pin(o);
            lane.release_v(before - 1);
            store_pending(inverse);
            pending = false;
        }
        if (tiles == 0) break;
        for (int i = 0; i < skipped; ++i) {  // passes the turn on, and releases the tile
            const uint32_t at = before + i;
            lane.await_k(at);
            lane.await_v(at);
            if (flush && i == 0) {
                sync_some(own_barrier, 128);
            } else {
                sync_some(lane.my_turn, 256);
                arrive_some(lane.next_turn, 256);
            }
            lane.release_k(at);
            lane.release_v(at);
        }
        if (seen > 0) {
            uint32_t at = before + skipped;
            const uint32_t q = matrix_address(q_group) + (WIDE ? 0 : place * (Q_BYTES / 16));
            const int tile = seen - 1;
            const bool masked = (tile + 1) * BLOCK_N > lane.seqlen_k || (CAUSAL && tile * BLOCK_N + BLOCK_N - 1 > first_row + lane.offset);
            Scores s;
            auto take_scores = [&] {
                float factor[2] = {};  // of an O that is still zero
                pin(s);
                lane.release_k(at);
                if (WIDE && tile == 0 && (thread & 31) == 0) arrive_at(released);
                if (masked) lane.hide(s, tile, first_row);
                exponentiate<false>(s, reference, sum, factor, lane.scale);
            };
            lane.await_k(at);
            sync_some(lane.my_turn, 256);
            if (pending) {  // the first scores together with the last values of the job before
                float inverse[2];
                start_scores(s, queries, q, lane.k_tile(at));
                lane.await_v(at - 1);
                start_values(o, p, lane.v_tile(at - 1));
                arrive_some(lane.next_turn, 256);
                close_pending(inverse);
                await_products<1>();
                take_scores();
                await_products<0>();
                pin(o);
                lane.release_v(at - 1);
                store_pending(inverse);
                pack_scores(p, s);
            } else {
                start_scores(s, queries, q, lane.k_tile(at));
                arrive_some(lane.next_turn, 256);
                await_products<0>();
                take_scores();
                pack_scores(p, s);
            }
            pending = true;
            pending_row = first_row;
            pending_head = job_head;
            ++at;
            // From the last tile to the first, so that the masked ones come first.
            if (CAUSAL)
                for (; at < end && int(end - 1 - at) * BLOCK_N + BLOCK_N - 1 > first_row + lane.offset; ++at)
                    take_tile<true>(o, p, reference, sum, queries, q, released, at, int(end - 1 - at), first_row, lane);
            for (; at < end; ++at) take_tile<false>(o, p, reference, sum, queries, q, released, at, int(end - 1 - at), first_row, lane);
        }
        if (!Q_REGISTERS && (!WIDE || seen == 0) && (thread & 31) == 0) arrive_at(released);
        before = end;
    }
    if (group == 0) sync_some(1, 256);  // takes the turn that is left over
    if (O_BUFFERS && thread == 0) await_stores_read();
}

#else  // SHORT

// ------------------------------------------------------------------------------------------------------- short form

constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr int WARP_KEYS = BLOCK_N / WARPS;  // keys of a tile that one warp looks at
constexpr int KEY_TILES = WARP_KEYS / 8, DIM_TILES = HEAD_DIM / 8;  // of the instruction, which multiplies 16x16 by 16x8

// Shared memory holds Q, then V_STAGES tiles of K, then as many of V. A row takes whole lines of 128 bytes, of eight chunks
// each; a chunk is 16 bytes, what a thread copies at a time and what a lane of ldmatrix addresses.
constexpr int CHUNKS = HEAD_DIM / 8;
constexpr int ROW_BYTES = SLABS * 128;
constexpr int Q_BYTES = BLOCK_M * ROW_BYTES;
constexpr int TILE_BYTES = BLOCK_N * ROW_BYTES;

static_assert(WARP_KEYS % 16 == 0, "the second product takes a warp's keys 16 at a time");

// Copies 16 bytes to shared memory in the background, or writes 16 zero bytes.
DEVICE void copy_async(uint32_t to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0));
}

DEVICE void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Returns when, in every thread of the block, all groups of copies but the last N have landed.
template <int N>
DEVICE void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
    __syncthreads();
}

DEVICE void load_transposed(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}

// All rows start in the same bank, so chunk c of row r lies at place c XOR r % 8 of its line: the same chunk of eight rows,
// which is what ldmatrix reads at once, lies in eight different places, and so do eight chunks of one row.
DEVICE int chunk_offset(int row, int chunk) { return row * ROW_BYTES + ((chunk ^ (row & 7)) << 4); }

// The address 2 * step chunks further along a row.
DEVICE uint32_t along_row(uint32_t address, int step) { return (address ^ ((step & 3) << 5)) + (step >> 2) * 128; }

// Deals the chunks of ROWS rows out to the block's threads: body(row, chunk).
template <int ROWS, typename Body>
DEVICE void deal_chunks(Body body) {
    constexpr unsigned TOTAL = ROWS * CHUNKS;
#pragma unroll
    for (unsigned first = 0; first < TOTAL; first += THREADS) {
        const unsigned i = first + threadIdx.x;
        if (TOTAL % THREADS == 0 || i < TOTAL) body(i / CHUNKS, i % CHUNKS);
    }
}

// Starts the copy of a tile of K or V. Rows past the last key become zeros: what lay there before could be NaN, which not
// even a probability of zero would silence.
DEVICE void copy_tile(uint32_t to, const Element* from, int first_key, int keys, int row_stride) {
    deal_chunks<BLOCK_N>([&](int row, int chunk) {
        const int key = first_key + row;
        const char* column = reinterpret_cast<const char*>(from + chunk * 8);  // bytes: the address is one instruction
        copy_async(to + chunk_offset(row, chunk), column + int64_t(key) * (row_stride * 2), key < keys);
    });
}

// The block's work: 16 rows, packed from the queries of the heads that share a kv head, and a part of the keys. Row r of
// the group is query r / pack of head first_head + r % pack.
struct Work {
    const AttentionParams& params;
    int batch, first_head, pack, rows, first_row, first_tile, end_tile;

    DEVICE explicit Work(const AttentionParams& params) : params(params) {
        pack = params.heads / params.kv_heads;
        rows = params.seqlen_q * pack;
        batch = blockIdx.x / params.kv_heads;
        first_head = blockIdx.x % params.kv_heads * pack;
        first_row = blockIdx.y * BLOCK_M;
        const int tiles = (max(last_key(min(first_row + BLOCK_M, rows) - 1) + 1, 0) + BLOCK_N - 1) / BLOCK_N;
        const int part = (tiles + gridDim.z - 1) / gridDim.z;
        first_tile = min(part * int(blockIdx.z), tiles);
        end_tile = min(first_tile + part, tiles);
    }
    // The last key that a row sees; negative where it sees none.
    DEVICE int last_key(int row) const {
        const int last = params.seqlen_k - 1;
        return params.causal ? min(last - params.seqlen_q + 1 + row / pack, last) : last;
    }
    // A row's place among the rows of q and o, [batch, seqlen_q, heads].
    DEVICE int64_t global_row(int row) const {
        return (int64_t(batch) * params.seqlen_q + row / pack) * params.heads + first_head + row % pack;
    }
};

// What a warp carries from tile to tile. A lane has numbers of rows lane / 4 and 8 below: elements i * 2 and the next.
struct State {
    float o[DIM_TILES][4];
    float maximum[2];  // of the scores as the product gives them, unscaled
    float sum[2];      // over this lane's columns; the four lanes of a row are added at the end
};

typedef float Scores[KEY_TILES][4];

// S = Q K^T
DEVICE void compute_scores(Scores& s, uint32_t q_address, uint32_t k_address) {
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; ++step) {
        uint32_t a[4];
        load_matrices(a, along_row(q_address, step));
#pragma unroll
        for (int n = 0; n < KEY_TILES; n += 2) {
            uint32_t b[4];
            load_matrices(b, along_row(k_address, step) + n * 8 * ROW_BYTES);
            multiply_warp(s[n], a, b[0], b[1]);
            multiply_warp(s[n + 1], a, b[2], b[3]);
        }
    }
}

// Hides the keys that a row does not see; `first_row` and `first_key` are the warp's.
DEVICE void mask_scores(Scores& s, const Work& work, int first_row, int first_key) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int last = work.last_key(first_row + i * 8 + lane / 4) - first_key - lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < KEY_TILES; ++n) {
            if (n * 8 > last) s[n][i * 2] = -INFINITY;
            if (n * 8 + 1 > last) s[n][i * 2 + 1] = -INFINITY;
        }
    }
}

// Takes the tile into the running maxima, and brings sums and O to the new ones.
DEVICE void update_maximum(State& state, const Scores& s, float scale) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        float next = state.maximum[i];
#pragma unroll
        for (int n = 0; n < KEY_TILES; ++n) next = fmaxf(next, fmaxf(s[n][i * 2], s[n][i * 2 + 1]));
        next = row_maximum(next);
        const float factor = power_of_two((state.maximum[i] - reference_of(next)) * scale);
        state.maximum[i] = next;
        state.sum[i] *= factor;
#pragma unroll
        for (int d = 0; d < DIM_TILES; ++d) {
            state.o[d][i * 2] *= factor;
            state.o[d][i * 2 + 1] *= factor;
        }
    }
}

// O += P V with P = 2^(scale (S - maximum)), made 16 keys at a time just before its product.
DEVICE void add_values(State& state, const Scores& s, float scale, uint32_t v_address) {
#pragma unroll
    for (int step = 0; step < WARP_KEYS / 16; ++step) {
        uint32_t p[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float subtrahend = reference_of(state.maximum[i]) * scale;
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const float* pair = &s[step * 2 + n][i * 2];
                const float low = power_of_two(fmaf(pair[0], scale, -subtrahend));
                const float high = power_of_two(fmaf(pair[1], scale, -subtrahend));
                state.sum[i] += low + high;
                p[n * 2 + i] = pack(low, high);
            }
        }
#pragma unroll
        for (int d = 0; d < DIM_TILES; d += 2) {
            uint32_t b[4];
            load_transposed(b, along_row(v_address, d / 2) + step * 16 * ROW_BYTES);
            multiply_warp(state.o[d], p, b[0], b[1]);
            multiply_warp(state.o[d + 1], p, b[2], b[3]);
        }
    }
}

// What the blocks leave in the workspace, for each part of the keys and each row of o.
struct Parts {
    int64_t rows;
    float* o;        // fp32 [parts, rows, head_dim]
    float* log_sum;  // base 2 [parts, rows]

    DEVICE Parts(const AttentionParams& params, int parts) {
        rows = int64_t(params.batch) * params.seqlen_q * params.heads;
        o = static_cast<float*>(params.workspace[0]);
        log_sum = o + parts * rows * HEAD_DIM;
    }
};

// The warps hold the same rows over different keys. They bring their O to the maximum and the sum of all.
DEVICE void store_part(const State& state, const Work& work, uint8_t* shared, float scale) {
    constexpr int STRIDE = HEAD_DIM + 8;  // floats; the padding spreads the rows over the banks
    static_assert(WARPS * 16 * (STRIDE + 2) * 4 <= Q_BYTES + 2 * V_STAGES * TILE_BYTES, "the warps' O fits");
    float* warp_o = reinterpret_cast<float*>(shared);                             // [WARPS][16][STRIDE]
    float2* warp_row = reinterpret_cast<float2*>(warp_o + WARPS * 16 * STRIDE);   // [WARPS][16]: maximum, sum
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Parts parts(work.params, gridDim.z);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float sum = row_total(state.sum[i]);
        if (lane % 4 == 0) warp_row[warp * 16 + i * 8 + lane / 4] = make_float2(state.maximum[i], sum);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = i * 8 + lane / 4;
        float top = -INFINITY, sum = 0.0f;
        for (int w = 0; w < WARPS; ++w) top = fmaxf(top, warp_row[w * 16 + row].x);
        for (int w = 0; w < WARPS; ++w)
            sum += warp_row[w * 16 + row].y * power_of_two((warp_row[w * 16 + row].x - reference_of(top)) * scale);
        const float factor = sum > 0.0f ? power_of_two((state.maximum[i] - reference_of(top)) * scale) / sum : 0.0f;
#pragma unroll
        for (int d = 0; d < DIM_TILES; ++d)
            *reinterpret_cast<float2*>(warp_o + (warp * 16 + row) * STRIDE + d * 8 + lane % 4 * 2) =
                make_float2(state.o[d][i * 2] * factor, state.o[d][i * 2 + 1] * factor);
        const int64_t place = blockIdx.z * parts.rows + work.global_row(work.first_row + row);
        if (warp == 0 && lane % 4 == 0 && work.first_row + row < work.rows)
            parts.log_sum[place] = sum > 0.0f ? top * scale + log2f(sum) : -INFINITY;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * HEAD_DIM; i += THREADS) {
        const int row = i / HEAD_DIM, column = i % HEAD_DIM;
        float total = 0.0f;
        for (int w = 0; w < WARPS; ++w) total += warp_o[(w * 16 + row) * STRIDE + column];
        const int64_t place = blockIdx.z * parts.rows + work.global_row(work.first_row + row);
        if (work.first_row + row < work.rows) parts.o[place * HEAD_DIM + column] = total;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
attention(const __grid_constant__ AttentionParams params, const __grid_constant__ TensorMap q_map,
          const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
          const __grid_constant__ TensorMap o_map) {
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t q_shared = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t k_shared = q_shared + Q_BYTES, v_shared = k_shared + V_STAGES * TILE_BYTES;
    const int lane = threadIdx.x % 32, warp_key = threadIdx.x / 32 * WARP_KEYS;
    const Work work(params);
    const float scale = params.softmax_scale * LOG2_E;
    // What a lane hands to ldmatrix. Q and V: four matrices down, then across; K, whose rows are the product's columns:
    // across, then down.
    const uint32_t q_address = q_shared + chunk_offset(lane % 16, lane / 16);
    const uint32_t k_address = k_shared + chunk_offset(warp_key + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const uint32_t v_address = v_shared + chunk_offset(warp_key + lane % 16, lane / 16);
    // The pipeline of tiles: tile t lies in stage t % V_STAGES, counted from the block's first.
    const int row_stride = params.kv_heads * HEAD_DIM, kv_head = work.first_head / work.pack;
    const int64_t origin = int64_t(work.batch) * params.seqlen_k * row_stride + kv_head * HEAD_DIM;
    auto stage = [&](int tile) { return (tile - work.first_tile) % V_STAGES * TILE_BYTES; };
    auto copy = [&](int tile) {
        if (tile < work.end_tile) {
            copy_tile(k_shared + stage(tile), params.k + origin, tile * BLOCK_N, params.seqlen_k, row_stride);
            copy_tile(v_shared + stage(tile), params.v + origin, tile * BLOCK_N, params.seqlen_k, row_stride);
        }
        close_copies();
    };
    constexpr int AHEAD = V_STAGES - 2;  // of the groups of copies under way, those that may be so when a tile is used
    deal_chunks<BLOCK_M>([&](int row, int chunk) {
        const Element* from = params.q + work.global_row(work.first_row + row) * HEAD_DIM + chunk * 8;
        copy_async(q_shared + chunk_offset(row, chunk), from, work.first_row + row < work.rows);
    });
    for (int i = 0; i <= AHEAD; ++i) copy(work.first_tile + i);
    State state = {};
    state.maximum[0] = state.maximum[1] = -INFINITY;
    for (int tile = work.first_tile; tile < work.end_tile; ++tile) {
        // A tile has landed, and all warps are done with the one before it, whose place the next copy takes.
        await_copies<AHEAD>();
        copy(tile + V_STAGES - 1);
        const int first_key = tile * BLOCK_N + warp_key;
        Scores s = {};
        compute_scores(s, q_address, k_address + stage(tile));
        if (first_key + WARP_KEYS - 1 > work.last_key(work.first_row)) mask_scores(s, work, work.first_row, first_key);
        update_maximum(state, s, scale);
        add_values(state, s, scale, v_address + stage(tile));
    }
    await_copies<0>();  // nothing may still land in the memory that the warps' O goes through
    store_part(state, work, shared, scale);
}

// Adds up what the blocks left: a block for each row of o, with blockDim.y parts.
extern "C" __global__ void __launch_bounds__(1024)
join_parts(const __grid_constant__ AttentionParams params, const __grid_constant__ TensorMap q_map,
           const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
           const __grid_constant__ TensorMap o_map) {
    const Parts parts(params, blockDim.y);
    const int row = blockIdx.x, lane = threadIdx.x;
    // In every warp, lane i weighs part i by its share of the sum.
    const float log_sum = lane < blockDim.y ? parts.log_sum[lane * parts.rows + row] : -INFINITY;
    float top = log_sum;
    for (int lanes = 16; lanes > 0; lanes /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
    const float weight = power_of_two(log_sum - reference_of(top));
    float sum = weight;
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    for (int first = threadIdx.y * 32; first < HEAD_DIM; first += 32 * blockDim.y) {
        const int column = first + lane;  // HEAD_DIM is a multiple of 32
        float total = 0.0f;
#pragma unroll 16
        for (int i = 0; i < blockDim.y; ++i)
            total += __shfl_sync(~0u, weight, i) * parts.o[(i * parts.rows + row) * HEAD_DIM + column];
        params.o[int64_t(row) * HEAD_DIM + column] = to_element(sum > 0.0f ? total / sum : 0.0f);
    }
    const int head = row % params.heads, batch_query = row / params.heads, query = batch_query % params.seqlen_q;
    const int64_t batch_head = int64_t(batch_query / params.seqlen_q) * params.heads + head;
    if (threadIdx.y == 0 && lane == 0) params.lse[batch_head * params.seqlen_q + query] = natural_log(top, sum);
}

#endif  // SHORT
