// Newton's method with conjugate gradients, a column of coefficients on each lane. As in driver.py.
//
// Every problem needs products of the same matrix with vectors of its own, whether to move, to
// eliminate its intercepts or for a conjugate gradient step. So a step of this solver is one pass
// over the matrix for all lanes, each at its own stage. A problem has as many neighbouring lanes as
// it has columns, filled up to a power of 2: a slot. A slot whose problem is done takes the next one
// from the queue, and no slot waits for another.
//
// It runs twice: in single precision, and from what it found there in double precision, which
// certifies the solution or continues. S is the precision. The type of the matrix and the objective
// are behind virtual calls, each for many rows. What is marked CLONES is compiled for several kinds
// of processors; no vector is passed to such a function by value, because that depends on the kind.
#include <algorithm>
#include <cmath>
#include <vector>

#include "matrix.hpp"
#include "objectives.hpp"

namespace fbeta {
namespace {

enum class Stage { IDLE, MOVE, GRADE, CENTRE, SEARCH };

// What a slot of the solver knows of its problem.
struct Slot {
    Stage stage;
    int problem, classes, iteration, steps, stalled, started, far, centred, known;
    double value, slope, lower, upper, gamma, smallest, limit, share, scale, rz, loss, goal;

    bool moves() const { return stage == Stage::MOVE || stage == Stage::GRADE; }

    // Set the size that the Newton decrement has to reach.
    void set_goal(const Problems &q) {
        goal = far ? 0 : 2 * q.tol_share * q.tol * (value + q.objective_floor);
    }

    // Bounds of the Newton decrement before conjugate gradients, where the residual R, scaled to
    // R' M^-1 R = 1, had the squared norm `size` and R' H^-1 R is at most `most`.
    void begin_search(const Problems &q, double size, double most) {
        scale = size > 0 ? std::sqrt(size) : 1;
        steps = 0;
        rz = size > 0 ? 1 : 0;
        lower = 0;
        bool bounded = smallest > 0 && size > 0;
        gamma = bounded ? 1 / smallest : INFINITY;
        upper = bounded ? std::min(gamma, most / size) : INFINITY;
        limit = goal / (scale * scale);
        share = std::min(std::max(q.residual_share * limit, q.forcing), q.max_forcing);
    }

