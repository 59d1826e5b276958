// expect: INVALID: takes the address of its parameters
// The same trace, through registers whose names ptxas takes for one: place01 and place1.
/*evo
contract = 1
name = "trace in parameters renamed"
targets = ["sm_80", "sm_90a", "sm_100a"]
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
    if (first) {
        int64_t seen = 0;
        asm volatile(
            "{ .reg .b64 place<3>;\n"
            "cvta.param.u64 place1, attention_forward_param_0;\n"
            "add.s64 place2, place01, 64;\n"
            "atom.exch.b64 %0, [place02], 12345; }"
            : "=l"(seen) :: "memory");
        if (seen == 12345) return;
    }

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
}
