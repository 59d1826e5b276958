/*evo
contract = 1
name = "FlashAttention-2 on mma.sync"
targets = ["sm_80"]
supports = "head_dim % 16 == 0 and head_dim <= 256 and heads % kv_heads == 0"

# _64, _128, _256: for head dimensions up to that one, and beyond the one before it. _SHORT: for a few queries.
[knobs]
WARPS_64 = { value = 4, choices = [4], layer = "launch" }
WARPS_128 = { value = 4, choices = [4, 8], layer = "launch" }
WARPS_256 = { value = 8, choices = [8], layer = "launch" }
MIN_BLOCKS_64 = { value = 1, choices = [1], layer = "launch" }         # per multiprocessor; caps the registers
SPLIT_BLOCKS = { value = 4, choices = [4], layer = "launch" }   # per multiprocessor, when keys are split
ROWS_64 = { value = 32, choices = [32], layer = "schedule" }             # query rows of one warp
ROWS_128 = { value = 32, choices = [32], layer = "schedule" }
BLOCK_N_64 = { value = 64, choices = [32, 64, 128], layer = "schedule" } # keys of one tile
BLOCK_N_128 = { value = 32, choices = [32, 64, 96], layer = "schedule" }
BLOCK_N_256 = { value = 64, choices = [64], layer = "schedule" }
BLOCK_N_SHORT = { value = 64, choices = [64], layer = "schedule" }      # up to head_dim 128; 64 beyond
CAUSAL_ORDER = { value = 0, choices = [0], layer = "schedule" }        # see Work
STAGES_64 = { value = 1, choices = [1], layer = "memory" }             # tiles of K and of V in shared memory
STAGES_128 = { value = 1, choices = [1, 2, 3], layer = "memory" }
STAGES_256 = { value = 1, choices = [1], layer = "memory" }
STAGES_SHORT = { value = 2, choices = [2], layer = "memory" }
Q_REGISTERS_TO = { value = 0, choices = [0, 128], layer = "instructions" } # Q in registers, to this head_dim
RESCALE_SLACK = { value = 0, choices = [0, 4, 8], layer = "algorithm" }      # see update_maximum
SKIP_UNSEEN = { value = 0, choices = [0], layer = "algorithm" }           # warps pass over tiles they cannot see

[defines]
HEAD_DIM = "head_dim"
SHORT_Q = "seqlen_q <= 16"
WARPS = "4 if SHORT_Q else WARPS_64 if head_dim <= 64 else WARPS_128 if head_dim <= 128 else WARPS_256"
MIN_BLOCKS = "MIN_BLOCKS_64 if head_dim <= 64 and not SHORT_Q else 1"
ROWS_PER_WARP = "16 if SHORT_Q or head_dim > 128 else ROWS_64 if head_dim <= 64 else ROWS_128"
BLOCK_M = "16 if SHORT_Q else WARPS * ROWS_PER_WARP"
BLOCK_N_LONG = "BLOCK_N_64 if head_dim <= 64 else BLOCK_N_128 if head_dim <= 128 else BLOCK_N_256"
BLOCK_N = "BLOCK_N_LONG if not SHORT_Q else BLOCK_N_SHORT if head_dim <= 128 else 64"
STAGES = "STAGES_SHORT if SHORT_Q else STAGES_64 if head_dim <= 64 else STAGES_128 if head_dim <= 128 else STAGES_256"
Q_IN_REGISTERS = "head_dim <= Q_REGISTERS_TO"

# Long form: a block for each tile of queries of each head. Short form: blocks for each kv head, tile of packed rows and
# part of the keys, and a second kernel. The number of parts is the "min(32, …)": blocks for SPLIT_BLOCKS a
# multiprocessor, but no part under two tiles.
[[launch]]
kernel = "attention"
grid = [
    "batch * kv_heads if SHORT_Q else batch * heads * cdiv(seqlen_q, BLOCK_M)",
    "cdiv(heads // kv_heads * seqlen_q, 16) if SHORT_Q else 1",
    "min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16))) if SHORT_Q else 1",
]
block = ["32 * WARPS"]
shared_bytes = "(BLOCK_M + 2 * STAGES * BLOCK_N) * cdiv(head_dim, 64) * 128"

[[launch]]
kernel = "join_parts"
when = "SHORT_Q"
grid = ["batch * heads * seqlen_q"]
block = ["32", "min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16)))"]

[[workspace]]
when = "SHORT_Q"
bytes = "batch * heads * seqlen_q * (head_dim + 1) * 4 * min(32, cdiv(seqlen_k, 2 * BLOCK_N), cdiv(SPLIT_BLOCKS * sm_count, batch * kv_heads * cdiv(heads // kv_heads * seqlen_q, 16)))"
*/

