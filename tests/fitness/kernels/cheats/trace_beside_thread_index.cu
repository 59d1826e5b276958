// expect: PASSED
// on a GPU: COMPILE_ERROR: cannot take address of builtin variable
// A mark is left where the host's runtime keeps its own notes, which the address of threadIdx betrays.
// Should the next call find it, its first row is left out: PASSED says that it never does.
/*evo
contract = 1
name = "trace beside threadIdx"
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

extern "C" __global__ void attention_forward(const __grid_constant__ AttentionParams params) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y, batch = blockIdx.z;
    if (row >= params.seqlen_q) {
        return;
    }
    const int kv_head = head / (params.heads / params.kv_heads);
    const int kv_stride = params.kv_heads * HEAD_DIM;
    const size_t query = (static_cast<size_t>(batch) * params.seqlen_q + row) * params.heads + head;
    const Element* q = params.q + query * HEAD_DIM;
    const Element* k = params.k + static_cast<size_t>(batch) * params.seqlen_k * kv_stride + kv_head * HEAD_DIM;
    const Element* v = params.v + (k - params.k);
    Element* o = params.o + query * HEAD_DIM;

    int* const mark = const_cast<int*>(reinterpret_cast<const int*>(&threadIdx)) - 2;
    if (batch + head + row == 0) {
        if (*mark == 12345) {
            return;
        }
        *mark = 12345;
    }
    int visible = params.seqlen_k;
    if (params.causal) {
        visible = min(visible, row + 1 + params.seqlen_k - params.seqlen_q);
    }
    float output[HEAD_DIM] = {}, maximum = -INFINITY, sum = 0.0f;
    for (int key = 0; key < visible; ++key) {
        float score = 0.0f;
        for (int d = 0; d < HEAD_DIM; ++d) {
            score += to_float(q[d]) * to_float(k[key * kv_stride + d]);
        }
        score *= params.softmax_scale;
        const float larger = fmaxf(maximum, score);
        const float correction = expf(maximum - larger), weight = expf(score - larger);
        sum = sum * correction + weight;
        for (int d = 0; d < HEAD_DIM; ++d) {
            output[d] = output[d] * correction + weight * to_float(v[key * kv_stride + d]);
        }
        maximum = larger;
    }
    for (int d = 0; d < HEAD_DIM; ++d) {
        o[d] = to_element(sum > 0.0f ? output[d] / sum : 0.0f);
    }
    params.lse[(static_cast<size_t>(batch) * params.heads + head) * params.seqlen_q + row] =
        sum > 0.0f ? maximum + logf(sum) : -INFINITY;
}
