// Compiles the products with matrices of both types, for each kind of processor.
#include "matrix.hpp"

namespace fbeta {
namespace {

// The sum of some vectors, with factors.
template <class S, class T, class Vec>
INLINE Vec gather(const int *index, const T *value, int from, int to, const Vec *V) {
    Vec a{}, b{}, c{}, d{};
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

template <class S, class T, int L> class MatrixProducts final : public Products<vec<S, L>> {
    using Vec = vec<S, L>;
    static constexpr int MOST = L / 4, ROWS = 4;
    const Problems &q;
    const size_t p, wide; // columns, and the same filled up to whole registers
    const T *const dense;
    // Vectors on a few lanes would leave most of each register idle: the registers go along the rows
    // of a dense matrix instead. Where all lanes are multiplied, `count` is 0.
    int count = 0, lane[MOST];
    Buffer<S> in, out; // (MOST, wide) vectors
    Buffer<T> tail;    // (ROWS, wide) last rows of the matrix

    template <int R> INLINE void forward_rows(const Vec *V, Vec *U, int i) const {
        const T *x = dense + i * p;
        Vec a[R] = {};
        for (size_t j = 0; j < p; j++) {
            Vec v = V[j];
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
                a[r] += S(x[r * p + j]) * v;
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
            U[i + r] = a[r];
    }

    INLINE void forward_all(const Vec *V, Vec *U, int from, int to) const {
        auto *value = static_cast<const T *>(q.row_value);
        int i = from;
        for (; !dense && i < to; i++)
            U[i] = gather<S>(q.row_index, value, q.row_start[i], q.row_start[i + 1], V);
        for (; i + 8 <= to; i += 8)
            forward_rows<8>(V, U, i);
        for (; i < to; i++)
            forward_rows<1>(V, U, i);
    }

    INLINE void backward_all(const Vec *U, Vec *G, int from, int to) const {
        auto *value = static_cast<const T *>(q.column_value);
        for (size_t j = 0; !dense && j < p; j++)
            G[j] = gather<S>(q.column_index, value, q.column_start[j], q.column_start[j + 1], U);
        if (!dense)
            return;
        int i = from;
        for (; i + 8 <= to; i += 8) {
            const T *x = dense + i * p;
#define FBETA_LOAD(r) Vec u##r = U[i + r];
            EIGHT(FBETA_LOAD)
            for (size_t j = 0; j < p; j++) {
#define FBETA_PART(r) S(x[r * p + j]) * u##r
                G[j] += ((FBETA_PART(0) + FBETA_PART(1)) + (FBETA_PART(2) + FBETA_PART(3))) +
                        ((FBETA_PART(4) + FBETA_PART(5)) + (FBETA_PART(6) + FBETA_PART(7)));
            }
        }
        for (; i < to; i++)
            for (size_t j = 0; j < p; j++)
                G[j] += S(dense[i * p + j]) * U[i];
    }

    template <class E> static INLINE Vec load(const E *x) {
        Vec v;
        if constexpr (std::is_same_v<S, E>)
            std::memcpy(&v, x, sizeof(v));
        else
            for (int l = 0; l < L; l++)
                v[l] = S(x[l]);
        return v;
    }

    // A row, behind which there may be anything up to the next whole register.
    INLINE const T *row(int i, int place) {
        size_t from = i * p;
        if (from + wide <= q.n_rows * p)
            return dense + from;
        std::memcpy(tail + place * wide, dense + from, p * sizeof(T));
        return tail + place * wide;
    }

    template <int K> INLINE void forward_few(Vec *U, int from, int to) {
        for (int i = from; i < to; i++) {
            const T *x = row(i, 0);
            Vec a[K] = {}, u{};
            for (size_t j = 0; j < wide; j += L) {
                Vec v = load(x + j);
#pragma GCC unroll 4
                for (int k = 0; k < K; k++)
                    a[k] += v * load(in + k * wide + j);
            }
#pragma GCC unroll 4
            for (int k = 0; k < K; k++)
                if (k < count)
                    u[lane[k]] = sum_over<S, L>(a[k], L)[0];
            U[i] = u;
        }
    }

    // The rows are taken in fours; what is missing in the last four counts as 0 times the first.
    template <int K> INLINE void backward_few(const Vec *U, int from, int to) {
        for (int i = from; i < to; i += ROWS) {
            const T *x[ROWS];
            S u[K][ROWS] = {};
            for (int r = 0; r < ROWS; r++) {
                bool real = i + r < to;
                x[r] = real ? row(i + r, r) : x[0];
                for (int k = 0; real && k < count; k++)
                    u[k][r] = U[i + r][lane[k]];
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

    CLONES void multiply(const Vec *V, Vec *U, int from, int to) {
        count == 0   ? forward_all(V, U, from, to)
        : count == 1 ? forward_few<1>(U, from, to)
        : count == 2 ? forward_few<2>(U, from, to)
                     : forward_few<MOST>(U, from, to);
    }

    CLONES void multiply_transpose(const Vec *U, Vec *G, int from, int to) {
        count == 0   ? backward_all(U, G, from, to)
        : count == 1 ? backward_few<1>(U, from, to)
        : count == 2 ? backward_few<2>(U, from, to)
                     : backward_few<MOST>(U, from, to);
    }

  public:
    explicit MatrixProducts(const Problems &q)
        : q(q), p(q.n_columns), wide((p + L - 1) / L * L), dense(static_cast<const T *>(q.dense)) {
        in.resize(dense ? MOST * wide : 0);
        out.resize(dense ? MOST * wide : 0);
        tail.resize(dense ? ROWS * wide : 0);
    }

    void begin(const bool *active, const Vec *V, Vec *G) override {
        count = 0;
        if (!dense)
            return;
        std::memset(static_cast<void *>(G), 0, p * sizeof(Vec));
        for (int l = 0; l < L; l++)
            if (active[l] && count++ < MOST)
                lane[count - 1] = l;
        if (count > MOST)
            count = 0;
        for (int k = 0; k < count; k++)
            for (size_t j = 0; j < p; j++)
                in[k * wide + j] = V[j][lane[k]];
        std::memset(out, 0, count * wide * sizeof(S));
    }

    void forward(const Vec *V, Vec *U, int from, int to) override { multiply(V, U, from, to); }

    void backward(const Vec *U, Vec *G, int from, int to) override {
        multiply_transpose(U, G, from, to);
    }

    void end(Vec *G) override {
        for (int k = 0; k < count; k++)
            for (size_t j = 0; j < p; j++)
                G[j][lane[k]] = out[k * wide + j];
    }
};

} // namespace

template <class S, int L> std::unique_ptr<Products<vec<S, L>>> make_products(const Problems &q) {
    if constexpr (sizeof(S) == 8)
        if (q.double_entries)
            return std::make_unique<MatrixProducts<S, double, L>>(q);
    return std::make_unique<MatrixProducts<S, float, L>>(q);
}

template std::unique_ptr<Products<vec<float, 16>>> make_products<float, 16>(const Problems &);
template std::unique_ptr<Products<vec<double, 8>>> make_products<double, 8>(const Problems &);
template std::unique_ptr<Products<vec<double, 16>>> make_products<double, 16>(const Problems &);

} // namespace fbeta
