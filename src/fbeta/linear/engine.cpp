// The solvers that there are: two precisions, two types of matrices, two objectives.
#include "engine.hpp"

namespace fbeta {

// One build for each kind of processor, of everything that is inlined here.
#define FBETA_SOLVER(S, T, O, L)                                                                   \
    CLONES bool run_##S##_##T##_##O##_##L(Newton<S, T, O<S>, L> &solver, int passes) {             \
        return solver.work(passes);                                                                \
    }                                                                                              \
    template <> bool Newton<S, T, O<S>, L>::run(int passes) {                                      \
        return run_##S##_##T##_##O##_##L(*this, passes);                                           \
    }
FBETA_SOLVER(float, float, Binary, 16)
FBETA_SOLVER(double, double, Binary, 8)
FBETA_SOLVER(double, float, Binary, 8)
FBETA_SOLVER(float, float, Softmax, 16)
FBETA_SOLVER(double, double, Softmax, 8)
FBETA_SOLVER(double, float, Softmax, 8)
FBETA_SOLVER(double, double, Softmax, 16)
FBETA_SOLVER(double, float, Softmax, 16)

template <class S, class T> Solver *make_solver(Problems &q, const Matrix<T> &matrix, Loss loss) {
    if (loss != Loss::SOFTMAX)
        return new Newton<S, T, Binary<S>, lanes<S>>(q, matrix, loss);
    if (q.width <= lanes<S>)
        return new Newton<S, T, Softmax<S>, lanes<S>>(q, matrix, loss);
    return new Newton<S, T, Softmax<S>, 16>(q, matrix, loss);
}

template Solver *make_solver<float, float>(Problems &, const Matrix<float> &, Loss);
template Solver *make_solver<double, double>(Problems &, const Matrix<double> &, Loss);
template Solver *make_solver<double, float>(Problems &, const Matrix<float> &, Loss);

} // namespace fbeta
