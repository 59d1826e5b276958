/*evo
contract = 1
name = "tiled online softmax"
targets = ["portable"]
supports = "head_dim % 32 == 0 and head_dim <= 256"

[defines]
HEAD_DIM = "head_dim"
THREADS = "BLOCK_M // ROWS * LANES"

[knobs]
BLOCK_M = { value = 64, choices = [32, 64, 128], layer = "schedule" }
BLOCK_N = { value = 64, choices = [32, 64, 128], layer = "schedule" }
ROWS = { value = 4, choices = [1, 2, 4, 8], layer = "launch" }
LANES = { value = 16, choices = [4, 8, 16, 32], layer = "launch" }
CONTIGUOUS = { value = 0, choices = [0, 1], layer = "memory" }
TRANSPOSE_K = { value = 0, choices = [0, 1], layer = "memory" }
STAGE_FLOAT = { value = 0, choices = [0, 1], layer = "memory" }
UNROLL = { value = 4, choices = [1, 2, 4, 8], layer = "instructions" }
RESCALE_ABOVE = { value = 0, choices = [0, 4, 8], layer = "algorithm" }

[[launch]]
kernel = "attention_forward"
grid = ["cdiv(seqlen_q, BLOCK_M)", "heads", "batch"]
block = ["THREADS"]
shared_bytes = "((BLOCK_M + 2 * BLOCK_N) * HEAD_DIM + 2 * (BLOCK_M + BLOCK_N + max(BLOCK_N, HEAD_DIM))) * (4 if STAGE_FLOAT else 2) + BLOCK_M * BLOCK_N * 4"
*/
#include "attention.cuh"

#if STAGE_FLOAT
typedef float Staged;
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float stage(Element x) { return to_float(x); }
#else
typedef Element Staged;
__device__ __forceinline__ float widen(Element x) { return to_float(x); }
__device__ __forceinline__ Element stage(Element x) { return x; }
#endif

constexpr int COLUMNS = BLOCK_N / LANES;
constexpr int OUTPUTS = HEAD_DIM / LANES;
constexpr int PAD = 2;
constexpr int ROW = HEAD_DIM + PAD;
#if TRANSPOSE_K
constexpr int KEY_STRIDE = 1, DIM_STRIDE = BLOCK_N + PAD;
#else
constexpr int KEY_STRIDE = ROW, DIM_STRIDE = 1;
#endif
constexpr float LOG2E = 1.4426950408889634f;

template <int COUNT>
__device__ __forceinline__ int part(int lane, int i) {
    return CONTIGUOUS ? lane * COUNT + i : lane + i * LANES;
}

