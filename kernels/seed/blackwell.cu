/*evo
contract = 1
name = "two tiles of queries on tcgen05"
targets = ["sm_100a"]
supports = "(head_dim == 64 or head_dim == 128) and heads % kv_heads == 0"

[knobs]
BLOCK_N = { value = 128, choices = [64, 128], layer = "schedule" }            # keys of one tile
CAUSAL_LONGEST_FIRST = { value = 1, choices = [0, 1], layer = "schedule" }    # see Block
STAGES = { value = 4, choices = [2, 3, 4], layer = "memory" }                 # tiles of K or V in shared memory
EXP_ON_FMA = { value = 0, choices = [0, 4, 8, 16], layer = "instructions" }   # of 32 exponentials, see power_on_fma
RESCALE_SLACK = { value = 8, choices = [0, 4, 8], layer = "algorithm" }       # powers of two, see softmax

[defines]
HEAD_DIM = "head_dim"

[[tensor_map]]
tensor = "q"
box = ["64", "1", "128", "1"]
swizzle = "128"

[[tensor_map]]
tensor = "k"
box = ["64", "1", "BLOCK_N", "1"]
swizzle = "128"

[[tensor_map]]
tensor = "v"
box = ["64", "1", "BLOCK_N", "1"]
swizzle = "128"

[[tensor_map]]
tensor = "o"
box = ["64", "1", "128", "1"]
swizzle = "128"

[[launch]]
kernel = "attention"
grid = ["cdiv(seqlen_q, 256)", "heads", "batch"]
block = ["512"]
shared_bytes = "1024 + (2 * 128 + STAGES * BLOCK_N) * head_dim * 2"
*/

// Attention on the fifth generation of tensor cores (sm_100a, Blackwell), by the PTX ISA, release 9.2, chapter 9.7.16.
// COMPILED, NEVER RUN on such a GPU: see docs/blackwell.md for what was checked, and how.
//
// A block owns 256 queries of one head as two tiles of 128 rows, and one multiprocessor. While the softmax of one tile
// keeps the exponential units busy, the tensor core multiplies for the other. Sixteen warps have five roles:
//   * warps 0 to 3 and 4 to 7, softmax: a thread owns a row of its tile. It reads the row's scores from tensor memory,
//     and writes the probabilities there;
//   * warps 8 to 11, correction: where a row's reference moved, multiply its output, which lies in tensor memory too;
//     at the end, divide the output by the sums and store it;
//   * warp 12: tensor memory is its to allocate and to free, and its first lane issues every product;
//   * warp 13: its first lane issues every load, K and V in turn through one ring of STAGES tiles.
// They meet at mbarriers only: struct Shared names each, and says who arrives.
//
// softmax_scale is taken to be positive.

#include "attention.cuh"

#define DEVICE __device__ __forceinline__

// ------------------------------------------------------------------------------------------------------------ sizes

constexpr int ROWS = 128;           // of a tile of queries: M of every product, and the lanes of tensor memory
constexpr int SLABS = HEAD_DIM / 64;  // a slab is 64 columns, 128 bytes a row: the widest box of a swizzled tensor map
constexpr int Q_BYTES = ROWS * HEAD_DIM * 2;
constexpr int TILE_BYTES = BLOCK_N * HEAD_DIM * 2;

// Tensor memory has 128 lanes and 512 columns of 32 bits (9.7.16.1). Scores and outputs take a column for each number,
// probabilities one for two of them (9.7.16.10.4). Where there is no room for them, a tile's probabilities take the
// place of its scores.
constexpr int TENSOR_COLUMNS = 512;
constexpr int FREE_COLUMNS = TENSOR_COLUMNS - 2 * BLOCK_N - 2 * HEAD_DIM;
constexpr bool P_OVER_S = FREE_COLUMNS < BLOCK_N;
DEVICE constexpr int s_column(int tile) { return tile * BLOCK_N; }
DEVICE constexpr int o_column(int tile) { return 2 * BLOCK_N + tile * HEAD_DIM; }
DEVICE constexpr int p_column(int tile) {
    return P_OVER_S ? s_column(tile) : 2 * BLOCK_N + 2 * HEAD_DIM + tile * (BLOCK_N / 2);
}

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

static_assert(FREE_COLUMNS >= 0, "scores and outputs of two tiles fit into tensor memory");

// ------------------------------------------------------------------------------------------------------ descriptors

