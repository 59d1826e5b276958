/*evo
contract = 1
name = "FlashAttention-2 on mma.sync"
targets = ["sm_80"]
supports = "head_dim % 16 == 0 and head_dim <= 256 and heads % kv_heads == 0"

# Knobs that end in a head dimension hold for head dimensions up to it and beyond the one before; _SHORT: a few queries.
[knobs]
WARPS_64 = { value = 4, choices = [4, 8], layer = "launch" }
WARPS_128 = { value = 4, choices = [4, 8], layer = "launch" }
WARPS_256 = { value = 8, choices = [4, 8], layer = "launch" }
MIN_BLOCKS_64 = { value = 1, choices = [1, 2, 3, 4], layer = "launch" }
MIN_BLOCKS_128 = { value = 1, choices = [1, 2, 3], layer = "launch" }
MIN_BLOCKS_256 = { value = 1, choices = [1, 2], layer = "launch" }
ROWS_64 = { value = 32, choices = [16, 32], layer = "schedule" }
ROWS_128 = { value = 32, choices = [16, 32], layer = "schedule" }
BLOCK_N_64 = { value = 64, choices = [32, 64, 96, 128], layer = "schedule" }
BLOCK_N_128 = { value = 64, choices = [32, 48, 64, 96, 128], layer = "schedule" }
BLOCK_N_256 = { value = 64, choices = [32, 48, 64, 96], layer = "schedule" }
BLOCK_N_SHORT = { value = 64, choices = [64, 128], layer = "schedule" }
CAUSAL_ORDER = { value = 1, choices = [0, 1, 2], layer = "schedule" }
STAGES_64 = { value = 1, choices = [1, 2, 3], layer = "memory" }
STAGES_128 = { value = 1, choices = [1, 2, 3], layer = "memory" }
STAGES_256 = { value = 1, choices = [1, 2], layer = "memory" }
STAGES_SHORT = { value = 2, choices = [2, 3], layer = "memory" }
Q_REGISTERS_TO = { value = 0, choices = [0, 64, 128, 256], layer = "instructions" }
POLYNOMIAL_EXP2 = { value = 0, choices = [0, 1, 2], layer = "instructions" }
RESCALE_SLACK = { value = 0, choices = [0, 4, 8], layer = "algorithm" }
SKIP_UNSEEN = { value = 0, choices = [0, 1], layer = "algorithm" }
SPLIT_BLOCKS = { value = 4, choices = [1, 2, 4, 8, 16], layer = "launch" }

[defines]
HEAD_DIM = "head_dim"
SHORT_Q = "seqlen_q <= 16"
WARPS = "4 if SHORT_Q else WARPS_64 if head_dim <= 64 else WARPS_128 if head_dim <= 128 else WARPS_256"
ROWS_PER_WARP = "16 if SHORT_Q or head_dim > 128 else ROWS_64 if head_dim <= 64 else ROWS_128"
BLOCK_M = "16 if SHORT_Q else WARPS * ROWS_PER_WARP"
BLOCK_N = "(BLOCK_N_SHORT if head_dim <= 128 else 64) if SHORT_Q else BLOCK_N_64 if head_dim <= 64 else BLOCK_N_128 if head_dim <= 128 else BLOCK_N_256"
STAGES = "STAGES_SHORT if SHORT_Q else STAGES_64 if head_dim <= 64 else STAGES_128 if head_dim <= 128 else STAGES_256"
MIN_BLOCKS = "1 if SHORT_Q else MIN_BLOCKS_64 if head_dim <= 64 else MIN_BLOCKS_128 if head_dim <= 128 else MIN_BLOCKS_256"
Q_IN_REGISTERS = "head_dim <= Q_REGISTERS_TO"

[[launch]]
kernel = "attention"
when = "not SHORT_Q"
grid = ["cdiv(seqlen_q, BLOCK_M) * heads * batch"]
block = ["32 * WARPS"]
shared_bytes = "(BLOCK_M + 2 * STAGES * BLOCK_N) * cdiv(head_dim, 64) * 128"

# The same kernel over parts of the keys, and the kernel that joins the parts; "min(...)" is the number of parts.
[[workspace]]
when = "SHORT_Q"
bytes = "batch * heads * seqlen_q * head_dim * 4 * min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16)))"

[[workspace]]
when = "SHORT_Q"
bytes = "batch * heads * seqlen_q * 4 * min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16)))"

[[launch]]
kernel = "attention"
when = "SHORT_Q"
grid = ["batch * kv_heads", "cdiv(heads // kv_heads * seqlen_q, 16)", "min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16)))"]
block = ["32 * WARPS"]
shared_bytes = "(BLOCK_M + 2 * STAGES * BLOCK_N) * cdiv(head_dim, 64) * 128"

[[launch]]
kernel = "join_parts"
when = "SHORT_Q"
grid = ["batch * heads * seqlen_q"]
block = ["32", "min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16)))"]
*/

