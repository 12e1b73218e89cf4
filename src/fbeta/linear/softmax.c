/* Newton's method with conjugate gradients for multinomial problems, a class on each lane.
 *
 * As in lanes.c, a pass over the matrix serves all lanes; here a problem has as many neighbouring
 * lanes as it has classes, filled up to a power of 2. A pass with a direction gives the change of
 * the scores, from which the step is found without further passes, and then the gradient. All is
 * in single precision: what comes out is where _softmax_newton.py starts, which checks it.
 */
#include <float.h>
#include <math.h>

#include "products.h"

#define MAX_TRIALS 40

enum stage { IDLE, MOVE, SEARCH };

/* A place for a problem: some neighbouring lanes. */
typedef struct {
    enum stage stage;
    int problem, classes, iteration, steps, stalled, started;
    double value, initial, decrease, trust, promised, scale;
    float step, loss;
} slot;

struct softmax_workspace {
    vec *V, *G, *W, *X, *R, *inverse; /* (p,) vectors multiplied, products, points, directions */
    vec *U, *S, *P;                   /* (n,) changes of scores, scores, probabilities */
    float *score, *change;            /* (width, n) of the problem that is looked at */
    float *largest, *total, *slope;   /* (n,) over its classes */
    float *mean, *weight, *penalty, *mean_squares; /* of the problems, in single precision */
    vec curvature;                    /* sums over the rows, */
    mask used;                        /* and whether a lane has a class */
    float rz[LANES];                  /* of the slots */
    slot slots[LANES];
    int width, n_slots;
};

void softmax_close(softmax_workspace *s) {
    if (!s)
        return;
    void *arrays[] = {s->V, s->G, s->W, s->X, s->R, s->inverse, s->U, s->S, s->P,
                      s->score, s->change, s->largest, s->total, s->slope,
                      s->mean, s->weight, s->penalty, s->mean_squares};
    for (size_t a = 0; a < sizeof(arrays) / sizeof(*arrays); a++)
        free(arrays[a]);
    free(s);
}

/* ---- sums over the lanes of a slot ---- */

/* Each lane gets the value of the lane at a distance, which is a power of 2. */
INLINE vec swapped(vec v, int distance) {
#ifdef __clang__
    vec out;
    for (int l = 0; l < LANES; l++)
        out[l] = v[l ^ distance];
    return out;
#else
    mask lane;
    for (int l = 0; l < LANES; l++)
        lane[l] = l ^ distance;
    return __builtin_shuffle(v, lane);
#endif
}

/* On every lane, the sum over the lanes of its slot. */
INLINE vec slot_sums(vec v, int width) {
    if (width > 1)
        v += swapped(v, 1);
    if (width > 2)
        v += swapped(v, 2);
    if (width > 4)
        v += swapped(v, 4);
    if (width > 8)
        v += swapped(v, 8);
    return v;
}

INLINE mask slots_at(const softmax_workspace *s, enum stage stage) {
    mask m;
    for (int l = 0; l < LANES; l++)
        m[l] = s->slots[l / s->width].stage == stage ? -1 : 0;
    return m;
}

/* ---- a step ---- */

/* The probabilities of the classes at score + t change, in place of `out`; their sum and largest. */
INLINE void exponentials(softmax_workspace *s, int n, int classes, float t, float *out) {
    float *restrict top = s->largest, *restrict total = s->total;
    for (int i = 0; i < n; i++)
        top[i] = -FLT_MAX, total[i] = 0;
    for (int c = 0; c < classes; c++) {
        const float *restrict a = s->score + (size_t)c * n, *restrict b = s->change + (size_t)c * n;
        for (int i = 0; i < n; i++) {
            float u = a[i] + t * b[i];
            top[i] = u > top[i] ? u : top[i];
        }
    }
    for (int c = 0; c < classes; c++) {
        const float *restrict a = s->score + (size_t)c * n, *restrict b = s->change + (size_t)c * n;
        float *restrict o = out + (size_t)c * n;
        for (int i = 0; i < n; i++) {
            float u = a[i] + t * b[i] - top[i];
            float e = exp_(u > -80.0f ? u : -80.0f);
            o[i] = e;
            total[i] += e + 0.0f * u; /* not a number where the score is none */
        }
    }
}

INLINE double sum(const float *weight, const float *values, int n) {
    double out = 0;
    for (int i = 0; i < n; i++)
        out += weight ? weight[i] * values[i] : values[i];
    return out;
}

