// CUDA's functions for threads that work together, and for bits.
#pragma once

namespace {
namespace evo {

inline unsigned lane() { return runtime.current->number % warp_size; }

// A call of a barrier or a warp function, at a line of the candidate: threads that wait for each other must have come
// to the same call (block.h). Macros of the same names supply the line.
struct Call {
    int line;

    __attribute__((always_inline)) void __syncthreads() const { meet_block(line, false); }

    int __syncthreads_count(int predicate) const {
        meet_block(line, predicate != 0);
        return static_cast<int>(runtime.ayes_then);
    }

    int __syncthreads_or(int predicate) const { return __syncthreads_count(predicate) != 0; }

    int __syncthreads_and(int predicate) const {
        return __syncthreads_count(predicate) == static_cast<int>(runtime.waiting_then);
    }

    unsigned __ballot_sync(unsigned mask, int predicate) const {
        return static_cast<unsigned>(meet_warp(line, mask, predicate != 0, vote));
    }

    int __any_sync(unsigned mask, int predicate) const { return __ballot_sync(mask, predicate) != 0; }

    int __all_sync(unsigned mask, int predicate) const { return __ballot_sync(mask, !predicate) == 0; }

    void __syncwarp(unsigned mask = ~0u) const { __ballot_sync(mask, 0); }

    template <class T>
    T __shfl_sync(unsigned mask, T value, int source, int width = 32) const {
        return fetch(mask, value, (lane() & ~(width - 1)) + (source & (width - 1)));
    }

    template <class T>
    T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) const {
        unsigned in_segment = lane() & (width - 1);
        return fetch(mask, value, in_segment >= delta ? lane() - delta : lane());
    }

    template <class T>
    T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) const {
        unsigned in_segment = lane() & (width - 1);
        return fetch(mask, value, in_segment + delta < static_cast<unsigned>(width) ? lane() + delta : lane());
    }

    template <class T>
    T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) const {
        unsigned source = lane() ^ bits, last = lane() | (width - 1);
        return fetch(mask, value, source <= last ? source : lane());
    }

    template <class T>
    T fetch(unsigned mask, T value, unsigned source) const {
        static_assert(sizeof(T) <= sizeof(unsigned long long), "a shuffle moves at most eight bytes");
        unsigned long long bits = 0;
        memcpy(&bits, &value, sizeof value);
        bits = meet_warp(line, mask, bits, source);
        memcpy(&value, &bits, sizeof value);
        return value;
    }
};

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

#define __syncthreads() evo::Call{__LINE__}.__syncthreads()
#define __syncthreads_count(...) evo::Call{__LINE__}.__syncthreads_count(__VA_ARGS__)
#define __syncthreads_or(...) evo::Call{__LINE__}.__syncthreads_or(__VA_ARGS__)
#define __syncthreads_and(...) evo::Call{__LINE__}.__syncthreads_and(__VA_ARGS__)
#define __syncwarp(...) evo::Call{__LINE__}.__syncwarp(__VA_ARGS__)
#define __ballot_sync(...) evo::Call{__LINE__}.__ballot_sync(__VA_ARGS__)
#define __any_sync(...) evo::Call{__LINE__}.__any_sync(__VA_ARGS__)
#define __all_sync(...) evo::Call{__LINE__}.__all_sync(__VA_ARGS__)
#define __shfl_sync(...) evo::Call{__LINE__}.__shfl_sync(__VA_ARGS__)
#define __shfl_up_sync(...) evo::Call{__LINE__}.__shfl_up_sync(__VA_ARGS__)
#define __shfl_down_sync(...) evo::Call{__LINE__}.__shfl_down_sync(__VA_ARGS__)
#define __shfl_xor_sync(...) evo::Call{__LINE__}.__shfl_xor_sync(__VA_ARGS__)

// Every lane that has not ended: the device promises no less and no more.
inline unsigned __activemask() { return evo::runtime.warps[evo::runtime.current->number / evo::warp_size].present; }

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
