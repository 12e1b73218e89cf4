/* Vectors with a problem on each lane, and products of the matrix with them. */
#ifndef FBETA_PRODUCTS_H
#define FBETA_PRODUCTS_H

#include <math.h>

#include "lanes.h"
#include "vectors.h"

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t mask __attribute__((vector_size(4 * LANES)));

#define FLT_MIN_ROOT 1.08e-19f

INLINE vec choose(mask m, vec a, vec b) {
    return (vec)(((mask)a & m) | ((mask)b & ~m));
}

/* The sum of some vectors, with factors. */
INLINE vec gather(const int *index, const float *value, int from, int to, const vec *V) {
    vec a = {0}, b = {0}, c = {0}, d = {0};
    int k = from;
    for (; k + 4 <= to; k += 4) {
        a += value[k] * V[index[k]];
        b += value[k + 1] * V[index[k + 1]];
        c += value[k + 2] * V[index[k + 2]];
        d += value[k + 3] * V[index[k + 3]];
    }
    for (; k < to; k++)
        a += value[k] * V[index[k]];
    return (a + b) + (c + d);
}

/* U = matrix V on some rows */
INLINE void forward(const problems *q, const vec *V, vec *U, int from, int to) {
    if (!q->dense) {
        for (int i = from; i < to; i++)
            U[i] = gather(q->row_index, q->row_value, q->row_start[i], q->row_start[i + 1], V);
        return;
    }
    size_t p = q->p;
    int i = from;
    for (; i + 8 <= to; i += 8) {
        const float *x = q->dense + i * p;
#define ZERO(r) vec a##r = {0};
        EIGHT(ZERO)
        for (size_t j = 0; j < p; j++) {
            vec v = V[j];
#define ADD(r) a##r += x[r * p + j] * v;
            EIGHT(ADD)
        }
#define STORE(r) U[i + r] = a##r;
        EIGHT(STORE)
    }
    for (; i < to; i++) {
        vec a = {0};
        for (size_t j = 0; j < p; j++)
            a += q->dense[i * p + j] * V[j];
        U[i] = a;
    }
}

/* G += matrix' U on some rows; all rows at once where the matrix is sparse */
INLINE void backward(const problems *q, const vec *U, vec *G, int from, int to) {
    if (!q->dense) {
        for (int j = 0; j < q->p; j++)
            G[j] = gather(q->column_index, q->column_value, q->column_start[j],
                          q->column_start[j + 1], U);
        return;
    }
    size_t p = q->p;
    int i = from;
    for (; i + 8 <= to; i += 8) {
        const float *x = q->dense + i * p;
#define LOAD(r) vec u##r = U[i + r];
        EIGHT(LOAD)
        for (size_t j = 0; j < p; j++) {
#define PART(r) x[r * p + j] * u##r
            G[j] += ((PART(0) + PART(1)) + (PART(2) + PART(3))) +
                    ((PART(4) + PART(5)) + (PART(6) + PART(7)));
        }
    }
    for (; i < to; i++)
        for (size_t j = 0; j < p; j++)
            G[j] += q->dense[i * p + j] * U[i];
}

INLINE int any(mask m) {
    int out = 0;
    for (int l = 0; l < LANES; l++)
        out |= m[l];
    return out;
}

INLINE float exp_(float x) { /* for |x| <= 80 */
    float k = floorf(x * 1.44269504f + 0.5f);
    float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
    float s = 1.9875691500e-4f;
    s = s * r + 1.3981999507e-3f;
    s = s * r + 8.3334519073e-3f;
    s = s * r + 4.1665795894e-2f;
    s = s * r + 1.6666665459e-1f;
    s = s * r + 5.0000001201e-1f;
    s = s * r * r + r + 1.0f;
    union { int32_t i; float f; } power = {.i = ((int32_t)k + 127) << 23};
    return s * power.f;
}

INLINE float log1p_(float e) { /* for 0 <= e <= 1: the series of 2 artanh(e / (2 + e)) */
    float s = e / (2.0f + e), t = s * s;
    float a = 1.0f / 15;
    a = a * t + 1.0f / 13;
    a = a * t + 1.0f / 11;
    a = a * t + 1.0f / 9;
    a = a * t + 1.0f / 7;
    a = a * t + 1.0f / 5;
    a = a * t + 1.0f / 3;
    return 2.0f * s * (a * t + 1.0f);
}

/* Copy an array, if there is one, in single precision; 0 where memory is short. */
INLINE int single(const double *from, int count, float **to) {
    if (!from)
        return 1;
    *to = allocate(count * sizeof(float));
    for (int i = 0; *to && i < count; i++)
        (*to)[i] = (float)from[i];
    return *to != NULL;
}

#endif
