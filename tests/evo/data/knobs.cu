/*evo
contract = 1
name = "four knobs"
targets = ["portable"]

[knobs]
BLOCK_M = { value = 32, choices = [16, 32, 64, 128], layer = "launch" }
STAGES = { value = 1, choices = [1, 2, 3, 4], layer = "schedule" }
UNROLL = { value = 2, choices = [1, 2, 4, 8], layer = "instructions" }
WIDTH = { value = 1, choices = [1, 2, 4], layer = "memory" }

[[launch]]
kernel = "attention_forward"
grid = ["cdiv(seqlen_q, BLOCK_M)", "heads", "batch"]
block = ["BLOCK_M"]
*/
#include "attention.cuh"

extern "C" __global__ void attention_forward(const __grid_constant__ AttentionParams params) {
    params.o[threadIdx.x] = to_element(0.0f);
}
