// Newton's method with conjugate gradients, a column of coefficients on each lane. As in newton.py.
//
// Every problem needs products of the same matrix with vectors of its own, whether to move, to
// eliminate its intercepts or for a conjugate gradient step. So a step of this solver is one pass
// over the matrix for all lanes, each at its own stage. A problem has as many neighbouring lanes as
// it has columns, filled up to a power of 2: a slot. A slot whose problem is done takes the next one
// from the queue, and no slot waits for another.
//
// It runs twice: in single precision, and from what it found there in double precision, which
// certifies it or goes on. S is the precision, T the type of the matrix, O the objective.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "matrix.hpp"
#include "objectives.hpp"

namespace fbeta {

enum Status { OPEN, CERTIFIED, HARD };

// The problems, shared by all threads that work on them. Only W, n_iter and status are written to.
struct Problems {
    int n, p, m;
    bool intercept;
    const double *mean;    // (p - 1,) centre that the coordinates leave out, or null
    const double *weight;  // (n,) of the rows, or null
    const double *penalty; // (p,) alpha, 0 for the intercept
    const double *spread, *raw; // (p,) variances and mean squares of the columns
    const int *target_start, *target_index;
    const double *target_value; // binary targets, by columns
    const int *classes, *first; // (m, n) classes of the rows, (m + 1,) columns of the problems
    int width;                  // lanes of a slot
    const int *queue;           // the problems to solve, in this order
    int queued;
    double *W; // (p, columns) by columns: where to start, then the solution
    int *n_iter, *status;
    double tol, aim, floor; // tolerance, the share of it to aim at, what objectives are raised by
    double forcing, loose, far, flat_before, flat_beyond;
    int max_iter, max_steps, max_trials;
    bool cold;
    std::atomic<int> next{0}, stop{0};
};

class Solver {
  public:
    virtual ~Solver() = default;
    // Work through the queue for some passes; returns whether there is more to do.
    virtual bool run(int passes) = 0;
};

enum class Stage { IDLE, MOVE, GRADE, CENTRE, SEARCH };

struct Slot {
    Stage stage;
    int problem, classes, iteration, steps, stalled, started, far, centred, known;
    double value, slope, lower, upper, gamma, smallest, limit, share, scale, rz, loss;
};

template <class S, class T, class O, int LANES> class Newton : public Solver {
    using Vec = vec<S, LANES>;
    using Mask = mask<S, LANES>;
    static constexpr int TILE = 256, PART = 128;
    static constexpr int FEW = 2; // conjugate gradient steps that a look at the intercepts would not save
    static constexpr double CLOSE = 0.02; // decrease, in roots of the tolerance, that ends single precision
    static constexpr double EPS = std::numeric_limits<S>::epsilon();

    Problems &q;
    const Matrix<T> m;
    const O objective;
    const int n, p, width, slots, tile;
    // Classes whose intercepts are eliminated together. Single precision, which certifies nothing,
    // takes each by itself: that needs one look instead of one for each class.
    const int group;
    Buffer<Vec> V, G, W, X, R, inverse, B; // (p,) vectors; B (group, p) of the intercepts
    Buffer<Vec> U, K, score, change;       // (n,)
    Buffer<S> y, g, own;                   // targets, derivatives of a tile, work for a slot
    Few<S, LANES, T> few;
    std::vector<S> mean, weight, penalty, lightest, spread; // lightest: 1 / penalty
    Vec total{}, along{}, weighed{}, shift{}, sums[LANES] = {};
    double small[LANES][LANES]; // rows of a slot's matrix of its intercepts' inverse Hessian
    Slot slot[LANES];

    // ---- lanes and slots ----

    static INLINE Vec all(S value) { return Vec{} + value; }

    INLINE int of(int lane) const { return O::multinomial ? lane / width : lane; }

    INLINE Vec over_slots(Vec v) const { // on every lane, the sum over the lanes of its slot
        if constexpr (O::multinomial) {
            if (width > 1)
                v += exchanged<1, S, LANES>(v);
            if (width > 2)
                v += exchanged<2, S, LANES>(v);
            if (width > 4)
                v += exchanged<4, S, LANES>(v);
            if constexpr (LANES > 8)
                if (width > 8)
                    v += exchanged<8, S, LANES>(v);
        }
        return v;
    }

    INLINE Mask at(Stage stage) const {
        Mask out;
        for (int l = 0; l < LANES; l++)
            out[l] = slot[of(l)].stage == stage ? -1 : 0;
        return out;
    }

    INLINE bool any(Stage stage) const {
        for (int s = 0; s < slots; s++)
            if (slot[s].stage == stage)
                return true;
        return false;
    }

    static INLINE bool moves(const Slot &k) {
        return k.stage == Stage::MOVE || k.stage == Stage::GRADE;
    }

    // Spread what each lane's slot has on its k-th lane.
    INLINE Vec from_lane(Vec v, int k) const {
        if (group == 1)
            return v;
        Vec out;
        for (int l = 0; l < LANES; l++)
            out[l] = v[of(l) * width + k];
        return out;
    }

    // Multiply with each slot's small matrix.
    INLINE Vec solve_small(Vec v) const {
        Vec out{};
        for (int l = 0; l < LANES; l++) {
            double sum = 0;
            for (int k = 0; k < group; k++)
                sum += small[l][k] * v[l / group * group + k];
            out[l] = S(sum);
        }
        return out;
    }

    // ---- a pass over the matrix ----

    // Losses, derivatives and curvatures of a slot that moved, on some rows.
    INLINE void evaluate_rows(int s, int from, int count) {
        Slot &k = slot[s];
        int lane = s * width, C = k.classes;
        S *u = own, *f = u + (size_t)C * PART, *h = f + PART;
        for (int c = 0; c < C; c++)
            for (int i = 0; i < count; i++) {
                S v = k.stage == Stage::MOVE ? U[from + i][lane + c] : S(0);
                change[from + i][lane + c] = v;
                u[(size_t)c * PART + i] = score[from + i][lane + c] += v;
            }
        const S *w = weight.empty() ? nullptr : weight.data() + from;
        objective.rows(y + (size_t)s * n + from, w, C, count, PART, u, f, h, k.far);
        S loss = 0;
        for (int i = 0; i < count; i++)
            loss += f[i];
        k.loss += loss;
        for (int c = 0; c < C; c++) {
            S *into = g + (size_t)(lane + c) * PART, sum = 0;
            for (int i = 0; i < count; i++) {
                S kappa = h[(size_t)c * PART + i];
                K[from + i][lane + c] = kappa;
                into[i] = u[(size_t)c * PART + i];
                S diagonal = O::multinomial ? kappa * (S(1) - kappa) : kappa;
                sum += O::multinomial && w ? w[i] * diagonal : diagonal;
            }
            total[lane + c] += sum;
        }
    }

    // The same for all slots at once, and the response of the others, where many have moved.
    INLINE void evaluate_all(int from, int count, Mask centring) {
        S on[LANES], far[LANES], loss[LANES] = {}, sum[LANES] = {};
        bool some_far = false;
        for (int l = 0; l < LANES; l++) {
            on[l] = moves(slot[l]);
            far[l] = slot[l].far;
            some_far |= moves(slot[l]) && slot[l].far;
        }
        Mask grade = at(Stage::GRADE);
        for (int i = from; i < from + count; i++)
            U[i] = choose(grade, Vec{}, choose(centring, all(1), U[i]));
        for (int l = 0; l < LANES; l++)
            for (int i = 0; i < count; i++)
                own[(size_t)i * LANES + l] = y[(size_t)l * n + from + i];
        const S *w = weight.empty() ? nullptr : weight.data() + from;
        objective.wide(some_far, (const S *)own, w, count, on, far, (S *)(U + from), (S *)(K + from),
                       (S *)(score + from), (S *)(change + from), loss, sum);
        for (int l = 0; l < LANES; l++)
            if (moves(slot[l])) {
                slot[l].loss += loss[l];
                total[l] += sum[l];
            }
    }

    // Turn scores into what is multiplied with the transpose.
    INLINE void respond(int from, int to, Mask centring, Vec unit) {
        int moving = 0;
        for (int s = 0; s < slots; s++)
            moving += moves(slot[s]);
        for (int part = from; part < to; part += PART) {
            int count = std::min(PART, to - part);
            if constexpr (!O::multinomial)
                if (3 * moving >= LANES) {
                    evaluate_all(part, count, centring);
                    continue;
                }
            for (int s = 0; s < slots; s++)
                if (moves(slot[s]))
                    evaluate_rows(s, part, count);
            for (int i = part; i < part + count; i++) {
                Vec u = choose(centring, unit, U[i]), kappa = K[i];
                if constexpr (O::multinomial) {
                    Vec average = over_slots(kappa * u);
                    if (group == 1) // of each intercept, what its own class feels
                        average = choose(centring, kappa, average);
                    u = kappa * (u - average);
                    U[i] = weight.empty() ? u : weight[i] * u;
                } else {
                    U[i] = kappa * u;
                }
            }
            for (int l = 0; l < LANES; l++) {
                const Slot &k = slot[of(l)];
                if (moves(k) && (!O::multinomial || l % width < k.classes))
                    for (int i = 0; i < count; i++)
                        U[part + i][l] = g[(size_t)l * PART + i];
            }
        }
    }

    // G = matrix' respond(matrix V) + penalty times what each lane is about, in centred coordinates.
    INLINE void pass() {
        int last = p - 1;
        bool summing = !q.intercept;
        bool needed = any(Stage::MOVE) || any(Stage::SEARCH);
        Mask centring = at(Stage::CENTRE);
        Vec kept{}, unit{}, sum{};
        for (int l = 0; l < LANES; l++)
            unit[l] = group == 1 || l % width == slot[of(l)].centred ? S(1) : S(0);
        for (int s = 0; s < slots; s++)
            if (moves(slot[s])) {
                slot[s].loss = 0;
                for (int c = 0; c < width; c++)
                    total[s * width + c] = 0;
            }
        if (q.mean) {
            kept = V[last];
            V[last] -= shift;
        }
        bool thin = m.dense && begin_few();
        if (m.dense)
            std::memset(G, 0, p * sizeof(Vec));
        for (int from = 0; from < n; from += tile) {
            int to = std::min(from + tile, n);
            if (needed)
                thin ? few.forward(U, from, to) : forward<S, LANES>(m, V, U, from, to);
            respond(from, to, centring, unit);
            if (summing)
                for (int i = from; i < to; i++)
                    sum += U[i];
            thin ? few.backward(U, from, to) : backward<S, LANES>(m, U, G, from, to);
        }
        if (thin)
            few.end(G);
        if (q.mean)
            V[last] = kept;
        finalise(centring);
        along = over_slots(along), weighed = over_slots(weighed);
        Vec column = q.intercept ? G[last] : sum;
        for (int l = 0; l < LANES; l++)
            if (centring[l])
                sums[slot[of(l)].centred][l] = column[l];
    }

    INLINE bool begin_few() {
        bool active[LANES];
        for (int l = 0; l < LANES; l++) {
            const Slot &k = slot[of(l)];
            active[l] = k.stage != Stage::IDLE && (!O::multinomial || l % width < k.classes);
        }
        return few.begin(active, V);
    }

    // Centre the gradients and products, add the penalty of what each lane is about, and take the
    // inner products with V and with the penalty.
    INLINE void finalise(Mask centring) {
        int last = p - 1;
        bool moving = any(Stage::MOVE) || any(Stage::GRADE);
        Mask move = at(Stage::MOVE), grade = at(Stage::GRADE);
        Vec final = G[last];
        along = weighed = Vec{};
        for (int j = 0; j < p; j++) {
            Vec about = V[j];
            if (moving)
                about = choose(grade, W[j], choose(move, W[j] + V[j], V[j]));
            Vec pull = penalty[j] * choose(centring, Vec{}, about), out = G[j] + pull;
            if (q.mean && j < last)
                out -= mean[j] * final;
            along += V[j] * out;
            weighed += pull * about;
            G[j] = out;
        }
    }

    // ---- the stages of a slot ----

    void take_next(int s) {
        Slot &k = slot[s];
        k = Slot{};
        int place = q.next.fetch_add(1, std::memory_order_relaxed);
        bool more = place < q.queued;
        if (more) {
            k.problem = q.queue[place];
            k.classes = O::multinomial ? q.first[k.problem + 1] - q.first[k.problem] : 1;
            k.stage = Stage::MOVE;
            k.far = q.cold;
            k.scale = 1;
        }
        for (int c = 0; c < width; c++) {
            int l = s * width + c;
            bool used = c < k.classes;
            size_t column = O::multinomial ? (used ? q.first[k.problem] + c : 0) : k.problem;
            for (int j = 0; more && j < p; j++) { // the first direction leads to the start from 0
                X[j][l] = used ? S(q.W[column * p + j]) : S(0);
                W[j][l] = 0;
                for (int b = 0; b < group; b++)
                    B[(size_t)b * p + j][l] = 0;
            }
            for (int i = 0; i < n; i++)
                score[i][l] = K[i][l] = 0;
            for (int b = 0; b < group; b++)
                small[l][b] = sums[b][l] = 0;
            total[l] = 0;
        }
        if (more)
            load_targets(s);
    }

    void load_targets(int s) {
        S *into = y + (size_t)s * n;
        int problem = slot[s].problem;
        if (O::multinomial) {
            for (int i = 0; i < n; i++)
                into[i] = S(q.classes[(size_t)problem * n + i]);
            return;
        }
        std::memset(into, 0, n * sizeof(S));
        for (int e = q.target_start[problem]; e < q.target_start[problem + 1]; e++)
            into[q.target_index[e]] = S(q.target_value[e]);
    }

    // Write down where a slot is, and take the next problem.
    void finish(int s, Status status) {
        Slot &k = slot[s];
        if (k.iteration > 0)
            for (int c = 0; c < k.classes; c++) {
                size_t column = O::multinomial ? q.first[k.problem] + c : k.problem;
                for (int j = 0; j < p; j++)
                    q.W[column * p + j] = W[j][s * width + c];
            }
        q.n_iter[k.problem] += k.iteration;
        q.status[k.problem] = status;
        take_next(s);
    }

    // Scores and their changes of a slot, class by class, in `own`.
    INLINE void copy_rows(int s, S *u, S *v) {
        for (int c = 0; c < slot[s].classes; c++)
            for (int i = 0; i < n; i++) {
                int l = s * width + c;
                v[(size_t)c * n + i] = change[i][l];
                u[(size_t)c * n + i] = score[i][l] - change[i][l];
            }
    }

    // Find the step of a slot along its direction, where the slope all but vanishes.
    INLINE double find_step(int s, double pull, double bend, const S *u, const S *v, S *space) {
        Slot &k = slot[s];
        const S *w = weight.empty() ? nullptr : weight.data();
        double low = 0, high = INFINITY, at_low = k.slope, at_high = 0, t = 0.5;
        for (int trial = 0; trial < q.max_trials; trial++) {
            double now = pull + t * bend +
                         objective.slope(y + (size_t)s * n, w, k.classes, n, n, u, v, S(t), space);
            if (now >= q.flat_before * k.slope && now <= 0) // it is lower there than at the start
                return t;
            if (now < 0) // false for NaN: an overflow is too far
                low = t, at_low = now;
            else
                high = t, at_high = now;
            double share = at_low / (at_low - at_high);
            share = share >= 0.1 ? (share <= 0.9 ? share : 0.9) : 0.1;
            t = std::isfinite(high) ? low + share * (high - low) : 4 * low;
        }
        return low;
    }

    // A slot whose full step will not do: find a better one, and grade it in the next pass.
    INLINE void shorten(int s) {
        Slot &k = slot[s];
        int C = k.classes;
        std::vector<S> work((size_t)(3 * C + 2) * n);
        S *u = work.data(), *v = u + (size_t)C * n, *space = v + (size_t)C * n;
        copy_rows(s, u, v);
        double pull = 0, bend = 0;
        for (int c = 0; c < C; c++)
            for (int j = 0; j < p; j++) {
                double w = W[j][s * width + c], d = V[j][s * width + c];
                pull += penalty[j] * w * d;
                bend += penalty[j] * d * d;
            }
        S t = S(find_step(s, pull, bend, u, v, space));
        for (int c = 0; c < C; c++) {
            int l = s * width + c;
            for (int i = 0; i < n; i++)
                score[i][l] = u[(size_t)c * n + i] + t * v[(size_t)c * n + i];
            for (int j = 0; j < p; j++)
                W[j][l] += t * V[j][l];
        }
        k.stage = Stage::GRADE;
    }

    // Slots that moved or were graded: begin to look for the next direction, or give up.
    // Returns those that need no look at their intercepts.
    INLINE Mask moved() {
        Mask move = at(Stage::MOVE), grade = at(Stage::GRADE), accepted{}, fresh{};
        for (int s = 0; s < slots; s++) {
            Slot &k = slot[s];
            int l = s * width;
            if (!move[l] && !grade[l])
                continue;
            double value = k.loss + 0.5 * weighed[l], ahead = along[l];
            bool sane = std::isfinite(value) && std::isfinite(ahead);
            bool good = ahead >= q.flat_before * k.slope && ahead <= -q.flat_beyond * k.slope;
            good = good && (ahead <= 0 || value <= k.value + 64 * EPS * std::fabs(k.value));
            if (move[l] && k.started && !(sane && good)) {
                shorten(s);
                continue;
            }
            if (!sane || k.stalled > 1) {
                finish(s, OPEN);
                continue;
            }
            if (move[l])
                for (int c = 0; c < width; c++)
                    accepted[l + c] = -1;
            k.stalled += k.started && value > k.value - 4 * EPS * std::fabs(value);
            k.iteration += k.started;
            k.started = 1;
            k.value = value;
            k.stage = Stage::CENTRE;
            k.centred = may_skip(k) ? looks(k) : 0;
            for (int c = 0; c < width; c++)
                fresh[l + c] = -1;
        }
        Mask ready{};
        for (int l = 0; l < LANES; l++)
            ready[l] = fresh[l] && slot[of(l)].centred > 0 ? -1 : 0;
        for (int j = 0; j < p; j++) {
            W[j] = choose(accepted, W[j] + V[j], W[j]);
            R[j] = choose(fresh, -G[j], R[j]);
        }
        return ready;
    }

    // Passes that show the Hessian of a slot's intercepts.
    INLINE int looks(const Slot &k) const { return std::min(k.classes, group); }

    // Single precision need not know the intercepts' Hessian well: what it was before may do.
    INLINE bool may_skip(const Slot &k) const {
        return sizeof(S) == 4 && k.steps <= FEW;
    }

    // Slots that have seen the Hessian of an intercept. Returns those that have seen all of them.
    INLINE Mask centred(Mask centring) {
        for (int k = 0; k < group; k++) {
            Mask now{};
            for (int l = 0; l < LANES; l++)
                now[l] = centring[l] && slot[of(l)].centred == k ? -1 : 0;
            for (int j = 0; j < p; j++) {
                Vec &b = B[(size_t)k * p + j];
                b = choose(now, G[j], b);
            }
        }
        Mask ready{};
        for (int s = 0; s < slots; s++)
            if (centring[s * width] && ++slot[s].centred == looks(slot[s]) && slot[s].centred++)
                for (int c = 0; c < width; c++)
                    ready[s * width + c] = -1;
        return ready;
    }

    // The preconditioners of slots that begin conjugate gradients.
    INLINE void prepare(Mask ready) {
        Vec largest{}, rough{}, tiny = all(16 * std::numeric_limits<S>::min());
        for (int j = 0; j < p; j++) {
            Vec d = penalty[j] + spread[j] * total;
            d = choose(d > tiny, d, tiny);
            bool penalised = j < p - q.intercept;
            Vec inverted = penalised ? S(1) / d : Vec{};
            inverse[j] = choose(ready, inverted, inverse[j]);
            if (!penalised)
                continue;
            largest = choose(d > largest, d, largest);
            Vec share = S(q.raw[j]) * total * inverted;
            rough = choose(share > rough, share, rough);
        }
        for (int s = 0; s < slots; s++)
            if (ready[s * width])
                invert_intercepts(s, largest, rough);
    }

    INLINE void first_bounds(int s, double size, double most) {
        Slot &k = slot[s];
        k.stage = Stage::SEARCH;
        k.scale = size > 0 ? std::sqrt(size) : 1;
        k.steps = 0;
        k.rz = size > 0 ? 1 : 0;
        k.lower = 0;
        bool known = k.smallest > 0 && size > 0;
        k.gamma = known ? 1 / k.smallest : INFINITY;
        k.upper = known ? std::min(k.gamma, most / size) : INFINITY;
        k.limit = k.far ? 0 : 2 * q.aim * q.tol * (k.value + q.floor) / (k.scale * k.scale);
        k.share = std::min(std::max(0.3 * k.limit, q.forcing), q.loose);
        if (!k.far && k.upper <= k.limit)
            finish(s, CERTIFIED);
        else if (!(size > 0))
            finish(s, OPEN);
    }

    // The inverse of the Hessian of a slot's intercepts; the lower end of its spectrum.
    INLINE void invert_intercepts(int s, Vec largest, Vec rough) {
        Slot &k = slot[s];
        int C = k.classes, lane = s * width;
        double top = 0, worst = 0;
        for (int c = 0; c < C; c++) {
            top = std::max(top, (double)largest[lane + c]);
            worst = std::max(worst, (double)rough[lane + c]);
        }
        k.smallest = std::min(1.0, q.penalty[0] / std::max(top, 1e-150));
        if (8 * worst * EPS > 0.1 * k.smallest)
            k.smallest = 0; // products in this precision know nothing of so small an end
        int size = looks(k);
        bool fresh = k.centred > size;
        if (!fresh && k.known)
            return;
        k.known |= fresh;
        for (int at = lane; at < lane + C; at += group)
            invert_group(at, size, fresh);
    }

    // The same for some classes that are seen together.
    INLINE void invert_group(int at, int size, bool fresh) {
        double A[LANES][LANES], trace = 1e-150;
        for (int c = 0; c < size; c++)
            for (int b = 0; b < size; b++) {
                // before a look nothing is known but the diagonal
                A[c][b] = fresh ? sums[b][at + c] : c == b ? total[at + c] : 0;
                for (int a = 0; a < size && !q.intercept; a++)
                    for (int j = 0; j < p; j++)
                        A[c][b] += (double)B[(size_t)b * p + j][at + a] * inverse[j][at + a] *
                                   B[(size_t)c * p + j][at + a];
                trace += c == b ? A[c][c] : 0;
            }
        for (int c = 0; c < size; c++) // a shift of all classes changes no probability
            for (int b = 0; b < size; b++)
                A[c][b] += group > 1 ? trace : c == b ? 1e-150 : 0;
        invert(A, size);
        for (int c = 0; c < size; c++)
            for (int b = 0; b < size; b++)
                small[at + c][b] = A[c][b];
    }

    // Invert a small matrix, by Gauss and Jordan.
    static INLINE void invert(double A[LANES][LANES], int C) {
        for (int k = 0; k < C; k++) {
            double pivot = A[k][k] != 0 ? 1 / A[k][k] : 0;
            A[k][k] = 1;
            for (int b = 0; b < C; b++)
                A[k][b] *= pivot;
            for (int a = 0; a < C; a++) {
                if (a == k)
                    continue;
                double f = A[a][k];
                A[a][k] = 0;
                for (int b = 0; b < C; b++)
                    A[a][b] -= f * A[k][b];
            }
        }
    }

    // X += length V and R -= length G where that is not 0, then G = M^-1 R for all slots, with M as
    // in preconditioners.py; returns R' M^-1 R, and in `most` what R' H^-1 R is at most, since H is
    // no less than the penalty where the intercepts are eliminated.
    INLINE Vec precondition(Vec length, Mask ready, Vec &most) {
        Vec size{}, tau[LANES], part[LANES];
        most = Vec{};
        int features = p - q.intercept;
        for (int k = 0; k < group; k++)
            tau[k] = Vec{};
        if (q.intercept) {
            step_to(p - 1, length, ready);
            Vec last = R[p - 1], offset = solve_small(last);
            for (int k = 0; k < group; k++)
                part[k] = from_lane(offset, k);
            for (int j = 0; j < features; j++) {
                step_to(j, length, ready);
                Vec rest = R[j];
                for (int k = 0; k < group; k++)
                    rest -= B[(size_t)k * p + j] * part[k];
                Vec z = rest * inverse[j];
                size += rest * z;
                most += lightest[j] * (rest * rest);
                for (int k = 0; k < group; k++)
                    tau[k] += B[(size_t)k * p + j] * z;
                G[j] = z;
            }
            G[p - 1] = offset - solve_small(collect(tau));
            most = over_slots(most + last * offset);
            return over_slots(size + last * offset);
        }
        for (int j = 0; j < features; j++) {
            step_to(j, length, ready);
            for (int k = 0; k < group; k++)
                tau[k] += B[(size_t)k * p + j] * (R[j] * inverse[j]);
        }
        Vec offset = solve_small(collect(tau));
        for (int k = 0; k < group; k++)
            part[k] = from_lane(offset, k);
        for (int j = 0; j < features; j++) {
            Vec z = R[j];
            for (int k = 0; k < group; k++)
                z -= B[(size_t)k * p + j] * part[k];
            G[j] = z * inverse[j];
            size += R[j] * G[j];
            most += lightest[j] * (R[j] * R[j]);
        }
        most = over_slots(most);
        return over_slots(size);
    }

    INLINE void step_to(int j, Vec length, Mask ready) {
        X[j] = choose(ready, Vec{}, X[j] + length * V[j]);
        R[j] -= length * G[j];
    }

    // Put the sums over each slot of the k-th vector on the slot's k-th lane.
    INLINE Vec collect(const Vec *tau) const {
        if (group == 1)
            return tau[0];
        Vec out{};
        for (int k = 0; k < width; k++) {
            Vec sum = over_slots(tau[k]);
            for (int l = k; l < LANES; l += width)
                out[l] = sum[l];
        }
        return out;
    }

    // A conjugate gradient step of slots that were searching, and the first of those that are ready.
    INLINE void search(Mask searching, Mask ready) {
        Vec length{}, ratio{}, scale = all(1);
        for (int l = 0; l < LANES; l++)
            if (searching[l] && along[l] > 0)
                length[l] = S(slot[of(l)].rz / along[l]);
        Vec most, size = precondition(length, ready, most);
        for (int s = 0; s < slots; s++) {
            int l = s * width;
            double share = 0;
            if (searching[l])
                share = advance(s, length[l], size[l], most[l]);
            else if (ready[l])
                first_bounds(s, size[l], most[l]);
            for (int c = 0; c < width; c++) {
                ratio[l + c] = S(share);
                if (ready[l] && size[l] > 0)
                    scale[l + c] = 1 / std::sqrt(size[l]);
            }
        }
        Mask fresh = at(Stage::SEARCH) & ready;
        bool some = false;
        for (int l = 0; l < LANES; l++)
            some |= fresh[l] != 0;
        for (int j = 0; some && j < p; j++)
            R[j] = choose(fresh, scale * R[j], R[j]);
        aim(scale, ratio);
    }

    // Bounds of the Newton decrement after a step, and what to do. Returns the share of the last
    // conjugate direction in the next one.
    INLINE double advance(int s, double length, double size, double most) {
        Slot &k = slot[s];
        bool going = length > 0 && size >= 0;
        double ratio = going ? size / k.rz : 0, rest = k.gamma - length;
        k.lower += length * k.rz;
        bool sound = going && rest > 0 && std::isfinite(rest);
        k.gamma = sound ? rest / (k.smallest * rest + ratio) : INFINITY;
        k.upper = sound ? k.lower + std::min(k.gamma * size, most) : INFINITY;
        k.rz = size;
        k.steps++;
        bool below = !k.far && k.lower <= k.limit;
        // so close that the next point need not be looked at in single precision
        double left = k.lower * k.scale * k.scale / (k.value + q.floor);
        bool quick = sizeof(S) == 4 && !k.far && left <= CLOSE * std::sqrt(q.tol);
        if (quick && !below && size <= 0.3 * k.limit) {
            leap(s);
            return ratio;
        }
        bool close = size <= k.share || k.upper - k.lower <= q.forcing * k.lower;
        if (!k.far && k.upper <= k.limit)
            finish(s, CERTIFIED);
        else if (k.steps >= q.max_steps)
            finish(s, HARD);
        else if (!going || !(size > 0)) // rounding has the last word
            below ? finish(s, sizeof(S) == 4 ? CERTIFIED : HARD) : start_move(s);
        else if (close && !below && !quick)
            start_move(s);
        else if (close && sizeof(S) == 4)
            finish(s, CERTIFIED); // as far as single precision can tell
        return ratio;
    }

    // Go along the direction that was found without a look, for double precision to judge.
    INLINE void leap(int s) {
        Slot &k = slot[s];
        for (int j = 0; j < p; j++) {
            S mean_ = 0; // over classes: weights sum to 0
            for (int c = 0; O::multinomial && c < k.classes; c++)
                mean_ += X[j][s * width + c] / k.classes;
            for (int c = 0; c < k.classes; c++)
                W[j][s * width + c] += S(k.scale) * (X[j][s * width + c] - mean_);
        }
        k.iteration++;
        finish(s, CERTIFIED);
    }

    // Go along the direction that was found.
    INLINE void start_move(int s) {
        Slot &k = slot[s];
        if (k.iteration + q.n_iter[k.problem] >= q.max_iter) {
            finish(s, OPEN);
            return;
        }
        k.stage = Stage::MOVE;
        k.slope = -k.scale * k.scale * k.lower;
        k.far = -k.slope > q.far * (k.value + q.floor);
    }

    // What is multiplied in the next pass: a conjugate direction, or where to move.
    INLINE void aim(Vec scale, Vec ratio) {
        Mask move = at(Stage::MOVE), hold = at(Stage::SEARCH);
        Vec full{}, share{};
        for (int l = 0; l < LANES; l++) {
            const Slot &k = slot[of(l)];
            full[l] = S(k.scale);
            share[l] = O::multinomial && k.started && k.classes ? S(1) / k.classes : S(0);
        }
        bool moving = any(Stage::MOVE);
        shift = Vec{};
        for (int j = 0; j < p; j++) {
            Vec x{};
            if (moving) {
                x = full * X[j];
                if constexpr (O::multinomial) { // weights sum to 0 over the classes of a problem
                    Vec sum = over_slots(x) * share;
                    for (int l = 0; l < LANES; l++)
                        x[l] = l % width < slot[of(l)].classes ? x[l] - sum[l] : S(0);
                }
                x = choose(move, x, Vec{});
            }
            V[j] = choose(hold, scale * G[j] + ratio * V[j], x);
            if (q.mean && j < p - 1)
                shift += mean[j] * V[j];
        }
    }

  public:
    Newton(Problems &problems, const Matrix<T> &matrix, Loss loss)
        : q(problems), m(matrix), objective{loss}, n(problems.n), p(problems.p),
          width(O::multinomial ? problems.width : 1), slots(LANES / width),
          tile(matrix.dense ? TILE : std::max(problems.n, 1)), group(sizeof(S) == 4 ? 1 : width),
          few(m, TILE) {
        for (auto *b : {&V, &G, &W, &X, &R, &inverse})
            b->resize(p);
        B.resize((size_t)p * group);
        for (auto *b : {&U, &K, &score, &change})
            b->resize(n);
        y.resize((size_t)slots * n);
        g.resize((size_t)LANES * PART);
        own.resize((size_t)std::max(2 * width + 4, LANES) * PART);
        auto copy = [](std::vector<S> &to, const double *from, int count) {
            if (from)
                to.assign(from, from + count);
        };
        copy(mean, q.mean, p - 1);
        copy(weight, q.weight, n);
        copy(penalty, q.penalty, p);
        copy(spread, q.spread, p);
        for (S value : penalty)
            lightest.push_back(S(1) / value);
        for (int s = 0; s < slots; s++)
            take_next(s);
        aim(Vec{}, Vec{});
    }

    bool run(int passes) override;

    INLINE bool work(int passes) {
        for (; passes > 0 && !q.stop.load(std::memory_order_relaxed); passes--) {
            bool busy = false;
            for (int s = 0; s < slots; s++)
                busy |= slot[s].stage != Stage::IDLE;
            if (!busy)
                return false;
            Mask searching = at(Stage::SEARCH), centring = at(Stage::CENTRE);
            bool moving = any(Stage::MOVE) || any(Stage::GRADE);
            bool centre = any(Stage::CENTRE);
            pass();
            Mask ready{};
            if (moving)
                ready = moved();
            if (centre)
                ready |= centred(centring);
            if (moving || centre)
                prepare(ready);
            search(searching, ready);
        }
        return passes == 0;
    }
};

} // namespace fbeta
