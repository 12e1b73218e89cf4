// Compiles the products with matrices of both types, for each kind of processor.
#include "matrix.hpp"

namespace fbeta {
namespace {

template <class T> struct Matrix {
    const int n, p;
    const T *dense;
    const int *row_start, *row_index;
    const T *row_value;
    const int *column_start, *column_index;
    const T *column_value;

    explicit Matrix(const Problems &q)
        : n(q.n_rows), p(q.n_columns), dense(static_cast<const T *>(q.dense)),
          row_start(q.row_start), row_index(q.row_index),
          row_value(static_cast<const T *>(q.row_value)), column_start(q.column_start),
          column_index(q.column_index), column_value(static_cast<const T *>(q.column_value)) {}
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
INLINE void forward_all(const Matrix<T> &m, const vec<S, L> *V, vec<S, L> *U, int from, int to) {
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
INLINE void backward_all(const Matrix<T> &m, const vec<S, L> *U, vec<S, L> *G, int from, int to) {
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

// Products of a dense matrix with vectors on a few lanes, which would leave most of each register
// idle: the registers go along the rows of the matrix instead.
template <class S, int L, class T> class Few {
    using Vec = vec<S, L>;
    static constexpr int MOST = L / 4, ROWS = 4;
    const Matrix<T> &m;
    const int tile; // largest number of rows of a call
    const size_t wide; // p, filled up to whole registers
    int count = 0, lane[MOST];
    Buffer<S> in, out, part; // (MOST, wide) vectors and (MOST, tile) scores
    Buffer<T> tail;          // (ROWS, wide) last rows of the matrix

    template <class E> static INLINE Vec load(const E *x) {
        Vec v;
        if constexpr (std::is_same_v<S, E>)
            std::memcpy(&v, x, sizeof(v));
        else
            for (int l = 0; l < L; l++)
                v[l] = S(x[l]);
        return v;
    }

    static INLINE S sum(Vec v) { return sum_over<S, L>(v, L)[0]; }

    // A row, behind which there may be anything up to the next whole register.
    INLINE const T *row(int i, int place) {
        size_t p = m.p, from = i * p;
        if (from + wide <= m.n * p)
            return m.dense + from;
        std::memcpy(tail + place * wide, m.dense + from, p * sizeof(T));
        return tail + place * wide;
    }

    template <int K> INLINE void forward_of(int from, int to) {
        for (int i = from; i < to; i++) {
            const T *x = row(i, 0);
            Vec a[K] = {};
            for (size_t j = 0; j < wide; j += L) {
                Vec v = load(x + j);
#pragma GCC unroll 4
                for (int k = 0; k < K; k++)
                    a[k] += v * load(in + k * wide + j);
            }
#pragma GCC unroll 4
            for (int k = 0; k < K; k++)
                part[k * tile + i - from] = sum(a[k]);
        }
    }

    // The rows are taken in fours; what is missing in the last four counts as 0 times the first.
    template <int K> INLINE void backward_of(int from, int to) {
        for (int i = from; i < to; i += ROWS) {
            const T *x[ROWS];
            S u[K][ROWS] = {};
            for (int r = 0; r < ROWS; r++) {
                bool real = i + r < to;
                x[r] = real ? row(i + r, r) : x[0];
                for (int k = 0; real && k < K; k++)
                    u[k][r] = part[k * tile + i + r - from];
            }
            for (size_t j = 0; j < wide; j += L) {
                Vec v[ROWS];
#pragma GCC unroll 4
                for (int r = 0; r < ROWS; r++)
                    v[r] = load(x[r] + j);
#pragma GCC unroll 4
                for (int k = 0; k < K; k++) {
                    S *g = out + k * wide + j;
                    Vec now = (load(g) + (u[k][0] * v[0] + u[k][1] * v[1])) +
                              (u[k][2] * v[2] + u[k][3] * v[3]);
                    std::memcpy(g, &now, sizeof(now));
                }
            }
        }
    }

  public:
    Few(const Matrix<T> &matrix, int rows)
        : m(matrix), tile(rows), wide((matrix.p + L - 1) / L * (size_t)L) {
        if (!m.dense)
            return;
        in.resize(MOST * wide);
        out.resize(MOST * wide);
        part.resize(MOST * (size_t)tile);
        tail.resize(ROWS * wide);
    }

    // Take the vectors of some lanes, if they are few enough. Returns whether they are.
    INLINE bool begin(const bool *active, const Vec *V) {
        count = 0;
        for (int l = 0; l < L; l++)
            if (active[l]) {
                if (count == MOST)
                    return false;
                lane[count++] = l;
            }
        for (int k = 0; k < count; k++)
            for (int j = 0; j < m.p; j++)
                in[k * wide + j] = V[j][lane[k]];
        std::memset(out, 0, count * wide * sizeof(S));
        return true;
    }

    INLINE void forward(Vec *U, int from, int to) {
        count == 1   ? forward_of<1>(from, to)
        : count == 2 ? forward_of<2>(from, to)
                     : forward_of<MOST>(from, to);
        for (int i = from; i < to; i++) {
            Vec u{};
            for (int k = 0; k < count; k++)
                u[lane[k]] = part[k * tile + i - from];
            U[i] = u;
        }
    }

    INLINE void backward(const Vec *U, int from, int to) {
        for (int k = 0; k < count; k++)
            for (int i = from; i < to; i++)
                part[k * tile + i - from] = U[i][lane[k]];
        count == 1   ? backward_of<1>(from, to)
        : count == 2 ? backward_of<2>(from, to)
                     : backward_of<MOST>(from, to);
    }

    // Put the sums on their lanes.
    INLINE void end(Vec *G) const {
        for (int j = 0; j < m.p; j++) {
            Vec g{};
            for (int k = 0; k < count; k++)
                g[lane[k]] = out[k * wide + j];
            G[j] = g;
        }
    }
};

template <class S, class T, int L> class MatrixProducts final : public Products<S, L> {
    using Vec = vec<S, L>;
    const Matrix<T> m;
    Few<S, L, T> few;
    bool thin = false;

    CLONES void multiply(const Vec *V, Vec *U, int from, int to) {
        thin ? few.forward(U, from, to) : forward_all<S, L>(m, V, U, from, to);
    }

    CLONES void multiply_transpose(const Vec *U, Vec *G, int from, int to) {
        thin ? few.backward(U, from, to) : backward_all<S, L>(m, U, G, from, to);
    }

  public:
    MatrixProducts(const Problems &q, int tile) : m(q), few(m, tile) {}

    void begin(const bool *active, const Vec *V, Vec *G) override {
        thin = m.dense && few.begin(active, V);
        if (m.dense)
            std::memset(static_cast<void *>(G), 0, m.p * sizeof(Vec));
    }

    void forward(const Vec *V, Vec *U, int from, int to) override { multiply(V, U, from, to); }

    void backward(const Vec *U, Vec *G, int from, int to) override {
        multiply_transpose(U, G, from, to);
    }

    void end(Vec *G) override {
        if (thin)
            few.end(G);
    }
};

} // namespace

template <class S, int L>
std::unique_ptr<Products<S, L>> make_products(const Problems &q, int tile) {
    if constexpr (sizeof(S) == 8)
        if (q.double_entries)
            return std::make_unique<MatrixProducts<S, double, L>>(q, tile);
    return std::make_unique<MatrixProducts<S, float, L>>(q, tile);
}

template std::unique_ptr<Products<float, 16>> make_products(const Problems &, int);
template std::unique_ptr<Products<double, 8>> make_products(const Problems &, int);
template std::unique_ptr<Products<double, 16>> make_products(const Problems &, int);

} // namespace fbeta
