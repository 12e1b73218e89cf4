"""A fit happens as a whole or not at all, whatever stops it and wherever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import fbeta
from fbeta import (
    AlphaSearchCV,
    CardinalityClassifier,
    FBetaAuto,
    FBetaClassifier,
    FBetaClassifierCV,
    FBetaDecoderCV,
    FBetaEnsemble,
    FBetaForest,
    FBetaReduction,
    LabelSetClassifier,
    LabelStatistics,
    SizedClassifier,
    decode,
    rivals,
)
from fbeta.estimators.average import AverageClassifier
from fbeta.estimators.base import MultiLabelClassifier
from fbeta.estimators.statistics_base import LinearParameters, StatisticsClassifier
from fbeta.linear.learner import Learner
from fbeta.report.evaluation import inspect_betas, scores_by_beta
from fbeta.rivals.held_out import HeldOutClassifier
from fbeta.rivals.structured import BundleClassifier
from fbeta.statistics import observed_cardinalities
from fbeta.statistics.codes import Code
from fbeta.storage.model_files import StoredModel

from ..cases import slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5))
Y = (X[:, :3] + 0.5 * RNG.normal(size=(40, 3)) > 0).astype(int)
OTHER = RNG.normal(size=(40, 7))
SETS = [[name for name, on in zip("ghi", row, strict=True) if on] for row in 1 - Y]
SEED = {"random_state": 0}
PACKAGE = str(Path(fbeta.__file__).parent) + os.sep

ESTIMATORS = {
    type(e).__name__: e
    for e in (
        FBetaClassifier(),
        FBetaClassifierCV((0.1, 1.0), cv=2),
        AlphaSearchCV(rivals.ExactFPlugIn(), alphas=(0.1, 1.0), cv=2),
        FBetaReduction(LogisticRegression()),
        FBetaDecoderCV(LogisticRegression(), cv=2),
        SizedClassifier(),
        CardinalityClassifier(),
        LabelSetClassifier(),
        FBetaAuto(time_limit=1e-3, cv=2, **SEED),
        FBetaEnsemble([("joint", FBetaClassifier())], cv=2, alphas=(0.1, 1.0)),
        FBetaForest(n_estimators=5, **SEED),
        rivals.BinaryRelevance(),
        rivals.CostSensitiveRelevance(grid=2, **SEED),
        rivals.ExactFPlugIn(),
        rivals.Limo(epochs=2, **SEED),
        rivals.LowRankClassifier.for_fbeta(3),
        rivals.MacroFSvm(),
        rivals.ProbabilisticChain(n_samples=5, **SEED),
        rivals.ReverseMultiLabel(),
        rivals.SubmodularMultiLabel(tol=0.1),
        rivals.ThresholdedRelevance(**SEED),
    )
}
every = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
# an interruption takes many fits: a linear model, a reduction and a method of others
INTERRUPTED = ("FBetaClassifier", "FBetaReduction", "ThresholdedRelevance")


def test_every_estimator_is_here():
    public = {
        name
        for module in (fbeta, rivals)
        for name in module.__all__
        if hasattr(getattr(module, name), "fit")
    }
    # of probabilities, not of features: it has tests of its own
    assert public - {"FBetaDecoder"} == set(ESTIMATORS)


def test_no_stack_of_bases():
    shared = {BundleClassifier, HeldOutClassifier, LinearParameters}  # of some
    ours = {MultiLabelClassifier, StatisticsClassifier, AverageClassifier, AlphaSearchCV, *shared}
    for estimator in ESTIMATORS.values():
        bases = [c for c in type(estimator).__mro__[1:] if c.__module__.startswith("fbeta")]
        assert set(bases) <= ours
        assert len(bases) <= 2 + (AverageClassifier in bases) + (LinearParameters in bases)


def state(estimator):
    """What an estimator holds, by identity."""
    return {name: id(value) for name, value in vars(estimator).items()}


@every
def test_a_fit_that_fails_changes_nothing(estimator):
    new, fitted = clone(estimator), clone(estimator).fit(X, Y)
    before, predicted = [state(e) for e in (new, fitted)], fitted.predict(X)
    # the width of X and the names of the labels differ, and both are read before the mistake
    for wrong in ((OTHER, SETS[:-1]), (np.full((40, 7), np.inf), SETS), (OTHER, None)):
        for e in (new, fitted):
            with pytest.raises(ValueError):
                e.fit(*wrong)
    assert [state(e) for e in (new, fitted)] == before
    assert np.array_equal(fitted.predict(X), predicted)
    with pytest.raises(NotFittedError):
        new.predict(X)


@every
def test_a_mistake_in_a_parameter_changes_nothing(estimator):
    fitted = clone(estimator).fit(X, Y)
    predicted = fitted.predict(X)
    parameters = fitted.get_params()
    name = "alphas" if "alphas" in parameters else "alpha" if "alpha" in parameters else "beta"
    fitted.set_params(**{name: -1.0 if name != "alphas" else [-1.0]})
    with pytest.raises(ValueError, match=name):
        fitted.fit(OTHER, 1 - Y)
    assert np.array_equal(fitted.set_params(**{name: parameters[name]}).predict(X), predicted)


class Interruption:
    """Raises KeyboardInterrupt when the library calls its n-th function; all is on one thread."""

    def __init__(self, at=None):
        self.at, self.calls, self.one_thread = at, 0, threadpool_limits(1)

    def __call__(self, frame, event, _):
        # what the threads share is put back by code that must itself run to its end
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE) and not file.endswith("_threads.py"):
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt

    def __enter__(self):
        sys.setprofile(self)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        self.one_thread.restore_original_limits()


@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(e, id=name) if name in INTERRUPTED else slow(e, id=name)
        for name, e in ESTIMATORS.items()
    ],
)
def test_an_interruption_anywhere_changes_nothing(estimator):
    if isinstance(estimator, AverageClassifier):
        pytest.skip("an interruption ends its search: tests/estimators/test_auto.py")
    new, fitted = clone(estimator), clone(estimator).fit(X, Y)
    before, predicted = [state(e) for e in (new, fitted)], fitted.predict(X)
    labels = np.roll(Y, 1, axis=0)
    third = clone(estimator)
    with Interruption() as whole:
        third.fit(OTHER, labels)
    assert whole.calls > 10
    for at in np.unique(np.linspace(1, whole.calls, 7).astype(int)):
        for e in (new, fitted):
            with pytest.raises(KeyboardInterrupt), Interruption(at):
                e.fit(OTHER, labels)
    assert [state(e) for e in (new, fitted)] == before
    assert np.array_equal(fitted.predict(X), predicted)
    with pytest.raises(NotFittedError):
        new.predict(X)
    assert fitted.fit(OTHER, labels).predict(OTHER).shape == Y.shape


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "score"])
def test_no_thread_sees_half_a_fit(ask):
    clf, stop, wrong, count = FBetaClassifier().fit(X, Y), threading.Event(), [], 0
    questions = {
        5: (X, Y) if ask == "score" else (X,),
        7: (OTHER, SETS) if ask == "score" else (OTHER,),
    }

    def watch():
        nonlocal count
        while not stop.is_set():
            try:
                getattr(clf, ask)(*questions[clf.n_features_in_])
                count += 1
            except Exception as error:
                # the one estimator was replaced by the other in between, as a whole
                if "features" not in str(error) and "label" not in str(error):
                    wrong.append(error)

    watcher = threading.Thread(target=watch)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        watcher.start()
        for i in range(100):
            clf.fit(*((X, Y) if i % 2 else (OTHER, SETS)))
    finally:
        stop.set()
        watcher.join()
        sys.setswitchinterval(before)
    assert not wrong, wrong
    assert count > 20


def test_a_fit_forgets_the_one_before():
    pandas = pytest.importorskip("pandas")
    clf = FBetaClassifier().fit(pandas.DataFrame(X, columns=list("abcde")), SETS)
    clf.fit(X, Y)
    assert not hasattr(clf, "feature_names_in_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert clf.predict(X).shape == Y.shape


def test_parameters_that_change_after_a_fit_do_not_change_its_model():
    clf = FBetaClassifier(loss="logistic").fit(X, Y)
    before = clf.predict_proba(X)
    assert np.array_equal(clf.set_params(loss="squared").predict_proba(X), before)


@dataclass(frozen=True)
class SetCode(Code):
    """The label sets of the training rows themselves."""

    sets: np.ndarray

    def width(self):
        return len(self.sets)

    def targets(self, Y):
        return np.arange(Y.shape[0])

    def statistics(self, P):
        return LabelStatistics.from_distribution(P, self.sets)


@dataclass(frozen=True)
class KernelModel:
    """The weight of each training row, by its distance."""

    X: np.ndarray
    alpha: float

    def probabilities(self, X):
        squares = ((X[:, None, :] - self.X[None]) ** 2).sum(axis=2)
        weight = np.exp((squares.min(axis=1, keepdims=True) - squares) / self.alpha)
        return weight / weight.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class KernelLearner(Learner):
    def fit(self, X, targets, weight, alpha, name=str):
        return KernelModel(X, alpha)


@dataclass(eq=False, repr=False)
class KernelClassifier(StatisticsClassifier):
    """A method that the library does not have: label sets of near rows."""

    beta: float = 1.0
    _: KW_ONLY
    alpha: float = 1.0

    def _make_code(self, Y):
        return SetCode(observed_cardinalities(Y), Y.shape[1], Y.toarray())

    def _make_learner(self):
        return KernelLearner()


def test_a_new_method_is_its_parts_and_a_thin_estimator():
    search = AlphaSearchCV(KernelClassifier(beta=2.0), alphas=(1e-3, 1.0, 1e3), cv=3)
    assert repr(search.estimator) == "KernelClassifier(beta=2.0)"
    search.fit(X, SETS)
    assert search.alpha_ == 1.0
    statistics = search.predict_statistics(OTHER[:, :5])
    np.testing.assert_allclose(statistics.cardinality_distribution().sum(axis=1), 1)
    names = [["ghi"[j] for j in np.flatnonzero(row)] for row in decode(statistics, 2.0)]
    assert search.predict(OTHER[:, :5]) == names
    assert search.expected_fbeta(X).shape == (40,)
    assert KernelClassifier(alpha=1e-3).fit(X, Y).score(X, Y) == 1.0


class Counted:
    """A model that counts how often it is run."""

    def __init__(self, model):
        self.model, self.runs = model, 0

    def probabilities(self, X):
        self.runs += 1
        return self.model.probabilities(X)


def test_the_model_is_run_once_for_all_betas_and_outputs():
    search = FBetaClassifierCV((0.1, 1.0), cv=2).fit(X, Y)
    best = search.best_estimator_
    counted = Counted(best.model)
    best.adopt(best.code, counted)
    betas = [0.5, 1.0, 2.0]
    found = search.decide(X, betas, marginals=True)
    assert counted.runs == 1
    for beta in betas:
        assert np.array_equal(found.labels[beta], search.predict(X, beta=beta))
        np.testing.assert_array_equal(found.expected[beta], search.expected_fbeta(X, beta=beta))
    np.testing.assert_array_equal(found.marginals, search.predict_proba(X))
    runs = counted.runs
    inspect_betas(StoredModel(search, ("a", "b", "c")), X, Y)
    scores_by_beta(search, X, Y)
    assert counted.runs == runs + 2
    # a pipeline transforms once; methods of one beta refuse others
    scaled = make_pipeline(StandardScaler(), rivals.Limo(epochs=2, random_state=0)).fit(X, Y)
    stored = StoredModel(scaled, ("a", "b", "c"))
    assert np.array_equal(stored.decide(X).labels[1.0], scaled.predict(X))
    assert list(stored.decide(X, betas, skip_refused=True).labels) == [1.0]
    with pytest.raises(ValueError, match="fit again"):
        stored.decide(X, betas)


def test_arrays_do_not_load_blocks():
    program = "import sys, fbeta; assert not [m for m in sys.modules if 'fbeta.blocks' in m]"
    subprocess.run([sys.executable, "-c", program], check=True)
