// Interface of the compiled solver: what it is given, and how it is run.
#pragma once

#include <atomic>
#include <cstring>

// whether there are versions for several kinds of processors, and for registers of 64 bytes
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define FBETA_WIDE
#endif

namespace fbeta {

enum class Loss { LOGISTIC, EXPONENTIAL, SQUARED, SOFTMAX };
enum Status { OPEN, CERTIFIED, HARD }; // HARD: the Hessian has to be factorised

// Numbers that compiled.py sets by name. Constants of the algorithm have their values there.
#define FBETA_NUMBERS(DO)                                                                          \
    DO(int, n_rows) DO(int, n_columns) DO(int, n_problems) DO(int, loss)                           \
    DO(int, single)                /* 1: compute in single precision */                            \
    DO(int, wide)                  /* 1: registers of 64 bytes, not of 32, where there are */       \
    DO(int, double_entries)        /* 1: the entries of the matrix are doubles, not floats */      \
    DO(int, intercept)             /* 1: the last column of the matrix is the intercept's */       \
    DO(int, width)                 /* columns of a problem, filled up to a power of 2 */           \
    DO(int, cold)                  /* 1: the start may be far from the optimum */                  \
    DO(double, tol)                /* relative tolerance of the objective */                       \
    DO(double, tol_share)          /* share of the tolerance to reach */                           \
    DO(double, certified_radius)   /* change of scores within which a decrement is a bound */      \
    DO(double, dropped_curvature)  /* share of a Hessian that rows beyond it may have */           \
    DO(double, goal_slope)         /* by which goals fall with the reach of the farthest row */    \
    DO(double, goal_factor)        /* by which goals fall while rows beyond it have more */        \
    DO(int, max_lowered)                                                                           \
    DO(int, max_tentative)         /* first points at which rows beyond it are left out */         \
    DO(double, objective_floor)    /* added to objectives that decreases are compared with */      \
    DO(double, forcing)            /* share of the Newton decrement that a direction may leave */  \
    DO(double, max_forcing)        /* the same near the optimum */                                 \
    DO(double, residual_share)     /* share of the limit at which a residual is negligible */      \
    DO(double, far_decrease)       /* relative decrease beyond which a point is far */             \
    DO(double, slope_before)       /* share of the slope left by a step that is too short */       \
    DO(double, slope_beyond)       /* share of the slope left by a step that is too long */        \
    DO(double, unchecked_decrease) /* relative decrease below which a step is not evaluated */     \
    DO(double, first_step)         /* step tried after the full one */                             \
    DO(double, secant_margin)      /* least share of an interval that a step cuts off */           \
    DO(double, step_growth)        /* factor of a step that is too short */                        \
    DO(double, value_rounding)     /* rounding error of an objective, in units of rounding */      \
    DO(double, stall_rounding)     /* decrease that counts as none, in units of rounding */        \
    DO(double, product_rounding)   /* rounding error of a Hessian's diagonal, the same unit */     \
    DO(double, rounding_margin)    /* share of the least eigenvalue that rounding may be */        \
    DO(double, smallest_pivot)                                                                     \
    DO(double, cautious_loss)      /* loss of a row beyond which its curvature is cautious */      \
    DO(int, max_iter)                                                                              \
    DO(int, max_steps)             /* conjugate gradient steps of a direction */                   \
    DO(int, max_trials)            /* steps tried along a direction */                             \
    DO(int, max_stalled)           /* iterations without a decrease */                             \
    DO(int, few_steps) /* conjugate gradient steps that fresh intercepts would not save */

// Arrays, null where they are absent. Only W, n_iter and status are written to.
#define FBETA_ARRAYS(DO)                                                                           \
    DO(const void, dense) /* (n_rows, n_columns) by rows; else the matrix is sparse */             \
    DO(const int, row_start) DO(const int, row_index) DO(const void, row_value)                    \
    DO(const int, column_start) DO(const int, column_index) DO(const void, column_value)           \
    DO(const double, mean)     /* (n_columns - 1,) subtracted from the columns */                  \
    DO(const double, weight)   /* (n_rows,) */                                                     \
    DO(const double, distance) /* (n_rows,) from the centre, (n_columns,), in penalised columns */ \
    DO(const double, centre)                                                                       \
    DO(const double, middle)   /* (1,) median of the distances */                                  \
    DO(const double, penalty)  /* (n_columns,) alpha, 0 for the intercept */                       \
    DO(const double, variance) DO(const double, mean_square) /* (n_columns,) */                    \
    /* binary targets, by columns */                                                               \
    DO(const int, target_start) DO(const int, target_index) DO(const double, target_value)         \
    DO(const int, classes) /* (n_problems, n_rows) of multinomial problems */                      \
    DO(const int, first)   /* (n_problems + 1,) first column of each multinomial problem */        \
    DO(const int, queue)   /* problems to solve, in this order */                                  \
    DO(double, W)          /* (columns, n_columns) where to start, then the solution */            \
    DO(int, n_iter) DO(int, status)

// The problems, shared by all threads that work on them.
struct Problems {
#define FBETA_NUMBER(type, name) type name = 0;
    FBETA_NUMBERS(FBETA_NUMBER)
#define FBETA_ARRAY(type, name) type *name = nullptr;
    FBETA_ARRAYS(FBETA_ARRAY)
    int queued = 0;
    std::atomic<int> next{0}, stop{0};
};

#define FBETA_COUNT(type, name) +1
constexpr int count_numbers = FBETA_NUMBERS(FBETA_COUNT);

// Set a field by its name. Returns whether there is one.
inline bool set_number(Problems &q, const char *field, double value) {
#define FBETA_SET_NUMBER(type, name)                                                               \
    if (!std::strcmp(field, #name))                                                                \
        return q.name = type(value), true;
    FBETA_NUMBERS(FBETA_SET_NUMBER)
    return false;
}

inline bool set_array(Problems &q, const char *field, void *address) {
#define FBETA_SET_ARRAY(type, name)                                                                \
    if (!std::strcmp(field, #name))                                                                \
        return q.name = static_cast<type *>(address), true;
    FBETA_ARRAYS(FBETA_SET_ARRAY)
    return false;
}

class Solver {
  public:
    virtual ~Solver() = default;
    // Work through the queue for some passes; returns whether there is more to do.
    virtual bool run(int passes) = 0;
};

// Make the solver of a thread, for its owner to delete; throws std::bad_alloc where memory is short.
template <int register_bytes> Solver *make_solver(Problems &problems);

#ifdef FBETA_WIDE
inline bool has_wide_registers() { // those of x86-64-v4
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
inline Solver *make_solver(Problems &q) {
    return q.wide && has_wide_registers() ? make_solver<64>(q) : make_solver<32>(q);
}
#else
inline bool has_wide_registers() { return false; }
inline Solver *make_solver(Problems &q) { return make_solver<32>(q); }
#endif

// Laws of s labels with scores and potentials of C increasing sizes, over n rows: from scores u,
// (n, s + C), ln Z, (n,), NaN where numbers are out of range, and what Hessians consist of; and products
// of the Hessians with changes of scores. cardinality.py says what the arrays are.
void evaluate_sizes(int s, int C, const int *size, int n, const double *u, double *log_total,
                    double *kept);
void multiply_sizes(int s, int C, const int *size, int n, const double *kept, const double *v,
                    double *out);

} // namespace fbeta