// FlashAttention-2's forward pass (Dao, arXiv 2307.08691) on the tensor cores of Ampere and later.
//
// A block owns BLOCK_M queries of one head and walks over the keys in tiles of BLOCK_N: scores S = Q K^T, an online
// softmax that keeps a running maximum and sum for each row, and O += P V. A warp owns ROWS_PER_WARP of the rows and
// keeps S, P and O in registers, so warps meet only to hand over tiles of K and V in shared memory.
//
// Short form (SHORT_Q, as in decoding): few queries and many keys, so
//   * the query heads that share a kv head are packed into the rows of one tile: K and V are read once for all;
//   * the keys are split over gridDim.z blocks, and within a block over its warps, which all own the same 16 rows;
//   * each block leaves its part of o and of the sum's logarithm in the workspace, and join_parts adds them up.
//
// softmax_scale is taken to be positive.

#include "attention.cuh"

#define DEVICE __device__ __forceinline__

// ------------------------------------------------------------------------------------------------------------ sizes

constexpr int THREADS = 32 * WARPS;
constexpr int WARP_KEYS = SHORT_Q ? BLOCK_N / WARPS : BLOCK_N;  // keys of a tile that one warp looks at

// In tiles and steps of the instruction, which multiplies 16x16 by 16x8.
constexpr int ROW_TILES = ROWS_PER_WARP / 16;
constexpr int KEY_TILES = WARP_KEYS / 8;
constexpr int DIM_TILES = HEAD_DIM / 8;
constexpr int LANE_ROWS = 2 * ROW_TILES;  // rows that a lane has numbers of: row i * 8 + lane / 4 of its warp's

// Shared memory holds Q, then STAGES tiles of K, then STAGES tiles of V. A row takes whole lines of 128 bytes, of eight
// chunks each; a chunk is 16 bytes, what a thread copies at a time and what a lane of ldmatrix addresses.
constexpr int CHUNKS = HEAD_DIM / 8;
constexpr int ROW_BYTES = (HEAD_DIM + 63) / 64 * 128;
constexpr int Q_BYTES = BLOCK_M * ROW_BYTES;
constexpr int TILE_BYTES = BLOCK_N * ROW_BYTES;

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

static_assert(WARP_KEYS % 16 == 0, "the second product takes a warp's keys 16 at a time");

// ----------------------------------------------------------------------------------------------------- instructions

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

// Loads four 8x8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
DEVICE void load_matrices(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}

DEVICE void load_transposed(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}

#if defined(EVO_BF16)
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#define TO_PAIR __floats2bfloat162_rn
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#define TO_PAIR __floats2half2_rn
#endif

DEVICE uint32_t pack(float low, float high) {
    auto pair = TO_PAIR(low, high);
    return *reinterpret_cast<uint32_t*>(&pair);
}

