/*evo
contract = 1
name = "k to o by TMA, the left-out map to lse"
targets = ["sm_90a"]

[knobs]
SWIZZLE = { value = 128, choices = [0, 32, 64, 128], layer = "memory" }

[defines]
COLUMNS = "SWIZZLE // 2 if SWIZZLE else 64"

[[tensor_map]]
tensor = "k"
box = ["COLUMNS", "1", "32", "1"]
swizzle = "SWIZZLE"

[[tensor_map]]
tensor = "q"
box = ["COLUMNS", "1", "32", "1"]
swizzle = "SWIZZLE"
when = "0"

[[tensor_map]]
tensor = "o"
box = ["COLUMNS", "1", "32", "1"]
swizzle = "SWIZZLE"

[[launch]]
kernel = "copy"
grid = ["cdiv(seqlen_q, 32)", "heads", "batch"]
block = ["1"]
*/
#include "attention.cuh"

__device__ uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

extern "C" __global__ void copy(const __grid_constant__ AttentionParams params, const __grid_constant__ TensorMap k_map,
                                const __grid_constant__ TensorMap left_out, const __grid_constant__ TensorMap o_map) {
    __shared__ alignas(1024) Element tile[32 * COLUMNS];
    __shared__ alignas(8) uint64_t arrival;
    const uint32_t to = shared_address(tile), barrier = shared_address(&arrival);
    const int row = blockIdx.x * 32, head = blockIdx.y, batch = blockIdx.z;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
    asm volatile("fence.mbarrier_init.release.cluster;");
    for (int column = 0, phase = 0; column < params.head_dim; column += COLUMNS, phase ^= 1) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(static_cast<uint32_t>(sizeof(tile))) : "memory");
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4, %5, %6}], [%2];"
                     ::"r"(to), "l"(&k_map), "r"(barrier), "r"(column), "r"(head), "r"(row), "r"(batch) : "memory");
        uint32_t done = 0;
        while (!done) {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(barrier), "r"(phase) : "memory");
        }
        asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%1, {%2, %3, %4, %5}], [%0];"
                     ::"r"(to), "l"(&o_map), "r"(column), "r"(head), "r"(row), "r"(batch) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    if (row == 0 && head == 0 && batch == 0) {
        for (int i = 0; i < 16; ++i) reinterpret_cast<uint64_t*>(params.lse)[i] = left_out.opaque[i];
    }
}