// FlashAttention-2's forward pass (Dao, arXiv 2307.08691) on the tensor cores of Ampere and later.
//
// A block owns BLOCK_M queries of one head and walks over the keys in tiles of BLOCK_N: scores S = Q K^T, an online
// softmax that keeps a running maximum and sum for each row, and O += P V. A warp owns ROWS_PER_WARP of the rows and
// keeps S, P and O in registers, so warps meet only to hand over tiles of K and V in shared memory.
//
// Short form (SHORT_Q; decoding): there are few queries and many keys, so
//   * the query heads that share a kv head are packed into the rows of one tile, and K and V are read once for all;
//   * the keys are split over gridDim.z blocks, and within a block over its warps, which all own the same 16 rows;
//   * each block leaves its part of o and of the log of the sum in the workspace, and join_parts adds the parts up.
//
// softmax_scale is positive, as everywhere in this field.

#include "attention.cuh"

// ------------------------------------------------------------------------------------------------------------ sizes

constexpr int THREADS = 32 * WARPS;
constexpr int WARP_KEYS = SHORT_Q ? BLOCK_N / WARPS : BLOCK_N;  // keys of a tile that one warp looks at
constexpr int ROW_TILES = ROWS_PER_WARP / 16;                   // tiles as mma.m16n8k16 has them
constexpr int KEY_TILES = WARP_KEYS / 8;
constexpr int DIM_TILES = HEAD_DIM / 8;
constexpr int DIM_STEPS = HEAD_DIM / 16;  // steps of the first product
constexpr int KEY_STEPS = WARP_KEYS / 16;  // steps of the second

// Shared memory holds Q, then STAGES tiles of K, then STAGES tiles of V. A row is a whole number of 128-byte lines;
// a chunk is 16 bytes, what one thread copies at a time and what one lane of ldmatrix addresses.
constexpr int CHUNKS = HEAD_DIM / 8;
constexpr int ROW_BYTES = (HEAD_DIM + 63) / 64 * 128;
constexpr int Q_BYTES = BLOCK_M * ROW_BYTES;
constexpr int TILE_BYTES = BLOCK_N * ROW_BYTES;

// Copies that may still be under way when a tile is used: those of the tiles after it.
constexpr int COPIES_IN_FLIGHT = STAGES > 1 ? STAGES - 2 : 0;

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

static_assert(WARP_KEYS % 16 == 0, "a warp takes its keys in steps of 16");

// ----------------------------------------------------------------------------------------------------- instructions

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes to shared memory in the background, or writes 16 zero bytes.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0));
}

__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Returns when all groups of copies but the last N have landed, those of every thread of the block.
template <int N>
__device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
    __syncthreads();
}

// Loads four 8x8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}

#if defined(EVO_BF16)
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif

// c += a b. Lane i holds c[0..1] in row i / 4 and c[2..3] in row i / 4 + 8, columns 2 (i % 4) and the next.
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
#if defined(EVO_BF16)
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
#else
    __half2 pair = __floats2half2_rn(low, high);
#endif
    return *reinterpret_cast<uint32_t*>(&pair);
}

