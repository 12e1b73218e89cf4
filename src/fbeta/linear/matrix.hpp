// Products of the matrix of a design with vectors on lanes.
#pragma once

#include "vectors.hpp"

namespace fbeta {

// The matrix, (n, p), dense or sparse; entries of type T. Sparse ones come by rows and by columns.
template <class T> struct Matrix {
    int n, p;
    const T *dense; // by rows, or null
    const int *row_start, *row_index;
    const T *row_value;
    const int *column_start, *column_index;
    const T *column_value;
};

// The sum of some vectors, with factors.
template <class S, int L, class T>
INLINE vec<S, L> gather(const int *index, const T *value, int from, int to, const vec<S, L> *V) {
    vec<S, L> a{}, b{}, c{}, d{};
    int k = from;
    for (; k + 4 <= to; k += 4) {
        a += S(value[k]) * V[index[k]];
        b += S(value[k + 1]) * V[index[k + 1]];
        c += S(value[k + 2]) * V[index[k + 2]];
        d += S(value[k + 3]) * V[index[k + 3]];
    }
    for (; k < to; k++)
        a += S(value[k]) * V[index[k]];
    return (a + b) + (c + d);
}

// U = matrix V on some rows
template <class S, int L, class T>
INLINE void forward(const Matrix<T> &m, const vec<S, L> *V, vec<S, L> *U, int from, int to) {
    if (!m.dense) {
        for (int i = from; i < to; i++)
            U[i] = gather<S, L>(m.row_index, m.row_value, m.row_start[i], m.row_start[i + 1], V);
        return;
    }
    size_t p = m.p;
    int i = from;
    for (; i + 8 <= to; i += 8) {
        const T *x = m.dense + i * p;
#define FBETA_ZERO(r) vec<S, L> a##r{};
        EIGHT(FBETA_ZERO)
        for (size_t j = 0; j < p; j++) {
            vec<S, L> v = V[j];
#define FBETA_ADD(r) a##r += S(x[r * p + j]) * v;
            EIGHT(FBETA_ADD)
        }
#define FBETA_STORE(r) U[i + r] = a##r;
        EIGHT(FBETA_STORE)
    }
    for (; i < to; i++) {
        vec<S, L> a{};
        for (size_t j = 0; j < p; j++)
            a += S(m.dense[i * p + j]) * V[j];
        U[i] = a;
    }
}

// G += matrix' U on some rows; G = matrix' U for all rows at once where the matrix is sparse
template <class S, int L, class T>
INLINE void backward(const Matrix<T> &m, const vec<S, L> *U, vec<S, L> *G, int from, int to) {
    if (!m.dense) {
        for (int j = 0; j < m.p; j++)
            G[j] = gather<S, L>(m.column_index, m.column_value, m.column_start[j],
                             m.column_start[j + 1], U);
        return;
    }
    size_t p = m.p;
    int i = from;
    for (; i + 8 <= to; i += 8) {
        const T *x = m.dense + i * p;
#define FBETA_LOAD(r) vec<S, L> u##r = U[i + r];
        EIGHT(FBETA_LOAD)
        for (size_t j = 0; j < p; j++) {
#define FBETA_PART(r) S(x[r * p + j]) * u##r
            G[j] += ((FBETA_PART(0) + FBETA_PART(1)) + (FBETA_PART(2) + FBETA_PART(3))) +
                    ((FBETA_PART(4) + FBETA_PART(5)) + (FBETA_PART(6) + FBETA_PART(7)));
        }
    }
    for (; i < to; i++)
        for (size_t j = 0; j < p; j++)
            G[j] += S(m.dense[i * p + j]) * U[i];
}

} // namespace fbeta
