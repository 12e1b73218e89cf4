/* The gradients of solutions in double precision, eight problems at a time.
 *
 * A solution is certified when the decrease that a further step promises is at most `tol` of the
 * objective, for two promises: that of the preconditioner of lanes.c, corrected by what it was too
 * low by, and that of the exact diagonal of the Hessian. Value and total curvature, of which no more
 * than a few digits are needed, are those of single precision.
 */
#include "certify.h"

#include <math.h>

#include "vectors.h"

#define WIDE 8
typedef double vec __attribute__((vector_size(8 * WIDE)));

struct certifier {
    vec *V, *G, *U;    /* (p,) points, (p,) gradients, (n,) scores */
    vec *H, *S1, *S2;  /* (n,) curvatures, (p,) their sums with the features and their squares */
    candidate found[WIDE];
    int count;
};

certifier *certify_open(const problems *q) {
    certifier *c = allocate(sizeof(certifier));
    if (!c)
        return NULL;
    c->V = allocate((size_t)q->p * sizeof(vec));
    c->G = allocate((size_t)q->p * sizeof(vec));
    c->U = allocate((size_t)q->n * sizeof(vec));
    c->H = allocate((size_t)q->n * sizeof(vec));
    c->S1 = allocate((size_t)q->p * sizeof(vec));
    c->S2 = allocate((size_t)q->p * sizeof(vec));
    if (c->V && c->G && c->U && c->H && c->S1 && c->S2)
        return c;
    certify_close(c);
    return NULL;
}

void certify_close(certifier *c) {
    if (!c)
        return;
    void *arrays[] = {c->V, c->G, c->U, c->H, c->S1, c->S2, c};
    for (size_t a = 0; a < sizeof(arrays) / sizeof(*arrays); a++)
        free(arrays[a]);
}

/* U = matrix V */
INLINE void forward(const problems *q, const vec *V, vec *U) {
    const double *x = q->exact;
    size_t p = q->p;
    int i = 0;
    if (!q->dense) {
        for (; i < q->n; i++) {
            vec a = {0};
            for (int k = q->row_start[i]; k < q->row_start[i + 1]; k++)
                a += x[k] * V[q->row_index[k]];
            U[i] = a;
        }
        return;
    }
    for (; i + 8 <= q->n; i += 8, x += 8 * p) {
#define ZERO(r) vec a##r = {0};
        EIGHT(ZERO)
        for (size_t j = 0; j < p; j++) {
            vec v = V[j];
#define ADD(r) a##r += x[r * p + j] * v;
            EIGHT(ADD)
        }
#define STORE(r) U[i + r] = a##r;
        EIGHT(STORE)
    }
    for (; i < q->n; i++, x += p) {
        vec a = {0};
        for (size_t j = 0; j < p; j++)
            a += x[j] * V[j];
        U[i] = a;
    }
}

/* G = matrix' U */
INLINE void backward(const problems *q, const vec *U, vec *G) {
    const double *x = q->exact;
    size_t p = q->p;
    int i = 0;
    memset(G, 0, p * sizeof(vec));
    if (!q->dense) {
        for (; i < q->n; i++)
            for (int k = q->row_start[i]; k < q->row_start[i + 1]; k++)
                G[q->row_index[k]] += x[k] * U[i];
        return;
    }
    for (; i + 8 <= q->n; i += 8, x += 8 * p) {
#define LOAD(r) vec u##r = U[i + r];
        EIGHT(LOAD)
        for (size_t j = 0; j < p; j++) {
#define PART(r) x[r * p + j] * u##r
            G[j] += ((PART(0) + PART(1)) + (PART(2) + PART(3))) +
                    ((PART(4) + PART(5)) + (PART(6) + PART(7)));
        }
    }
    for (; i < q->n; i++, x += p)
        for (size_t j = 0; j < p; j++)
            G[j] += x[j] * U[i];
}

INLINE double exponential(double x) { /* for |x| <= 700 */
    double k = floor(x * 1.4426950408889634 + 0.5);
    double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    double s = 1.0;
#define TERM(i) s = 1.0 + s * r * (1.0 / i);
    TERM(13) TERM(12) TERM(11) TERM(10) TERM(9) TERM(8) TERM(7)
    TERM(6) TERM(5) TERM(4) TERM(3) TERM(2) TERM(1)
    union { int64_t i; double f; } power = {.i = ((int64_t)k + 1023) << 52};
    return s * power.f;
}

/* The derivative of the loss at score u for target 0, and for target 1 from it. */
INLINE double derivative0(enum loss loss, double u) {
    double cut = u < -500.0 ? -500.0 : u > 500.0 ? 500.0 : u;
    if (loss == SQUARED)
        return 2.0 * u + 2.0;
    if (loss == EXPONENTIAL)
        return exponential(cut);
    return 1.0 / (1.0 + exponential(-cut));
}

INLINE double derivative1(enum loss loss, double g) {
    return loss == SQUARED ? g - 4.0 : loss == EXPONENTIAL ? -1.0 / g : g - 1.0;
}

