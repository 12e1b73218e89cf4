// Products of a matrix with vectors on lanes.
#pragma once

#include <memory>

#include "vectors.hpp"

namespace fbeta {

// Products with vectors on lanes, whatever the type of the entries.
template <class Vec> class Products {
  public:
    virtual ~Products() = default;
    // Prepare the products of a pass with V, of which only some lanes are used.
    virtual void begin(const bool *active, const Vec *V, Vec *G) = 0;
    // U = matrix V on some rows
    virtual void forward(const Vec *V, Vec *U, int from, int to) = 0;
    // G += matrix' U on some rows; G = matrix' U for all rows at once where the matrix is sparse
    virtual void backward(const Vec *U, Vec *G, int from, int to) = 0;
    virtual void end(Vec *G) = 0;
};

template <class S, int L> std::unique_ptr<Products<vec<S, L>>> make_products(const Problems &q);

} // namespace fbeta
