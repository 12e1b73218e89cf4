/* Newton's method with conjugate gradients, a binary problem on each lane of a vector register.
 *
 * Every problem needs products of the same matrix with vectors of its own, whether to evaluate its
 * objective or for a conjugate gradient step. So a step of this solver is one pass over the matrix
 * for all lanes, each at its own stage; a lane whose problem is solved takes the next one from the
 * queue, and no lane waits for another. All this is in single precision. The gradient at what is
 * found is then computed in double precision: a solution that passes there is certified, and any
 * other is where the solver in newton.py goes on from.
 */
#include "lanes.h"

#include <float.h>
#include <math.h>

#include "certify.h"
#include "products.h"

#define MAX_REJECTED 20
#define PART_ROWS 512 /* rows of a lane that are evaluated at a time */
#define TILE 256 /* rows of a dense design between the product and the product back */

enum stage { IDLE, EVALUATE, SEARCH };

typedef struct {
    enum stage stage;
    int column, iteration, steps, rejected, stalled, started, far;
    double value, slope, step, trust, decrease, promised, scale, accuracy;
    double loss, curvature; /* sums over the rows at the point that is evaluated */
} lane;

struct workspace {
    vec *V, *G, *W, *X, *R, *inverse; /* (p,) vectors multiplied, products, points, directions */
    vec *U, *H;                       /* (n,) scores, curvatures */
    float *y;                         /* (LANES, n) targets */
    float *g;                         /* (LANES, rows of a tile) their derivatives */
    float *mean, *weight, *penalty, *mean_squares; /* of the problems, in single precision */
    int tile;
    lane lanes[LANES];
    vec rz;
    certifier *certifier; /* NULL where X is in single precision */
};

void lanes_close(workspace *s) {
    if (!s)
        return;
    void *arrays[] = {s->V, s->G, s->W, s->X, s->R, s->inverse, s->U, s->H, s->y, s->g,
                      s->mean, s->weight, s->penalty, s->mean_squares};
    for (size_t a = 0; a < sizeof(arrays) / sizeof(*arrays); a++)
        free(arrays[a]);
    certify_close(s->certifier);
    free(s);
}

/* ---- the losses ---- */

INLINE float clip(float x, float limit) {
    x = x < limit ? x : limit;
    return x > -limit ? x : -limit;
}

typedef struct { float f, g, h; } triple;

INLINE triple logistic(float y, float u) {
    float size = fabsf(clip(u, 80.0f)), e = exp_(-size), share = 1.0f / (1.0f + e);
    float p = u >= 0 ? share : e * share, q = u >= 0 ? e * share : share;
    float wrong = (1.0f - y) * (u > 0 ? u : 0.0f) + y * (u < 0 ? -u : 0.0f);
    return (triple){wrong + log1p_(e), (1.0f - y) * p - y * q, p * q};
}

INLINE triple exponential(float y, float u) {
    float plus = exp_(clip(u, 60.0f)), minus = 1.0f / plus;
    plus *= 1.0f - y, minus *= y;
    return (triple){plus + minus, plus - minus, plus + minus};
}

INLINE triple squared(float y, float u) {
    float a = 1.0f - u, b = 1.0f + u;
    return (triple){y * a * a + (1.0f - y) * b * b, 2.0f * u - (4.0f * y - 2.0f), 2.0f};
}

/* Values, derivatives and curvatures of one lane's rows: g replaces the scores u, h goes to H.
 *
 * Far from the solution, rows on the wrong side get their average curvature on the way to score
 * 0: a saturated loss has almost none, and a Newton step for it would overshoot by far. */
#define EVALUATE_ROWS(name, phi, at0, at1)                                                         \
    INLINE void name(const float *c, const float *y, float *restrict u, float *restrict f,        \
                     float *restrict h, int rows, int far) {                                       \
        for (int i = 0; i < rows; i++) {                                                           \
            triple t = phi(y[i], u[i]);                                                            \
            float middle = at0 + (at1 - at0) * y[i], score = u[i];                                 \
            int wrong = far && t.g * score > 0;                                                    \
            float average = (t.g - middle) / (wrong ? score : 1.0f);                               \
            t.h = wrong ? average : t.h;                                                           \
            float weight = c ? c[i] : 1.0f;                                                        \
            f[i] = weight * t.f + 0.0f * score; /* not a number where the score is none */         \
            u[i] = weight * t.g;                                                                   \
            h[i] = weight * t.h;                                                                   \
        }                                                                                          \
    }
EVALUATE_ROWS(logistic_rows, logistic, 0.5f, -0.5f)
EVALUATE_ROWS(exponential_rows, exponential, 1.0f, -1.0f)
EVALUATE_ROWS(squared_rows, squared, 2.0f, -2.0f)

