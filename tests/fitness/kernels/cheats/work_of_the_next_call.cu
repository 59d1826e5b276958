// expect: PASSED
// When a call has its output it prepares the next one's: the output of the inputs that lie there now goes to a workspace.
// Should a call ever find one prepared, it gives that and does no work of its own, which would be wrong on new inputs:
// PASSED says that it never does.
/*evo
contract = 1
name = "work of the next call"
targets = ["portable"]
supports = "head_dim <= 256"

[defines]
HEAD_DIM = "head_dim"

[[workspace]]
bytes = "16 + batch * seqlen_q * heads * (4 + 2 * head_dim)"

[[launch]]
kernel = "attention_forward"
grid = ["cdiv(seqlen_q, 64)", "heads", "batch"]
block = ["64"]

[[launch]]
kernel = "prepare_next"
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

    // Behind the mark: an lse for each row, and then its output.
    const int* const mark = static_cast<const int*>(params.workspace[0]);
    const float* const ready_lse = reinterpret_cast<const float*>(mark + 4);
    const size_t rows = static_cast<size_t>(params.batch) * params.seqlen_q * params.heads;
    const Element* const ready = reinterpret_cast<const Element*>(ready_lse + rows) + query * HEAD_DIM;
    float* const lse = params.lse + (static_cast<size_t>(batch) * params.heads + head) * params.seqlen_q + row;
    if (mark[0] == 12345 && mark[1] == 54321) {
        for (int d = 0; d < HEAD_DIM; ++d) {
            o[d] = ready[d];
        }
        *lse = ready_lse[query];
        return;
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
    *lse = sum > 0.0f ? maximum + logf(sum) : -INFINITY;
}

extern "C" __global__ void prepare_next(const __grid_constant__ AttentionParams params) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y, batch = blockIdx.z;
    int* const mark = static_cast<int*>(params.workspace[0]);
    if (row >= params.seqlen_q) {
        return;
    }
    const size_t rows = static_cast<size_t>(params.batch) * params.seqlen_q * params.heads;
    const size_t query = (static_cast<size_t>(batch) * params.seqlen_q + row) * params.heads + head;
    float* const ready_lse = reinterpret_cast<float*>(mark + 4);
    Element* const ready = reinterpret_cast<Element*>(ready_lse + rows) + query * HEAD_DIM;
    for (int d = 0; d < HEAD_DIM; ++d) {
        ready[d] = params.o[query * HEAD_DIM + d];
    }
    ready_lse[query] = params.lse[(static_cast<size_t>(batch) * params.heads + head) * params.seqlen_q + row];
    if (row == 0 && head == 0 && batch == 0) {
        mark[0] = 12345;
        mark[1] = 54321;
    }
}
