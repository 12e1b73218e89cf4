// The compiled solver, as the rest of the library sees it.
#pragma once

#include "newton.hpp"

namespace fbeta {

// Make the solver of a thread, for its owner to delete; throws std::bad_alloc where memory is short.
template <class S, class T>
Solver *make_solver(Problems &problems, const Matrix<T> &matrix, Loss loss);

} // namespace fbeta
