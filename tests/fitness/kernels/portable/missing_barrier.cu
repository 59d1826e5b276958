// expect: INCORRECT: o: largest error
// on a GPU: any
// Nobody waits until all the threads have staged their part of a tile.
/*evo
contract = 1
name = "missing barrier"
targets = ["portable"]
supports = "head_dim <= 256"

[defines]
HEAD_DIM = "head_dim"

[[launch]]
kernel = "attention_forward"
grid = ["cdiv(seqlen_q, 64)", "heads", "batch"]
block = ["64"]
*/
#include "attention.cuh"

constexpr int TILE = 64;

extern "C" __global__ void attention_forward(const __grid_constant__ AttentionParams params) {
    __shared__ Element k_tile[TILE][HEAD_DIM], v_tile[TILE][HEAD_DIM];
    const int row = blockIdx.x * TILE + threadIdx.x, head = blockIdx.y, batch = blockIdx.z;
    const int kv_head = head / (params.heads / params.kv_heads);
    const int kv_stride = params.kv_heads * HEAD_DIM;
    const int shift = params.seqlen_k - params.seqlen_q;
    const int known_row = min(row, params.seqlen_q - 1);  // the last threads have no row, and stage all the same
    const size_t query = (static_cast<size_t>(batch) * params.seqlen_q + known_row) * params.heads + head;
    const size_t q_start = query * HEAD_DIM;
    const size_t kv_start = static_cast<size_t>(batch) * params.seqlen_k * kv_stride + kv_head * HEAD_DIM;
    const int visible = params.causal ? min(params.seqlen_k, known_row + 1 + shift) : params.seqlen_k;

    float output[HEAD_DIM] = {}, maximum = -INFINITY, sum = 0.0f;
    for (int start = 0; start < params.seqlen_k; start += TILE) {
        const int staged = start + threadIdx.x;
        for (int d = 0; d < HEAD_DIM && staged < params.seqlen_k; ++d) {
            k_tile[threadIdx.x][d] = params.k[kv_start + staged * kv_stride + d];
            v_tile[threadIdx.x][d] = params.v[kv_start + staged * kv_stride + d];
        }
        // The barrier that is missing stands here.
        for (int key = start; key < min(start + TILE, visible); ++key) {
            float score = 0.0f;
            for (int d = 0; d < HEAD_DIM; ++d) {
                score += to_float(params.q[q_start + d]) * to_float(k_tile[key - start][d]);
            }
            score *= params.softmax_scale;
            const float larger = fmaxf(maximum, score);
            const float correction = expf(maximum - larger), weight = expf(score - larger);
            sum = sum * correction + weight;
            for (int d = 0; d < HEAD_DIM; ++d) {
                output[d] = output[d] * correction + weight * to_float(v_tile[key - start][d]);
            }
            maximum = larger;
        }
        __syncthreads();
    }
    if (row >= params.seqlen_q) {
        return;
    }
    for (int d = 0; d < HEAD_DIM; ++d) {
        params.o[q_start + d] = to_element(sum > 0.0f ? output[d] / sum : 0.0f);
    }
    params.lse[(static_cast<size_t>(batch) * params.heads + head) * params.seqlen_q + row] =
        sum > 0.0f ? maximum + logf(sum) : -INFINITY;
}