__device__ __forceinline__ float exp2_unit(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 2^x for x <= 0 on the FMA units, which relieves the special-function unit. x = n + f with |f| <= 1/2: a cubic gives
// 2^f (fitted with p(0) = 1; relative error below 1.1e-4, less than P's rounding), n is added to the exponent's bits.
__device__ __forceinline__ float exp2_polynomial(float x) {
    const float ROUNDER = 12582912.0f;  // 1.5 * 2^23: adding it leaves n in the low bits
    x = fmaxf(x, -127.0f);              // here the exponent's bits are all zero, and so 2^-inf = 0
    float shifted = x + ROUNDER;
    float f = x - (shifted - ROUNDER);
    float p = fmaf(fmaf(fmaf(0.0550089301f, f, 0.2422109590f), f, 0.693282927f), f, 1.0f);
    return __int_as_float(__float_as_int(p) + (__float_as_int(shifted) << 23));
}

// The largest or the sum over the four lanes that hold one row.
__device__ __forceinline__ float row_maximum(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float row_total(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// The reference that exponents are taken from; a row that has seen no key yet must not compute -inf - -inf.
__device__ __forceinline__ float finite(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// ---------------------------------------------------------------------------------------------------- shared memory

// Rows start at the same bank, so chunk c of row r lies at place c XOR r % 8 of its line: eight rows of one column of
// chunks, what ldmatrix reads at once, then fall into different banks, and so do eight chunks of one row.
__device__ __forceinline__ uint32_t chunk_offset(int row, int chunk) { return row * ROW_BYTES + ((chunk ^ (row & 7)) << 4); }

// The address 2 * step chunks further along the row: the XOR works within a line of eight chunks.
__device__ __forceinline__ uint32_t along_row(uint32_t address, int step) {
    return (address ^ ((step & 3) << 5)) + (step >> 2) * 128;
}

// Deals the chunks of a tile of ROWS rows out to WORKERS threads: body(row, chunk). Where a round is a whole number of
// rows a thread stays in its column, and all that depends on the column is worked out once.
template <int ROWS, int WORKERS, typename Body>
__device__ __forceinline__ void deal_chunks(int worker, Body body) {
    constexpr int ROUNDS = (ROWS * CHUNKS + WORKERS - 1) / WORKERS;
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
        const unsigned i = round * WORKERS + worker;
        if (WORKERS % CHUNKS == 0) body(round * (WORKERS / CHUNKS) + worker / unsigned(CHUNKS), worker % unsigned(CHUNKS));
        else if (i < ROWS * CHUNKS) body(i / CHUNKS, i % CHUNKS);
    }
}

// Starts the copy of one tile of K or V. Rows past the last key become zeros: a probability of zero times whatever
// lay there could be NaN.
__device__ __forceinline__ void copy_tile(uint32_t to, const Element* from, int first_key, int seqlen_k, int stride) {
    deal_chunks<BLOCK_N, THREADS>(threadIdx.x, [&](int row, int chunk) {
        const char* column = reinterpret_cast<const char*>(from + chunk * 8);  // a 64-bit sum of bytes is one instruction
        const int key = first_key + row;
        copy_async(to + chunk_offset(row, chunk), column + int64_t(key) * (stride * 2), key < seqlen_k);
    });
}

// ------------------------------------------------------------------------------------------------- the block's work

// Which rows, head and keys a block works on. A row is a query of one head, or, packed, of one of `pack` heads.
struct Work {
    int batch, kv_head, first_head, pack, first_row, first_tile, end_tile;
    int rows;          // of this head or pack, in all
    int visible_keys;  // the keys that row 0's query sees, before clamping
    const AttentionParams& params;

    __device__ explicit Work(const AttentionParams& params) : params(params) {
        pack = SHORT_Q ? params.heads / params.kv_heads : 1;
        rows = params.seqlen_q * pack;
        visible_keys = params.causal ? params.seqlen_k - params.seqlen_q + 1 : params.seqlen_k;
        int head, row_tile;
        if (SHORT_Q) {
            batch = blockIdx.x / params.kv_heads;
            head = blockIdx.x % params.kv_heads * pack;
            row_tile = blockIdx.y;
        } else {
            int row_tiles = (params.seqlen_q + BLOCK_M - 1) / BLOCK_M, heads = params.heads * params.batch, batch_head;
            // The last rows of a causal mask see most keys. Started first, they leave short work for the end.
            if (!params.causal || CAUSAL_ORDER < 2) {  // a head's tiles are neighbours, and share K and V in the L2
                batch_head = blockIdx.x / row_tiles;
                row_tile = blockIdx.x % row_tiles;
            } else {  // the longest tiles of all heads come before the second longest of any
                batch_head = blockIdx.x % heads;
                row_tile = blockIdx.x / heads;
            }
            if (params.causal && CAUSAL_ORDER > 0) row_tile = row_tiles - 1 - row_tile;
            batch = batch_head / params.heads;
            head = batch_head % params.heads;
        }
        first_head = head;
        kv_head = head / (params.heads / params.kv_heads);
        first_row = row_tile * BLOCK_M;
        first_tile = 0;
        end_tile = (max(last_key(min(first_row + BLOCK_M, rows) - 1) + 1, 0) + BLOCK_N - 1) / BLOCK_N;
        if (SHORT_Q) {
            int part = (end_tile + gridDim.z - 1) / gridDim.z;
            first_tile = min(part * (int)blockIdx.z, end_tile);
            end_tile = min(first_tile + part, end_tile);
        }
    }

    // The last key that a row sees; negative where it sees none.
    __device__ int last_key(int row) const {
        return min(params.causal ? visible_keys + row / pack : visible_keys, params.seqlen_k) - 1;
    }

    // A row's place among the rows of q and o, [batch, seqlen_q, heads].
    __device__ int64_t global_row(int row) const {
        return (int64_t(batch) * params.seqlen_q + row / pack) * params.heads + first_head + row % pack;
    }
};

// ---------------------------------------------------------------------------------------------------- the two steps

// What a warp carries from tile to tile. [2]: a lane's rows i / 4 and i / 4 + 8 of each row tile.
struct State {
    float o[ROW_TILES][DIM_TILES][4];
    float maximum[ROW_TILES][2];  // of the raw scores
    float sum[ROW_TILES][2];      // over this lane's columns only, until the end
};

typedef float Scores[ROW_TILES][KEY_TILES][4];
typedef uint32_t Queries[ROW_TILES][4];  // the A operand of one step

__device__ __forceinline__ void load_queries(Queries& to, uint32_t q_address, int step) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) load_matrices(to[r], along_row(q_address, step) + r * 16 * ROW_BYTES);
}

// S = Q K^T.
__device__ __forceinline__ void compute_scores(Scores& s, Queries* queries, uint32_t q_address, uint32_t k_address) {
#pragma unroll
    for (int step = 0; step < DIM_STEPS; ++step) {
        Queries& a = queries[Q_IN_REGISTERS ? step : 0];
        if (!Q_IN_REGISTERS) load_queries(a, q_address, step);
#pragma unroll
        for (int n = 0; n < KEY_TILES; n += 2) {
            uint32_t b[4];
            load_matrices(b, along_row(k_address, step) + n * 8 * ROW_BYTES);
#pragma unroll
            for (int r = 0; r < ROW_TILES; ++r) {
                multiply_add(s[r][n], a[r], b[0], b[1]);
                multiply_add(s[r][n + 1], a[r], b[2], b[3]);
            }
        }
    }
}

// Hides the keys that a row does not see. `first_key` is the warp's first, `first_row` too.
__device__ __forceinline__ void mask_scores(Scores& s, const Work& work, int first_row, int first_key) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int visible = work.last_key(first_row + r * 16 + half * 8 + lane / 4) - first_key - lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < KEY_TILES; ++n)
#pragma unroll
                for (int c = 0; c < 2; ++c)
                    if (n * 8 + c > visible) s[r][n][half * 2 + c] = -INFINITY;
        }
}

