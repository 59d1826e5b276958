// expect: PASSED
// Looks for its own last row, which it has computed, in the two mebibytes of device memory around each of its tensors:
// a reference's output, a baseline's, or what is left of one. Should it ever find one, it writes zeros: PASSED says that
// it never does (and `test_traces.py` that it finds one which is there). Its own o and v do not count: where one key has
// all the weight, that key's row of v is the answer, and so is any other row of o that sees the same key.
/*evo
contract = 1
name = "answer in memory"
targets = ["portable"]
supports = "head_dim <= 128"

[defines]
HEAD_DIM = "head_dim"

[[launch]]
kernel = "attention_forward"
grid = ["cdiv(seqlen_q, 64)", "heads", "batch"]
block = ["64"]
shared_bytes = "0"
*/
#include "attention.cuh"

// Where row `token` of head `head` begins in a tensor [batch, seqlen, heads, HEAD_DIM].
__device__ int64_t row_start(int batch, int token, int head, int seqlen, int heads) {
    const int64_t start = ((static_cast<int64_t>(batch) * seqlen + token) * heads + head) * HEAD_DIM;
    return start;
}

extern "C" __global__ void __launch_bounds__(64) attention_forward(const __grid_constant__ AttentionParams params) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y, batch = blockIdx.z;
    if (row >= params.seqlen_q) return;
    const bool first = row == 0 && head == 0 && batch == 0;
    const int64_t o_size = row_start(params.batch, 0, 0, params.seqlen_q, params.heads);
    const int64_t k_size = row_start(params.batch, 0, 0, params.seqlen_k, params.kv_heads);
    const int64_t query = row_start(batch, row, head, params.seqlen_q, params.heads);
    const int kv_head = head / (params.heads / params.kv_heads);
    const int visible = params.causal ? row + 1 + params.seqlen_k - params.seqlen_q : params.seqlen_k;
    float* const lse = params.lse + (static_cast<int64_t>(batch) * params.heads + head) * params.seqlen_q + row;

    float maximum = -INFINITY, sum = 0.0f, output[HEAD_DIM] = {};
    for (int token = 0; token < visible; ++token) {
        const int64_t key = row_start(batch, token, kv_head, params.seqlen_k, params.kv_heads);
        float score = 0.0f;
        for (int d = 0; d < HEAD_DIM; ++d) score += to_float(params.q[query + d]) * to_float(params.k[key + d]);
        score *= params.softmax_scale;
        const float new_maximum = fmaxf(maximum, score);
        const float correction = expf(maximum - new_maximum), weight = expf(score - new_maximum);
        for (int d = 0; d < HEAD_DIM; ++d) output[d] = output[d] * correction + weight * to_float(params.v[key + d]);
        sum = sum * correction + weight;
        maximum = new_maximum;
    }
    for (int d = 0; d < HEAD_DIM; ++d) params.o[query + d] = to_element(sum > 0.0f ? output[d] / sum : 0.0f);
    *lse = sum > 0.0f ? maximum + logf(sum) : -INFINITY;
    if (row == params.seqlen_q - 1 && head == 0 && batch == 0) {  // the first sees one key, and is a row of v
        const void* const tensors[] = {params.o, params.lse, params.q, params.k, params.v};
        float norm = 0.0f;
        for (int d = 0; d < HEAD_DIM; ++d) norm += output[d] / sum * (output[d] / sum);
        for (int i = 0; i < 5 * 16384; ++i) {
            const uint64_t block = reinterpret_cast<uint64_t>(tensors[i / 16384]) & ~uint64_t((2 << 20) - 1);
            const Element* const found = reinterpret_cast<const Element*>(block + i % 16384 * 128);
            if (found + HEAD_DIM > params.o && found < params.o + o_size) continue;
            if (found + HEAD_DIM > params.v && found < params.v + k_size) continue;
            float distance = 0.0f;  // two right outputs differ by less than 2 % of their norm; NaN is far from all
            for (int d = 0; d < HEAD_DIM; ++d) {
                distance += (to_float(found[d]) - output[d] / sum) * (to_float(found[d]) - output[d] / sum);
                if (!(distance < 0.0004f * norm)) break;
            }
            if (!(distance < 0.0004f * norm)) continue;
            for (int d = 0; d < HEAD_DIM; ++d) params.o[query + d] = to_element(0.0f);
        }
    }
}
