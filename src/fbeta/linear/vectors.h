/* What the compiled files share: one build for each kind of processor, aligned memory. */
#ifndef FBETA_VECTORS_H
#define FBETA_VECTORS_H

#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* The loader picks the version that suits the processor. */
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

/* Zeros, aligned for vectors; NULL where memory is short. */
INLINE void *allocate(size_t size) {
    void *out = NULL;
    if (posix_memalign(&out, 64, size ? size : 64))
        return NULL;
    memset(out, 0, size);
    return out;
}

#endif
