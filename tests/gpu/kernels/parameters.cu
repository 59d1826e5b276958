/*evo
contract = 1
name = "writes down what it was called with"
targets = ["portable"]

[[workspace]]
bytes = "1000"

[[workspace]]
bytes = "8"
when = "0"

[[workspace]]
bytes = "8"
zeroed = true

[[launch]]
kernel = "write_down"
grid = ["1"]
block = ["1"]
*/
#include "attention.cuh"

// The pointers as 64-bit words of o, the sizes as 32-bit words of lse.
extern "C" __global__ void write_down(const __grid_constant__ AttentionParams params) {
    const void* const pointers[] = {params.q, params.k, params.v, params.o, params.lse,
                                    params.workspace[0], params.workspace[1], params.workspace[2], params.workspace[3]};
    const int sizes[] = {params.batch, params.heads, params.kv_heads, params.seqlen_q, params.seqlen_k,
                         params.head_dim, __float_as_int(params.softmax_scale), params.causal};
    for (int i = 0; i < 9; ++i) reinterpret_cast<uint64_t*>(params.o)[i] = reinterpret_cast<uint64_t>(pointers[i]);
    for (int i = 0; i < 8; ++i) reinterpret_cast<int*>(params.lse)[i] = sizes[i];
}
