// Vectors with a column on each lane, in single or double precision.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#define INLINE inline __attribute__((always_inline))

// The loader picks the version that suits the processor.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#if __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define CLONES
#endif

#define EIGHT(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

namespace fbeta {

// A vector fills a register of 64 bytes, or several smaller ones.
template <class S> constexpr int lanes = 64 / sizeof(S);

template <class S> struct lanes_of;
template <> struct lanes_of<float> {
    typedef float vec __attribute__((vector_size(64)));
    typedef int32_t mask __attribute__((vector_size(64)));
};
template <> struct lanes_of<double> {
    typedef double vec __attribute__((vector_size(64)));
    typedef int64_t mask __attribute__((vector_size(64)));
};
template <class S> using vec = typename lanes_of<S>::vec;
template <class S> using mask = typename lanes_of<S>::mask;

template <class S> INLINE vec<S> choose(mask<S> m, vec<S> a, vec<S> b) {
    return (vec<S>)(((mask<S>)a & m) | ((mask<S>)b & ~m));
}

template <class S> INLINE vec<S> all(S value) {
    return vec<S>{} + value;
}

// Zeros, aligned for vectors.
template <class T> class Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer() { std::free(data_); }
    void resize(size_t count) {
        std::free(data_);
        data_ = nullptr;
        size_t size = count * sizeof(T);
        void *out = nullptr;
        if (posix_memalign(&out, 128, size ? size : 128))
            throw std::bad_alloc();
        std::memset(out, 0, size);
        data_ = static_cast<T *>(out);
    }
    INLINE operator T *() const { return data_; }

  private:
    T *data_ = nullptr;
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

template <class S> INLINE S log1p_(S e) { // for 0 <= e <= 1: the series of 2 artanh(e / (2 + e))
    S s = e / (S(2) + e);
    return S(2) * s * odd_series<S, 1, (sizeof(S) == 4 ? 15 : 31)>(s * s);
}

template <class S> INLINE S clip(S x, S limit) {
    x = x < limit ? x : limit;
    return x > -limit ? x : -limit;
}

} // namespace fbeta
