// Vectors with a column on each lane, in single or double precision.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "engine.hpp"

#define INLINE inline __attribute__((always_inline))

// Compilers keep what is wider than a register in memory, and many processors have no registers of
// 64 bytes: the sources are compiled with those of 32, and by wide.cpp with those of 64.
#ifndef FBETA_REGISTER_BYTES
#define FBETA_REGISTER_BYTES 32
#endif

// What the sources say of registers is compiled for the processors that have those, and the loader
// picks the version that suits (CLONES); all else for every kind (ALL_CLONES).
#ifndef FBETA_WIDE
#define CLONES
#define ALL_CLONES
#else
#if __GNUC__ < 12
#define FBETA_V4 "avx512f"
#define FBETA_V3 "avx2"
#else
#define FBETA_V4 "arch=x86-64-v4"
#define FBETA_V3 "arch=x86-64-v3"
#endif
#define ALL_CLONES __attribute__((target_clones(FBETA_V4, FBETA_V3, "default")))
#if FBETA_REGISTER_BYTES == 64
#define CLONES __attribute__((target(FBETA_V4)))
#else
#define CLONES __attribute__((target_clones(FBETA_V3, "default")))
#endif
#endif

#define EIGHT(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

namespace fbeta {

// A vector has 64 bytes; wide problems need more.
template <class S> constexpr int lanes = 64 / sizeof(S);

// Two vectors as one.
template <class V> struct Pair {
    V a, b;
    using S = std::decay_t<decltype(std::declval<V &>()[0])>;
    static constexpr int HALF = sizeof(V) / sizeof(S);
    INLINE S &operator[](int l) { return reinterpret_cast<S *>(this)[l]; }
    INLINE S operator[](int l) const { return l < HALF ? a[l] : b[l - HALF]; }
    INLINE Pair &operator+=(Pair v) { return *this = *this + v; }
    INLINE Pair &operator-=(Pair v) { return *this = *this - v; }
    INLINE Pair &operator|=(Pair v) { return *this = *this | v; }
    INLINE Pair &operator&=(Pair v) { return *this = *this & v; }
    INLINE Pair &operator+=(S s) { return *this = *this + s; }
    INLINE Pair operator-() const { return {-a, -b}; }
    friend INLINE Pair operator+(Pair u, Pair v) { return {u.a + v.a, u.b + v.b}; }
    friend INLINE Pair operator-(Pair u, Pair v) { return {u.a - v.a, u.b - v.b}; }
    friend INLINE Pair operator*(Pair u, Pair v) { return {u.a * v.a, u.b * v.b}; }
    friend INLINE Pair operator/(Pair u, Pair v) { return {u.a / v.a, u.b / v.b}; }
    friend INLINE Pair operator+(Pair u, S s) { return {u.a + s, u.b + s}; }
    friend INLINE Pair operator+(S s, Pair v) { return {s + v.a, s + v.b}; }
    friend INLINE Pair operator*(S s, Pair v) { return {s * v.a, s * v.b}; }
    friend INLINE Pair operator/(S s, Pair v) { return {s / v.a, s / v.b}; }
    friend INLINE auto operator>(Pair u, Pair v) {
        return Pair<decltype(u.a > v.a)>{u.a > v.a, u.b > v.b};
    }
    friend INLINE auto operator<(Pair u, Pair v) { return v > u; }
    friend INLINE auto operator<(Pair u, S s) {
        return Pair<decltype(u.a < s)>{u.a < s, u.b < s};
    }
    friend INLINE auto operator>(Pair u, S s) {
        return Pair<decltype(u.a > s)>{u.a > s, u.b > s};
    }
    friend INLINE auto operator<=(Pair u, S s) {
        return Pair<decltype(u.a <= s)>{u.a <= s, u.b <= s};
    }
    friend INLINE Pair operator&(Pair u, Pair v) { return {u.a & v.a, u.b & v.b}; }
    friend INLINE Pair operator|(Pair u, Pair v) { return {u.a | v.a, u.b | v.b}; }
};

// Vectors of L numbers in registers of B bytes.
template <class S, int L, int B, bool fits = L * sizeof(S) <= B> struct lanes_of {
    using vec = Pair<typename lanes_of<S, L / 2, B>::vec>;
    using mask = Pair<typename lanes_of<S, L / 2, B>::mask>;
};
template <class S, int L, int B> struct lanes_of<S, L, B, true> {
    using whole = std::conditional_t<sizeof(S) == 4, int32_t, int64_t>;
    typedef S vec __attribute__((vector_size(L * sizeof(S))));
    typedef whole mask __attribute__((vector_size(L * sizeof(S))));
};
template <class S, int L> using vec = typename lanes_of<S, L, FBETA_REGISTER_BYTES>::vec;
template <class S, int L> using mask = typename lanes_of<S, L, FBETA_REGISTER_BYTES>::mask;

template <class M, class V> INLINE V choose(M m, V a, V b) {
    return (V)(((M)a & m) | ((M)b & ~m));
}

template <class M, class V> INLINE Pair<V> choose(Pair<M> m, Pair<V> u, Pair<V> v) {
    return {choose(m.a, u.a, v.a), choose(m.b, u.b, v.b)};
}

// Each lane gets what the lane at a distance has, which is a power of 2.
template <int distance, class S, int L> INLINE vec<S, L> exchanged(vec<S, L> v) {
    constexpr bool is_pair = L * sizeof(S) > FBETA_REGISTER_BYTES;
    if constexpr (is_pair && 2 * distance == L) {
        return {v.b, v.a};
    } else if constexpr (is_pair) {
        return {exchanged<distance, S, L / 2>(v.a), exchanged<distance, S, L / 2>(v.b)};
    } else {
#ifdef __clang__
        vec<S, L> out;
        for (int l = 0; l < L; l++)
            out[l] = v[l ^ distance];
        return out;
#else // GCC does not see that this is one instruction
        mask<S, L> from;
        for (int l = 0; l < L; l++)
            from[l] = l ^ distance;
        return __builtin_shuffle(v, from);
#endif
    }
}

// On every lane the sum over the lanes of its group, which are neighbours; `width` is a power of 2.
template <class S, int L> INLINE vec<S, L> sum_over(vec<S, L> v, int width) {
    if (width > 1)
        v += exchanged<1, S, L>(v);
    if (width > 2)
        v += exchanged<2, S, L>(v);
    if (width > 4)
        v += exchanged<4, S, L>(v);
    if constexpr (L > 8)
        if (width > 8)
            v += exchanged<8, S, L>(v);
    return v;
}

// Zeros, aligned for vectors.
template <class T> class Buffer {
    std::unique_ptr<T[], void (*)(void *)> data_{nullptr, std::free};

  public:
    void resize(size_t count) {
        size_t size = count * sizeof(T);
        void *out = nullptr;
        if (posix_memalign(&out, 128, size ? size : 128))
            throw std::bad_alloc();
        data_.reset(static_cast<T *>(std::memset(out, 0, size)));
    }
    INLINE operator T *() const { return data_.get(); }
};

// ---- elementary functions that vectorise ----

INLINE float exp_(float x) { // for |x| <= 80
    float k = floorf(x * 1.44269504f + 0.5f);
    float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float s = 1.9875691500e-4f;
    s = s * r + 1.3981999507e-3f;
    s = s * r + 8.3334519073e-3f;
    s = s * r + 4.1665795894e-2f;
    s = s * r + 1.6666665459e-1f;
    s = s * r + 5.0000001201e-1f;
    s = s * r * r + r + 1.0f;
    int32_t bits = (static_cast<int32_t>(k) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof(power));
    return s * power;
}

INLINE double exp_(double x) { // for |x| <= 700
    double k = floor(x * 1.4426950408889634 + 0.5);
    double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    double s = 1.0;
#define FBETA_TERM(i) s = 1.0 + s * r * (1.0 / i);
    FBETA_TERM(13) FBETA_TERM(12) FBETA_TERM(11) FBETA_TERM(10) FBETA_TERM(9) FBETA_TERM(8)
    FBETA_TERM(7) FBETA_TERM(6) FBETA_TERM(5) FBETA_TERM(4) FBETA_TERM(3) FBETA_TERM(2)
    FBETA_TERM(1)
#undef FBETA_TERM
    int64_t bits = (static_cast<int64_t>(k) + 1023) << 52;
    double power;
    std::memcpy(&power, &bits, sizeof(power));
    return s * power;
}

// The terms 1 / k + t (1 / (k + 2) + t (...)) up to `last`.
template <class S, int k, int last> INLINE S odd_series(S t) {
    if constexpr (k < last)
        return S(1) / S(k) + t * odd_series<S, k + 2, last>(t);
    else
        return S(1) / S(k);
}

// ln(1 + e) for 0 <= e <= 1 and s = e / (2 + e): the series of 2 artanh(s)
template <class S> INLINE S log1p_(S s) {
    return S(2) * s * odd_series<S, 1, (sizeof(S) == 4 ? 15 : 31)>(s * s);
}

template <class S> INLINE S clip(S x, S limit) {
    x = x < limit ? x : limit;
    return x > -limit ? x : -limit;
}

} // namespace fbeta