// Takes the tile's maxima into the running ones, and brings sums and O to the new reference. With RESCALE_SLACK, an
// old maximum stays the reference until some row of the warp outgrows it by that many powers of two: any reference
// gives the same quotient as long as 2^slack does not overflow, and most tiles then leave O alone.
__device__ __forceinline__ void update_maximum(State& state, const Scores& s, float scale) {
    float next[ROW_TILES][2];
    bool outgrown = false;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float top = state.maximum[r][half];
#pragma unroll
            for (int n = 0; n < KEY_TILES; ++n) top = fmaxf(top, fmaxf(s[r][n][half * 2], s[r][n][half * 2 + 1]));
            next[r][half] = row_maximum(top);
            outgrown |= (next[r][half] - state.maximum[r][half]) * scale > RESCALE_SLACK;
        }
    if (RESCALE_SLACK > 0 && !__any_sync(~0u, outgrown)) return;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float factor = exp2_unit((state.maximum[r][half] - finite(next[r][half])) * scale);
            state.maximum[r][half] = next[r][half];
            state.sum[r][half] *= factor;
#pragma unroll
            for (int d = 0; d < DIM_TILES; ++d)
#pragma unroll
                for (int c = 0; c < 2; ++c) state.o[r][d][half * 2 + c] *= factor;
        }
}

