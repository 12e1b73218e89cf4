/* Whether solutions that were found in single precision are good: see certify.c. */
#ifndef FBETA_CERTIFY_H
#define FBETA_CERTIFY_H

#include "lanes.h"

/* A solution, with what its lane knew of it. */
typedef struct {
    int column;
    double value, curvature, trust;
} candidate;

typedef struct certifier certifier;

/* NULL where memory is short. */
certifier *certify_open(const problems *q);
void certify_close(certifier *c);

/* Look at a solution in W, some time: at several together. */
void certify_add(const problems *q, certifier *c, candidate found);

/* Look at those that were added now. */
void certify_flush(const problems *q, certifier *c);

#endif
