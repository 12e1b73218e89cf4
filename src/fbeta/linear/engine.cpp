// The solvers that there are: two precisions, two types of matrices, two objectives.
#include "engine.hpp"

namespace fbeta {

// One build for each kind of processor, of everything that is inlined here.
#define FBETA_SOLVER(S, T, O)                                                                      \
    CLONES bool run_##S##_##T##_##O(Newton<S, T, O<S>> &solver, int passes) {                      \
        return solver.work(passes);                                                                \
    }                                                                                              \
    template <> bool Newton<S, T, O<S>>::run(int passes) {                                         \
        return run_##S##_##T##_##O(*this, passes);                                                 \
    }
FBETA_SOLVER(float, float, Binary)
FBETA_SOLVER(double, double, Binary)
FBETA_SOLVER(double, float, Binary)
FBETA_SOLVER(float, float, Softmax)
FBETA_SOLVER(double, double, Softmax)
FBETA_SOLVER(double, float, Softmax)

template <class S, class T> Solver *make_solver(Problems &q, const Matrix<T> &matrix, Loss loss) {
    if (loss == Loss::SOFTMAX)
        return new Newton<S, T, Softmax<S>>(q, matrix, loss);
    return new Newton<S, T, Binary<S>>(q, matrix, loss);
}

template Solver *make_solver<float, float>(Problems &, const Matrix<float> &, Loss);
template Solver *make_solver<double, double>(Problems &, const Matrix<double> &, Loss);
template Solver *make_solver<double, float>(Problems &, const Matrix<float> &, Loss);

} // namespace fbeta
