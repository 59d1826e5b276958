/*evo
contract = 1
name = "says what its workspaces held"
targets = ["portable"]

[[workspace]]
bytes = "4000"

[[workspace]]
bytes = "4000"
zeroed = true

[[launch]]
kernel = "look"
grid = ["1"]
block = ["1"]
*/
#include "attention.cuh"

// Whether of each 16 bits of a workspace those in `mask` are `value`; all bytes are 7 afterwards.
__device__ bool holds_only(void* workspace, unsigned short mask, unsigned short value) {
    unsigned short* const words = static_cast<unsigned short*>(workspace);
    bool only = true;
    for (int i = 0; i < 2000; ++i) {
        only = only && (words[i] & mask) == value;
        words[i] = 0x0707;
    }
    return only;
}

extern "C" __global__ void look(const __grid_constant__ AttentionParams params) {
    params.lse[0] = holds_only(params.workspace[0], 0x7f81, 0x7f81);  // the bits that every pattern has: a NaN
    params.lse[1] = holds_only(params.workspace[1], 0xffff, 0);
}
