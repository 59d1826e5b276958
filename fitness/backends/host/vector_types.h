// CUDA's vector types with their alignment, and make_* for each.
#pragma once

namespace {

#define EVO_VECTOR1(NAME, SCALAR)                            \
    struct NAME##1 { SCALAR x; };                            \
    inline NAME##1 make_##NAME##1(SCALAR x) { return {x}; }
#define EVO_VECTOR2(NAME, SCALAR)                                              \
    struct __attribute__((aligned(2 * sizeof(SCALAR)))) NAME##2 { SCALAR x, y; }; \
    inline NAME##2 make_##NAME##2(SCALAR x, SCALAR y) { return {x, y}; }
#define EVO_VECTOR3(NAME, SCALAR)              \
    struct NAME##3 { SCALAR x, y, z; };        \
    inline NAME##3 make_##NAME##3(SCALAR x, SCALAR y, SCALAR z) { return {x, y, z}; }
#define EVO_VECTOR4(NAME, SCALAR, ALIGNMENT)                                    \
    struct __attribute__((aligned(ALIGNMENT))) NAME##4 { SCALAR x, y, z, w; };  \
    inline NAME##4 make_##NAME##4(SCALAR x, SCALAR y, SCALAR z, SCALAR w) { return {x, y, z, w}; }
#define EVO_VECTORS(NAME, SCALAR)  \
    EVO_VECTOR1(NAME, SCALAR)      \
    EVO_VECTOR2(NAME, SCALAR)      \
    EVO_VECTOR3(NAME, SCALAR)      \
    EVO_VECTOR4(NAME, SCALAR, (sizeof(SCALAR) < 4 ? 4 * sizeof(SCALAR) : 16))

EVO_VECTORS(char, signed char)
EVO_VECTORS(uchar, unsigned char)
EVO_VECTORS(short, short)
EVO_VECTORS(ushort, unsigned short)
EVO_VECTORS(int, int)
EVO_VECTORS(uint, unsigned int)
EVO_VECTORS(longlong, long long)
EVO_VECTORS(ulonglong, unsigned long long)
EVO_VECTORS(float, float)
EVO_VECTORS(double, double)

#undef EVO_VECTORS
#undef EVO_VECTOR4
#undef EVO_VECTOR3
#undef EVO_VECTOR2
#undef EVO_VECTOR1

struct dim3 {
    unsigned int x = 1, y = 1, z = 1;
};

namespace evo {

// The N of alignas(N), or the alignment of the T of alignas(T).
template <auto bytes>
constexpr size_t alignment() {
    return bytes;
}
template <class T>
constexpr size_t alignment() {
    return alignof(T);
}

}  // namespace evo
}  // namespace