// The instruction descriptor of kind::f16 (9.7.16.4.2). Left at 0: dense (bit 2), no saturation (3), no
// negation (13, 14), A not transposed (15), no shift (30 to 31).
constexpr uint32_t instruction_descriptor(int rows, int columns, bool b_is_n_major) {
#if defined(EVO_BF16)
    constexpr uint32_t type = 1;  // of A and B: bf16
#else
    constexpr uint32_t type = 0;  // f16
#endif
    return 1u << 4                            // bits 4 to 5, the type of D: f32
           | type << 7                        // bits 7 to 9, the type of A
           | type << 10                       // bits 10 to 12, the type of B
           | uint32_t(b_is_n_major) << 16     // bit 16, transpose B: K-major where 0, N-major where 1 (9.7.16.10.6)
           | uint32_t(columns >> 3) << 17     // bits 17 to 22, N / 8
           | uint32_t(rows >> 4) << 24;       // bits 24 to 28, M / 16
}
constexpr uint32_t SCORES_INSTRUCTION = instruction_descriptor(ROWS, BLOCK_N, false);   // K: rows of keys, along K
constexpr uint32_t VALUES_INSTRUCTION = instruction_descriptor(ROWS, HEAD_DIM, true);   // V: rows of keys, along N

// The shared memory descriptor (9.7.16.4.1) but for its start address, with the swizzle of 128 bytes, whose
// pattern repeats every 1024: eight rows of a slab. Every tile begins at a multiple of that: the base offset is 0.
constexpr uint64_t shared_descriptor(int leading_bytes) {
    return uint64_t((leading_bytes & 0x3ffff) >> 4) << 16  // bits 16 to 29, the leading dimension's byte offset
           | uint64_t(1024 >> 4) << 32                     // bits 32 to 45, the stride dimension's: eight rows on
           | uint64_t(1) << 46                             // bits 46 to 48, fixed
           | uint64_t(2) << 61;                            // bits 61 to 63, swizzling of 128 bytes
}
// Q and K are K-major: under a swizzle the leading offset is not used, "assumed to be 1" (9.7.16.3.1).
constexpr uint64_t ALONG_K = shared_descriptor(16);
// V is N-major: the leading offset leads from one 64 columns to the next, the stride from 8 keys to the next 8.
constexpr uint64_t ALONG_N = shared_descriptor(BLOCK_N * 128);

DEVICE uint64_t describe(uint64_t descriptor, uint32_t address) {
    return descriptor | (address & 0x3ffff) >> 4;  // bits 0 to 13, the start address
}

// The 16 columns of one step (K of kind::f16, 9.7.16.2.1) of a K-major tile with `rows` rows: 32 bytes further within a
// row, or in the next slab.
DEVICE uint32_t columns_of_step(int rows, int step) { return step / 4 * rows * 128 + step % 4 * 32; }

// --------------------------------------------------------------------------------- instructions: barriers and copies

DEVICE uint32_t shared_address(const void* pointer) { return uint32_t(__cvta_generic_to_shared(pointer)); }

DEVICE void initialise(uint64_t& barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals));
}

DEVICE void arrive(uint64_t& barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

DEVICE void arrive_and_expect(uint64_t& barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
}

// Returns when the phase has completed; phases are counted from 0. No phase of a barrier may be left out.
DEVICE void await(uint64_t& barrier, int phase) {
    asm volatile(
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }" ::"r"(
            shared_address(&barrier)),
        "r"(phase & 1)
        : "memory");
}

// Copies a box that begins at (column, head, row, batch) to shared memory; its bytes count at the barrier.
DEVICE void load_box(uint32_t to, const TensorMap& map, int column, int head, int row, int batch, uint64_t& barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to), "l"(&map), "r"(column), "r"(head), "r"(row), "r"(batch),
        "r"(shared_address(&barrier))
        : "memory");
}

DEVICE void store_box(const TensorMap& map, int column, int head, int row, int batch, uint32_t from) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
                 "r"(column), "r"(head), "r"(row), "r"(batch), "r"(from)
                 : "memory");
}

DEVICE void close_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Returns when the closed stores of this thread have read shared memory.
DEVICE void await_closed_stores() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

DEVICE void write_shared(uint32_t to, const uint32_t (&words)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                 "r"(words[3]) : "memory");
}

