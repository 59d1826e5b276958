/*evo
contract = 1
name = "one thread a row"
targets = ["portable"]

[knobs]
BLOCK_M = { value = 64, choices = [32, 64, 128], layer = "launch" }
UNROLL = { value = 4, choices = [1, 2, 4], layer = "instructions" }

[[launch]]
kernel = "attention_forward"
grid = ["cdiv(seqlen_q, BLOCK_M)", "heads", "batch"]
block = ["BLOCK_M"]
*/
#include "attention.cuh"

// The score of one query with one key.
__device__ float score(const Element* q, const Element* k, int n) {
    float sum = 0.0f;
    for (int d = 0; d < n; ++d) {
        sum += to_float(q[d]) * to_float(k[d]);
    }
    return sum;
}

extern "C" __global__ void attention_forward(const __grid_constant__ AttentionParams params) {
    int row = blockIdx.x * BLOCK_M + threadIdx.x;
    if (row >= params.seqlen_q) {
        return;
    }
    for (int d = 0; d < params.head_dim; ++d) {
        params.o[row] = to_element(0.0f);
    }
}
