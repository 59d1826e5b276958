// The kernel contract, version 1: what every candidate is called with. See docs/kernel-contract.md.
//
// The harness mirrors these structures byte for byte; the static asserts below and its own hold the two together.
#pragma once

#if defined(__CUDACC_RTC__)  // NVRTC has no <cstdint> and no <cmath>
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#endif

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if defined(EVO_BF16) == defined(EVO_FP16)
#error "exactly one of EVO_BF16 and EVO_FP16 must be defined"
#endif

#if defined(EVO_BF16)
typedef __nv_bfloat16 Element;
__device__ __forceinline__ float to_float(Element x) { return __bfloat162float(x); }
__device__ __forceinline__ Element to_element(float x) { return __float2bfloat16_rn(x); }
#else
typedef __half Element;
__device__ __forceinline__ float to_float(Element x) { return __half2float(x); }
__device__ __forceinline__ Element to_element(float x) { return __float2half_rn(x); }
#endif

// q, o: [batch, seqlen_q, heads, head_dim]; k, v: [batch, seqlen_k, kv_heads, head_dim]; all contiguous.
// lse: [batch, heads, seqlen_q], the natural log of the sum over visible keys of exp(softmax_scale * q.k).
// Causal: query i sees keys j <= i + seqlen_k - seqlen_q. A row that sees no key yields zeros and lse = -INFINITY.
struct AttentionParams {
    const Element* q;
    const Element* k;
    const Element* v;
    Element* o;
    float* lse;
    void* workspace[4];  // as the manifest's [[workspace]] entries; null beyond them
    int batch;
    int heads;
    int kv_heads;
    int seqlen_q;
    int seqlen_k;
    int head_dim;
    float softmax_scale;
    int causal;
};

// A TMA descriptor, opaque; the manifest's [[tensor_map]] entries, by value after the parameters, in their order.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

static_assert(sizeof(Element) == 2, "elements are 16 bits wide");
static_assert(sizeof(AttentionParams) == 104, "AttentionParams is 104 bytes");
static_assert(sizeof(TensorMap) == 128 && alignof(TensorMap) == 64, "TensorMap is 128 bytes, aligned to 64");
