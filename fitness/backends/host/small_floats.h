// bf16 and fp16 with CUDA's names: stored in 16 bits, worked on in float, rounded to nearest even.
#pragma once

namespace {
namespace evo {

struct Bf16 {
    static float widen(unsigned short bits) { return bit_cast<float>(static_cast<unsigned>(bits) << 16); }

    static unsigned short narrow(float x) {
        unsigned bits = bit_cast<unsigned>(x);
        unsigned rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        return static_cast<unsigned short>(x != x ? 0x7fff : rounded);
    }
};

struct Fp16 {
    // Shifted into place, a finite number is a float whose exponent is 112 too small: subnormal numbers come out right
    // too. What then reads as 2^16 or more was infinite or a NaN.
    static float widen(unsigned short bits) {
        float magnitude = bit_cast<float>((bits & 0x7fffu) << 13) * 0x1p112f;
        unsigned special = magnitude >= 65536.0f ? 0x7f800000u : 0;
        unsigned sign = (bits & 0x8000u) << 16;
        return bit_cast<float>(bit_cast<unsigned>(magnitude) | special | sign);
    }

    // Adding 2^e for the e at which a float's last bit is the fp16's last bit has the processor do the rounding.
    static unsigned short narrow(float x) {
        unsigned bits = bit_cast<unsigned>(x), magnitude = bits & 0x7fffffffu;
        unsigned exponent = (magnitude & 0x7f800000u) < 0x38800000u ? 0x38800000u : magnitude & 0x7f800000u;
        float aligner = bit_cast<float>(exponent + (13u << 23));
        unsigned mantissa = bit_cast<unsigned>(bit_cast<float>(magnitude) + aligner) - bit_cast<unsigned>(aligner);
        unsigned half = mantissa + ((exponent - 0x38800000u) >> 13);
        half = magnitude >= 0x47800000u ? 0x7c00u : half;  // 2^16 and more
        half = magnitude > 0x7f800000u ? 0x7fffu : half | bits >> 16 & 0x8000u;
        return static_cast<unsigned short>(half);
    }
};

template <class Format>
struct Small {
    unsigned short bits;

    Small() = default;
    Small(float x) : bits(Format::narrow(x)) {}
    Small(double x) : Small(static_cast<float>(x)) {}
    Small(int x) : Small(static_cast<float>(x)) {}
    Small(unsigned x) : Small(static_cast<float>(x)) {}
    operator float() const { return Format::widen(bits); }

    Small& operator+=(Small other) { return *this = Small(float(*this) + float(other)); }
    Small& operator-=(Small other) { return *this = Small(float(*this) - float(other)); }
    Small& operator*=(Small other) { return *this = Small(float(*this) * float(other)); }
    Small& operator/=(Small other) { return *this = Small(float(*this) / float(other)); }
    friend Small operator+(Small a, Small b) { return a += b; }
    friend Small operator-(Small a, Small b) { return a -= b; }
    friend Small operator*(Small a, Small b) { return a *= b; }
    friend Small operator/(Small a, Small b) { return a /= b; }
    friend Small operator-(Small a) { return raw(a.bits ^ 0x8000); }
    friend bool operator==(Small a, Small b) { return float(a) == float(b); }
    friend bool operator!=(Small a, Small b) { return float(a) != float(b); }
    friend bool operator<(Small a, Small b) { return float(a) < float(b); }
    friend bool operator>(Small a, Small b) { return float(a) > float(b); }
    friend bool operator<=(Small a, Small b) { return float(a) <= float(b); }
    friend bool operator>=(Small a, Small b) { return float(a) >= float(b); }

    static Small raw(unsigned bits) {
        Small result;
        result.bits = static_cast<unsigned short>(bits);
        return result;
    }
};

template <class Format>
struct __attribute__((aligned(4))) SmallPair {
    Small<Format> x, y;