// What this thread has written to shared memory is there for copies that begin after a meeting with it.
DEVICE void show_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

DEVICE void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// For one warpgroup alone, here the one that corrects.
DEVICE void meet_warpgroup() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

template <int REGISTERS>
DEVICE void keep_registers() {  // of a warpgroup, of the 128 that each thread is launched with
    if (REGISTERS > 128) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// ---------------------------------------------------------------------------------------- instructions: tensor memory

// By one whole warp, which frees it as well (9.7.16.7). The address goes to shared memory.
DEVICE void allocate_tensor_memory(uint32_t* to) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(to)),
                 "n"(TENSOR_COLUMNS)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
}

DEVICE void free_tensor_memory(uint32_t address) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(TENSOR_COLUMNS));
}

// On either side of whatever tells another thread that tensor memory was written or read (9.7.16.6.4): an arrival comes
// after the first, and the wait for it before the second.
DEVICE void fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
DEVICE void fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// d (+)= a b, with 16 columns of a. M = 128 of one block is layout D (9.7.16.10.5.4): row i of a and d is lane i.
DEVICE void multiply(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction, bool add) {
    asm volatile(
        "{ .reg .pred add; setp.ne.b32 add, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, add; }" ::"r"(d), "l"(a), "l"(b), "r"(instruction),
        "r"(uint32_t(add))
        : "memory");
}

DEVICE void multiply_from_tensor_memory(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction, bool add) {
    asm volatile(
        "{ .reg .pred add; setp.ne.b32 add, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, add; }" ::"r"(d), "r"(a), "l"(b), "r"(instruction),
        "r"(uint32_t(add))
        : "memory");
}

// Arrives once when all products that this thread has issued are complete (9.7.16.12.1); a fence_before is in it.
DEVICE void arrive_when_multiplied(uint64_t& barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                     shared_address(&barrier))
                 : "memory");
}

// 32 columns between a lane of tensor memory and a thread: shape 32x32b, 32 times (9.7.16.2.3.1.1). The address is the
// warp's: its lanes begin at 32 times its place in its warpgroup (9.7.16.8.1), in bits 16 to 31 (9.7.16.1.1).
DEVICE void load_columns(float* to, uint32_t from) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]), "=f"(to[4]), "=f"(to[5]), "=f"(to[6]), "=f"(to[7]),
          "=f"(to[8]), "=f"(to[9]), "=f"(to[10]), "=f"(to[11]), "=f"(to[12]), "=f"(to[13]), "=f"(to[14]), "=f"(to[15]),
          "=f"(to[16]), "=f"(to[17]), "=f"(to[18]), "=f"(to[19]), "=f"(to[20]), "=f"(to[21]), "=f"(to[22]),
          "=f"(to[23]), "=f"(to[24]), "=f"(to[25]), "=f"(to[26]), "=f"(to[27]), "=f"(to[28]), "=f"(to[29]),
          "=f"(to[30]), "=f"(to[31])
        : "r"(from) : "memory");
}

DEVICE void store_columns(uint32_t to, const uint32_t (&from)[32]) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
        "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32};" ::"r"(to),
        "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "r"(from[4]), "r"(from[5]), "r"(from[6]),
        "r"(from[7]), "r"(from[8]), "r"(from[9]), "r"(from[10]), "r"(from[11]), "r"(from[12]), "r"(from[13]),
        "r"(from[14]), "r"(from[15]), "r"(from[16]), "r"(from[17]), "r"(from[18]), "r"(from[19]), "r"(from[20]),
        "r"(from[21]), "r"(from[22]), "r"(from[23]), "r"(from[24]), "r"(from[25]), "r"(from[26]), "r"(from[27]),
        "r"(from[28]), "r"(from[29]), "r"(from[30]), "r"(from[31]) : "memory");
}