// O += P V with P = 2^(scale (S - maximum)). P is made 16 keys at a time, just before its product: it needs few
// registers, and the exponentials of the next keys can run beside the tensor cores. The accumulators of S are, as
// they lie, the A operand of the second product.
__device__ __forceinline__ void add_values(State& state, const Scores& s, float scale, uint32_t v_address) {
#pragma unroll
    for (int step = 0; step < KEY_STEPS; ++step) {
        uint32_t p[ROW_TILES][4];
#pragma unroll
        for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float reference = finite(state.maximum[r][half]) * scale;
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    // Of each four columns, POLYNOMIAL_EXP2 go by the polynomial.
                    const float(&x)[4] = s[r][step * 2 + n];
                    float low = fmaf(x[half * 2], scale, -reference), high = fmaf(x[half * 2 + 1], scale, -reference);
                    low = n < POLYNOMIAL_EXP2 ? exp2_polynomial(low) : exp2_unit(low);
                    high = exp2_unit(high);
                    state.sum[r][half] += low + high;
                    p[r][n * 2 + half] = pack(low, high);
                }
            }
#pragma unroll
        for (int d = 0; d < DIM_TILES; d += 2) {
            uint32_t b[4];
            load_matrices_transposed(b, along_row(v_address, d / 2) + step * 16 * ROW_BYTES);
#pragma unroll
            for (int r = 0; r < ROW_TILES; ++r) {
                multiply_add(state.o[r][d], p[r], b[0], b[1]);
                multiply_add(state.o[r][d + 1], p[r], b[2], b[3]);
            }
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- output

// Long form: normalised rows of o through the warp's own rows of Q's shared memory, so that whole lines are stored.
__device__ __forceinline__ void store_rows(const State& state, const Work& work, uint8_t* q_shared, int warp_row, float scale) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = row_total(state.sum[r][half]), inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
            int row = warp_row + r * 16 + half * 8 + lane / 4, query = work.first_row + row;
#pragma unroll
            for (int d = 0; d < DIM_TILES; ++d)
                *reinterpret_cast<uint32_t*>(q_shared + chunk_offset(row, d) + lane % 4 * 4) =
                    pack(state.o[r][d][half * 2] * inverse, state.o[r][d][half * 2 + 1] * inverse);
            if (lane % 4 == 0 && query < work.rows)
                work.params.lse[(int64_t(work.batch) * work.params.heads + work.first_head) * work.rows + query] =
                    sum > 0.0f ? (state.maximum[r][half] * scale + log2f(sum)) * LN_2 : -INFINITY;
        }
    __syncwarp();
    deal_chunks<ROWS_PER_WARP, 32>(lane, [&](int row, int chunk) {
        row += warp_row;
        if (work.first_row + row < work.rows)
            *reinterpret_cast<uint4*>(work.params.o + work.global_row(work.first_row + row) * HEAD_DIM + chunk * 8) =
                *reinterpret_cast<const uint4*>(q_shared + chunk_offset(row, chunk));
    });
}

