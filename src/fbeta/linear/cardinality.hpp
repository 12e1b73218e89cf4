// Laws of labels with scores and potentials of their number. As in cardinality.py, which says what
// the arrays are.
#pragma once

namespace fbeta {

struct Sizes {
    int labels, count; // labels s; possible sizes C
    const int *size;   // (C,), increasing
};

// From scores u, (n, s + C): ln Z, (n,), and what the Hessians consist of, (n, 3 s + 2 C).
// NaN for ln Z where numbers are out of range.
void evaluate_sizes(const Sizes &sizes, int n, const double *u, double *log_total, double *kept);

// Multiply the Hessians with changes of scores v, (n, s + C).
void multiply_sizes(const Sizes &sizes, int n, const double *kept, const double *v, double *out);

} // namespace fbeta
