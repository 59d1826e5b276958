/*evo
contract = 1
name = "tiled online softmax"
targets = ["portable"]
supports = "head_dim % 32 == 0 and head_dim <= 256 and 32 <= THREADS and THREADS <= 1024"

[defines]
HEAD_DIM = "head_dim"
THREADS = "BLOCK_M // ROWS * LANES"

[knobs]
BLOCK_M = { value = 64, choices = [32, 64], layer = "schedule" }          # query rows of a block
BLOCK_N = { value = 64, choices = [32, 64], layer = "schedule" }          # keys of a tile
LANES = { value = 8, choices = [4, 8, 16], layer = "launch" }                  # threads that share a row
ROWS = { value = 4, choices = [2, 4], layer = "launch" }                 # rows of a thread
STAGE_FLOAT = { value = 0, choices = [0, 1], layer = "memory" }                # tiles widened once, or at every use
CONTIGUOUS = { value = 0, choices = [0], layer = "memory" }                 # how a row's lanes share its columns
EXP2 = { value = 0, choices = [0, 1], layer = "instructions" }                 # powers of 2 instead of e
UNROLL = { value = 4, choices = [4], layer = "instructions" }         # steps of the two products at a time
RESCALE_ABOVE = { value = 0, choices = [0], layer = "algorithm" }        # growth that moves a row's reference

[[launch]]
kernel = "attention_forward"
grid = ["cdiv(seqlen_q, BLOCK_M)", "heads", "batch"]
block = ["THREADS"]
shared_bytes = "(BLOCK_M + 2 * BLOCK_N) * (head_dim + 2) * (4 if STAGE_FLOAT else 2) + BLOCK_M * BLOCK_N * 4"
*/
// Attention in tiles. A block of threads takes BLOCK_M query rows of one head and walks over the keys, BLOCK_N at a
// time: it stages a tile of K and of V in shared memory, multiplies scores = Q K^T, turns them into weights by the
// online softmax, and adds weights * V to the output that it keeps in registers. No score ever reaches global memory.
//
// Who does what: LANES neighbouring threads share ROWS query rows. Of these rows' scores each lane computes
// BLOCK_N / LANES columns, and of their output HEAD_DIM / LANES.
#include "attention.cuh"

// Staged as floats, tiles are widened once; staged as they come, they take half the shared memory.
#if STAGE_FLOAT
typedef float Staged;
__device__ __forceinline__ Staged stage(Element x) { return to_float(x); }
__device__ __forceinline__ float widen(Staged x) { return x; }
#else
typedef Element Staged;
__device__ __forceinline__ Staged stage(Element x) { return x; }
__device__ __forceinline__ float widen(Staged x) { return to_float(x); }
#endif

