// Compiles the losses in both precisions, for each kind of processor.
#include "objectives.hpp"
#include "vectors.hpp"

namespace fbeta {
namespace {

template <class S> struct Triple {
    S value, first, second;
};

template <Loss loss, class S> INLINE Triple<S> plain(S y, S u) {
    if (loss == Loss::SQUARED) {
        S a = S(1) - u, b = S(1) + u;
        return {y * a * a + (S(1) - y) * b * b, S(2) * u - (S(4) * y - S(2)), S(2)};
    }
    if (loss == Loss::EXPONENTIAL) {
        S plus = exp_(clip(u, S(sizeof(S) == 4 ? 60 : 500))), minus = S(1) / plus;
        plus *= S(1) - y, minus *= y;
        return {plus + minus, plus - minus, plus + minus};
    }
    S limit = S(sizeof(S) == 4 ? 80 : 700);
    S size = std::fabs(clip(u, limit)), e = exp_(-size);
    S both = S(1) / ((S(1) + e) * (S(2) + e)); // one division for two
    S share = (S(2) + e) * both, p = u >= 0 ? share : e * share, q = u >= 0 ? e * share : share;
    S wrong = (S(1) - y) * (u > 0 ? u : S(0)) + y * (u < 0 ? -u : S(0));
    return {wrong + log1p_(e * (S(1) + e) * both), (S(1) - y) * p - y * q, p * q};
}

// The same; far from the optimum, on the wrong side, with the average curvature on the way to score 0.
template <Loss loss, class S> INLINE Triple<S> evaluate(S y, S u, bool far) {
    constexpr S size = loss == Loss::LOGISTIC ? S(0.5) : loss == Loss::SQUARED ? S(2) : S(1);
    Triple<S> t = plain<loss>(y, u);
    bool wrong = far && t.first * u > 0;
    S average = (t.first - size * (S(1) - S(2) * y)) / (wrong ? u : S(1));
    return {t.value, t.first, wrong ? average : t.second};
}

// A binary loss; a problem has one column.
template <class S, Loss which> class Binary final : public Objective<S> {
    template <bool far>
    ALL_CLONES static void rows_of(const S *y, const S *weight, int count, S *__restrict u,
                                   S *__restrict f, S *__restrict k) {
        for (int i = 0; i < count; i++) {
            Triple<S> t = evaluate<which>(y[i], u[i], far);
            S w = weight[i];
            f[i] = w * t.value + S(0) * u[i]; // NaN where the score is not finite
            u[i] = w * t.first;
            k[i] = w * t.second;
        }
    }

    template <bool some_far>
    ALL_CLONES static void wide_of(const S *y, const S *weight, int count, const S *on, const S *far,
                               S *__restrict U, S *__restrict K, S *__restrict score,
                               S *__restrict change, S *__restrict loss, S *__restrict sum) {
        constexpr int L = lanes<S>;
        for (int i = 0; i < count; i++, y += L, U += L, K += L, score += L, change += L) {
            S w = weight[i];
            for (int l = 0; l < L; l++) {
                bool moves = on[l] > 0;
                S v = U[l], s = score[l] + v;
                Triple<S> t = evaluate<which>(y[l], s, some_far && far[l] > 0);
                S h = w * t.second, value = w * t.value + S(0) * s;
                loss[l] += moves ? value : S(0);
                sum[l] += moves ? h : S(0);
                score[l] = moves ? s : score[l];
                change[l] = moves ? v : change[l];
                U[l] = moves ? w * t.first : K[l] * v;
                K[l] = moves ? h : K[l];
            }
        }
    }

  public:
    void rows(const S *y, const S *weight, int, int count, int, S *u, S *f, S *k,
              bool far) const override {
        (far ? rows_of<true> : rows_of<false>)(y, weight, count, u, f, k);
    }

    void all_lanes(bool some_far, const S *y, const S *weight, int count, const S *on, const S *far,
                   S *U, S *K, S *score, S *change, S *loss, S *sum) const override {
        auto evaluate = some_far || which != Loss::LOGISTIC ? wide_of<true>
                                                             : wide_of<which != Loss::LOGISTIC>;
        evaluate(y, weight, count, on, far, U, K, score, change, loss, sum);
    }
};

// Multinomial logistic regression; a problem has a column for each class. The curvature is kept as
// the probabilities.
template <class S> class Softmax final : public Objective<S> {
    const S cautious_loss;

    // The exponentials of the scores less the largest, in e; their sum and the largest, by row.
    static INLINE void exponentials(int count, int classes, int stride, const S *u,
                                    S *__restrict e, S *__restrict total, S *__restrict top) {
        S low = S(sizeof(S) == 4 ? -80 : -700);
        for (int i = 0; i < count; i++)
            top[i] = -std::numeric_limits<S>::max(), total[i] = 0;
        for (int c = 0; c < classes; c++) {
            const S *a = u + (size_t)c * stride;
            for (int i = 0; i < count; i++)
                top[i] = a[i] > top[i] ? a[i] : top[i];
        }
        for (int c = 0; c < classes; c++) {
            const S *a = u + (size_t)c * stride;
            S *__restrict o = e + (size_t)c * stride;
            for (int i = 0; i < count; i++) {
                S s = a[i] - top[i];
                S x = exp_(s > low ? s : low);
                o[i] = x;
                total[i] += x + S(0) * s; // NaN where the score is not finite
            }
        }
    }

    // Probabilities for the curvature of a row far from the solution, whose true class y has a
    // probability below 1 / 2: for that class, one with the average curvature on the way to 1 / 2.
    static INLINE void be_cautious(int y, S loss, int classes, int stride, S *p) {
        S own = std::exp(-loss), odds = loss + std::log(S(1) - own);
        S root = S(1) - S(4) * (S(0.5) - own) / odds, now = S(0.5) * (S(1) - std::sqrt(root));
        for (int c = 0; c < classes; c++)
            p[(size_t)c * stride] = c == y ? now : p[(size_t)c * stride] * (S(1) - now) / (S(1) - own);
    }

    ALL_CLONES static void rows_of(const S *y, const S *weight, int classes, int count, int stride,
                               S *__restrict u, S *__restrict f, S *__restrict k, bool far,
                               S cautious_loss) {
        S *total = f, *top = k + (size_t)classes * stride;
        exponentials(count, classes, stride, u, k, total, top);
        for (int i = 0; i < count; i++)
            top[i] -= u[(size_t)y[i] * stride + i]; // what the true class is below the largest
        for (int c = 0; c < classes; c++) {
            S *p = k + (size_t)c * stride, *g = u + (size_t)c * stride;
            for (int i = 0; i < count; i++) {
                p[i] /= total[i];
                g[i] = weight[i] * (p[i] - (y[i] == S(c)));
            }
        }
        for (int i = 0; i < count; i++) {
            S loss = top[i] + std::log(total[i]);
            f[i] = weight[i] * loss;
            if (far && loss > cautious_loss)
                be_cautious(int(y[i]), loss, classes, stride, k + i);
        }
    }

  public:
    explicit Softmax(double cautious_loss) : cautious_loss(S(cautious_loss)) {}

    void rows(const S *y, const S *weight, int classes, int count, int stride, S *u, S *f, S *k,
              bool far) const override {
        rows_of(y, weight, classes, count, stride, u, f, k, far, cautious_loss);
    }

    void all_lanes(bool, const S *, const S *, int, const S *, const S *, S *, S *, S *, S *, S *,
                   S *) const override {} // of binary problems only
};

} // namespace

template <class S> std::unique_ptr<Objective<S>> make_objective(const Problems &q) {
    switch (Loss(q.loss)) {
    case Loss::SOFTMAX: return std::make_unique<Softmax<S>>(q.cautious_loss);
    case Loss::EXPONENTIAL: return std::make_unique<Binary<S, Loss::EXPONENTIAL>>();
    case Loss::SQUARED: return std::make_unique<Binary<S, Loss::SQUARED>>();
    default: return std::make_unique<Binary<S, Loss::LOGISTIC>>();
    }
}

template std::unique_ptr<Objective<float>> make_objective(const Problems &);
template std::unique_ptr<Objective<double>> make_objective(const Problems &);

} // namespace fbeta