    // The same after a step. Returns the share of the last conjugate direction in the next one.
    double add_step(double length, double size, double most) {
        bool going = length > 0 && size >= 0;
        double ratio = going ? size / rz : 0, rest = gamma - length;
        lower += length * rz;
        bool sound = going && rest > 0 && std::isfinite(rest);
        gamma = sound ? rest / (smallest * rest + ratio) : INFINITY;
        upper = sound ? lower + std::min(gamma * size, most) : INFINITY;
        rz = size;
        steps++;
        return ratio;
    }
};

// Invert the first rows and columns of a small matrix, by Gauss and Jordan.
void invert(double *A, int stride, int order) {
    for (int k = 0; k < order; k++) {
        double *row = A + k * stride, pivot = row[k] != 0 ? 1 / row[k] : 0;
        row[k] = 1;
        for (int b = 0; b < order; b++)
            row[b] *= pivot;
        for (int a = 0; a < order; a++) {
            double *other = A + a * stride, factor = other[k];
            if (a == k)
                continue;
            other[k] = 0;
            for (int b = 0; b < order; b++)
                other[b] -= factor * row[b];
        }
    }
}

template <class S, int LANES> class Newton final : public Solver {
    using Vec = vec<S, LANES>;
    using Mask = mask<S, LANES>;
    static constexpr int TILE = 256, PART = 128; // rows that stay in the processor's caches
    static constexpr bool SINGLE = sizeof(S) == 4;
    static constexpr double EPS = std::numeric_limits<S>::epsilon();

    Problems &q;
    const bool multinomial;
    const int n, p, width, width_bits, slots, tile;
    // Classes whose intercepts are eliminated together. Single precision, which certifies nothing,
    // takes each by itself: that needs one pass instead of one for each class.
    const int group;
    const std::unique_ptr<Products<Vec>> matrix;
    const std::unique_ptr<Objective<S>> objective;
    Buffer<Vec> V, G, W, X, R, inverse, B; // (p,) vectors; B (group, p) of the intercepts
    Buffer<Vec> U, K, score, change;       // (n,)
    Buffer<S> y, own;                      // targets, work for a slot
    std::vector<S> mean, weight, penalty, inverse_penalty, variance;
    Vec total{}, along{}, weighed{}, shift{}, row_sum{}, sums[LANES] = {};
    Mask searching{}, centring{}, ready{}; // stages at the last pass; slots that begin to search
    double small[LANES][LANES]; // rows of a slot's matrix of its intercepts' inverse Hessian
    Slot slot[LANES];
    double farthest = 0; // distance of a row
    // of the certificate: penalty, squared distance of outcomes, squared change of scores
    const double alpha = std::max(q.penalty[0], q.smallest_pivot), pair = multinomial ? 2 : 1;
    const double radius = q.certified_radius * q.certified_radius;

    // ---- lanes and slots ----

    static INLINE Vec all(S value) { return Vec{} + value; }
    INLINE int of(int lane) const { return lane >> width_bits; }
    INLINE int class_of(int lane) const { return lane & (width - 1); }
    INLINE size_t column_of(int problem) const { return multinomial ? q.first[problem] : problem; }
    INLINE Vec over_slots(Vec v) const { return sum_over<S, LANES>(v, width); }

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
        const S *w = &weight[from];
        objective->rows(y + (size_t)s * n + from, w, C, count, PART, u, f, h, k.far);
        S loss = 0;
        for (int i = 0; i < count; i++)
            loss += f[i];
        k.loss += loss;
        for (int c = 0; c < C; c++) {
            S sum = 0;
            for (int i = 0; i < count; i++) {
                S kappa = h[(size_t)c * PART + i];
                K[from + i][lane + c] = kappa;
                U[from + i][lane + c] = u[(size_t)c * PART + i];
                S diagonal = multinomial ? kappa * (S(1) - kappa) : kappa;
                sum += multinomial ? w[i] * diagonal : diagonal;
            }
            total[lane + c] += sum;
        }
    }

    // The same for all slots at once, and the response of the others, where many have moved.
    INLINE void evaluate_all(int from, int count) {
        S on[LANES], far[LANES], loss[LANES] = {}, sum[LANES] = {};
        bool some_far = false;
        for (int l = 0; l < LANES; l++) {
            on[l] = slot[l].moves();
            far[l] = slot[l].far;
            some_far |= slot[l].moves() && slot[l].far;
        }
        Mask grade = at(Stage::GRADE);
        for (int i = from; i < from + count; i++)
            U[i] = choose(grade, Vec{}, choose(centring, all(1), U[i]));
        for (int l = 0; l < LANES; l++)
            for (int i = 0; i < count; i++)
                own[(size_t)i * LANES + l] = y[(size_t)l * n + from + i];
        objective->all_lanes(some_far, own, &weight[from], count, on, far, (S *)(U + from),
                             (S *)(K + from), (S *)(score + from), (S *)(change + from), loss, sum);
        for (int l = 0; l < LANES; l++)
            if (slot[l].moves()) {
                slot[l].loss += loss[l];
                total[l] += sum[l];
            }
    }