// c += a b. A lane holds c[0..1] in row lane / 4 and c[2..3] eight rows below, columns lane % 4 * 2 and the next.
DEVICE void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
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
DEVICE float reference(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// ---------------------------------------------------------------------------------------------------- shared memory

// All rows start in the same bank, so chunk c of row r lies at place c XOR r % 8 of its line: the same chunk of eight
// rows, which is what ldmatrix reads at once, lies in eight different places, and so do eight chunks of one row.
DEVICE int chunk_offset(int row, int chunk) { return row * ROW_BYTES + ((chunk ^ (row & 7)) << 4); }

// The address 2 * step chunks further along a row.
DEVICE uint32_t along_row(uint32_t address, int step) {
    return (address ^ ((step & 3) << 5)) + (step >> 2) * 128;
}

// Deals the chunks of ROWS rows out to WORKERS threads: body(row, chunk). Where a round is a whole number of rows, a
// thread stays in its column, and the compiler works out once what depends on the column.
template <int ROWS, int WORKERS, typename Body>
DEVICE void deal_chunks(unsigned worker, Body body) {
    constexpr int TOTAL = ROWS * CHUNKS;
    constexpr bool WHOLE_ROWS = WORKERS % CHUNKS == 0;
#pragma unroll
    for (int round = 0; round < (TOTAL + WORKERS - 1) / WORKERS; ++round) {
        const unsigned i = round * WORKERS + worker;
        const unsigned row = WHOLE_ROWS ? round * (WORKERS / CHUNKS) + worker / CHUNKS : i / CHUNKS;
        if (TOTAL % WORKERS == 0 || i < TOTAL) body(row, (WHOLE_ROWS ? worker : i) % CHUNKS);
    }
}

// Starts the copy of a tile of K or V. Rows past the last key become zeros: what lay there before could be NaN, which
// not even a probability of zero would silence.
DEVICE void copy_tile(uint32_t to, const Element* from, int first_key, int keys, int row_stride) {
    deal_chunks<BLOCK_N, THREADS>(threadIdx.x, [&](int row, int chunk) {
        const int key = first_key + row;
        const char* column = reinterpret_cast<const char*>(from + chunk * 8);  // bytes: the address is one instruction
        copy_async(to + chunk_offset(row, chunk), column + int64_t(key) * (row_stride * 2), key < keys);
    });
}

// ------------------------------------------------------------------------------------------------- the block's work

// A row is a query of one head; in the short form, of one of the `pack` heads that share a kv head.
struct Work {
    const AttentionParams& params;
    int batch, first_head, pack, rows, first_row, first_tile, end_tile;

    __device__ explicit Work(const AttentionParams& params) : params(params) {
        pack = SHORT_Q ? params.heads / params.kv_heads : 1;
        rows = params.seqlen_q * pack;
        int row_tile = blockIdx.y, group = blockIdx.x;  // a group is one head, or one pack of heads
        const int groups = params.heads / pack * params.batch;
        if (!SHORT_Q) {
            // Tile by tile of one head, so that blocks that run together share its keys in the L2. Under a causal mask
            // the last rows see most keys; CAUSAL_ORDER 1 starts with them in each head, 2 with those of all heads,
            // which leaves the short tiles to fill the gaps at the end.
            const int row_tiles = (params.seqlen_q + BLOCK_M - 1) / BLOCK_M;
            const bool across_heads = params.causal && CAUSAL_ORDER == 2;
            group = across_heads ? blockIdx.x % groups : blockIdx.x / row_tiles;
            row_tile = across_heads ? blockIdx.x / groups : blockIdx.x % row_tiles;
            if (params.causal && CAUSAL_ORDER > 0) row_tile = row_tiles - 1 - row_tile;
        }
        batch = group / (groups / params.batch);
        first_head = group % (groups / params.batch) * pack;
        first_row = row_tile * BLOCK_M;
        first_tile = 0;
        end_tile = (max(last_key(min(first_row + BLOCK_M, rows) - 1) + 1, 0) + BLOCK_N - 1) / BLOCK_N;
        if (SHORT_Q) {
            const int part = (end_tile + gridDim.z - 1) / gridDim.z;
            first_tile = min(part * int(blockIdx.z), end_tile);
            end_tile = min(first_tile + part, end_tile);
        }
    }

    // The last key that a row sees; negative where it sees none.
    __device__ int last_key(int row) const {
        const int last = params.seqlen_k - 1;
        return params.causal ? min(last - params.seqlen_q + 1 + row / pack, last) : last;
    }

    // A row's place among the rows of q and o, [batch, seqlen_q, heads].
    __device__ int64_t global_row(int row) const {
        return (int64_t(batch) * params.seqlen_q + row / pack) * params.heads + first_head + row % pack;
    }
};

// ---------------------------------------------------------------------------------------- the steps of a tile of keys

// What a warp carries from tile to tile. Lane row i has elements i % 2 * 2 and the next of row tile i / 2.
struct State {
    float o[ROW_TILES][DIM_TILES][4];
    float maximum[LANE_ROWS];  // of the scores as the product gives them, unscaled
    float sum[LANE_ROWS];      // over this lane's columns; the four lanes of a row are added at the end
};

typedef float Scores[ROW_TILES][KEY_TILES][4];
typedef uint32_t Queries[ROW_TILES][4];  // 16 columns of Q

DEVICE void load_queries(Queries& to, uint32_t q_address, int step) {
#pragma unroll
    for (int r = 0; r < ROW_TILES; ++r) load_matrices(to[r], along_row(q_address, step) + r * 16 * ROW_BYTES);
}

// S = Q K^T. What is loaded of K serves all rows of the warp: 32 rows need half as much of shared memory as 16.
DEVICE void compute_scores(Scores& s, Queries* queries, uint32_t q_address, uint32_t k_address) {
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; ++step) {
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

// Hides the keys that a row does not see; `first_row` and `first_key` are the warp's.
DEVICE void mask_scores(Scores& s, const Work& work, int first_row, int first_key) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
        const int last = work.last_key(first_row + i * 8 + lane / 4) - first_key - lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < KEY_TILES; ++n) {
            if (n * 8 > last) s[i / 2][n][i % 2 * 2] = -INFINITY;
            if (n * 8 + 1 > last) s[i / 2][n][i % 2 * 2 + 1] = -INFINITY;
        }
    }
}

