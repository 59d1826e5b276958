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

// Whether all bytes of a workspace are `value`; they are all 7 afterwards.
__device__ bool holds_only(void* workspace, unsigned char value) {
    unsigned char* const bytes = static_cast<unsigned char*>(workspace);
    bool only = true;
    for (int i = 0; i < 4000; ++i) {
        only = only && bytes[i] == value;
        bytes[i] = 7;
    }
    return only;
}

extern "C" __global__ void look(const __grid_constant__ AttentionParams params) {
    params.lse[0] = holds_only(params.workspace[0], 0xff);
    params.lse[1] = holds_only(params.workspace[1], 0);
}