/* The slope of the losses along the change of the scores, at a step t. */
INLINE double slope_at(const problems *q, softmax_workspace *s, const slot *k, float t, float *out) {
    int n = q->n;
    const int *y = q->classes + (size_t)k->problem * n;
    exponentials(s, n, k->classes, t, out);
    float *restrict slope = s->slope;
    for (int i = 0; i < n; i++)
        slope[i] = 0;
    for (int c = 0; c < k->classes; c++) {
        const float *restrict e = out + (size_t)c * n, *restrict b = s->change + (size_t)c * n;
        for (int i = 0; i < n; i++)
            slope[i] += e[i] * b[i];
    }
    for (int i = 0; i < n; i++)
        slope[i] = slope[i] / s->total[i] - s->change[(size_t)y[i] * n + i];
    return sum(s->weight, slope, n);
}

/* Find the step of a slot along its direction, where the slope all but vanishes.
 *
 * `pull` and `bend` are the slope and curvature of the penalty. The slope grows with the step. */
INLINE float find_step(const problems *q, softmax_workspace *s, const slot *k, double pull,
                       double bend, float *out) {
    double first = pull + slope_at(q, s, k, 0, out), low = 0, high = INFINITY, t = 1;
    for (int trial = 0; trial < MAX_TRIALS; trial++) {
        double now = pull + t * bend + slope_at(q, s, k, (float)t, out);
        if (fabs(now) <= -q->flat * first)
            return (float)t;
        if (now < 0) /* false for NaN: an overflow is too far */
            low = t;
        else
            high = t;
        t = isfinite(high) ? (low + high) / 2 : 2 * low;
    }
    return (float)low;
}

/* Move a slot: its scores and probabilities, and residuals instead of the changes of scores. */
INLINE void move(const problems *q, softmax_workspace *s, int at, double pull, double bend) {
    slot *k = &s->slots[at];
    int n = q->n, first = at * s->width;
    float *out = s->score + (size_t)s->width * n; /* a second half of the array */
    for (int c = 0; c < k->classes; c++)
        for (int i = 0; i < n; i++) {
            s->score[(size_t)c * n + i] = s->S[i][first + c];
            s->change[(size_t)c * n + i] = s->U[i][first + c];
        }
    k->step = k->started ? find_step(q, s, k, pull, bend, out) : 1.0f;
    exponentials(s, n, k->classes, k->step, out);
    const int *y = q->classes + (size_t)k->problem * n;
    double loss = 0;
    for (int i = 0; i < n; i++) {
        size_t e = (size_t)y[i] * n + i;
        float own = s->score[e] + k->step * s->change[e];
        s->slope[i] = s->largest[i] + logf(s->total[i]) - own;
    }
    loss = sum(s->weight, s->slope, n);
    k->loss = (float)loss;
    for (int c = 0; c < k->classes; c++) {
        int l = first + c;
        float curvature = 0;
        for (int i = 0; i < n; i++) {
            float p = out[(size_t)c * n + i] / s->total[i], w = s->weight ? s->weight[i] : 1.0f;
            s->S[i][l] += k->step * s->U[i][l];
            s->P[i][l] = p;
            s->U[i][l] = w * (p - (y[i] == c));
            curvature += w * p * (1.0f - p);
        }
        s->curvature[l] = curvature;
    }
}

/* Turn changes of scores into what is multiplied with the transpose. */
INLINE void respond(const problems *q, softmax_workspace *s, mask moving) {
    vec pull = {0}, bend = {0};
    for (int j = 0; j < q->p; j++) {
        pull += s->penalty[j] * s->W[j] * s->V[j];
        bend += s->penalty[j] * s->V[j] * s->V[j];
    }
    pull = slot_sums(pull, s->width);
    bend = slot_sums(bend, s->width);
    for (int i = 0; i < q->n; i++) {
        vec p = s->P[i], u = s->U[i], weight = {0};
        weight += s->weight ? s->weight[i] : 1.0f;
        u = weight * p * (u - slot_sums(p * u, s->width));
        s->U[i] = choose(moving, s->U[i], u);
    }
    for (int at = 0; at < s->n_slots; at++)
        if (s->slots[at].stage == MOVE)
            move(q, s, at, pull[at * s->width], bend[at * s->width]);
}

/* One pass over the matrix: G = matrix' respond(matrix V) + penalty (V or the new point). */
INLINE void pass(const problems *q, softmax_workspace *s) {
    int last = q->p - 1;
    vec intercept = {0}, shift = {0}, step = {0};
    mask moving = slots_at(s, MOVE);
    if (q->mean) {
        intercept = s->V[last];
        for (int j = 0; j < last; j++)
            shift += s->mean[j] * s->V[j];
        s->V[last] -= shift;
    }
    forward(q, s->V, s->U, 0, q->n);
    if (q->mean)
        s->V[last] = intercept;
    respond(q, s, moving);
    if (q->dense)
        memset(s->G, 0, q->p * sizeof(vec));
    backward(q, s->U, s->G, 0, q->n);
    if (q->mean)
        for (int j = 0; j < last; j++)
            s->G[j] -= s->mean[j] * s->G[last];
    for (int l = 0; l < LANES; l++)
        step[l] = moving[l] ? s->slots[l / s->width].step : 0;
    for (int j = 0; j < q->p; j++) {
        s->W[j] += step * s->V[j];
        s->G[j] += s->penalty[j] * choose(moving, s->W[j], s->V[j]);
    }
}