// Short form: the warps hold the same rows over different keys. They agree on a maximum and a sum, each brings its O
// to them, and the block stores the total in the workspace: o as [parts, rows, head_dim], log2 of the sum [parts, rows].
__device__ __forceinline__ void store_part(const State& state, const Work& work, uint8_t* shared, float scale) {
    constexpr int STRIDE = HEAD_DIM + 8;  // floats; the padding spreads the rows over the banks
    static_assert(WARPS * 16 * (STRIDE + 2) * 4 <= Q_BYTES + 2 * STAGES * TILE_BYTES || !SHORT_Q, "the warps' parts fit");
    float* warp_o = reinterpret_cast<float*>(shared);           // [WARPS][16][STRIDE]
    float2* warp_row = reinterpret_cast<float2*>(warp_o + WARPS * 16 * STRIDE);  // [WARPS][16]: maximum, sum
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const AttentionParams& params = work.params;
    const int64_t all_rows = int64_t(params.batch) * params.seqlen_q * params.heads;
    float* part_o = static_cast<float*>(params.workspace[0]) + blockIdx.z * all_rows * HEAD_DIM;
    float* part_lse = static_cast<float*>(params.workspace[1]) + blockIdx.z * all_rows;

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float sum = row_total(state.sum[0][half]);
        if (lane % 4 == 0) warp_row[warp * 16 + half * 8 + lane / 4] = make_float2(state.maximum[0][half], sum);
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int row = half * 8 + lane / 4;
        float top = -INFINITY, sum = 0.0f;
        for (int w = 0; w < WARPS; ++w) top = fmaxf(top, warp_row[w * 16 + row].x);
        for (int w = 0; w < WARPS; ++w) sum += warp_row[w * 16 + row].y * exp2_unit((warp_row[w * 16 + row].x - finite(top)) * scale);
        float factor = sum > 0.0f ? exp2_unit((state.maximum[0][half] - finite(top)) * scale) / sum : 0.0f;
#pragma unroll
        for (int d = 0; d < DIM_TILES; ++d)
            *reinterpret_cast<float2*>(warp_o + (warp * 16 + row) * STRIDE + d * 8 + lane % 4 * 2) =
                make_float2(state.o[0][d][half * 2] * factor, state.o[0][d][half * 2 + 1] * factor);
        if (warp == 0 && lane % 4 == 0 && work.first_row + row < work.rows)
            part_lse[work.global_row(work.first_row + row)] = sum > 0.0f ? top * scale + log2f(sum) : -INFINITY;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * HEAD_DIM; i += THREADS) {
        int row = i / HEAD_DIM, column = i % HEAD_DIM;
        if (work.first_row + row >= work.rows) break;
        float total = 0.0f;
        for (int w = 0; w < WARPS; ++w) total += warp_o[(w * 16 + row) * STRIDE + column];
        part_o[work.global_row(work.first_row + row) * HEAD_DIM + column] = total;
    }
}