// Loads and stores run in the background until then (9.7.16.8.5). Nor may the compiler move what reads the values to
// before this point.
template <int N>
DEVICE void await_loads(float (&values)[N]) {
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

DEVICE void await_stores() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// ------------------------------------------------------------------------------------------- instructions: arithmetic

#if defined(EVO_BF16)
#define TO_PAIR __floats2bfloat162_rn
#else
#define TO_PAIR __floats2half2_rn
#endif

DEVICE uint32_t pack(float low, float high) {
    auto pair = TO_PAIR(low, high);
    return *reinterpret_cast<uint32_t*>(&pair);
}

DEVICE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ------------------------------------------------------------------------------------------------------- exponentials

// 2^x without the exponential unit, which does 16 of them a cycle where the FMA units do 128 operations: x is a whole
// number, which goes to the exponent, and a rest of at most a half, for which the cubic with the least largest relative
// error, 7.5e-5, stands in: a fiftieth of bf16's spacing, a sixth of fp16's. x is finite and below 126.
DEVICE float power_on_fma(float x) {
    constexpr float ROUND = 12582912.0f;  // 1.5 * 2^23: the sum has the whole number in its low bits, and no fraction
    x = fmaxf(x, -125.0f);
    const float shifted = x + ROUND, rest = x - (shifted - ROUND);
    const float power = fmaf(fmaf(fmaf(0.05517167f, rest, 0.24261113f), rest, 0.69326097f), rest, 0.99992806f);
    return __int_as_float(__float_as_int(power) + (__float_as_int(shifted) << 23));
}

// --------------------------------------------------------------------------------------------------- the block's work

// What the roles share. A barrier's comment: how many arrive in a phase, and when.
struct Shared {
    uint64_t queries_full[2];        // the load, of each tile of queries
    uint64_t ring_full[STAGES];      // the load, of a tile of K or V
    uint64_t ring_empty[STAGES];     // the products that read it
    uint64_t scores_full[2];         // the product
    uint64_t probabilities_full[2];  // 128 threads: scores read, probabilities written
    uint64_t decay_full[2];          // 128 threads, from the second tile of keys on: `decay` written
    uint64_t output_corrected[2];    // 128 threads, from the second tile of keys on
    uint64_t output_full[2];         // the product
    uint64_t sum_full[2];            // 128 threads, once: `sum` written
    float decay[2][ROWS];            // what the rows' outputs are to be multiplied by
    float sum[2][ROWS];
    uint32_t tensor_memory;
};

// The place of a block's work. Under a causal mask the last rows see most keys: CAUSAL_LONGEST_FIRST begins with them,
// which leaves the short blocks to fill the gaps at the end.
struct Block {
    const AttentionParams& params;
    int head, kv_head, batch, first_row;

    __device__ explicit Block(const AttentionParams& params) : params(params) {
        const int row_tile = CAUSAL_LONGEST_FIRST && params.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
        first_row = row_tile * 2 * ROWS;
        head = blockIdx.y;
        kv_head = head / (params.heads / params.kv_heads);
        batch = blockIdx.z;
    }

    // The last key that a row sees; negative where it sees none.
    __device__ int last_key(int row) const {
        const int last = params.seqlen_k - 1;
        return params.causal ? min(last - params.seqlen_q + 1 + row, last) : last;
    }

    __device__ int first_row_of(int tile) const { return first_row + tile * ROWS; }

    // Tiles of keys that some row of a tile of queries sees; 0 for a tile without rows.
    __device__ int key_tiles(int tile) const {
        if (first_row_of(tile) >= params.seqlen_q) return 0;
        const int keys = last_key(min(first_row_of(tile) + ROWS, params.seqlen_q) - 1) + 1;
        return (max(keys, 0) + BLOCK_N - 1) / BLOCK_N;
    }

    // Under either mask the second tile sees as many as the first, unless it is without rows.
    __device__ int most_key_tiles() const { return max(key_tiles(0), key_tiles(1)); }
};

// Where everything lies: addresses in shared and in tensor memory.
struct Places {
    uint32_t queries, ring, tensor;

    __device__ uint32_t queries_of(int tile) const { return queries + tile * Q_BYTES; }
    __device__ uint32_t stage(int load) const { return ring + load % STAGES * TILE_BYTES; }
};

// -------------------------------------------------------------------------------------------------------------- loads

// The ring takes K of tile 0 of the keys, V of tile 0, K of tile 1, …: load 2 j is K of tile j, load 2 j + 1 is V.
DEVICE void load_tile(const Block& block, Shared& shared, const Places& at, const TensorMap& map, int load) {
    const int stage = load % STAGES, round = load / STAGES;
    if (round > 0) await(shared.ring_empty[stage], round - 1);
    arrive_and_expect(shared.ring_full[stage], TILE_BYTES);
    for (int slab = 0; slab < SLABS; ++slab) {
        load_box(at.stage(load) + slab * BLOCK_N * 128, map, slab * 64, block.kv_head, load / 2 * BLOCK_N, block.batch,
                 shared.ring_full[stage]);
    }
}

DEVICE void load_everything(const Block& block, Shared& shared, const Places& at, const TensorMap& q_map,
                            const TensorMap& k_map, const TensorMap& v_map) {
    for (int tile = 0; tile < 2; ++tile) {
        if (block.key_tiles(tile) == 0) continue;
        arrive_and_expect(shared.queries_full[tile], Q_BYTES);
        for (int slab = 0; slab < SLABS; ++slab) {
            load_box(at.queries_of(tile) + slab * ROWS * 128, q_map, slab * 64, block.head, block.first_row_of(tile),
                     block.batch, shared.queries_full[tile]);
        }
    }
    for (int load = 0; load < 2 * block.most_key_tiles(); ++load)
        load_tile(block, shared, at, load % 2 ? v_map : k_map, load);
}

// ----------------------------------------------------------------------------------------------------------- products

DEVICE void multiply_scores(Shared& shared, const Places& at, int tile, int key_tile) {
    const int load = 2 * key_tile;
    await(shared.ring_full[load % STAGES], load / STAGES);
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; ++step) {
        multiply(at.tensor + s_column(tile), describe(ALONG_K, at.queries_of(tile) + columns_of_step(ROWS, step)),
                 describe(ALONG_K, at.stage(load) + columns_of_step(BLOCK_N, step)), SCORES_INSTRUCTION, step > 0);
    }
    arrive_when_multiplied(shared.scores_full[tile]);
}