// exp(x) is a multiplication and a power of 2 in hardware. Scores scaled by log2(e) beforehand save the former.
#if EXP2
constexpr float SCORE_UNIT = 1.4426950408889634f;
__device__ __forceinline__ float power(float x) { return exp2f(x); }
__device__ __forceinline__ float logarithm(float x) { return log2f(x); }
#else
constexpr float SCORE_UNIT = 1.0f;
__device__ __forceinline__ float power(float x) { return expf(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
#endif

constexpr int COLUMNS = BLOCK_N / LANES;     // of a row's scores, for each lane
constexpr int OUTPUTS = HEAD_DIM / LANES;    // of a row's output, for each lane
constexpr int PITCH = HEAD_DIM + 2;          // elements between staged rows; the two move each row to other banks
constexpr unsigned ALL_LANES = 0xffffffffu;  // of a warp

// The i-th of a lane's `count` columns. Interleaved, neighbouring lanes read neighbouring banks; contiguous, one lane's
// columns can be read together.
__device__ __forceinline__ int column(int lane, int i, int count) {
    return CONTIGUOUS ? lane * count + i : lane + i * LANES;
}

// Copies `rows` rows of HEAD_DIM elements to shared memory, 16 bytes a load; those from `present` on become zeros.
__device__ __forceinline__ void stage_rows(Staged* tile, const Element* from, size_t stride, int rows, int present) {
    constexpr int CHUNK = 8, CHUNKS = HEAD_DIM / CHUNK;
    for (int i = threadIdx.x; i < rows * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, first = i % CHUNKS * CHUNK;
        uint4 packed = make_uint4(0, 0, 0, 0);
        if (row < present) {
            packed = *reinterpret_cast<const uint4*>(from + row * stride + first);
        }
        const Element* elements = reinterpret_cast<const Element*>(&packed);
        #pragma unroll
        for (int j = 0; j < CHUNK; ++j) {
            tile[row * PITCH + first + j] = stage(elements[j]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
attention_forward(const __grid_constant__ AttentionParams params) {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    Staged* const q_tile = reinterpret_cast<Staged*>(shared_memory);             // [BLOCK_M][PITCH]
    Staged* const k_tile = q_tile + BLOCK_M * PITCH;                             // [BLOCK_N][PITCH]
    Staged* const v_tile = k_tile + BLOCK_N * PITCH;                             // [BLOCK_N][PITCH]
    float* const weights = reinterpret_cast<float*>(v_tile + BLOCK_N * PITCH);   // [BLOCK_M][BLOCK_N]

    const int lane = threadIdx.x % LANES;
    const int first_row = threadIdx.x / LANES * ROWS;  // of this thread, in the block
    const int block_row = blockIdx.x * BLOCK_M;        // of the block, in the sequence
    const int head = blockIdx.y, batch = blockIdx.z;
    const int kv_head = head / (params.heads / params.kv_heads);
    const size_t q_stride = static_cast<size_t>(params.heads) * HEAD_DIM;
    const size_t kv_stride = static_cast<size_t>(params.kv_heads) * HEAD_DIM;
    const size_t q_start = (static_cast<size_t>(batch) * params.seqlen_q + block_row) * q_stride + head * HEAD_DIM;
    const size_t kv_start = static_cast<size_t>(batch) * params.seqlen_k * kv_stride + kv_head * HEAD_DIM;

    stage_rows(q_tile, params.q + q_start, q_stride, BLOCK_M, params.seqlen_q - block_row);

    float output[ROWS][OUTPUTS];
    float reference[ROWS];  // what is subtracted from a row's scores before they become powers
    float sum[ROWS];        // of the lane's own weights; the lanes add theirs up at the end
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        reference[r] = -INFINITY;
        sum[r] = 0.0f;
        #pragma unroll
        for (int j = 0; j < OUTPUTS; ++j) {
            output[r][j] = 0.0f;
        }
    }

    // Query i sees the keys up to i + shift. No row of the block sees a key from `end` on, so those tiles are skipped.
    const float scale = params.softmax_scale * SCORE_UNIT;
    const int shift = params.seqlen_k - params.seqlen_q;
    const int end = params.causal ? min(params.seqlen_k, block_row + BLOCK_M + shift) : params.seqlen_k;

    for (int start = 0; start < end; start += BLOCK_N) {
        __syncthreads();  // nobody reads the previous tiles any more
        stage_rows(k_tile, params.k + kv_start + start * kv_stride, kv_stride, BLOCK_N, params.seqlen_k - start);
        stage_rows(v_tile, params.v + kv_start + start * kv_stride, kv_stride, BLOCK_N, params.seqlen_k - start);
        __syncthreads();

        // A small outer product for each d: ROWS + COLUMNS values are read for ROWS * COLUMNS multiplications.
        float score[ROWS][COLUMNS];
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            #pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                score[r][c] = 0.0f;
            }
        }
        #pragma unroll UNROLL
        for (int d = 0; d < HEAD_DIM; ++d) {
            float key[COLUMNS];
            #pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                key[c] = widen(k_tile[column(lane, c, COLUMNS) * PITCH + d]);
            }
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float query = widen(q_tile[(first_row + r) * PITCH + d]);
                #pragma unroll
                for (int c = 0; c < COLUMNS; ++c) {
                    score[r][c] += query * key[c];
                }
            }
        }

        // Online softmax: a row's weights are powers of (score - reference), where the reference follows the largest
        // score so far, so that no power overflows. When it moves, what was added up before is scaled down to it. It
        // may lag behind by RESCALE_ABOVE: weights then grow beyond 1, but rows are rescaled less often.
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int last = block_row + first_row + r + shift;  // the last key that a causal row sees
            const int visible = params.causal ? min(params.seqlen_k, last + 1) : params.seqlen_k;
            float maximum = -INFINITY;
            #pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                score[r][c] = start + column(lane, c, COLUMNS) < visible ? score[r][c] * scale : -INFINITY;
                maximum = fmaxf(maximum, score[r][c]);
            }
            #pragma unroll
            for (int distance = 1; distance < LANES; distance *= 2) {
                maximum = fmaxf(maximum, __shfl_xor_sync(ALL_LANES, maximum, distance));
            }
            if (maximum > reference[r] + RESCALE_ABOVE) {
                const float correction = power(reference[r] - maximum);
                reference[r] = maximum;
                sum[r] *= correction;
                #pragma unroll
                for (int j = 0; j < OUTPUTS; ++j) {
                    output[r][j] *= correction;
                }
            }
            // Until a row has seen a key its scores and its reference are -infinity, whose difference is not a number.
            const float subtracted = reference[r] == -INFINITY ? 0.0f : reference[r];
            #pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                const float weight = power(score[r][c] - subtracted);
                sum[r] += weight;
                weights[(first_row + r) * BLOCK_N + column(lane, c, COLUMNS)] = weight;
            }
        }
        __syncwarp();  // a row's lanes are in one warp: its weights need not wait for the whole block

        #pragma unroll UNROLL
        for (int n = 0; n < BLOCK_N; ++n) {
            float value[OUTPUTS];
            #pragma unroll
            for (int j = 0; j < OUTPUTS; ++j) {
                value[j] = widen(v_tile[n * PITCH + column(lane, j, OUTPUTS)]);
            }
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float weight = weights[(first_row + r) * BLOCK_N + n];
                #pragma unroll
                for (int j = 0; j < OUTPUTS; ++j) {
                    output[r][j] += weight * value[j];
                }
            }
        }
    }

    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int distance = 1; distance < LANES; distance *= 2) {
            sum[r] += __shfl_xor_sync(ALL_LANES, sum[r], distance);
        }
        const int row = first_row + r;
        if (block_row + row >= params.seqlen_q) {
            continue;
        }
        // A row that saw no key (causal, more queries than keys) is all zeros, and the log of its empty sum -infinity.
        const float inverse = sum[r] > 0.0f ? 1.0f / sum[r] : 0.0f;
        #pragma unroll
        for (int j = 0; j < OUTPUTS; ++j) {
            params.o[q_start + row * q_stride + column(lane, j, OUTPUTS)] = to_element(output[r][j] * inverse);
        }
        if (lane == 0) {
            params.lse[(static_cast<size_t>(batch) * params.heads + head) * params.seqlen_q + block_row + row] =
                sum[r] > 0.0f ? (reference[r] + logarithm(sum[r])) / SCORE_UNIT : -INFINITY;
        }
    }
}
