// Sweeps over the labels of eight rows at a time, a row on each lane. As in cardinality.py.
#include <algorithm>

#include "engine.hpp"
#include "vectors.hpp"

namespace fbeta {
namespace {

constexpr int L = lanes<double>;
// as in cardinality_law.py and conditional_bernoulli.py
constexpr double max_tilted_score = 650, negligible_size = 1e-30, min_reached = 1e-290;
constexpr double max_log_odds_spread = 600;
constexpr int block_vectors = 1 << 12;   // of prefixes that are kept: they stay in the second cache
using Vec = vec<double, L>;

// The law of the number of the first labels, and with two kinds its derivative along a change of
// scores. Prefixes are kept for a block of labels; for others they are found again.
template <int kinds> class Prefixes {
    const int s, K, stride, at_once;
    const Vec *p, *q, *v;
    Buffer<Vec> block, starts;

    INLINE Vec *prefix(int j) const { return block + (size_t)(j % at_once) * stride; }

    INLINE void step(int j) const {
        const Vec *a = prefix(j), *b = a + K + 1;
        Vec *__restrict c = block + (size_t)(j % at_once + 1) * stride, *__restrict d = c + K + 1;
        int width = std::min(j, K);
        Vec own = p[j], none = q[j], change = kinds == 2 ? v[j] : own;
        c[0] = none * a[0];
        if (kinds == 2)
            d[0] = none * b[0];
        for (int k = 1; k <= width; k++) {
            Vec moved = own * a[k - 1];
            c[k] = none * a[k] + moved;
            if (kinds == 2)
                d[k] = none * b[k] + own * b[k - 1] + change * moved;
        }
        if (j < K) {
            Vec moved = own * a[j];
            c[j + 1] = moved;
            if (kinds == 2)
                d[j + 1] = own * b[j] + change * moved;
        }
    }

    INLINE const Vec *fill(int first) const {
        std::copy_n(starts + (size_t)(first / at_once) * stride, stride, prefix(first));
        int last = std::min(first + at_once, s);
        for (int j = first; j < last; j++)
            step(j);
        return block + (size_t)(last - first) * stride;
    }

  public:
    Prefixes(int s, int K, const Vec *p, const Vec *q, const Vec *v = nullptr)
        : s(s), K(K), stride(kinds * (K + 1)),
          at_once(std::min(s, std::max(1, block_vectors / stride))), p(p), q(q), v(v) {
        block.resize((size_t)(at_once + 1) * stride);
        starts.resize((size_t)((s - 1) / at_once + 1) * stride);
        starts[0] += 1.0;
    }

    // Returns the law for all labels, and then its derivative, (K + 1,) each.
    INLINE const Vec *forward() const {
        const Vec *end = nullptr;
        for (int first = 0; first < s; first += at_once) {
            end = fill(first);
            if (first + at_once < s)
                std::copy_n(end, stride, starts + (size_t)(first / at_once + 1) * stride);
        }
        return end;
    }

    // Sums for each label over the prefixes times what follows, B, (kinds, K + 1), which changes.
    INLINE void backward(Vec *__restrict B, Vec *__restrict out) const {
        Vec *__restrict E = B + K + 1;
        for (int j = s - 1; j >= 0; j--) {
            if (j < s - 1 && (j + 1) % at_once == 0)
                fill(j + 1 - at_once);
            const Vec *a = prefix(j), *b = a + K + 1;
            int count = std::min(j + 1, K);
            Vec own = p[j], none = q[j], change = kinds == 2 ? v[j] : own, sum = {}, more = {};
            for (int k = 0; k < count; k++) {
                Vec moved = own * B[k + 1];
                if (kinds == 2) {
                    Vec changed = own * E[k + 1] + change * moved;
                    more += b[k] * moved;
                    sum += a[k] * changed;
                    E[k] = none * E[k] + changed;
                } else {
                    sum += a[k] * moved;
                }
                B[k] = none * B[k] + moved;
            }
            if (j >= K) {
                B[K] = none * B[K];
                if (kinds == 2)
                    E[K] = none * E[K];
            }
            out[j] = sum + more;
        }
    }
};

// Values of eight rows, (width, lanes), from an array with rows, whose last is repeated; and back.
INLINE void gather(const double *from, int rows, int width, Vec *to) {
    for (int l = 0; l < L; l++)
        for (int j = 0; j < width; j++)
            to[j][l] = from[(size_t)std::min(l, rows - 1) * width + j];
}

INLINE void scatter(const Vec *from, int rows, int width, double *to) {
    for (int l = 0; l < rows; l++)
        for (int j = 0; j < width; j++)
            to[(size_t)l * width + j] = from[j][l];
}

// R_k / R_{k-1} for k in 1..K, as size_ratios of conditional_bernoulli.py.
INLINE void size_ratios(const Vec *odds, int s, int K, Vec *r) {
    for (int j = 0; j < s && K; j++) {
        Vec own = odds[j];
        for (int k = std::min(j + 1, K) - 1; k > 0; k--)
            r[k] = r[k - 1] * ((r[k] + own) / (r[k - 1] + own));
        r[0] += own;
    }
}

// Turn ratios r of lane l into ln R_k / R_{k-1} of scores that are higher by top, and potentials g of
// sizes into their law z, (K + 1,). Returns ln Z, and the tilt that scores are lowered by.
INLINE double law_of_sizes(const int *size, int C, const Vec *g, double top, int l, Vec *r, Vec *z,
                           double &tilt) {
    int K = size[C - 1], k = 0, low = K, high = 0;
    double peak = -std::numeric_limits<double>::infinity(), sum = 0, total = 0;
    for (int i = 0; i < C; i++) {
        for (; k < size[i]; k++)
            sum += r[k][l] = std::log(r[k][l]) + top;
        z[k][l] = g[i][l] + sum;
        peak = std::max(peak, z[k][l]);
    }
    for (int i = 0; i < C; i++) {
        double &own = reinterpret_cast<double *>(z + size[i])[l];
        own = std::exp(own - peak);
        total += own;
    }
    for (int i = 0; i < C; i++) {
        k = size[i];
        z[k][l] /= total;
        if (z[k][l] > negligible_size)
            low = std::min(low, k), high = k;
    }
    high = std::min(std::max(high, 1), K), low = std::min(low, high - 1);
    for (tilt = 0, k = std::max(low, 0); k < high; k++)
        tilt += r[k][l] / (high - low);
    return peak + std::log(total);
}

} // namespace

ALL_CLONES void evaluate_sizes(int s, int C, const int *size, int n, const double *u, double *log_total,
                           double *kept) {
    int c = s + C, K = size[C - 1], width = 3 * s + 2 * C;
    Buffer<Vec> scores, odds, law, own;
    scores.resize(c), odds.resize(s), law.resize(3 * (K + 1)), own.resize(width);
    Vec *p = own, *q = p + s, *factors = q + s, *mean = factors + C;
    Vec *ratios = law, *z = ratios + K + 1, *B = z + K + 1;
    Prefixes<1> prefixes(s, K, p, q);
    for (int row = 0; row < n; row += L) {
        int rows = std::min(L, n - row);
        gather(u + (size_t)row * c, rows, c, scores);
        Vec top = scores[0], bottom = top, tilt = {};
        for (int j = 1; j < s; j++) {
            top = choose(scores[j] > top, scores[j], top);
            bottom = choose(scores[j] < bottom, scores[j], bottom);
        }
        for (int j = 0; j < s; j++)
            for (int l = 0; l < L; l++)
                odds[j][l] = exp_(std::max(scores[j][l] - top[l], -max_log_odds_spread));
        std::fill_n(ratios, 2 * (K + 1), Vec{});
        size_ratios(odds, s, K, ratios);
        for (int l = 0; l < rows; l++)
            log_total[row + l] = law_of_sizes(size, C, scores + s, top[l], l, ratios, z, tilt[l]);
        for (int j = 0; j < s; j++) {
            Vec e;
            for (int l = 0; l < L; l++)
                e[l] = exp_(clip(scores[j][l] - tilt[l], max_tilted_score));
            q[j] = K ? 1.0 / (1.0 + e) : Vec{} + 1.0;
            p[j] = K ? e / (1.0 + e) : Vec{};
        }
        const Vec *reached = prefixes.forward();
        auto in_range = top - bottom < max_log_odds_spread;
        for (int k = 0; k <= K; k++) {
            B[k] = choose(reached[k] > min_reached, z[k] / reached[k], Vec{});
            in_range &= (reached[k] > min_reached) | (z[k] <= negligible_size);
        }
        for (int l = 0; l < rows; l++)
            if (!in_range[l])
                log_total[row + l] = std::numeric_limits<double>::quiet_NaN();
        for (int i = 0; i < C; i++)
            factors[i] = B[size[i]], mean[s + i] = z[size[i]];
        prefixes.backward(B, mean);
        scatter(own, rows, width, kept + (size_t)row * width);
    }
}

ALL_CLONES void multiply_sizes(int s, int C, const int *size, int n, const double *kept, const double *v,
                           double *out) {
    int c = s + C, K = size[C - 1], width = 3 * s + 2 * C;
    Buffer<Vec> change, law, own, found;
    change.resize(c), law.resize(2 * (K + 1)), own.resize(width), found.resize(c);
    const Vec *p = own, *q = p + s, *factors = q + s, *mean = factors + C;
    Vec *B = law, *E = B + K + 1;
    Prefixes<2> prefixes(s, K, p, q, change);
    for (int row = 0; row < n; row += L) {
        int rows = std::min(L, n - row);
        gather(kept + (size_t)row * width, rows, width, own);
        gather(v + (size_t)row * c, rows, c, change);
        Vec average = {};
        for (int j = 0; j < c; j++)
            average += mean[j] * change[j];
        const Vec *reached = prefixes.forward();
        std::fill_n(B, 2 * (K + 1), Vec{});
        for (int i = 0; i < C; i++) {
            int k = size[i];
            B[k] = factors[i];
            E[k] = factors[i] * (change[s + i] - average);
            found[s + i] = reached[K + 1 + k] * B[k] + reached[k] * E[k];
        }
        prefixes.backward(B, found);
        scatter(found, rows, c, out + (size_t)row * c);
    }
}

} // namespace fbeta