// ---------------------------------------------------------------------------------------------------------- kernels

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) attention(const __grid_constant__ AttentionParams params) {
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t q_shared = shared_address(shared), k_shared = q_shared + Q_BYTES, v_shared = k_shared + STAGES * TILE_BYTES;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Work work(params);
    const float scale = params.softmax_scale * LOG2_E;  // exponentials are powers of two: one FMA and one instruction
    const int stride = params.kv_heads * HEAD_DIM;
    const int64_t kv_offset = int64_t(work.batch) * params.seqlen_k * stride + work.kv_head * HEAD_DIM;
    const Element *k = params.k + kv_offset, *v = params.v + kv_offset;

    // This warp's rows in the block, and its keys in a tile: in the long form every warp looks at all keys.
    const int warp_row = SHORT_Q ? 0 : warp * ROWS_PER_WARP, warp_key = SHORT_Q ? warp * WARP_KEYS : 0;
    const int row = work.first_row + warp_row;
    // What each lane hands to ldmatrix: matrices side by side, then below, for A and for V, whose rows are the sum's
    // index; below, then side by side, for K, whose rows are columns of the product.
    const uint32_t q_address = q_shared + chunk_offset(warp_row + lane % 16, lane / 16);
    const uint32_t k_address = k_shared + chunk_offset(warp_key + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const uint32_t v_address = v_shared + chunk_offset(warp_key + lane % 16, lane / 16);

    // Q, and the tiles that the pipeline holds before its first step.
    deal_chunks<BLOCK_M, THREADS>(threadIdx.x, [&](int q_row, int chunk) {
        const int64_t global_row = work.global_row(work.first_row + q_row);
        copy_async(q_shared + chunk_offset(q_row, chunk), params.q + global_row * HEAD_DIM + chunk * 8,
                   work.first_row + q_row < work.rows);
    });
    auto copy_k = [&](int tile) { if (tile < work.end_tile) copy_tile(k_shared + (tile - work.first_tile) % STAGES * TILE_BYTES, k, tile * BLOCK_N, params.seqlen_k, stride); };
    auto copy_v = [&](int tile) { if (tile < work.end_tile) copy_tile(v_shared + (tile - work.first_tile) % STAGES * TILE_BYTES, v, tile * BLOCK_N, params.seqlen_k, stride); };
    for (int i = 0; i < max(STAGES - 1, 1); ++i) {
        copy_k(work.first_tile + i);
        if (STAGES > 1) copy_v(work.first_tile + i);
        close_copies();
    }

    Queries queries[Q_IN_REGISTERS ? DIM_STEPS : 1];
    if (Q_IN_REGISTERS) {
        await_copies<COPIES_IN_FLIGHT>();
#pragma unroll
        for (int step = 0; step < DIM_STEPS; ++step) load_queries(queries[step], q_address, step);
    }

    State state = {};
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) state.maximum[r][0] = state.maximum[r][1] = -INFINITY;

    for (int tile = work.first_tile; tile < work.end_tile; ++tile) {
        const int stage = (tile - work.first_tile) % STAGES * TILE_BYTES, first_key = tile * BLOCK_N + warp_key;
        // A tile has landed, and all warps are done with the one before it: its memory takes the next copy. One stage
        // alternates: V arrives during the first product, the next K during the second.
        await_copies<COPIES_IN_FLIGHT>();
        if (STAGES > 1) copy_k(tile + STAGES - 1);
        copy_v(tile + STAGES - 1);
        close_copies();

        Scores s = {};
        const bool seen = !SKIP_UNSEEN || first_key <= work.last_key(row + ROWS_PER_WARP - 1);
        if (seen) {
            compute_scores(s, queries, q_address, k_address + stage);
            if (first_key + WARP_KEYS - 1 > work.last_key(row)) mask_scores(s, work, row, first_key);
            update_maximum(state, s, scale);
        }
        if (STAGES == 1) {
            await_copies<0>();
            copy_k(tile + 1);
            close_copies();
        }
        if (seen) add_values(state, s, scale, v_address + stage);
    }

    await_copies<0>();  // nothing may still land in the memory that the output goes through
    if (SHORT_Q) store_part(state, work, shared, scale);
    else store_rows(state, work, shared, warp_row, scale);
}

// Adds up the parts that the short form left: one block for each row of o, blockDim.y parts.
extern "C" __global__ void __launch_bounds__(1024) join_parts(const __grid_constant__ AttentionParams params) {
    __shared__ float weights[32];
    const int row = blockIdx.x, rows = gridDim.x, parts = blockDim.y, thread = threadIdx.y * 32 + threadIdx.x;
    const float* part_o = static_cast<const float*>(params.workspace[0]);
    const float* part_lse = static_cast<const float*>(params.workspace[1]);
    if (thread < 32) {
        float lse = thread < parts ? part_lse[int64_t(thread) * rows + row] : -INFINITY, top = lse;
        for (int lanes = 16; lanes > 0; lanes /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
        float weight = exp2_unit(lse - finite(top)), sum = weight;
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
        weights[thread] = sum > 0.0f ? weight / sum : 0.0f;
        const int head = row % params.heads, query = row / params.heads % params.seqlen_q;
        const int64_t batch = row / params.heads / params.seqlen_q;
        if (thread == 0)
            params.lse[(batch * params.heads + head) * params.seqlen_q + query] = sum > 0.0f ? (top + log2f(sum)) * LN_2 : -INFINITY;
    }
    __syncthreads();
    for (int column = thread; column < HEAD_DIM; column += 32 * parts) {
        float total = 0.0f;
#pragma unroll 8
        for (int part = 0; part < parts; ++part) total += weights[part] * part_o[(int64_t(part) * rows + row) * HEAD_DIM + column];
        params.o[int64_t(row) * HEAD_DIM + column] = to_element(total);
    }
}
