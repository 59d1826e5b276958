// CUDA's functions for threads that work together, and for bits. Line numbers tell calls apart: see block.h.
#pragma once

namespace {
namespace evo {

inline int count_block(int line, bool aye) {
    meet_block(line, aye);
    return static_cast<int>(runtime.ayes_then);
}

inline bool all_block(int line, bool aye) {
    meet_block(line, aye);
    return runtime.ayes_then == runtime.waiting_then;
}

inline unsigned ballot(int line, unsigned mask, bool aye) {
    return static_cast<unsigned>(meet_warp(line, mask, aye, vote));
}

inline unsigned lanes_present(unsigned mask) {
    return runtime.warps[runtime.current->number / warp_size].present & mask;
}

inline unsigned lane() { return runtime.current->number % warp_size; }

template <class T>
T fetch(int line, unsigned mask, T value, unsigned source) {
    static_assert(sizeof(T) <= sizeof(unsigned long long), "a shuffle moves at most eight bytes");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = meet_warp(line, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
T shuffle(int line, unsigned mask, T value, int source, int width = 32) {
    return fetch(line, mask, value, (lane() & ~(width - 1)) + (source & (width - 1)));
}

template <class T>
T shuffle_up(int line, unsigned mask, T value, unsigned delta, int width = 32) {
    unsigned in_segment = lane() & (width - 1);
    return fetch(line, mask, value, in_segment >= delta ? lane() - delta : lane());
}

template <class T>
T shuffle_down(int line, unsigned mask, T value, unsigned delta, int width = 32) {
    unsigned in_segment = lane() & (width - 1);
    return fetch(line, mask, value, in_segment + delta < static_cast<unsigned>(width) ? lane() + delta : lane());
}

template <class T>
T shuffle_xor(int line, unsigned mask, T value, int bits, int width = 32) {
    unsigned source = lane() ^ bits, last = lane() | (width - 1);
    return fetch(line, mask, value, source <= last ? source : lane());
}

template <class T, class Change>
T exchange(T* address, Change change) {
    T old = *address;
    T next = change(old);
    while (!__atomic_compare_exchange(address, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        next = change(old);  // blocks may run on several processor threads
    }
    return old;
}

template <class T>
struct Same {  // keeps an argument from taking part in deduction, so that atomicAdd(float*, 1) is one
    typedef T type;
};
template <class T>
using same = typename Same<T>::type;

}  // namespace evo

#define __syncthreads() evo::meet_block(__LINE__, false)
#define __syncthreads_count(...) evo::count_block(__LINE__, (__VA_ARGS__) != 0)
#define __syncthreads_or(...) static_cast<int>(evo::count_block(__LINE__, (__VA_ARGS__) != 0) != 0)
#define __syncthreads_and(...) static_cast<int>(evo::all_block(__LINE__, (__VA_ARGS__) != 0))

#define __shfl_sync(...) evo::shuffle(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) evo::shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) evo::shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) evo::shuffle_xor(__LINE__, __VA_ARGS__)

// A mask may be left out (all lanes), hence the sum with what the macro was given.
#define __syncwarp(...) static_cast<void>(evo::ballot(__LINE__, evo::mask_or_all(__VA_ARGS__), false))
#define __ballot_sync(mask, ...) evo::ballot(__LINE__, mask, (__VA_ARGS__) != 0)
#define __any_sync(mask, ...) static_cast<int>(evo::ballot(__LINE__, mask, (__VA_ARGS__) != 0) != 0)
#define __all_sync(mask, ...) evo::all_lanes(__LINE__, mask, (__VA_ARGS__) != 0)

namespace evo {

inline unsigned mask_or_all(unsigned mask = ~0u) { return mask; }

inline int all_lanes(int line, unsigned mask, bool aye) { return ballot(line, mask, !aye) == 0; }

}  // namespace evo

// Every lane that has not ended: the device promises no less and no more.
inline unsigned __activemask() { return evo::lanes_present(~0u); }

inline void __threadfence() {}
inline void __threadfence_block() {}
[[noreturn]] inline void __trap() { evo::fail("__trap() was called by thread %u", evo::runtime.current->number); }

template <class T>
T atomicAdd(T* address, evo::same<T> value) {
    return evo::exchange(address, [=](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicSub(T* address, evo::same<T> value) {
    return evo::exchange(address, [=](T old) { return static_cast<T>(old - value); });
}
template <class T>
T atomicMax(T* address, evo::same<T> value) {
    return evo::exchange(address, [=](T old) { return old < value ? value : old; });
}
template <class T>
T atomicMin(T* address, evo::same<T> value) {
    return evo::exchange(address, [=](T old) { return value < old ? value : old; });
}
template <class T>
T atomicAnd(T* address, evo::same<T> value) {
    return evo::exchange(address, [=](T old) { return old & value; });
}
template <class T>
T atomicOr(T* address, evo::same<T> value) {
    return evo::exchange(address, [=](T old) { return old | value; });
}
template <class T>
T atomicExch(T* address, evo::same<T> value) {
    return evo::exchange(address, [=](T) { return value; });
}
template <class T>
T atomicCAS(T* address, evo::same<T> expected, evo::same<T> value) {
    return evo::exchange(address, [=](T old) { return old == expected ? value : old; });
}

template <class T>
T __ldg(const T* address) {
    return *address;
}
template <class T>
T __ldcg(const T* address) {
    return *address;
}
template <class T>
T __ldcs(const T* address) {
    return *address;
}
template <class T>
void __stcs(T* address, evo::same<T> value) {
    *address = value;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline unsigned __brev(unsigned bits) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i) {
        reversed |= (bits >> i & 1) << (31 - i);
    }
    return reversed;
}

}  // namespace