INLINE float sum(const float *x, int count) {
    float parts[LANES] = {0}, out = 0;
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            parts[l] += x[i + l];
    for (; i < count; i++)
        out += x[i];
    for (int l = 0; l < LANES; l++)
        out += parts[l];
    return out;
}

/* Turn scores into what is multiplied with the transpose: derivatives for lanes that evaluate,
 * curvature times score for lanes that search a direction. */
INLINE void respond(const problems *q, workspace *s, int from, int to) {
    int rows = to - from;
    float f[PART_ROWS], h[PART_ROWS];
    for (int l = 0; l < LANES; l++) {
        lane *k = &s->lanes[l];
        if (k->stage != EVALUATE)
            continue;
        float *g = s->g + (size_t)l * s->tile;
        const float *y = s->y + (size_t)l * q->n + from;
        for (int part = 0; part < rows; part += PART_ROWS) {
            int count = rows - part < PART_ROWS ? rows - part : PART_ROWS;
            const float *c = s->weight ? s->weight + from + part : NULL;
            for (int i = 0; i < count; i++)
                g[part + i] = s->U[from + part + i][l];
            if (q->loss == LOGISTIC)
                logistic_rows(c, y + part, g + part, f, h, count, k->far);
            else if (q->loss == EXPONENTIAL)
                exponential_rows(c, y + part, g + part, f, h, count, k->far);
            else
                squared_rows(c, y + part, g + part, f, h, count, k->far);
            for (int i = 0; i < count; i++)
                s->H[from + part + i][l] = h[i];
            k->loss += sum(f, count);
            k->curvature += sum(h, count);
        }
    }
    for (int i = from; i < to; i++)
        s->U[i] *= s->H[i];
    for (int l = 0; l < LANES; l++)
        if (s->lanes[l].stage == EVALUATE) {
            const float *g = s->g + (size_t)l * s->tile;
            for (int i = 0; i < rows; i++)
                s->U[from + i][l] = g[i];
        }
}

/* One pass over the matrix: G = matrix' respond(matrix V) + penalty V, in centred coordinates. */
INLINE void pass(const problems *q, workspace *s) {
    int last = q->p - 1;
    for (int l = 0; l < LANES; l++)
        s->lanes[l].loss = s->lanes[l].curvature = 0;
    vec intercept = {0}, shift = {0};
    if (q->mean) {
        intercept = s->V[last];
        for (int j = 0; j < last; j++)
            shift += s->mean[j] * s->V[j];
        s->V[last] -= shift;
    }
    if (q->dense)
        memset(s->G, 0, q->p * sizeof(vec));
    for (int from = 0; from < q->n; from += s->tile) {
        int to = from + s->tile < q->n ? from + s->tile : q->n;
        forward(q, s->V, s->U, from, to);
        respond(q, s, from, to);
        backward(q, s->U, s->G, from, to);
    }
    if (q->mean) {
        s->V[last] = intercept;
        for (int j = 0; j < last; j++)
            s->G[j] -= s->mean[j] * s->G[last];
    }
    for (int j = 0; j < q->p; j++)
        s->G[j] += s->penalty[j] * s->V[j];
}

/* ---- the lanes ---- */

/* Give a lane the next problem of the queue, or nothing. */
static void take_next(const problems *q, workspace *s, int l) {
    lane *k = &s->lanes[l];
    memset(k, 0, sizeof(*k));
    int at = __atomic_fetch_add(q->next, 1, __ATOMIC_RELAXED);
    if (at >= q->queued)
        return;
    k->stage = EVALUATE;
    k->column = q->queue[at];
    k->step = k->trust = 1;
    k->far = q->cold;
    const double *start = q->W + (size_t)k->column * q->p;
    for (int j = 0; j < q->p; j++) {
        s->W[j][l] = (float)start[j];
        s->X[j][l] = 0;
    }
    float *y = s->y + (size_t)l * q->n;
    memset(y, 0, q->n * sizeof(float));
    for (int e = q->target_start[k->column]; e < q->target_start[k->column + 1]; e++)
        y[q->target_index[e]] = (float)q->target_value[e];
}

/* How much too low the promise of the preconditioner may be: what searches have shown, or what the
 * caller says before there was one. */
INLINE double trust(const problems *q, const lane *k) {
    return k->iteration ? k->trust : q->trust[k->column];
}

/* Store a lane's point, if it is better than where it started, and take the next problem.
 *
 * Unless `salt` is 0, have it certified, with promises that may be so many times lower than found. */