/* ---- the slots ---- */

/* Give a slot the next problem of the queue, or nothing. */
static void take_next(const problems *q, softmax_workspace *s, int at) {
    slot *k = &s->slots[at];
    memset(k, 0, sizeof(*k));
    int place = __atomic_fetch_add(q->next, 1, __ATOMIC_RELAXED);
    if (place < q->queued) {
        k->stage = MOVE;
        k->problem = q->queue[place];
        k->classes = q->first[k->problem + 1] - q->first[k->problem];
    }
    for (int c = 0; c < s->width; c++) {
        int l = at * s->width + c, used = c < k->classes;
        const double *start = used ? q->W + (size_t)(q->first[k->problem] + c) * q->p : NULL;
        s->used[l] = used ? -1 : 0;
        s->curvature[l] = 0;
        for (int j = 0; j < q->p; j++) {
            s->X[j][l] = used ? (float)start[j] : 0.0f; /* the first direction leads there from 0 */
            s->W[j][l] = s->R[j][l] = 0;
        }
        for (int i = 0; i < q->n; i++)
            s->S[i][l] = s->P[i][l] = 0;
    }
    k->scale = k->trust = 1;
}

/* Store a slot's point, if it is better than where it started, and take the next problem. */
static void finish(const problems *q, softmax_workspace *s, int at, int done) {
    slot *k = &s->slots[at];
    if (k->iteration > 0 && k->value <= k->initial && isfinite(k->decrease))
        for (int c = 0; c < k->classes; c++) {
            double *out = q->W + (size_t)(q->first[k->problem] + c) * q->p;
            for (int j = 0; j < q->p; j++)
                out[j] = s->W[j][at * s->width + c];
        }
    q->n_iter[k->problem] = k->iteration;
    q->certified[k->problem] = done;
    q->trust[k->problem] = k->iteration ? k->trust : q->trust[k->problem];
    take_next(q, s, at);
}

/* Slots that moved: start a search for the next direction, or finish. */
INLINE void restart(const problems *q, softmax_workspace *s, mask moved) {
    double tol = q->aim * q->tol > q->finest ? q->aim * q->tol : q->finest;
    vec decrease = {0}, size = {0}, scale = {0};
    for (int j = 0; j < q->p; j++) {
        vec diagonal = s->penalty[j] + s->mean_squares[j] * s->curvature, smallest = {0};
        smallest += FLT_EPSILON;
        diagonal = choose(diagonal > smallest, diagonal, smallest);
        s->inverse[j] = choose(moved, 1.0f / diagonal, s->inverse[j]);
        decrease += s->G[j] * s->G[j] * s->inverse[j];
        size += s->penalty[j] * s->W[j] * s->W[j];
    }
    decrease = slot_sums(choose(s->used, decrease, (vec){0}), s->width);
    size = slot_sums(size, s->width);
    for (int l = 0; l < LANES; l++)
        scale[l] = s->used[l] && decrease[l] > 0 ? -1 / sqrtf(decrease[l]) : 0;
    for (int j = 0; j < q->p; j++) {
        s->R[j] = choose(moved, scale * s->G[j], s->R[j]);
        s->X[j] = choose(moved, (vec){0}, s->X[j]);
    }
    for (int at = 0; at < s->n_slots; at++) {
        slot *k = &s->slots[at];
        int l = at * s->width;
        if (!moved[l])
            continue;
        double value = k->loss + 0.5 * size[l];
        k->stalled += k->started && value > k->value - 2 * FLT_EPSILON * fabs(value);
        k->iteration += k->started;
        k->initial = k->started ? k->initial : value;
        k->started = 1;
        k->value = value;
        k->decrease = 0.5 * decrease[l];
        double trust = k->iteration ? k->trust : q->trust[k->problem];
        int done = k->decrease * trust <= tol * (value + q->floor);
        if (done || k->stalled > 1 || k->iteration >= q->max_iter || !isfinite(k->decrease)) {
            finish(q, s, at, done);
            continue;
        }
        k->stage = SEARCH;
        k->steps = 0;
        k->promised = 0;
        k->scale = sqrt(decrease[l]);
        s->rz[at] = 1;
    }
}

