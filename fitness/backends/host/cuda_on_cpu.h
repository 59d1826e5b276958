// CUDA on a CPU: force-included before a portable candidate, so that g++ compiles the source that NVRTC compiles.
//
// Portable means: thread and block indices, static and dynamic shared memory, __syncthreads and its votes, __syncwarp,
// shuffles and votes of a warp, atomics, float math, bf16 and fp16, vector types. No asm, no maps, no clusters.
//
// How it stands for the device:
//   a thread         a fiber that runs to its next barrier or warp function (block.h, fiber.h)
//   __shared__       a thread_local, so that whatever else is writable and static is a global of the candidate (and
//                    refused); the whole is filled with NaN patterns before every block
//   dynamic shared   one array at a fixed place; the declaration is rewritten into a pointer to it (host_source.py)
//   line numbers     barriers carry theirs, to tell threads that wait in different places
//
// No thread is interrupted: one that spins until another writes never ends, and one block never waits for a later one.
//
// Everything stands in an unnamed namespace, as does the candidate: its kernels inline into the entry, and the names
// of CUDA's math hide those of the C library without touching them.
#pragma once

#include <link.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(...) __attribute__((aligned(__VA_ARGS__)))
#define __shared__ static thread_local

#define EVO_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define EVO_UNROLL(...) EVO_PRAGMA(GCC unroll __VA_ARGS__)

#include "vector_types.h"

#include "fiber.h"

#include "block.h"

#include "warp.h"

#include "device_functions.h"

#include "device_math.h"

#include "small_floats.h"

#include "launch.h"

// The keyword is refused after `static`, which __shared__ stands for; the attribute may stand anywhere. Last, because
// the headers of the system use the keyword.
#define alignas(...) __attribute__((aligned(evo::alignment<__VA_ARGS__>())))
