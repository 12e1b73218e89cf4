// Losses of the rows' scores, with derivatives. As in objectives.py.
#pragma once

#include <memory>

#include "engine.hpp"

namespace fbeta {

template <class S> class Objective {
  public:
    virtual ~Objective() = default;

    // Losses f and derivatives of some rows of a problem. Scores come as u[c * stride + i] for its
    // classes c, and are replaced by the derivatives; curvatures go to k, behind which a further
    // class must have room. Far from the optimum, rows on the wrong side get their average curvature
    // on the way to score 0: a saturated loss has almost none, and a Newton step for it would
    // overshoot.
    virtual void rows(const S *y, const S *weight, int classes, int count, int stride, S *u, S *f,
                      S *k, bool far) const = 0;

    // The same of binary problems on all lanes at once, (count, lanes), for those that are on: scores
    // change by U, which becomes the derivatives. On the other lanes U is multiplied by K.
    virtual void all_lanes(bool some_far, const S *y, const S *weight, int count, const S *on,
                           const S *far, S *U, S *K, S *score, S *change, S *loss,
                           S *sum) const = 0;
};

template <class S> std::unique_ptr<Objective<S>> make_objective(const Problems &q);

} // namespace fbeta