    // Turn scores into what is multiplied with the transpose.
    CLONES void respond(int from, int to) {
        int moving = 0;
        Vec unit{};
        Mask moves = at(Stage::MOVE);
        moves |= at(Stage::GRADE);
        for (int s = 0; s < slots; s++)
            moving += slot[s].moves();
        for (int l = 0; l < LANES; l++)
            unit[l] = group == 1 || class_of(l) == slot[of(l)].centred ? S(1) : S(0);
        for (int part = from; part < to; part += PART) {
            int count = std::min(PART, to - part);
            if (!multinomial && 3 * moving >= LANES) {
                evaluate_all(part, count);
                continue;
            }
            for (int s = 0; s < slots; s++)
                if (slot[s].moves())
                    evaluate_rows(s, part, count);
            multiply_by_curvature(part, count, unit, moves);
        }
        if (!q.intercept)
            for (int i = from; i < to; i++)
                row_sum += U[i];
    }

    // The same of slots that do not move.
    INLINE void multiply_by_curvature(int from, int count, Vec unit, Mask moves) {
        for (int i = from; !multinomial && i < from + count; i++)
            U[i] = choose(moves, U[i], K[i] * choose(centring, unit, U[i]));
        if (!multinomial)
            return;
        for (int i = from; i < from + count; i++) {
            Vec u = choose(centring, unit, U[i]), kappa = K[i], average = over_slots(kappa * u);
            if (group == 1) // of each intercept, only the effect on its own class
                average = choose(centring, kappa, average);
            u = kappa * (u - average);
            U[i] = choose(moves, U[i], weight[i] * u);
        }
    }

    // G = matrix' respond(matrix V) + penalty times what each lane is about, in centred coordinates.
    void pass() {
        int last = p - 1;
        bool needed = any(Stage::MOVE) || any(Stage::SEARCH), active[LANES];
        for (int s = 0; s < slots; s++)
            if (slot[s].moves()) {
                slot[s].loss = 0;
                for (int c = 0; c < width; c++)
                    total[s * width + c] = 0;
            }
        for (int l = 0; l < LANES; l++)
            active[l] = class_of(l) < slot[of(l)].classes;
        Vec kept = V[last];
        row_sum = Vec{};
        if (q.mean)
            V[last] -= shift;
        matrix->begin(active, V, G);
        for (int from = 0; from < n; from += tile) {
            int to = std::min(from + tile, n);
            if (needed)
                matrix->forward(V, U, from, to);
            respond(from, to);
            matrix->backward(U, G, from, to);
        }
        matrix->end(G);
        V[last] = kept;
        finalise();
        for (int l = 0; l < LANES; l++)
            if (centring[l])
                sums[slot[of(l)].centred][l] = q.intercept ? G[last][l] : row_sum[l];
    }

    // Centre the gradients and products, add the penalty of what each lane is about, and take the
    // inner products with V and with the penalty.
    CLONES void finalise() {
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
        along = over_slots(along), weighed = over_slots(weighed);
    }

    // ---- the stages of a slot ----