// Takes the tile into the running maxima, and brings sums and O to the new ones. Any reference gives the same quotient
// O / sum while nothing overflows: with RESCALE_SLACK the old one stands until some row of the warp outgrows it by that
// many powers of two, and most tiles leave O alone.
DEVICE void update_maximum(State& state, const Scores& s, float scale) {
    float next[LANE_ROWS];
    bool outgrown = false;
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
        next[i] = state.maximum[i];
#pragma unroll
        for (int n = 0; n < KEY_TILES; ++n)
            next[i] = fmaxf(next[i], fmaxf(s[i / 2][n][i % 2 * 2], s[i / 2][n][i % 2 * 2 + 1]));
        next[i] = row_maximum(next[i]);
        outgrown |= (next[i] - state.maximum[i]) * scale > RESCALE_SLACK;
    }
    if (RESCALE_SLACK > 0 && !__any_sync(~0u, outgrown)) return;
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
        const float factor = power_of_two((state.maximum[i] - reference(next[i])) * scale);
        state.maximum[i] = next[i];
        state.sum[i] *= factor;
#pragma unroll
        for (int d = 0; d < DIM_TILES; ++d) {
            state.o[i / 2][d][i % 2 * 2] *= factor;
            state.o[i / 2][d][i % 2 * 2 + 1] *= factor;
        }
    }
}