DEVICE void multiply_values(Shared& shared, const Places& at, int tile, int key_tile) {
    const int load = 2 * key_tile + 1;
    await(shared.ring_full[load % STAGES], load / STAGES);
#pragma unroll
    for (int step = 0; step < BLOCK_N / 16; ++step) {  // 16 keys: 8 columns of probabilities, 16 rows of V
        multiply_from_tensor_memory(at.tensor + o_column(tile), at.tensor + p_column(tile) + step * 8,
                                    describe(ALONG_N, at.stage(load) + step * 16 * 128), VALUES_INSTRUCTION,
                                    key_tile > 0 || step > 0);
    }
    arrive_when_multiplied(shared.output_full[tile]);
}

// What the tensor core does, in order. A product of two tiles that differ may overtake another (9.7.16.6.2), so each
// waits, through its barriers, for all that it must not overtake.
DEVICE void multiply_everything(const Block& block, Shared& shared, const Places& at) {
    const int key_tiles[2] = {block.key_tiles(0), block.key_tiles(1)}, most = block.most_key_tiles();
    auto release = [&](int load) {  // only what will be awaited: no arrival may come after the block's end
        if (load + STAGES < 2 * most) arrive_when_multiplied(shared.ring_empty[load % STAGES]);
    };
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
        if (key_tiles[tile] == 0) continue;
        await(shared.queries_full[tile], 0);
        multiply_scores(shared, at, tile, 0);
    }
    release(0);
    for (int j = 0; j < most; ++j) {
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
            if (j >= key_tiles[tile]) continue;
            await(shared.probabilities_full[tile], j);
            if (j > 0) await(shared.output_corrected[tile], j - 1);
            fence_after();
            multiply_values(shared, at, tile, j);
            if (j + 1 >= key_tiles[tile]) continue;
            if (P_OVER_S) {  // the next scores take the place of what the product above reads
                await(shared.output_full[tile], j);
                fence_after();
            }
            multiply_scores(shared, at, tile, j + 1);
        }
        release(2 * j + 1);
        release(2 * j + 2);
    }
}

// ------------------------------------------------------------------------------------------------------------ softmax

// A warp's lanes of tensor memory.
DEVICE uint32_t own_lanes(const Places& at) { return at.tensor + ((threadIdx.x / 32 % 4 * 32) << 16); }