/* The second derivative for target 0, and for target 1, from the derivative for target 0. */
INLINE double curvature0(enum loss loss, double g) {
    return loss == SQUARED ? 2.0 : loss == EXPONENTIAL ? g : g * (1.0 - g);
}

INLINE double curvature1(enum loss loss, double g) {
    return loss == SQUARED ? 2.0 : loss == EXPONENTIAL ? 1.0 / g : g * (1.0 - g);
}

/* Scores become derivatives: as if every target were 0, and then where they are not. */
INLINE void respond(const problems *q, certifier *c) {
    double *restrict u = (double *)c->U, *restrict h = (double *)c->H;
    size_t size = (size_t)q->n * WIDE;
    if (q->loss == LOGISTIC)
        for (size_t e = 0; e < size; e++) {
            u[e] = derivative0(LOGISTIC, u[e]);
            h[e] = curvature0(LOGISTIC, u[e]);
        }
    else
        for (size_t e = 0; e < size; e++) {
            u[e] = derivative0(q->loss, u[e]);
            h[e] = curvature0(q->loss, u[e]);
        }
    for (int l = 0; l < c->count; l++) {
        int column = c->found[l].column;
        for (int e = q->target_start[column]; e < q->target_start[column + 1]; e++) {
            size_t at = (size_t)q->target_index[e] * WIDE + l;
            double y = q->target_value[e], g = u[at];
            u[at] = (1.0 - y) * g + y * derivative1(q->loss, g);
            h[at] = (1.0 - y) * h[at] + y * curvature1(q->loss, g);
        }
    }
    if (q->weight)
        for (int i = 0; i < q->n; i++) {
            c->U[i] *= q->weight[i];
            c->H[i] *= q->weight[i];
        }
}

/* The diagonals of the Hessians without the penalty, in S2. */
INLINE void diagonals(const problems *q, certifier *c) {
    const double *x = q->exact;
    size_t p = q->p;
    memset(c->S2, 0, p * sizeof(vec));
    if (q->dense) {
        int i = 0;
        for (; i + 8 <= q->n; i += 8, x += 8 * p) {
#define LOAD_H(r) vec h##r = c->H[i + r];
            EIGHT(LOAD_H)
            for (size_t j = 0; j < p; j++) {
#define SQUARE(r) (x[r * p + j] * x[r * p + j]) * h##r
                c->S2[j] += ((SQUARE(0) + SQUARE(1)) + (SQUARE(2) + SQUARE(3))) +
                            ((SQUARE(4) + SQUARE(5)) + (SQUARE(6) + SQUARE(7)));
            }
        }
        for (; i < q->n; i++, x += p)
            for (size_t j = 0; j < p; j++)
                c->S2[j] += (x[j] * x[j]) * c->H[i];
        return;
    }
    memset(c->S1, 0, p * sizeof(vec));
    for (int i = 0; i < q->n; i++)
        for (int k = q->row_start[i]; k < q->row_start[i + 1]; k++) {
            vec one = x[k] * c->H[i];
            c->S1[q->row_index[k]] += one;
            c->S2[q->row_index[k]] += x[k] * one;
        }
    if (q->mean)
        for (size_t j = 0; j + 1 < p; j++)
            c->S2[j] += q->mean[j] * (q->mean[j] * c->S1[p - 1] - 2.0 * c->S1[j]);
}

/* The gradients of the candidates. */
INLINE void gradients(const problems *q, certifier *c) {
    int last = q->p - 1;
    vec intercept = {0}, shift = {0};
    for (int l = 0; l < c->count; l++)
        for (int j = 0; j < q->p; j++)
            c->V[j][l] = q->W[(size_t)c->found[l].column * q->p + j];
    if (q->mean) {
        intercept = c->V[last];
        for (int j = 0; j < last; j++)
            shift += q->mean[j] * c->V[j];
        c->V[last] -= shift;
    }
    forward(q, c->V, c->U);
    respond(q, c);
    backward(q, c->U, c->G);
    if (q->mean) {
        c->V[last] = intercept;
        for (int j = 0; j < last; j++)
            c->G[j] -= q->mean[j] * c->G[last];
    }
    for (int j = 0; j < q->p; j++)
        c->G[j] += q->penalty[j] * c->V[j];
}

CLONES void certify_flush(const problems *q, certifier *c) {
    if (!c->count)
        return;
    gradients(q, c);
    diagonals(q, c);
    vec total = {0}, decrease = {0}, exact = {0};
    for (int l = 0; l < c->count; l++)
        total[l] = c->found[l].curvature;
    for (int j = 0; j < q->p; j++) {
        vec square = c->G[j] * c->G[j];
        decrease += square / (q->penalty[j] + q->mean_squares[j] * total + 1e-154);
        exact += square / (q->penalty[j] + c->S2[j] + 1e-154);
    }
    for (int l = 0; l < c->count; l++) {
        const candidate *k = &c->found[l];
        double limit = 2.0 * q->tol * (k->value + q->floor);
        q->certified[k->column] = decrease[l] * k->trust <= limit && exact[l] <= limit;
    }
    c->count = 0;
}

void certify_add(const problems *q, certifier *c, candidate found) {
    c->found[c->count++] = found;
    if (c->count == WIDE)
        certify_flush(q, c);
}