    void take_next(int s) {
        Slot &k = slot[s];
        k = Slot{};
        int place = q.next.fetch_add(1, std::memory_order_relaxed);
        bool more = place < q.queued;
        if (more) {
            k.problem = q.queue[place];
            k.classes = multinomial ? q.first[k.problem + 1] - q.first[k.problem] : 1;
            k.stage = Stage::MOVE;
            k.far = q.cold;
            k.scale = 1;
        }
        for (int c = 0; c < width; c++) {
            int l = s * width + c;
            bool used = c < k.classes;
            const double *start = used ? q.W + (column_of(k.problem) + c) * p : nullptr;
            for (int j = 0; more && j < p; j++) { // the first direction leads to the start from 0
                X[j][l] = used ? S(start[j]) : S(0);
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
        if (multinomial) {
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
            for (int c = 0; c < k.classes; c++)
                for (int j = 0; j < p; j++)
                    q.W[(column_of(k.problem) + c) * p + j] = W[j][s * width + c];
        q.n_iter[k.problem] += k.iteration;
        q.status[k.problem] = status;
        take_next(s);
    }

    // The slope of a slot's losses at a step along the change of its scores.
    double slope_at(int s, S step) {
        int C = slot[s].classes, lane = s * width;
        S *u = own, *f = u + (size_t)C * PART, *h = f + PART;
        double out = 0;
        for (int from = 0; from < n; from += PART) {
            int count = std::min(PART, n - from);
            for (int c = 0; c < C; c++)
                for (int i = 0; i < count; i++) {
                    S v = change[from + i][lane + c], start = score[from + i][lane + c] - v;
                    u[(size_t)c * PART + i] = start + step * v;
                }
            objective->rows(y + (size_t)s * n + from, &weight[from], C, count, PART, u, f, h, false);
            for (int c = 0; c < C; c++)
                for (int i = 0; i < count; i++)
                    out += u[(size_t)c * PART + i] * change[from + i][lane + c];
        }
        return out;
    }

    // A step at which the slope is small; that of the penalty at t is pull + t bend.
    double find_step(int s, double pull, double bend) {
        double first = slot[s].slope, low = 0, high = INFINITY, at_low = first, at_high = 0;
        double t = q.first_step;
        for (int trial = 0; trial < q.max_trials; trial++) {
            double now = pull + t * bend + slope_at(s, S(t));
            if (now >= q.slope_before * first && now <= 0) // it is lower there than at the start
                return t;
            if (now < 0) // false for NaN: an overflow is too far
                low = t, at_low = now;
            else
                high = t, at_high = now;
            double share = at_low / (at_low - at_high);
            share = share >= q.secant_margin ? std::min(share, 1 - q.secant_margin) : q.secant_margin;
            t = std::isfinite(high) ? low + share * (high - low) : q.step_growth * low;
        }
        return low;
    }

    // A slot whose full step is not accepted: find a better one, and evaluate it in the next pass.
    void shorten(int s) {
        int C = slot[s].classes, lane = s * width;
        double pull = 0, bend = 0;
        for (int c = lane; c < lane + C; c++)
            for (int j = 0; j < p; j++) {
                double w = W[j][c], d = V[j][c];
                pull += penalty[j] * w * d;
                bend += penalty[j] * d * d;
            }
        S t = S(find_step(s, pull, bend));
        for (int c = lane; c < lane + C; c++) {
            for (int i = 0; i < n; i++)
                score[i][c] = (score[i][c] - change[i][c]) + t * change[i][c];
            for (int j = 0; j < p; j++)
                W[j][c] += t * V[j][c];
        }
        slot[s].stage = Stage::GRADE;
    }

    // Slots that moved or were graded: begin to search for the next direction, or give up. Those whose
    // intercepts need no pass are ready.
    CLONES void moved() {
        Mask move = at(Stage::MOVE), grade = at(Stage::GRADE), accepted{}, fresh{};
        for (int s = 0; s < slots; s++) {
            Slot &k = slot[s];
            int l = s * width;
            if (!move[l] && !grade[l])
                continue;
            double value = k.loss + 0.5 * weighed[l], ahead = along[l];
            bool sane = std::isfinite(value) && std::isfinite(ahead);
            bool good = ahead >= q.slope_before * k.slope && ahead <= -q.slope_beyond * k.slope;
            good = good && (ahead <= 0 || value <= k.value + q.value_rounding * EPS * std::fabs(k.value));
            if (move[l] && k.started && !(sane && good)) {
                shorten(s);
                continue;
            }
            if (!sane || k.stalled >= q.max_stalled) {
                finish(s, OPEN);
                continue;
            }
            if (move[l])
                for (int c = 0; c < width; c++)
                    accepted[l + c] = -1;
            k.stalled += k.started && value > k.value - q.stall_rounding * EPS * std::fabs(value);
            k.iteration += k.started;
            k.value = value;
            k.set_goal(q);
            if (!SINGLE && !k.far && (k.iteration < q.max_tentative || k.iteration % 2 == 0))
                truncate(s);
            k.started = 1;
            k.stage = Stage::CENTRE;
            k.centred = SINGLE && k.steps <= q.few_steps ? looks(k) : 0;
            for (int c = 0; c < width; c++)
                fresh[l + c] = -1;
        }
        for (int l = 0; l < LANES; l++)
            ready[l] = fresh[l] && slot[of(l)].centred > 0 ? -1 : 0;
        for (int j = 0; j < p; j++) {
            W[j] = choose(accepted, W[j] + V[j], W[j]);
            R[j] = choose(fresh, -G[j], R[j]);
        }
    }

    // Passes that show the Hessian of a slot's intercepts.
    INLINE int looks(const Slot &k) const { return std::min(k.classes, group); }

    // Keep the products of slots with the Hessian of an intercept; those that have all are ready.
    CLONES void centred() {
        for (int k = 0; k < group; k++) {
            Mask now{};
            for (int l = 0; l < LANES; l++)
                now[l] = centring[l] && slot[of(l)].centred == k ? -1 : 0;
            for (int j = 0; j < p; j++) {
                Vec &b = B[(size_t)k * p + j];
                b = choose(now, G[j], b);
            }
        }
        for (int s = 0; s < slots; s++)
            if (centring[s * width] && ++slot[s].centred == looks(slot[s]) && slot[s].centred++)
                for (int c = 0; c < width; c++)
                    ready[s * width + c] = -1;
    }

    // The preconditioners of slots that begin conjugate gradients.
    CLONES void prepare() {
        Vec largest{}, rough{}, tiny = all(16 * std::numeric_limits<S>::min());
        for (int j = 0; j < p; j++) {
            Vec d = penalty[j] + variance[j] * total;
            d = choose(d > tiny, d, tiny);
            bool penalised = j < p - q.intercept;
            Vec inverted = penalised ? S(1) / d : Vec{};
            inverse[j] = choose(ready, inverted, inverse[j]);
            if (!penalised)
                continue;
            largest = choose(d > largest, d, largest);
            Vec share = S(q.mean_square[j]) * total * inverted;
            rough = choose(share > rough, share, rough);
        }
        for (int s = 0; s < slots; s++)
            if (ready[s * width])
                invert_intercepts(s, (const S *)&largest, (const S *)&rough);
    }

    // Weighted curvature of a row that bounds changes of its scores, as in objectives.py.
    INLINE double mass(int i, int lane) const {
        double own = K[i][lane];
        return multinomial ? 0.5 * weight[i] * own : own;
    }

    // Leave out curvature of rows whose scores may change by more than a radius, and lower the goal
    // until the share of what is left out is small. As in conjugate.py.
    void truncate(int s) {
        Slot &k = slot[s];
        int C = k.classes, lane = s * width;
        double total = multinomial; // of the masses, for one score
        for (int trial = 0; trial < q.max_lowered; trial++, k.goal /= q.goal_factor) {
            // distance beyond which the scores of a row may change by more than the radius
            double lost = 0, near = std::sqrt(radius * alpha / (pair * k.goal)) - *q.middle;
            if (!(farthest > near))
                return;
            for (int i = 0; !trial && !multinomial && i < n; i++)
                total += mass(i, lane);
            for (int i = 0; i < n; i++) {
                if (!(q.distance[i] > near))
                    continue;
                double gone = 0, all_ = 0;
                for (int c = 0; c < C; c++) {
                    double own = mass(i, lane + c);
                    all_ += own;
                    gone += radius * own < k.goal ? own : 0;
                }
                if (multinomial)
                    lost = std::max(lost, gone / std::max(all_, q.smallest_pivot));
                else
                    lost += gone;
            }
            if (lost > q.dropped_curvature * total)
                continue;
            for (int i = 0; lost > 0 && i < n; i++) {
                S rest = 0;
                if (!(q.distance[i] > near))
                    continue;
                for (int c = 0; c < C; c++) {
                    if (radius * mass(i, lane + c) < k.goal)
                        K[i][lane + c] = 0;
                    rest += K[i][lane + c];
                }
                for (int c = 0; multinomial && c < C; c++)
                    K[i][lane + c] /= rest;
            }
            return;
        }
    }

    // Up to which size g' H^-1 g bounds what is left to gain, at most a limit. As in conjugate.py.
    double certifiable(int s, double limit) const {
        int C = slot[s].classes, lane = s * width;
        double gap = 0, base = 0, worst = 0;
        if (q.intercept && !multinomial) {
            // a mean of rows is no farther from their centre than the farthest row
            double most = 4 * farthest * farthest / alpha + small[lane][0];
            if (most * limit <= radius)
                return relaxed(limit, most);
        }
        for (int a = 0; q.intercept && a < C; a++) {
            double square = 0;
            for (int c = 0; c < C; c++)
                for (int j = 0; j < p - 1; j++) {
                    double rest = c == a ? -q.centre[j] : 0;
                    for (int b = 0; b < C; b++)
                        rest += B[(size_t)b * p + j][lane + c] * small[lane + b][a];
                    square += rest * rest;
                }
            gap = std::max(gap, square), base = std::max(base, small[lane + a][a]);
        }
        gap = std::sqrt(pair * gap / alpha), base *= pair * pair;
        auto reach = [&](double distance) {
            double change = distance / std::sqrt(alpha) + gap;
            return pair * change * change + base;
        };
        if (reach(farthest) * limit <= radius)
            return relaxed(limit, reach(farthest));
        int count = 0;
        for (bool counted : {false, true})
            for (int i = 0; i < n; i++) {
                double most = reach(q.distance[i]);
                if (most * limit <= radius)
                    continue;
                for (int c = 0; c < C; c++) {
                    double part = mass(i, lane + c);
                    double own = std::min(most, 1 / std::max(part, q.smallest_pivot));
                    if (own * limit <= radius)
                        continue;
                    count += !counted;
                    if (counted && part > 0 && !(2 * part * most * count <= q.dropped_curvature))
                        worst = std::max(worst, own);
                }
            }
        return worst > 0 ? std::min(limit, radius / worst) : limit;
    }

    // The same where every row reaches so far: up to twice as much. Outcomes may have been left out.
    double relaxed(double limit, double reach) const {
        double share = std::sqrt(reach * limit / radius);
        return multinomial ? limit : limit * (2 - q.goal_slope * share);
    }

    void first_bounds(int s, double size, double most) {
        Slot &k = slot[s];
        k.stage = Stage::SEARCH;
        if (!SINGLE && !k.far)
            k.goal = certifiable(s, k.goal);
        k.begin_search(q, size, most);
        if (!k.far && k.upper <= k.limit)
            finish(s, CERTIFIED);
        else if (!(size > 0))
            finish(s, OPEN);
    }

    // The inverse of the Hessian of a slot's intercepts; the lower end of its spectrum.
    void invert_intercepts(int s, const S *largest, const S *rough) {
        Slot &k = slot[s];
        int C = k.classes, lane = s * width;
        double top = 0, worst = 0;
        for (int c = 0; c < C; c++) {
            top = std::max(top, (double)largest[lane + c]);
            worst = std::max(worst, (double)rough[lane + c]);
        }
        k.smallest = std::min(1.0, q.penalty[0] / std::max(top, q.smallest_pivot));
        if (q.product_rounding * worst * EPS > q.rounding_margin * k.smallest)
            k.smallest = 0; // eigenvalues so small are lost to the rounding of products
        int size = looks(k);
        bool fresh = k.centred > size;
        if (!fresh && k.known)
            return;
        k.known |= fresh;
        for (int at = lane; at < lane + C; at += group)
            invert_group(at, size, fresh);
    }

    // The same for some classes that are seen together.
    void invert_group(int at, int size, bool fresh) {
        double A[LANES][LANES], trace = q.smallest_pivot;
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
                A[c][b] += group > 1 ? trace : c == b ? q.smallest_pivot : 0;
        invert(&A[0][0], LANES, size);
        for (int c = 0; c < size; c++)
            for (int b = 0; b < size; b++)
                small[at + c][b] = A[c][b];
    }

    // X += length V and R -= length G where that is not 0, then G = M^-1 R for all slots, with M as
    // in preconditioners.py; returns R' M^-1 R, and in `most` what R' H^-1 R is at most, since H is
    // no less than the penalty where the intercepts are eliminated.
    INLINE Vec precondition(Vec length, Vec &most) {
        Vec size{}, tau[LANES], part[LANES];
        most = Vec{};
        int features = p - q.intercept;
        for (int k = 0; k < group; k++)
            tau[k] = Vec{};
        if (q.intercept) {
            step_to(p - 1, length);
            Vec last = R[p - 1], offset = solve_small(last);
            for (int k = 0; k < group; k++)
                part[k] = from_lane(offset, k);
            for (int j = 0; j < features; j++) {
                step_to(j, length);
                Vec rest = R[j];
                for (int k = 0; k < group; k++)
                    rest -= B[(size_t)k * p + j] * part[k];
                Vec z = rest * inverse[j];
                size += rest * z;
                most += inverse_penalty[j] * (rest * rest);
                for (int k = 0; k < group; k++)
                    tau[k] += B[(size_t)k * p + j] * z;
                G[j] = z;
            }
            G[p - 1] = offset - solve_small(collect(tau));
            most = over_slots(most + last * offset);
            return over_slots(size + last * offset);
        }
        for (int j = 0; j < features; j++) {
            step_to(j, length);
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
            most += inverse_penalty[j] * (R[j] * R[j]);
        }
        most = over_slots(most);
        return over_slots(size);
    }

    INLINE void step_to(int j, Vec length) {
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
    CLONES void search() {
        Vec length{}, ratio{}, scale = all(1);
        for (int l = 0; l < LANES; l++)
            if (searching[l] && along[l] > 0)
                length[l] = S(slot[of(l)].rz / along[l]);
        Vec most, size = precondition(length, most);
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
        set_directions(scale, ratio);
    }

    // Bounds of the Newton decrement after a step, and what to do. Returns the share of the last
    // conjugate direction in the next one.
    double advance(int s, double length, double size, double most) {
        Slot &k = slot[s];
        bool going = length > 0 && size >= 0;
        double ratio = k.add_step(length, size, most);
        bool below = !k.far && k.lower <= k.limit;
        bool certified = !k.far && k.upper <= k.limit;
        bool close = size <= k.share || k.upper - k.lower <= q.forcing * k.lower;
        // so close that single precision need not evaluate the next point
        double left = k.lower * k.scale * k.scale / (k.value + q.objective_floor);
        bool unchecked = SINGLE && !k.far && left <= q.unchecked_decrease;
        if (unchecked && (certified || close))
            accept_unchecked(s);
        else if (certified)
            finish(s, CERTIFIED);
        else if (k.steps >= q.max_steps)
            finish(s, HARD);
        else if (!going || !(size > 0)) // limited by rounding error
            below ? finish(s, SINGLE ? CERTIFIED : HARD) : start_move(s);
        else if (close && !below)
            start_move(s);
        else if (close && SINGLE)
            finish(s, CERTIFIED); // to the accuracy of single precision
        return ratio;
    }

    // Take the step that was found; double precision evaluates it.
    void accept_unchecked(int s) {
        Slot &k = slot[s];
        for (int j = 0; j < p; j++) {
            S mean_ = 0; // over classes: weights sum to 0
            for (int c = 0; multinomial && c < k.classes; c++)
                mean_ += X[j][s * width + c] / k.classes;
            for (int c = 0; c < k.classes; c++)
                W[j][s * width + c] += S(k.scale) * (X[j][s * width + c] - mean_);
        }
        k.iteration++;
        finish(s, CERTIFIED);
    }

    // Go along the direction that was found.
    void start_move(int s) {
        Slot &k = slot[s];
        if (k.iteration + q.n_iter[k.problem] >= q.max_iter) {
            finish(s, OPEN);
            return;
        }
        k.stage = Stage::MOVE;
        k.slope = -k.scale * k.scale * k.lower;
        k.far = -k.slope > q.far_decrease * (k.value + q.objective_floor);
    }

    // What is multiplied in the next pass: a conjugate direction, or where to move.
    INLINE void set_directions(Vec scale, Vec ratio) {
        Mask move = at(Stage::MOVE), hold = at(Stage::SEARCH);
        Vec full{}, share{};
        for (int l = 0; l < LANES; l++) {
            const Slot &k = slot[of(l)];
            full[l] = S(k.scale);
            share[l] = multinomial && k.started && k.classes ? S(1) / k.classes : S(0);
        }
        bool moving = any(Stage::MOVE);
        shift = Vec{};
        for (int j = 0; j < p; j++) {
            Vec x{};
            if (moving) {
                x = full * X[j];
                if (multinomial) { // weights sum to 0 over the classes of a problem
                    Vec sum = over_slots(x) * share;
                    for (int l = 0; l < LANES; l++)
                        x[l] = class_of(l) < slot[of(l)].classes ? x[l] - sum[l] : S(0);
                }
                x = choose(move, x, Vec{});
            }
            V[j] = choose(hold, scale * G[j] + ratio * V[j], x);
            if (q.mean && j < p - 1)
                shift += mean[j] * V[j];
        }
    }

  public:
    explicit Newton(Problems &problems)
        : q(problems), multinomial(Loss(q.loss) == Loss::SOFTMAX), n(q.n_rows), p(q.n_columns),
          width(multinomial ? q.width : 1), width_bits(std::ilogb(width)), slots(LANES / width),
          tile(q.dense ? TILE : n), group(SINGLE ? 1 : width),
          matrix(make_products<S, LANES>(q)), objective(make_objective<S>(q)) {
        for (auto *b : {&V, &G, &W, &X, &R, &inverse})
            b->resize(p);
        B.resize((size_t)p * group);
        for (auto *b : {&U, &K, &score, &change})
            b->resize(n);
        y.resize((size_t)slots * n);
        own.resize((size_t)std::max(2 * width + 4, LANES) * PART);
        auto copy = [](std::vector<S> &to, const double *from, int count) {
            if (from)
                to.assign(from, from + count);
        };
        copy(mean, q.mean, p - 1);
        weight.assign(n, 1);
        copy(weight, q.weight, n);
        copy(penalty, q.penalty, p);
        copy(variance, q.variance, p);
        for (int i = 0; i < n; i++)
            farthest = std::max(farthest, q.distance[i]);
        for (S value : penalty)
            inverse_penalty.push_back(S(1) / value);
        for (int s = 0; s < slots; s++)
            take_next(s);
        set_directions(Vec{}, Vec{});
    }

    bool run(int passes) override {
        for (; passes > 0 && !q.stop.load(std::memory_order_relaxed); passes--) {
            bool moving = any(Stage::MOVE) || any(Stage::GRADE), centre = any(Stage::CENTRE);
            if (!moving && !centre && !any(Stage::SEARCH))
                return false;
            searching = at(Stage::SEARCH), centring = at(Stage::CENTRE), ready = Mask{};
            pass();
            if (moving)
                moved();
            if (centre)
                centred();
            if (moving || centre)
                prepare();
            search();
        }
        return passes == 0;
    }
};

} // namespace

template <int register_bytes> Solver *make_solver(Problems &q) {
    if (q.single)
        return new Newton<float, 16>(q);
    if (q.width <= lanes<double>)
        return new Newton<double, 8>(q);
    return new Newton<double, 16>(q);
}

template Solver *make_solver<FBETA_REGISTER_BYTES>(Problems &);

} // namespace fbeta