// Turns scores into probabilities, 2^(score * scale - reference), writes these, and returns their sum.
template <int ON_FMA>
DEVICE float write_probabilities(const float (&s)[BLOCK_N], float scale, float reference, uint32_t to) {
    float sums[4] = {};
#pragma unroll
    for (int first = 0; first < BLOCK_N; first += 64) {
        uint32_t pairs[32];
#pragma unroll
        for (int i = 0; i < 64; i += 2) {
            float p[2];
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const float x = fmaf(s[first + i + k], scale, -reference);
                const bool on_fma = (i + k) % 32 * ON_FMA / 32 != ((i + k) % 32 + 1) * ON_FMA / 32;  // spread evenly
                p[k] = on_fma ? power_on_fma(x) : power_of_two(x);
                sums[i / 2 % 2 * 2 + k] += p[k];
            }
            pairs[i / 2] = pack(p[0], p[1]);
        }
        store_columns(to + first / 2, pairs);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

DEVICE float largest_of(const float (&s)[BLOCK_N]) {
    float largest[4] = {s[0], s[1], s[2], s[3]};
#pragma unroll
    for (int i = 4; i < BLOCK_N; ++i) largest[i % 4] = fmaxf(largest[i % 4], s[i]);
    return fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
}

// A thread's row. Exponents are taken relative to a reference, the largest score so far or a little less: it moves, and
// with it the sum and the output, only where the largest score exceeds it by RESCALE_SLACK powers of two.
DEVICE void softmax(const Block& block, Shared& shared, const Places& at, int tile) {
    const int lane_row = threadIdx.x % ROWS, row = block.first_row_of(tile) + lane_row;
    const int last = block.last_key(row), last_of_warp = block.last_key(row - threadIdx.x % 32);
    const float scale = block.params.softmax_scale * LOG2_E;
    const uint32_t scores = own_lanes(at) + s_column(tile), probabilities = own_lanes(at) + p_column(tile);
    const int key_tiles = block.key_tiles(tile);
    float reference = -INFINITY, sum = 0.0f;
    for (int j = 0; j < key_tiles; ++j) {
        float s[BLOCK_N];
        await(shared.scores_full[tile], j);
        fence_after();
#pragma unroll
        for (int i = 0; i < BLOCK_N; i += 32) load_columns(s + i, scores + i);
        await_loads(s);
        const bool masked = (j + 1) * BLOCK_N - 1 > last_of_warp;  // of the warp's rows, its first sees the fewest keys
        if (masked) {
#pragma unroll
            for (int i = 0; i < BLOCK_N; ++i) s[i] = j * BLOCK_N + i > last ? -INFINITY : s[i];
        }
        const float largest = largest_of(s) * scale;
        float decay = 1.0f;
        if (largest - reference > RESCALE_SLACK) {  // not so where both are -inf: their difference is no number
            decay = power_of_two(reference - largest);
            reference = largest;
        }
        if (j > 0) {
            shared.decay[tile][lane_row] = decay;
            arrive(shared.decay_full[tile]);
        }
        const float from = reference == -INFINITY ? 0.0f : reference;  // a row that has seen no key: no -inf - -inf
        const float tile_sum = EXP_ON_FMA > 0 && !masked  // what is masked is infinite
                                   ? write_probabilities<EXP_ON_FMA>(s, scale, from, probabilities)
                                   : write_probabilities<0>(s, scale, from, probabilities);
        await_stores();
        fence_before();
        arrive(shared.probabilities_full[tile]);
        sum = sum * decay + tile_sum;
    }
    shared.sum[tile][lane_row] = sum;
    arrive(shared.sum_full[tile]);
    if (row < block.params.seqlen_q) {
        const int64_t head = int64_t(block.batch) * block.params.heads + block.head;
        block.params.lse[head * block.params.seqlen_q + row] = sum > 0.0f ? (reference + log2f(sum)) * LN_2 : -INFINITY;
    }
}

// --------------------------------------------------------------------------------------------------------- correction

// Multiplies the output so far of the warp's rows, where any of them needs it.
DEVICE void correct(const Places& at, int tile, float decay) {
    if (!__any_sync(~0u, decay != 1.0f)) return;
    fence_after();
#pragma unroll 1
    for (int column = 0; column < HEAD_DIM; column += 32) {
        float o[32];
        uint32_t bits[32];
        load_columns(o, own_lanes(at) + o_column(tile) + column);
        await_loads(o);
#pragma unroll
        for (int i = 0; i < 32; ++i) bits[i] = __float_as_uint(o[i] * decay);
        store_columns(own_lanes(at) + o_column(tile) + column, bits);
    }
    await_stores();
    fence_before();
}

// Divides the rows by their sums and stores them, through the place of their queries. The swizzle of 128 bytes: chunk c
// of 16 bytes of row r lies at place c XOR r % 8. A row without a visible key yields zeros, whatever lies in its lane.
DEVICE void store_output(const Block& block, Shared& shared, const Places& at, int tile, const TensorMap& o_map) {
    const int lane_row = threadIdx.x % ROWS, key_tiles = block.key_tiles(tile);
    await(shared.sum_full[tile], 0);
    const float sum = shared.sum[tile][lane_row];
    const float share = 1.0f / sum;
    if (key_tiles > 0) await(shared.output_full[tile], key_tiles - 1);
    fence_after();
#pragma unroll 1
    for (int column = 0; column < HEAD_DIM; column += 32) {
        float o[32];
        load_columns(o, own_lanes(at) + o_column(tile) + column);
        await_loads(o);
        const uint32_t line = at.queries_of(tile) + column / 64 * ROWS * 128 + lane_row * 128;
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            uint32_t pairs[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float low = o[i + 2 * k] * share, high = o[i + 2 * k + 1] * share;
                pairs[k] = sum > 0.0f ? pack(low, high) : 0;
            }
            write_shared(line + (((column % 64 + i) / 8 ^ lane_row % 8) << 4), pairs);
        }
    }
    show_to_copies();
    meet_warpgroup();
    if (lane_row == 0 && block.first_row_of(tile) < block.params.seqlen_q) {
        for (int slab = 0; slab < SLABS; ++slab) {
            store_box(o_map, slab * 64, block.head, block.first_row_of(tile), block.batch,
                      at.queries_of(tile) + slab * ROWS * 128);
        }
        close_stores();
    }
}