// rows x HEAD_DIM
__device__ __forceinline__ void stage_tile(Staged* tile, const Element* from, size_t stride, int rows, int present, int row_stride, int dim_stride) {
    constexpr int CHUNK = 8;
    for (int i = threadIdx.x; i < rows * (HEAD_DIM / CHUNK); i += THREADS) {
        const int row = i / (HEAD_DIM / CHUNK), d = i % (HEAD_DIM / CHUNK) * CHUNK;
        uint4 packed = make_uint4(0, 0, 0, 0);
        if (row < present) packed = *reinterpret_cast<const uint4*>(from + row * stride + d);
        const Element* e = reinterpret_cast<const Element*>(&packed);
        #pragma unroll
        for (int j = 0; j < CHUNK; ++j) tile[row * row_stride + (d + j) * dim_stride] = stage(e[j]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) attention_forward(const __grid_constant__ AttentionParams params) {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    Staged* const q_tile = reinterpret_cast<Staged*>(shared_memory);
    Staged* const k_tile = q_tile + BLOCK_M * ROW;
    Staged* const v_tile = k_tile + (TRANSPOSE_K ? HEAD_DIM * (BLOCK_N + PAD) : BLOCK_N * ROW);
    float* const p_tile = reinterpret_cast<float*>(v_tile + BLOCK_N * ROW);

    const int lane = threadIdx.x % LANES;
    const int first_row = threadIdx.x / LANES * ROWS;
    const int block_row = blockIdx.x * BLOCK_M;
    const int head = blockIdx.y, batch = blockIdx.z;
    const int kv_head = head / (params.heads / params.kv_heads);
    const size_t q_stride = static_cast<size_t>(params.heads) * HEAD_DIM;
    const size_t kv_stride = static_cast<size_t>(params.kv_heads) * HEAD_DIM;
    const size_t q_offset = (static_cast<size_t>(batch) * params.seqlen_q + block_row) * q_stride + head * HEAD_DIM;
    const size_t kv_offset = static_cast<size_t>(batch) * params.seqlen_k * kv_stride + kv_head * HEAD_DIM;

    stage_tile(q_tile, params.q + q_offset, q_stride, BLOCK_M, params.seqlen_q - block_row, ROW, 1);

    float output[ROWS][OUTPUTS], reference[ROWS], sum[ROWS];
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        reference[r] = -INFINITY; sum[r] = 0.f;
        #pragma unroll
        for (int j = 0; j < OUTPUTS; ++j) output[r][j] = 0.f;
    }
    const float scale = params.softmax_scale * LOG2E;
    const int shift = params.seqlen_k - params.seqlen_q;
    int end = params.seqlen_k;
    if (params.causal) end = min(end, block_row + BLOCK_M + shift);

    for (int start = 0; start < end; start += BLOCK_N) {
        __syncthreads();
        stage_tile(k_tile, params.k + kv_offset + start * kv_stride, kv_stride, BLOCK_N, params.seqlen_k - start, KEY_STRIDE, DIM_STRIDE);
        stage_tile(v_tile, params.v + kv_offset + start * kv_stride, kv_stride, BLOCK_N, params.seqlen_k - start, ROW, 1);
        __syncthreads();

        float score[ROWS][COLUMNS];
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            #pragma unroll
            for (int c = 0; c < COLUMNS; ++c) score[r][c] = 0.f;
        }
        #pragma unroll UNROLL
        for (int d = 0; d < HEAD_DIM; ++d) {
            float key[COLUMNS];
            #pragma unroll
            for (int c = 0; c < COLUMNS; ++c) key[c] = widen(k_tile[part<COLUMNS>(lane, c) * KEY_STRIDE + d * DIM_STRIDE]);
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float query = widen(q_tile[(first_row + r) * ROW + d]);
                #pragma unroll
                for (int c = 0; c < COLUMNS; ++c) score[r][c] += query * key[c];
            }
        }
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int row = block_row + first_row + r;
            const int visible = params.causal ? min(params.seqlen_k, row + 1 + shift) : params.seqlen_k;
            float maximum = -INFINITY;
            #pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                score[r][c] = start + part<COLUMNS>(lane, c) < visible ? score[r][c] * scale : -INFINITY;
                maximum = fmaxf(maximum, score[r][c]);
            }
            #pragma unroll
            for (int i = 1; i < LANES; i *= 2) maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffff, maximum, i));
            if (maximum > reference[r] + RESCALE_ABOVE) {
                const float f = exp2f(reference[r] - maximum);
                sum[r] *= f;
                #pragma unroll
                for (int j = 0; j < OUTPUTS; ++j) output[r][j] *= f;
                reference[r] = maximum;
            }
            #pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                const float p = reference[r] == -INFINITY ? 0.f : exp2f(score[r][c] - reference[r]);
                sum[r] += p;
                p_tile[(first_row + r) * BLOCK_N + part<COLUMNS>(lane, c)] = p;
            }
        }
        __syncwarp();
        #pragma unroll UNROLL
        for (int n = 0; n < BLOCK_N; ++n) {
            float value[OUTPUTS];
            #pragma unroll
            for (int j = 0; j < OUTPUTS; ++j) value[j] = widen(v_tile[n * ROW + part<OUTPUTS>(lane, j)]);
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float p = p_tile[(first_row + r) * BLOCK_N + n];
                #pragma unroll
                for (int j = 0; j < OUTPUTS; ++j) output[r][j] += p * value[j];
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int i = 1; i < LANES; i *= 2) sum[r] += __shfl_xor_sync(0xffffffff, sum[r], i);
        const int row = first_row + r;
        if (block_row + row < params.seqlen_q) {
            const float inverse = sum[r] > 0.f ? 1.f / sum[r] : 0.f;
            #pragma unroll
            for (int j = 0; j < OUTPUTS; ++j)
                params.o[q_offset + row * q_stride + part<OUTPUTS>(lane, j)] = to_element(output[r][j] * inverse);
            if (lane == 0)
                params.lse[(static_cast<size_t>(batch) * params.heads + head) * params.seqlen_q + block_row + row] =
                    sum[r] > 0.f ? (reference[r] + log2f(sum[r])) / LOG2E : -INFINITY;
        }
    }
}