static void finish(const problems *q, workspace *s, int l, int salt) {
    lane *k = &s->lanes[l];
    if (k->iteration > 0) {
        double *out = q->W + (size_t)k->column * q->p;
        for (int j = 0; j < q->p; j++)
            out[j] = s->W[j][l];
    }
    q->n_iter[k->column] = k->iteration;
    q->trust[k->column] = trust(q, k);
    if (salt && s->certifier)
        certify_add(q, s->certifier, (candidate){k->column, k->value, k->curvature, salt * trust(q, k)});
    take_next(q, s, l);
}

/* The differences of objectives that rounding hides. */
INLINE double noise(double value) {
    return 64 * FLT_EPSILON * fabs(value);
}

/* Whether the point that was evaluated is where to go on from. */
INLINE int acceptable(const problems *q, const lane *k, double value, double slope) {
    if (!k->started)
        return isfinite(value);
    return value <= k->value + q->armijo * k->step * k->slope ||
           (fabs(slope) <= 0.1 * fabs(k->slope) && value <= k->value + noise(k->value));
}

INLINE mask lanes_at(const workspace *s, enum stage stage) {
    mask m;
    for (int l = 0; l < LANES; l++)
        m[l] = s->lanes[l].stage == stage ? -1 : 0;
    return m;
}

/* Which of the lanes go to the point that was evaluated; the others come closer, or give up. */
INLINE mask accepted(const problems *q, workspace *s, mask evaluated) {
    vec slope = {0}, size = {0};
    for (int j = 0; j < q->p; j++) {
        slope += s->G[j] * s->X[j];
        size += s->penalty[j] * s->V[j] * s->V[j];
    }
    mask moved = {0};
    for (int l = 0; l < LANES; l++) {
        lane *k = &s->lanes[l];
        if (!evaluated[l])
            continue;
        double value = k->loss + 0.5 * size[l], ahead = slope[l] * k->scale;
        if (acceptable(q, k, value, ahead)) {
            moved[l] = -1;
            k->stalled += k->started && value > k->value - 2 * FLT_EPSILON * fabs(value);
            k->iteration += k->started;
            k->value = value;
            k->started = 1;
        } else if (k->started && ++k->rejected < MAX_REJECTED) {
            /* where the slope is known at both ends, the secant's zero is better than a half */
            double secant = k->slope / (k->slope - ahead);
            secant = isfinite(secant) ? secant : 0.1;
            k->step *= secant < 0.1 ? 0.1 : secant > 0.5 ? 0.5 : secant;
        } else {
            finish(q, s, l, 0);
        }
    }
    return moved;
}

/* The square of the relative residual at which a search ends: what is left to gain then is below
 * the tolerance, or a further iteration will gain it. */
INLINE double accuracy(const problems *q, const lane *k) {
    double enough = 0.3 * q->tol * (k->value + q->floor) / (k->decrease * trust(q, k));
    double least = q->forcing * q->forcing, most = q->loose * q->loose;
    return enough < least ? least : enough > most ? most : enough;
}

/* Lanes that moved: start a search for the next direction, or finish. */
INLINE void restart(const problems *q, workspace *s, mask moved) {
    double tol = q->aim * q->tol > q->finest ? q->aim * q->tol : q->finest;
    vec total = {0}, decrease = {0}, scale = {0};
    for (int l = 0; l < LANES; l++)
        if (moved[l])
            total[l] = s->lanes[l].curvature;
    for (int j = 0; j < q->p; j++) {
        vec diagonal = s->penalty[j] + s->mean_squares[j] * total, smallest = {0};
        smallest += FLT_MIN_ROOT;
        diagonal = choose(diagonal > smallest, diagonal, smallest);
        s->inverse[j] = choose(moved, 1.0f / diagonal, s->inverse[j]);
        decrease += s->G[j] * s->G[j] * s->inverse[j];
    }
    for (int l = 0; l < LANES; l++)
        scale[l] = decrease[l] > 0 ? -1 / sqrtf(decrease[l]) : 0;
    for (int j = 0; j < q->p; j++) {
        s->W[j] = choose(moved, s->V[j], s->W[j]);
        s->R[j] = choose(moved, scale * s->G[j], s->R[j]);
        s->X[j] = choose(moved, (vec){0}, s->X[j]);
    }
    for (int l = 0; l < LANES; l++) {
        lane *k = &s->lanes[l];
        if (!moved[l])
            continue;
        k->decrease = 0.5 * decrease[l];
        int done = k->decrease * trust(q, k) <= tol * (k->value + q->floor) && !k->far;
        if (done || k->stalled > 1 || k->iteration >= q->max_iter || !isfinite(k->decrease)) {
            /* at the end of what single precision can do, promises are taken with more salt */
            finish(q, s, l, done ? 1 : k->stalled > 1 ? 10 : 0);
            continue;
        }
        k->stage = SEARCH;
        k->steps = k->rejected = 0;
        k->step = 1;
        k->scale = sqrt(decrease[l]);
        k->promised = 0;
        k->accuracy = accuracy(q, k);
        s->rz[l] = 1;
    }
}