DEVICE void correct_everything(const Block& block, Shared& shared, const Places& at, const TensorMap& o_map) {
    const int most = block.most_key_tiles();
    for (int j = 1; j < most; ++j) {
        for (int tile = 0; tile < 2; ++tile) {
            if (j >= block.key_tiles(tile)) continue;
            await(shared.decay_full[tile], j - 1);
            const float decay = shared.decay[tile][threadIdx.x % ROWS];
            await(shared.output_full[tile], j - 1);
            correct(at, tile, decay);
            arrive(shared.output_corrected[tile]);
        }
    }
    for (int tile = 0; tile < 2; ++tile) store_output(block, shared, at, tile, o_map);
    await_closed_stores();
}

// ------------------------------------------------------------------------------------------------------------- kernel

DEVICE void initialise_barriers(Shared& shared) {
    for (int stage = 0; stage < STAGES; ++stage) {
        initialise(shared.ring_full[stage], 1);
        initialise(shared.ring_empty[stage], 1);
    }
    for (int tile = 0; tile < 2; ++tile) {
        initialise(shared.queries_full[tile], 1);
        initialise(shared.scores_full[tile], 1);
        initialise(shared.probabilities_full[tile], ROWS);
        initialise(shared.decay_full[tile], ROWS);
        initialise(shared.output_corrected[tile], ROWS);
        initialise(shared.output_full[tile], 1);
        initialise(shared.sum_full[tile], ROWS);
    }
    show_barriers();
}

extern "C" __global__ void __launch_bounds__(512, 1)
attention(const __grid_constant__ AttentionParams params, const __grid_constant__ TensorMap q_map,
          const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
          const __grid_constant__ TensorMap o_map) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ Shared shared;
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // the same in all lanes, visibly
    const Block block(params);
    if (threadIdx.x == 0) initialise_barriers(shared);
    if (warp == 12) allocate_tensor_memory(&shared.tensor_memory);
    fence_before();
    __syncthreads();
    fence_after();
    const uint32_t queries = (shared_address(dynamic) + 1023) / 1024 * 1024;
    const Places at = {queries, queries + 2 * Q_BYTES, shared.tensor_memory};

    // 128 registers for each of 512 threads, dealt out anew: 2 * 192 + 80 + 48 = 4 * 128.
    if (warp < 8) {
        keep_registers<192>();
        softmax(block, shared, at, warp / 4);
    } else if (warp < 12) {
        keep_registers<80>();
        correct_everything(block, shared, at, o_map);
    } else {
        keep_registers<48>();
        if (warp == 12 && lane == 0) multiply_everything(block, shared, at);
        if (warp == 13 && lane == 0) load_everything(block, shared, at, q_map, k_map, v_map);
    }
    __syncwarp();
    fence_before();
    __syncthreads();
    fence_after();
    if (warp == 12) free_tensor_memory(at.tensor);
}
