// CUDA's float math. exp2f and expf are written out, branch-free, so that a loop over them becomes vector code; the
// rest is the C library's. Device semantics where they differ: fmaxf of a NaN and a number is the number.
#pragma once

namespace {
namespace evo {

template <class To, class From>
To bit_cast(From value) {
    static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps their number");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

// 2^(whole + rest), |rest| <= 1/2, whole in [-125, 128]: a polynomial (mini-max, 2e-9) times a power of two. Twice the
// polynomial and half the power, so that the power is a normal number to the end.
inline float scaled_exp2(float whole, float rest) {
    float p = 2 * 1.5461444698569e-4f;
    p = p * rest + 2 * 1.3400428177616e-3f;
    p = p * rest + 2 * 9.6180566785245e-3f;
    p = p * rest + 2 * 5.5503272266703e-2f;
    p = p * rest + 2 * 2.4022650922289e-1f;
    p = p * rest + 2 * 6.9314720670283e-1f;
    p = p * rest + 2.0f;
    return p * bit_cast<float>((static_cast<int>(whole) + 126) << 23);
}

constexpr float round_to_whole = 12582912.0f;  // 1.5 * 2^23: adding it leaves no bits for a fraction

inline float clamp_exponent(float x) {
    x = x < -125.0f ? -125.0f : x;  // either comparison is false for a NaN
    return x > 128.0f ? 128.0f : x;
}

// What underflows is zero, as the device's ex2.approx.ftz has it.
inline float limit_exp2(float exponent, float result) {
    result = exponent < -125.0f ? 0.0f : result;
    return exponent >= 128.0f ? __builtin_inff() : result;
}

}  // namespace evo

inline float __int_as_float(int bits) { return evo::bit_cast<float>(bits); }
inline float __uint_as_float(unsigned bits) { return evo::bit_cast<float>(bits); }
inline int __float_as_int(float x) { return evo::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return evo::bit_cast<unsigned>(x); }

inline float exp2f(float x) {
    float bounded = evo::clamp_exponent(x);
    float whole = (bounded + evo::round_to_whole) - evo::round_to_whole;
    return evo::limit_exp2(x, evo::scaled_exp2(whole, bounded - whole));
}

inline float expf(float x) {
    constexpr float log2e = 1.44269502f, log2e_rest = 1.92596299e-8f;  // their sum is log2(e) to 48 bits
    float exponent = x * log2e;
    float bounded = evo::clamp_exponent(exponent);
    float whole = (bounded + evo::round_to_whole) - evo::round_to_whole;
    float rest = __builtin_fmaf(x, log2e, -whole) + x * log2e_rest;
    rest = exponent == bounded ? rest : bounded - whole;  // x may be infinite
    return evo::limit_exp2(exponent, evo::scaled_exp2(whole, rest));
}

inline float exp10f(float x) { return ::exp10f(x); }
inline float __expf(float x) { return exp2f(x * 1.44269504f); }
inline float __exp10f(float x) { return exp2f(x * 3.32192809f); }
inline float __logf(float x) { return ::logf(x); }
inline float __log2f(float x) { return ::log2f(x); }
inline float __log10f(float x) { return ::log10f(x); }
inline float __powf(float x, float y) { return ::powf(x, y); }

inline float fmaxf(float a, float b) {
    float larger = a > b ? a : b;
    return b != b ? a : larger;
}
inline float fminf(float a, float b) {
    float smaller = a < b ? a : b;
    return b != b ? a : smaller;
}
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
#define EVO_MINIMUM_MAXIMUM(T)                         \
    inline T max(T a, T b) { return a > b ? a : b; } \
    inline T min(T a, T b) { return a < b ? a : b; }
EVO_MINIMUM_MAXIMUM(int)
EVO_MINIMUM_MAXIMUM(unsigned)
EVO_MINIMUM_MAXIMUM(long)
EVO_MINIMUM_MAXIMUM(unsigned long)
EVO_MINIMUM_MAXIMUM(long long)
EVO_MINIMUM_MAXIMUM(unsigned long long)
EVO_MINIMUM_MAXIMUM(double)
#undef EVO_MINIMUM_MAXIMUM
inline unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }
inline unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }

inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(rintf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

}  // namespace
