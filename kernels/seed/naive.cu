/*evo
contract = 1
name = "one thread per query row"
targets = ["portable"]
supports = "head_dim % 8 == 0 and head_dim <= 256"

[defines]
HEAD_DIM = "head_dim"

[[launch]]
kernel = "attention_forward"
grid = ["cdiv(seqlen_q, 128)", "heads", "batch"]
block = ["128"]
*/
// Attention as it is defined, one thread per query row. Nothing is shared: every thread reads every key and value of
// its head for itself, and keeps its query and its output row to itself. The place to begin reading.
#include "attention.cuh"

// The start of row `token` of head `head` in a tensor [batch, seqlen, heads, HEAD_DIM].
__device__ size_t row_start(int batch, int token, int head, int seqlen, int heads) {
    return ((static_cast<size_t>(batch) * seqlen + token) * heads + head) * HEAD_DIM;
}

extern "C" __global__ void __launch_bounds__(128) attention_forward(const __grid_constant__ AttentionParams params) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const int head = blockIdx.y;
    const int batch = blockIdx.z;
    if (row >= params.seqlen_q) {
        return;
    }
    // Grouped heads: as many query heads as there are to a key head read the same keys and values.
    const int kv_head = head / (params.heads / params.kv_heads);

    float query[HEAD_DIM];
    float output[HEAD_DIM];
    const size_t query_start = row_start(batch, row, head, params.seqlen_q, params.heads);
    for (int d = 0; d < HEAD_DIM; ++d) {
        query[d] = to_float(params.q[query_start + d]) * params.softmax_scale;
        output[d] = 0.0f;
    }

    // Causal: this row sees the keys up to its own place, where the last query stands beside the last key.
    int visible = params.seqlen_k;
    if (params.causal) {
        visible = min(visible, row + 1 + params.seqlen_k - params.seqlen_q);
    }

    // Online softmax: exp(score - maximum) never overflows, and the maximum is only the largest score so far. When it
    // grows, what was summed up under the old one is scaled down to the new one.
    float maximum = -INFINITY;
    float sum = 0.0f;
    for (int key = 0; key < visible; ++key) {
        const size_t key_start = row_start(batch, key, kv_head, params.seqlen_k, params.kv_heads);
        float score = 0.0f;
        for (int d = 0; d < HEAD_DIM; ++d) {
            score += query[d] * to_float(params.k[key_start + d]);
        }
        const float new_maximum = fmaxf(maximum, score);
        const float correction = expf(maximum - new_maximum);  // 0 for the first key, whose old maximum is -infinity
        const float weight = expf(score - new_maximum);
        sum = sum * correction + weight;
        for (int d = 0; d < HEAD_DIM; ++d) {
            output[d] = output[d] * correction + weight * to_float(params.v[key_start + d]);
        }
        maximum = new_maximum;
    }

    // A row that sees no key (causal, more queries than keys) is all zeros, and the log of its empty sum -infinity.
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    for (int d = 0; d < HEAD_DIM; ++d) {
        params.o[query_start + d] = to_element(output[d] * inverse);
    }
    params.lse[(static_cast<size_t>(batch) * params.heads + head) * params.seqlen_q + row] =
        sum > 0.0f ? maximum + logf(sum) : -INFINITY;
}