    SmallPair() = default;
    SmallPair(Small<Format> low, Small<Format> high) : x(low), y(high) {}
    friend SmallPair operator+(SmallPair a, SmallPair b) { return {a.x + b.x, a.y + b.y}; }
    friend SmallPair operator-(SmallPair a, SmallPair b) { return {a.x - b.x, a.y - b.y}; }
    friend SmallPair operator*(SmallPair a, SmallPair b) { return {a.x * b.x, a.y * b.y}; }
};

}  // namespace evo

typedef evo::Small<evo::Bf16> __nv_bfloat16;
typedef evo::SmallPair<evo::Bf16> __nv_bfloat162;
typedef evo::Small<evo::Fp16> __half;
typedef evo::SmallPair<evo::Fp16> __half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
typedef __half half;
typedef __half2 half2;

// What the two formats name alike.
template <class F> evo::Small<F> __hadd(evo::Small<F> a, evo::Small<F> b) { return a + b; }
template <class F> evo::Small<F> __hsub(evo::Small<F> a, evo::Small<F> b) { return a - b; }
template <class F> evo::Small<F> __hmul(evo::Small<F> a, evo::Small<F> b) { return a * b; }
template <class F> evo::Small<F> __hdiv(evo::Small<F> a, evo::Small<F> b) { return a / b; }
template <class F> evo::Small<F> __hneg(evo::Small<F> a) { return -a; }
template <class F> evo::Small<F> __hmax(evo::Small<F> a, evo::Small<F> b) { return fmaxf(a, b); }
template <class F> evo::Small<F> __hmin(evo::Small<F> a, evo::Small<F> b) { return fminf(a, b); }
template <class F> bool __hgt(evo::Small<F> a, evo::Small<F> b) { return a > b; }
template <class F> bool __hlt(evo::Small<F> a, evo::Small<F> b) { return a < b; }
template <class F> bool __hisnan(evo::Small<F> a) { return a != a; }
template <class F>
evo::Small<F> __hfma(evo::Small<F> a, evo::Small<F> b, evo::Small<F> c) {
    return static_cast<float>(double(float(a)) * float(b) + float(c));
}
template <class F> evo::SmallPair<F> __hadd2(evo::SmallPair<F> a, evo::SmallPair<F> b) { return a + b; }
template <class F> evo::SmallPair<F> __hsub2(evo::SmallPair<F> a, evo::SmallPair<F> b) { return a - b; }
template <class F> evo::SmallPair<F> __hmul2(evo::SmallPair<F> a, evo::SmallPair<F> b) { return a * b; }
template <class F>
evo::SmallPair<F> __hfma2(evo::SmallPair<F> a, evo::SmallPair<F> b, evo::SmallPair<F> c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <class F>
evo::SmallPair<F> __hmax2(evo::SmallPair<F> a, evo::SmallPair<F> b) {
    return {__hmax(a.x, b.x), __hmax(a.y, b.y)};
}
template <class F> float __low2float(evo::SmallPair<F> pair) { return pair.x; }
template <class F> float __high2float(evo::SmallPair<F> pair) { return pair.y; }

// What they name apart: TYPE is bfloat16 or half, PAIR bfloat162 or half2.
#define EVO_SMALL_FLOAT(TYPE, T, PAIR, P)                                                          \
    inline T __float2##TYPE(float x) { return x; }                                             \
    inline T __float2##TYPE##_rn(float x) { return x; }                                        \
    inline float __##TYPE##2float(T x) { return x; }                                           \
    inline T __ushort_as_##TYPE(unsigned short bits) { return T::raw(bits); }                  \
    inline unsigned short __##TYPE##_as_ushort(T x) { return x.bits; }                         \
    inline P __floats2##PAIR##_rn(float x, float y) { return {x, y}; }                         \
    inline P __float22##PAIR##_rn(float2 xy) { return {xy.x, xy.y}; }                          \
    inline float2 __##PAIR##2float2(P pair) { return {pair.x, pair.y}; }                       \
    inline P __float2##PAIR##_rn(float x) { return {x, x}; }                                   \
    inline T __low2##TYPE(P pair) { return pair.x; }                                           \
    inline T __high2##TYPE(P pair) { return pair.y; }                                          \
    inline P __halves2##PAIR(T x, T y) { return {x, y}; }                                      \
    inline P __##TYPE##2##PAIR(T x) { return {x, x}; }                                         \
    inline P make_##PAIR(T x, T y) { return {x, y}; }
EVO_SMALL_FLOAT(bfloat16, __nv_bfloat16, bfloat162, __nv_bfloat162)
EVO_SMALL_FLOAT(half, __half, half2, __half2)
#undef EVO_SMALL_FLOAT

}  // namespace
