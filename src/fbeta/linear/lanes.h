/* Binary problems on the lanes of vector registers: see lanes.c. */
#ifndef FBETA_LANES_H
#define FBETA_LANES_H

#include <stdint.h>

#define LANES 16 /* columns that are worked on at the same time */

enum loss { LOGISTIC, EXPONENTIAL, SQUARED, SOFTMAX };

/* The problems, shared by all threads that work on them.
 *
 * Only `next` (the place in the queue), `W`, `n_iter` and `certified` are written to. The matrix
 * is there in single precision, by rows and by columns, and in double precision, to certify
 * solutions (NULL where X itself is in single precision). */
typedef struct {
    int n, p;               /* rows and columns of the design */
    const float *dense;     /* (n, p), or NULL where the design is sparse: */
    const int *row_start, *row_index;
    const float *row_value; /* by rows, */
    const int *column_start, *column_index;
    const float *column_value;    /* and by columns */
    const double *exact;          /* the entries of `dense` or `row_value` */
    const double *mean;           /* (p - 1,) centre that the coordinates leave out, or NULL */
    const double *weight;         /* (n,) of the rows, or NULL */
    const double *penalty;        /* (p,) alpha, 0 for the intercept */
    const double *mean_squares;   /* (p,) of the columns */
    enum loss loss;
    const int *target_start, *target_index;
    const double *target_value; /* binary targets, by columns */
    const int *classes;         /* (m, n) of a multinomial problem's rows, */
    const int *first;           /* (m + 1,) the columns of W of its classes, */
    int width;                  /* and the lanes that it takes: a power of 2 */
    const int *queue;           /* the problems to solve, in this order */
    int queued;
    volatile int *next, *stop;  /* the place in the queue; whether to leave off */
    double *W;                  /* (p, columns) by columns: where to start, then the solution */
    int *n_iter;                /* (m,) */
    int *certified;             /* (m,) whether the solution was found good: a binary one in double,
                                 * a multinomial one in single precision */
    double tol, floor, forcing, loose, far, armijo; /* as in newton.py */
    double *trust;              /* (m,) how much too low a promise may be: at the start; then found */
    double flat;                /* share of the slope that a multinomial step may leave */
    double aim, finest;         /* share of `tol` to aim at; what single precision can reach */
    int max_iter, max_steps, cold;
} problems;

typedef struct workspace workspace;

/* What a thread needs to work on the problems; NULL where memory is short. */
workspace *lanes_open(const problems *q);
void lanes_close(workspace *s);

/* The same for multinomial problems: see softmax.c. */
typedef struct softmax_workspace softmax_workspace;
softmax_workspace *softmax_open(const problems *q);
void softmax_close(softmax_workspace *s);
int softmax_run(const problems *q, softmax_workspace *s, int passes);

/* Work through the queue for some passes over the matrix; returns 0 once nothing is left to do. */
int lanes_run(const problems *q, workspace *s, int passes);

#endif
