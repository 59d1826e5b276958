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

constexpr int WORDS = 1000;

// Whether of each word of a workspace the bits in `mask` are `value`.
__device__ bool holds_only(const void* workspace, unsigned int mask, unsigned int value) {
    const unsigned int* const words = static_cast<const unsigned int*>(workspace);
    bool only = true;
    for (int i = 0; i < WORDS; ++i) only = only && (words[i] & mask) == value;
    return only;
}

// 1 where the first holds NaN patterns, 2 where it holds small numbers, 0 where it holds anything else; whether the second
// holds zeros. All bytes of both are 7 afterwards.
extern "C" __global__ void look(const __grid_constant__ AttentionParams params) {
    const bool nans = holds_only(params.workspace[0], 0x7f817f81u, 0x7f817f81u);  // the bits that every pattern has
    const bool small = holds_only(params.workspace[0], ~31u, 0u);
    params.lse[0] = nans ? 1.0f : small ? 2.0f : 0.0f;
    params.lse[1] = holds_only(params.workspace[1], ~0u, 0u);
    for (int i = 0; i < WORDS; ++i) {
        static_cast<unsigned int*>(params.workspace[0])[i] = 0x07070707u;
        static_cast<unsigned int*>(params.workspace[1])[i] = 0x07070707u;
    }
}
