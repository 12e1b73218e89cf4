// Compiles the solver in single precision, in double precision, and for wide problems.
#include "newton.hpp"

namespace fbeta {

Solver *make_solver(Problems &q) {
    if (q.single)
        return new Newton<float, 16>(q);
    if (q.width <= lanes<double>)
        return new Newton<double, 8>(q);
    return new Newton<double, 16>(q);
}

} // namespace fbeta