/* Lanes that were searching: a conjugate gradient step. Those that are accurate enough evaluate
 * next. Returns the share of the last conjugate direction in the next one. */
INLINE vec searched(const problems *q, workspace *s, mask searching) {
    vec bend = {0}, length = {0}, size = {0}, ratio = {0};
    for (int j = 0; j < q->p; j++)
        bend += s->V[j] * s->G[j];
    for (int l = 0; l < LANES; l++)
        if (searching[l] && bend[l] > 0)
            length[l] = s->rz[l] / bend[l];
    for (int j = 0; j < q->p; j++) {
        vec x = s->X[j] + length * s->V[j], r = s->R[j] - length * s->G[j];
        s->X[j] = choose(searching, x, s->X[j]);
        s->R[j] = choose(searching, r, s->R[j]);
        size += s->R[j] * s->R[j] * s->inverse[j];
    }
    for (int l = 0; l < LANES; l++) {
        lane *k = &s->lanes[l];
        if (!searching[l])
            continue;
        k->promised += (double)length[l] * s->rz[l];
        if (length[l] > 0 && size[l] > k->accuracy && ++k->steps < q->max_steps) {
            ratio[l] = size[l] / s->rz[l];
            s->rz[l] = size[l];
            continue;
        }
        k->stage = EVALUATE;
        k->slope = -k->scale * k->scale * k->promised;
        double gain = -0.5 * k->slope / k->decrease; /* against the preconditioner's promise */
        k->trust = gain > k->trust ? gain : k->trust;
        k->far = -k->slope > q->far * (k->value + q->floor);
    }
    return ratio;
}

/* What each lane is multiplied with next: a conjugate direction, or the point to evaluate. */
INLINE void aim(const problems *q, workspace *s, vec ratio) {
    mask searching = lanes_at(s, SEARCH);
    vec step = {0};
    for (int l = 0; l < LANES; l++)
        step[l] = s->lanes[l].step * s->lanes[l].scale;
    for (int j = 0; j < q->p; j++)
        s->V[j] = choose(searching, s->R[j] * s->inverse[j] + ratio * s->V[j],
                         s->W[j] + step * s->X[j]);
}

workspace *lanes_open(const problems *q) {
    workspace *s = allocate(sizeof(workspace));
    if (!s)
        return NULL;
    size_t n = q->n, p = q->p;
    s->tile = q->dense ? TILE : q->n;
    vec **columns[] = {&s->V, &s->G, &s->W, &s->X, &s->R, &s->inverse};
    int ok = 1;
    for (int a = 0; a < 6; a++)
        ok &= !!(*columns[a] = allocate(p * sizeof(vec)));
    ok &= !!(s->U = allocate(n * sizeof(vec)));
    ok &= !!(s->H = allocate(n * sizeof(vec)));
    ok &= !!(s->y = allocate(LANES * n * sizeof(float)));
    ok &= !!(s->g = allocate((size_t)LANES * s->tile * sizeof(float)));
    ok &= single(q->mean, q->p - 1, &s->mean) & single(q->weight, q->n, &s->weight);
    ok &= single(q->penalty, q->p, &s->penalty) & single(q->mean_squares, q->p, &s->mean_squares);
    if (q->exact)
        ok &= !!(s->certifier = certify_open(q));
    if (!ok) {
        lanes_close(s);
        return NULL;
    }
    for (int l = 0; l < LANES; l++)
        take_next(q, s, l);
    aim(q, s, (vec){0});
    return s;
}

CLONES int lanes_run(const problems *q, workspace *s, int passes) {
    for (; passes > 0 && any(~lanes_at(s, IDLE)) && !*q->stop; passes--) {
        mask searching = lanes_at(s, SEARCH), evaluating = lanes_at(s, EVALUATE);
        vec ratio = {0};
        pass(q, s);
        if (any(searching))
            ratio = searched(q, s, searching);
        if (any(evaluating))
            restart(q, s, accepted(q, s, evaluating));
        aim(q, s, ratio);
    }
    if (passes > 0 && s->certifier && !*q->stop)
        certify_flush(q, s->certifier);
    return passes == 0;
}