/* Slots that were searching: a conjugate gradient step. Those that are accurate enough move next.
 * Returns the share of the last conjugate direction in the next one. */
INLINE vec searched(const problems *q, softmax_workspace *s, mask searching) {
    vec bend = {0}, length = {0}, size = {0}, ratio = {0};
    for (int j = 0; j < q->p; j++)
        bend += s->V[j] * s->G[j];
    bend = slot_sums(bend, s->width);
    for (int l = 0; l < LANES; l++)
        if (searching[l] && bend[l] > 0)
            length[l] = s->rz[l / s->width] / bend[l];
    for (int j = 0; j < q->p; j++) {
        vec x = s->X[j] + length * s->V[j], r = s->R[j] - length * s->G[j];
        s->X[j] = choose(searching, x, s->X[j]);
        s->R[j] = choose(searching, r, s->R[j]);
        size += s->R[j] * s->R[j] * s->inverse[j];
    }
    size = slot_sums(choose(s->used, size, (vec){0}), s->width);
    for (int at = 0; at < s->n_slots; at++) {
        slot *k = &s->slots[at];
        int l = at * s->width;
        if (!searching[l])
            continue;
        k->promised += (double)length[l] * s->rz[at]; /* of the decrease, which is scaled to 1 */
        if (length[l] > 0 && size[l] > q->forcing * q->forcing && ++k->steps < q->max_steps) {
            for (int c = 0; c < s->width; c++)
                ratio[l + c] = size[l] / s->rz[at];
            s->rz[at] = size[l];
        } else {
            k->stage = MOVE;
            k->trust = k->promised > k->trust ? k->promised : k->trust;
        }
    }
    return ratio;
}

/* What each lane is multiplied with next: a conjugate direction, or the direction to move in.
 *
 * The sum of a problem's weight vectors changes the penalty but no probability: it is 0 at the
 * optimum, and kept 0 on the way. */
INLINE void aim(const problems *q, softmax_workspace *s, vec ratio) {
    mask searching = slots_at(s, SEARCH);
    vec scale = {0}, share = {0};
    for (int l = 0; l < LANES; l++) {
        const slot *k = &s->slots[l / s->width];
        scale[l] = (float)k->scale;
        share[l] = k->classes && k->started ? 1.0f / k->classes : 0;
    }
    for (int j = 0; j < q->p; j++) {
        vec x = scale * s->X[j];
        x = choose(s->used, x - share * slot_sums(x, s->width), (vec){0});
        s->V[j] = choose(searching, s->R[j] * s->inverse[j] + ratio * s->V[j], x);
    }
}

softmax_workspace *softmax_open(const problems *q) {
    softmax_workspace *s = allocate(sizeof(softmax_workspace));
    if (!s)
        return NULL;
    size_t n = q->n, p = q->p, width = q->width;
    s->width = q->width;
    s->n_slots = LANES / q->width;
    vec **columns[] = {&s->V, &s->G, &s->W, &s->X, &s->R, &s->inverse};
    vec **rows[] = {&s->U, &s->S, &s->P};
    float **parts[] = {&s->largest, &s->total, &s->slope};
    int ok = 1;
    for (int a = 0; a < 6; a++)
        ok &= !!(*columns[a] = allocate(p * sizeof(vec)));
    for (int a = 0; a < 3; a++) {
        ok &= !!(*rows[a] = allocate(n * sizeof(vec)));
        ok &= !!(*parts[a] = allocate(n * sizeof(float)));
    }
    ok &= !!(s->score = allocate(2 * width * n * sizeof(float)));
    ok &= !!(s->change = allocate(width * n * sizeof(float)));
    ok &= single(q->mean, q->p - 1, &s->mean) & single(q->weight, q->n, &s->weight);
    ok &= single(q->penalty, q->p, &s->penalty) & single(q->mean_squares, q->p, &s->mean_squares);
    if (!ok) {
        softmax_close(s);
        return NULL;
    }
    for (int at = 0; at < s->n_slots; at++)
        take_next(q, s, at);
    aim(q, s, (vec){0});
    return s;
}

CLONES int softmax_run(const problems *q, softmax_workspace *s, int passes) {
    for (; passes > 0 && any(~slots_at(s, IDLE)) && !*q->stop; passes--) {
        mask searching = slots_at(s, SEARCH), moving = slots_at(s, MOVE);
        vec ratio = {0};
        pass(q, s);
        if (any(searching))
            ratio = searched(q, s, searching);
        if (any(moving))
            restart(q, s, moving);
        aim(q, s, ratio);
    }
    return passes == 0;
}
