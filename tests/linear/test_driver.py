"""The driver over oracles that are simple enough to be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fbeta import LabelSetClassifier
from fbeta.blocks import RowBlocks
from fbeta.linear.batch import Evaluation
from fbeta.linear.conjugate import Directions
from fbeta.linear.driver import (
    Oracle,
    State,
    StepRule,
    minimise,
)
from fbeta.linear.objectives import Binary
from fbeta.losses import LogisticLoss

RULE = StepRule(
    slope_before=float("inf"), slope_beyond=0.5, armijo=1e-4, shortest=0.02, longest=0.6
)


class Quadratics(Oracle):
    """``a / 2 (w - 1)^2 + 1`` of each problem; directions are too long by a factor."""

    rule = RULE

    def __init__(self, a, factor, bound=1.0):
        self.a, self.factor, self.bound = np.asarray(a), np.asarray(factor), bound
        self.rounds = 0

    def evaluate(self, states):
        self.rounds += 1
        return [None for _ in states]

    def accept(self, state, found):
        a, W = self.a[state.names], state.trial
        value, gradient = a / 2 * (W[0] - 1) ** 2 + 1, a * (W - 1)
        slope, change = state.dot(gradient, state.direction), value - state.value
        with np.errstate(invalid="ignore"):
            good = self.rule.accepts(state.slope, slope, change, state.step, 0.0)
        return Evaluation(W, value, gradient), good | state.fresh

    def direction(self, state, at, limit):
        a, factor = self.a[state.names], self.factor[state.names]
        decrement = at.gradient[0] ** 2 / a
        return Directions(-factor * at.gradient / a, decrement, decrement * self.bound)


def run(oracle, m, budget=50):
    names = np.arange(m)
    state = State.start(
        names, np.full((1, m), 9.0), np.full(m, budget), cautious=False, floor=0.0, n_iter=-1
    )
    seen = []
    evaluate, each = oracle.evaluate, oracle.each
    [state] = minimise(evaluate, each, [state], 1e-9, lambda all_: seen.append(len(all_[0])))
    return state.results(), seen


def test_problems_end_on_their_own_and_in_their_order():
    oracle = Quadratics([1.0, 2.0, 5.0, 1.0], [1.0, 3.5, 1.4, 0.5])
    (W, n_iter, converged, abandoned), seen = run(oracle, 4)
    assert converged.all()
    assert not abandoned.any()
    np.testing.assert_allclose(W[0], 1, atol=1e-4)
    # the first step is the optimum; far from it nothing is certified, so there is another
    assert n_iter[0] == 2
    assert (n_iter[1:] > 1).all()
    assert oracle.rounds == len(seen)
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 0


def test_steps_that_go_too_far_are_shortened():
    oracle = Quadratics([1.0, 1.0], [100.0, 1.0])
    (W, n_iter, converged, _), _ = run(oracle, 2)
    assert converged.all()
    np.testing.assert_allclose(W[0], 1, atol=1e-4)
    assert oracle.rounds > n_iter.max() + 1  # trials that were not accepted


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_nothing_is_certified_without_a_bound_and_budgets_hold(budget):
    oracle = Quadratics([1.0, 2.0], [0.5, 0.3], bound=np.inf)
    (W, n_iter, converged, _), seen = run(oracle, 2, budget)
    assert not converged.any()
    assert (n_iter == budget).all()
    assert len(seen) == budget + 1
    assert np.isfinite(W).all()


def test_a_problem_that_stalls_is_given_up():
    oracle = Quadratics([1.0], [0.0], bound=np.inf)
    (_, n_iter, converged, _), _ = run(oracle, 1)
    assert not converged[0]
    assert n_iter[0] == Oracle.max_stalled


def test_the_floor_is_a_share_of_the_objective_of_no_prediction():
    assert Binary(LogisticLoss()).floor(200.0) == pytest.approx(200 * 1e-4 * np.log(2))


def test_what_blocks_require_is_checked_before_they_are_read():
    X, Y = np.eye(4), np.eye(4, dtype=int)[:, :2]
    blocks = RowBlocks(X, Y)
    with pytest.raises(TypeError, match="blocks of rows requires a code with column_sums, and La"):
        LabelSetClassifier().fit(blocks)
    assert blocks.passes == 0