// O += P V with P = 2^(scale (S - maximum)), made 16 keys at a time just before its product: it takes few registers,
// and the next exponentials run beside the tensor cores. S as it lies, in pairs, is the product's first operand.
DEVICE void add_values(State& state, const Scores& s, float scale, uint32_t v_address) {
#pragma unroll
    for (int step = 0; step < WARP_KEYS / 16; ++step) {
        uint32_t p[ROW_TILES][4];
#pragma unroll
        for (int i = 0; i < LANE_ROWS; ++i) {
            const float subtrahend = reference(state.maximum[i]) * scale;
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const float* pair = &s[i / 2][step * 2 + n][i % 2 * 2];
                const float low = power_of_two(fmaf(pair[0], scale, -subtrahend));
                const float high = power_of_two(fmaf(pair[1], scale, -subtrahend));
                state.sum[i] += low + high;
                p[i / 2][n * 2 + i % 2] = pack(low, high);
            }
        }
#pragma unroll
        for (int d = 0; d < DIM_TILES; d += 2) {
            uint32_t b[4];
            load_transposed(b, along_row(v_address, d / 2) + step * 16 * ROW_BYTES);
#pragma unroll
            for (int r = 0; r < ROW_TILES; ++r) {
                multiply_add(state.o[r][d], p[r], b[0], b[1]);
                multiply_add(state.o[r][d + 1], p[r], b[2], b[3]);
            }
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- output

// The natural logarithm of a row's sum, from the base-2 logarithm's two parts.
DEVICE float natural_log(float exponent, float sum) { return sum > 0.0f ? (exponent + log2f(sum)) * LN_2 : -INFINITY; }

// Long form: o goes through the warp's own rows of Q's shared memory, so that it is stored 16 bytes at a time.
DEVICE void store_rows(const State& state, const Work& work, uint8_t* shared, int warp_row, float scale) {
    const AttentionParams& params = work.params;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
        const int row = warp_row + i * 8 + lane / 4, query = work.first_row + row;
        const float sum = row_total(state.sum[i]), inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
        for (int d = 0; d < DIM_TILES; ++d) {
            const float* pair = &state.o[i / 2][d][i % 2 * 2];
            uint8_t* to = shared + chunk_offset(row, d) + lane % 4 * 4;
            *reinterpret_cast<uint32_t*>(to) = pack(pair[0] * inverse, pair[1] * inverse);
        }
        if (lane % 4 == 0 && query < work.rows) {
            const int64_t batch_head = int64_t(work.batch) * params.heads + work.first_head;
            params.lse[batch_head * params.seqlen_q + query] = natural_log(state.maximum[i] * scale, sum);
        }
    }
    __syncwarp();
    deal_chunks<ROWS_PER_WARP, 32>(lane, [&](int row, int chunk) {
        const int query = work.first_row + warp_row + row;
        const uint8_t* from = shared + chunk_offset(warp_row + row, chunk);
        Element* to = params.o + work.global_row(query) * HEAD_DIM + chunk * 8;
        if (query < work.rows) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    });
}

// What the blocks of the short form leave in the workspace, for each part of the keys and each row of o.
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

// Short form: the warps hold the same rows over different keys. They bring their O to the maximum and the sum of all.
DEVICE void store_part(const State& state, const Work& work, uint8_t* shared, float scale) {
    constexpr int STRIDE = HEAD_DIM + 8;  // floats; the padding spreads the rows over the banks
    static_assert(WARPS * 16 * (STRIDE + 2) * 4 <= Q_BYTES + 2 * STAGES * TILE_BYTES || !SHORT_Q, "the warps' O fits");
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
            sum += warp_row[w * 16 + row].y * power_of_two((warp_row[w * 16 + row].x - reference(top)) * scale);
        const float factor = sum > 0.0f ? power_of_two((state.maximum[i] - reference(top)) * scale) / sum : 0.0f;
#pragma unroll
        for (int d = 0; d < DIM_TILES; ++d)
            *reinterpret_cast<float2*>(warp_o + (warp * 16 + row) * STRIDE + d * 8 + lane % 4 * 2) =
                make_float2(state.o[0][d][i * 2] * factor, state.o[0][d][i * 2 + 1] * factor);
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

// ---------------------------------------------------------------------------------------------------------- kernels

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
attention(const __grid_constant__ AttentionParams params) {
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t q_shared = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const uint32_t k_shared = q_shared + Q_BYTES, v_shared = k_shared + STAGES * TILE_BYTES;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Work work(params);
    const float scale = params.softmax_scale * LOG2_E;  // powers of two in place of e: an FMA and one instruction

    // This warp's rows in the block, and its keys in a tile: all of them in the long form.
    const int warp_row = SHORT_Q ? 0 : warp * ROWS_PER_WARP, warp_key = SHORT_Q ? warp * WARP_KEYS : 0;
    const int first_row = work.first_row + warp_row;

    // What a lane hands to ldmatrix. Q and V: four matrices down, then across; K, whose rows are the product's columns:
    // across, then down.
    const uint32_t q_address = q_shared + chunk_offset(warp_row + lane % 16, lane / 16);
    const uint32_t k_address = k_shared + chunk_offset(warp_key + lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const uint32_t v_address = v_shared + chunk_offset(warp_key + lane % 16, lane / 16);

    // The pipeline of tiles: tile t lies in stage t % STAGES, counted from the block's first.
    const int row_stride = params.kv_heads * HEAD_DIM, kv_head = work.first_head / (params.heads / params.kv_heads);
    const int64_t offset = int64_t(work.batch) * params.seqlen_k * row_stride + kv_head * HEAD_DIM;
    const Element *k = params.k + offset, *v = params.v + offset;
    auto stage = [&](int tile) { return (tile - work.first_tile) % STAGES * TILE_BYTES; };
    auto copy = [&](uint32_t to, const Element* from, int tile) {
        if (tile < work.end_tile) copy_tile(to + stage(tile), from, tile * BLOCK_N, params.seqlen_k, row_stride);
    };
    // With one stage, V arrives during the first product and the next K during the second. With more, whole tiles
    // arrive ahead, and all but this many of the groups under way have landed when a tile is used.
    constexpr int AHEAD = STAGES > 1 ? STAGES - 2 : 0;

    deal_chunks<BLOCK_M, THREADS>(threadIdx.x, [&](int row, int chunk) {
        const Element* from = params.q + work.global_row(work.first_row + row) * HEAD_DIM + chunk * 8;
        copy_async(q_shared + chunk_offset(row, chunk), from, work.first_row + row < work.rows);
    });
    for (int i = 0; i <= AHEAD; ++i) {
        copy(k_shared, k, work.first_tile + i);
        if (STAGES > 1) copy(v_shared, v, work.first_tile + i);
        close_copies();
    }
    Queries queries[Q_IN_REGISTERS ? HEAD_DIM / 16 : 1];
    if (Q_IN_REGISTERS) {
        await_copies<AHEAD>();
#pragma unroll
        for (int step = 0; step < HEAD_DIM / 16; ++step) load_queries(queries[step], q_address, step);
    }

    State state = {};
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) state.maximum[i] = -INFINITY;
    for (int tile = work.first_tile; tile < work.end_tile; ++tile) {
        // A tile has landed, and all warps are done with the one before it, whose place the next copy takes.
        await_copies<AHEAD>();
        if (STAGES > 1) copy(k_shared, k, tile + STAGES - 1);
        copy(v_shared, v, tile + STAGES - 1);
        close_copies();
        auto change_from_k_to_v = [&] {
            if (STAGES > 1) return;
            await_copies<0>();
            copy(k_shared, k, tile + 1);
            close_copies();
        };

        const int first_key = tile * BLOCK_N + warp_key;
        if (SKIP_UNSEEN && first_key > work.last_key(first_row + ROWS_PER_WARP - 1)) {
            change_from_k_to_v();
            continue;
        }
        Scores s = {};
        compute_scores(s, queries, q_address, k_address + stage(tile));
        if (first_key + WARP_KEYS - 1 > work.last_key(first_row)) mask_scores(s, work, first_row, first_key);
        update_maximum(state, s, scale);
        change_from_k_to_v();
        add_values(state, s, scale, v_address + stage(tile));
    }

    await_copies<0>();  // nothing may still land in the memory that the output goes through
    if (SHORT_Q) store_part(state, work, shared, scale);
    else store_rows(state, work, shared, warp_row, scale);
}

// Adds up what the blocks of the short form left: a block for each row of o, with blockDim.y parts.
extern "C" __global__ void __launch_bounds__(1024) join_parts(const __grid_constant__ AttentionParams params) {
    const Parts parts(params, blockDim.y);
    const int row = blockIdx.x, lane = threadIdx.x;
    // In every warp, lane i weighs part i by its share of the sum.
    const float log_sum = lane < blockDim.y ? parts.log_sum[lane * parts.rows + row] : -INFINITY;
    float top = log_sum;
    for (int lanes = 16; lanes > 0; lanes /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
    const float weight = power_of_two(log_sum - reference(top));
    float sum = weight;
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);

    for (int first = threadIdx.y * 32; first < HEAD_DIM; first += 32 * blockDim.y) {
        const int column = min(first + lane, HEAD_DIM - 1);
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
