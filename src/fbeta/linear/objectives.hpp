// What is minimised: losses of the rows' scores, with derivatives. As in objectives.py.
//
// An objective works on some rows of one problem: scores come as u[c * rows + i] for its classes c,
// and are replaced by the derivatives; the curvature goes to k.
#pragma once

#include "vectors.hpp"

namespace fbeta {

enum class Loss { LOGISTIC, EXPONENTIAL, SQUARED, SOFTMAX };

template <class S> struct Triple {
    S value, first, second;
};

template <class S> INLINE S derivative_at_0(Loss loss, S y) {
    S size = loss == Loss::LOGISTIC ? S(0.5) : loss == Loss::SQUARED ? S(2) : S(1);
    return size * (S(1) - S(2) * y);
}

template <Loss loss, class S> INLINE Triple<S> evaluate(S y, S u) {
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

// A binary loss; a problem has one column.
template <class S> struct Binary {
    static constexpr bool multinomial = false;
    Loss loss_;

    template <Loss which>
    static INLINE void rows_of(const S *y, const S *weight, int count, S *__restrict u,
                               S *__restrict f, S *__restrict k, bool far) {
        for (int i = 0; i < count; i++) {
            Triple<S> t = evaluate<which>(y[i], u[i]);
            S score = u[i];
            bool wrong = far && t.first * score > 0;
            S average = (t.first - derivative_at_0(which, y[i])) / (wrong ? score : S(1));
            S w = weight ? weight[i] : S(1);
            f[i] = w * t.value + S(0) * score; // not a number where the score is none
            u[i] = w * t.first;
            k[i] = w * (wrong ? average : t.second);
        }
    }

    template <Loss which>
    static INLINE double slope_of(const S *y, const S *weight, int count, const S *u, const S *v,
                                  S t) {
        double out = 0;
        for (int i = 0; i < count; i++) {
            S g = evaluate<which>(y[i], u[i] + t * v[i]).first * v[i];
            out += weight ? weight[i] * g : g;
        }
        return out;
    }

    template <Loss which, bool some_far>
    static INLINE void wide_of(const S *y, const S *weight, int count, const S *on, const S *far,
                               S *__restrict U, S *__restrict K, S *__restrict score,
                               S *__restrict change, S *__restrict loss, S *__restrict sum) {
        constexpr int L = lanes<S>;
        for (int i = 0; i < count; i++, y += L, U += L, K += L, score += L, change += L) {
            S w = weight ? weight[i] : S(1);
            for (int l = 0; l < L; l++) {
                bool moves = on[l] > 0;
                S v = U[l], s = score[l] + v;
                Triple<S> t = evaluate<which>(y[l], s);
                S h = w * t.second, value = w * t.value + S(0) * s;
                if constexpr (some_far) {
                    bool wrong = far[l] > 0 && t.first * s > 0;
                    S average = (t.first - derivative_at_0(which, y[l])) / (wrong ? s : S(1));
                    h = wrong ? w * average : h;
                }
                loss[l] += moves ? value : S(0);
                sum[l] += moves ? h : S(0);
                score[l] = moves ? s : score[l];
                change[l] = moves ? v : change[l];
                U[l] = moves ? w * t.first : K[l] * v;
                K[l] = moves ? h : K[l];
            }
        }
    }

    // Losses and derivatives on all lanes, for those that are on; the others respond to U with K.
    template <class... A> INLINE void wide(bool some_far, A... arguments) const {
        if (loss_ == Loss::LOGISTIC)
            some_far ? wide_of<Loss::LOGISTIC, true>(arguments...)
                     : wide_of<Loss::LOGISTIC, false>(arguments...);
        else if (loss_ == Loss::EXPONENTIAL)
            wide_of<Loss::EXPONENTIAL, true>(arguments...);
        else
            wide_of<Loss::SQUARED, true>(arguments...);
    }

    // Losses and derivatives of some rows. Far from the solution, rows on the wrong side get their
    // average curvature on the way to score 0: a saturated loss has almost none, and a Newton step
    // for it would overshoot by far.
    INLINE void rows(const S *y, const S *weight, int, int count, int, S *u, S *f, S *k,
                     bool far) const {
        if (loss_ == Loss::LOGISTIC)
            rows_of<Loss::LOGISTIC>(y, weight, count, u, f, k, far);
        else if (loss_ == Loss::EXPONENTIAL)
            rows_of<Loss::EXPONENTIAL>(y, weight, count, u, f, k, far);
        else
            rows_of<Loss::SQUARED>(y, weight, count, u, f, k, far);
    }

    // The slope of the losses along a change of the scores.
    INLINE double slope(const S *y, const S *weight, int, int count, int, const S *u, const S *v,
                        S t, S *) const {
        if (loss_ == Loss::LOGISTIC)
            return slope_of<Loss::LOGISTIC>(y, weight, count, u, v, t);
        if (loss_ == Loss::EXPONENTIAL)
            return slope_of<Loss::EXPONENTIAL>(y, weight, count, u, v, t);
        return slope_of<Loss::SQUARED>(y, weight, count, u, v, t);
    }
};

// Multinomial logistic regression; a problem has a column for each class. The curvature is kept as
// the probabilities.
template <class S> struct Softmax {
    static constexpr bool multinomial = true;
    static constexpr double WRONG = 0.75; // loss of a probability somewhat below 1 / 2
    Loss loss_;

    // The exponentials of the scores less the largest, in e; their sum and the largest, by row.
    static INLINE void exponentials(int count, int classes, int stride, const S *u, const S *v, S t,
                                    S *__restrict e, S *__restrict total, S *__restrict top) {
        S low = S(sizeof(S) == 4 ? -80 : -700);
        for (int i = 0; i < count; i++)
            top[i] = -std::numeric_limits<S>::max(), total[i] = 0;
        for (int c = 0; c < classes; c++) {
            const S *a = u + (size_t)c * stride, *b = v ? v + (size_t)c * stride : nullptr;
            for (int i = 0; i < count; i++) {
                S s = b ? a[i] + t * b[i] : a[i];
                top[i] = s > top[i] ? s : top[i];
            }
        }
        for (int c = 0; c < classes; c++) {
            const S *a = u + (size_t)c * stride, *b = v ? v + (size_t)c * stride : nullptr;
            S *__restrict o = e + (size_t)c * stride;
            for (int i = 0; i < count; i++) {
                S s = (b ? a[i] + t * b[i] : a[i]) - top[i];
                S x = exp_(s > low ? s : low);
                o[i] = x;
                total[i] += x + S(0) * s; // not a number where the score is none
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

    INLINE void rows(const S *y, const S *weight, int classes, int count, int stride,
                     S *__restrict u, S *__restrict f, S *__restrict k, bool far) const {
        S *total = f, *top = k + (size_t)classes * stride;
        exponentials(count, classes, stride, u, nullptr, S(0), k, total, top);
        for (int i = 0; i < count; i++)
            top[i] -= u[(size_t)y[i] * stride + i]; // what the true class is below the largest
        for (int c = 0; c < classes; c++) {
            S *p = k + (size_t)c * stride, *g = u + (size_t)c * stride;
            for (int i = 0; i < count; i++) {
                p[i] /= total[i];
                g[i] = (weight ? weight[i] : S(1)) * (p[i] - (y[i] == S(c)));
            }
        }
        for (int i = 0; i < count; i++) {
            S loss = top[i] + std::log(total[i]);
            f[i] = (weight ? weight[i] : S(1)) * loss;
            if (far && loss > S(WRONG))
                be_cautious(int(y[i]), loss, classes, stride, k + i);
        }
    }

    INLINE double slope(const S *y, const S *weight, int classes, int count, int stride,
                        const S *u, const S *v, S t, S *space) const {
        S *e = space, *total = e + (size_t)classes * stride, *top = total + stride;
        exponentials(count, classes, stride, u, v, t, e, total, top);
        double out = 0;
        for (int i = 0; i < count; i++) {
            S g = 0;
            for (int c = 0; c < classes; c++)
                g += e[(size_t)c * stride + i] * v[(size_t)c * stride + i];
            g = g / total[i] - v[(size_t)y[i] * stride + i];
            out += weight ? weight[i] * g : g;
        }
        return out;
    }
};

} // namespace fbeta
