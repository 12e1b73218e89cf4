"""Every public function that takes labels, targets or statistics, with every form of them.

The result is that of plain float64 arrays, or an error; never another number.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

import fbeta
from fbeta import FBetaReduction, LabelStatistics, rivals
from fbeta.datasets import CalibratedLaw
from fbeta.decoding import decode, expected_fbeta, expected_measure
from fbeta.rivals import decode_independent, limo_path
from fbeta.statistics import encode, encode_labels, observed_cardinalities
from fbeta.statistics.surrogate import psi_gradient, psi_regret

from .cases import slow_but
from .labels import test_every_form as by_labels
from .labels.label_forms import GROUPS, MOVED
from .labels.test_every_form import FORMS, PLAIN, X, put_in_order

# the modules whose __all__ is the public interface, and the parameters that hold labels, targets
# or statistics there
MODULES = [
    "fbeta",
    "fbeta.metrics",
    "fbeta.decoding",
    "fbeta.statistics",
    "fbeta.statistics.surrogate",
    "fbeta.rivals",
    "fbeta.rivals.low_rank",
    "fbeta.blocks",
    "fbeta.datasets",
    "fbeta.nn",
    "fbeta.nn.functional",
]
PARAMETERS = {
    *[
        "Y",
        "y",
        "Y_true",
        "Y_pred",
        "target",
        "preds",
        "P",
        "S",
        "statistics",
        "labelsets",
        "probabilities",
    ]
}
# what only the package itself calls, with labels that it has read before
INTERNAL = {"alpha_path", "alpha_paths", "decide", "plan"}

SPECIAL: dict[str, Callable[[], Any]] = {
    "AlphaSearchCV": lambda: fbeta.AlphaSearchCV(rivals.BinaryRelevance(), alphas=[1.0], cv=2),
    "FBetaAuto": lambda: fbeta.FBetaAuto(cv=2, random_state=0, n_jobs=1),
    "FBetaClassifierCV": lambda: fbeta.FBetaClassifierCV([1.0], cv=2),
    "FBetaDecoderCV": lambda: fbeta.FBetaDecoderCV(LogisticRegression(), cv=2),
    "FBetaEnsemble": lambda: fbeta.FBetaEnsemble([("one", rivals.BinaryRelevance())], cv=2),
    "FBetaForest": lambda: fbeta.FBetaForest(n_estimators=3, random_state=0),
    "FBetaReduction": lambda: FBetaReduction(LogisticRegression()),
    "CostSensitiveRelevance": lambda: rivals.CostSensitiveRelevance(grid=2, random_state=0),
    "Limo": lambda: rivals.Limo(epochs=1, random_state=0),
    "LowRankClassifier": lambda: rivals.LowRankClassifier.for_fbeta(3),
    "ProbabilisticChain": lambda: rivals.ProbabilisticChain(inference="exhaustive"),
    "SubmodularMultiLabel": lambda: rivals.SubmodularMultiLabel(tol=0.1),
    "ThresholdedRelevance": lambda: rivals.ThresholdedRelevance(random_state=0),
}
# methods whose fit depends on the order of the labels: in floating point, by chance, or because
# scores are given in that order
ORDERED = {
    "FBetaAuto",
    "FBetaDecoder",
    "FBetaForest",
    "FBetaNet",
    "Limo",
    "ProbabilisticChain",
    "SubmodularMultiLabel",
}
SCORES = 1 / (1 + np.exp(-2 * np.random.default_rng(3).normal(size=PLAIN.shape) - PLAIN))
if find_spec("skorch"):
    SPECIAL["FBetaNet"] = lambda: importlib.import_module("fbeta.nn").FBetaNet(
        hidden=4, max_epochs=2, random_state=0
    )
ESTIMATORS = SPECIAL | {
    name: value
    for room in (fbeta, rivals)
    for name in room.__all__
    if isinstance(value := getattr(room, name), type) and hasattr(value, "fit")
    if name not in SPECIAL
}
SAMPLE = CalibratedLaw(3, 10).sample(24)
# functions of labels that have no names
LABELS: dict[str, Callable[[Any], Any]] = {
    "CalibratedSample.expected_fbeta": SAMPLE.expected_fbeta,
    "CalibratedSample.regret": SAMPLE.regret,
}
# functions that learn the names of the labels
NAMED: dict[str, Callable[[Any], Any]] = {
    "LabelStatistics.from_labels": lambda Y: LabelStatistics.from_labels(Y).marginals(),
    "encode_labels": lambda Y: np.sort(encode_labels(Y)[0], axis=1),
    "limo_path": lambda Y: limo_path(X, Y, [1.0], epochs=1, random_state=0)[0].T,
    "psi_gradient": lambda Y: np.sort(psi_gradient(Y, np.zeros((24, 10))), axis=1),
}
if find_spec("skorch"):
    NAMED["FBetaNet.partial_fit"] = lambda Y: (
        ESTIMATORS["FBetaNet"]().partial_fit(X, Y).predict_proba(X)
    )
# functions of what was read before: a 0/1 csr_array
INDICATORS = {
    "encode": lambda Y: encode(Y, np.arange(1, 4)).toarray(),
    "observed_cardinalities": observed_cardinalities,
}
# probabilities that every floating type holds exactly
MARGINALS = np.random.default_rng(4).integers(0, 65, size=(24, 3)) / 64
SETS = np.array([[i >> j & 1 for j in range(3)] for i in range(8)])
DISTRIBUTION = np.random.default_rng(5).multinomial(64, np.full(8, 1 / 8), size=24) / 64
SAMPLES = np.random.default_rng(6).integers(0, 2, size=(24, 5, 3)).astype(float)
NUMBERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "LabelStatistics.from_marginals": (
        MARGINALS,
        lambda P: told(LabelStatistics.from_marginals(P)),
    ),
    "LabelStatistics.from_samples": (SAMPLES, lambda S: told(LabelStatistics.from_samples(S))),
    "from_distribution of probabilities": (
        DISTRIBUTION,
        lambda p: told(LabelStatistics.from_distribution(p, SETS)),
    ),
    "decode_independent": (MARGINALS, decode_independent),
}
PLAIN_STATISTICS = LabelStatistics.from_distribution(DISTRIBUTION, SETS)
STATISTICS: dict[str, Callable[[Any], Any]] = {
    "decode": lambda q: decode(q, 2.0, return_expected=True),
    "expected_fbeta": lambda q: expected_fbeta(q, PLAIN, 0.5),
    "expected_measure": lambda q: expected_measure(q, PLAIN, measure="hamming"),
    "psi_regret": lambda q: psi_regret(q, np.zeros((24, 10))),
    "mixture": lambda q: told(LabelStatistics.mixture([q, q], [1.0, 3.0])),
}
TARGETS = "joint_loss cardinality_loss JointLoss.forward CardinalityLoss.forward"
HEADS = [
    f"{head}.{method}"
    for head in ("JointHead", "CardinalityHead", "DecoderHead")
    for method in ("from_targets", "loss", "start_at")
]


def told(q: LabelStatistics) -> list[np.ndarray]:
    """What a decoder needs to know, as arrays."""
    return [np.asarray(a) for a in (q.empty, q.joint, q.cardinalities)]


def public() -> Iterator[tuple[str, Any]]:
    """Functions, classes and their methods that users call, without those of other libraries."""
    for module in MODULES:
        room = importlib.import_module(module)
        for name in room.__all__:
            value = getattr(room, name)
            yield name, value
            for method, function in inspect.getmembers(value if inspect.isclass(value) else None):
                if method[0] == "_" or method in INTERNAL or not inspect.isroutine(function):
                    continue
                if (getattr(function, "__module__", None) or "").startswith("fbeta"):
                    yield f"{name}.{method}", function


def test_every_public_function_is_here():
    pytest.importorskip("torchmetrics")
    pytest.importorskip("skorch")
    # tests/labels/test_every_form.py has these
    known = {*by_labels.METRICS, *by_labels.UNNAMED, "averaged_fbeta", "psi", "RowBlocks"}
    known |= {"FBetaReduction.partial_fit", "LabelStatistics.from_distribution"}
    known |= {*LABELS, *NAMED, *INDICATORS, *NUMBERS, *STATISTICS, *HEADS}
    known |= {f"{name}.{method}" for name in ESTIMATORS for method in ("fit", "score")}
    known |= {*TARGETS.split(), "FBetaScore.update", "LowRankClassifier"}
    # what holds data, and the columns of a table, whose labels are no part of X
    known |= {"CalibratedSample", "Dataset", "TableEncoder.fit", "TableEncoder.fit_transform"}
    found = set()
    for name, value in public():
        if callable(value) and not inspect.ismodule(value):
            try:
                parameters = inspect.signature(value).parameters
            except ValueError:
                continue
            if PARAMETERS & parameters.keys():
                found.add(name)
    assert found - known == set()
    assert len(found) > 80


def arrays(A: np.ndarray) -> dict[str, Any]:
    """Forms of an array of numbers that all of them hold exactly."""
    types = "float16 float32 float64 longdouble >f8 >f4 object"
    forms: dict[str, Any] = {f"array {t}": A.astype(t) for t in types.split()}
    forms |= {
        "Fortran order": np.asfortranarray(A),
        "every second": np.repeat(A, 2, axis=0)[::2],
        "read-only": np.broadcast_to(A, A.shape),
        "nested lists": A.tolist(),
        "decimals": np.vectorize(Decimal, otypes=[object])(A),
        "fractions": np.vectorize(Fraction, otypes=[object])(A),
        "strings": A.astype(str),
        "masked without masked entries": np.ma.masked_array(A, mask=np.zeros(A.shape, bool)),
        "masked": np.ma.masked_array(A, mask=np.arange(A.size).reshape(A.shape) % 2 == 0),
        "complex": A.astype(complex),
    }
    if A.ndim == 2:
        forms |= {"pandas": pd.DataFrame(A), "pandas Float64": pd.DataFrame(A).astype("Float64")}
        forms |= {f"sparse {f}": sp.coo_array(A).asformat(f) for f in ("csr", "csc", "coo", "lil")}
    for library in ("torch", "array_api_strict"):
        if find_spec(library) and find_spec("array_api_compat"):
            xp = importlib.import_module(library)
            forms[library] = xp.asarray(A)
            forms[f"{library} float32"] = xp.asarray(A, dtype=xp.float32)
    return forms


REFUSED = {"masked", "complex"}


def host(found: Any) -> list[np.ndarray]:
    """A result as arrays of float64 in memory."""
    parts = found if isinstance(found, tuple | list) else [found]
    parts = [part.toarray() if sp.issparse(part) else part for part in parts]
    return [np.asarray(part, dtype=np.float64) for part in parts]


def check(function: Callable[[Any], Any], form: Any, right: Any, rtol: float = 1e-12) -> bool:
    """Compare with the right result; return False where the form is refused."""
    try:
        found = host(function(form))
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        return False
    for one, other in zip(found, host(right), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-12)
    return True


@pytest.mark.parametrize("name", NUMBERS)
def test_functions_of_probabilities(name):
    A, function = NUMBERS[name]
    right = function(A)
    taken = {form for form, value in arrays(A).items() if check(function, value, right)}
    assert not taken & REFUSED
    assert len(taken) >= 14


@pytest.mark.parametrize("name", STATISTICS)
def test_functions_of_statistics(name):
    function, sizes = STATISTICS[name], PLAIN_STATISTICS.cardinalities
    empty, joint, _ = told(PLAIN_STATISTICS)
    right, taken, joints = function(PLAIN_STATISTICS), set(), arrays(joint)
    for form, nothing in arrays(empty).items():

        def build(values, nothing=nothing):
            return function(LabelStatistics(nothing, values, sizes))

        if check(build, joints[form], right):
            taken.add(form)
    assert not taken & REFUSED
    assert len(taken) >= 11
    # however the same law is kept
    right = function(LabelStatistics(*told(LabelStatistics.from_marginals(MARGINALS))))
    for law in (MARGINALS, sp.csr_array(MARGINALS)):
        kept = LabelStatistics.from_marginals(law)
        check(function, kept, right, rtol=1e-9)
        check(lambda q: function(LabelStatistics.mixture([q, q])), kept, right, rtol=1e-9)


@pytest.mark.parametrize("name", LABELS)
def test_functions_of_labels_without_names(name):
    right, refused = LABELS[name](PLAIN), 0
    for form, (group, Y) in FORMS.items():
        if form != MOVED:  # its columns are in another order
            taken = check(LABELS[name], Y, right)
            assert taken == (group != "tags")
            refused += not taken
    assert refused == len(GROUPS["tags"](PLAIN))


@pytest.mark.parametrize("name", NAMED)
def test_functions_that_learn_names(name):
    right = NAMED[name](PLAIN)
    forms = list(FORMS.items())[:: 9 if name == "FBetaNet.partial_fit" else 1]  # it takes longer
    for form, (_, Y) in forms:
        if form == MOVED and name in ("limo_path", "FBetaNet.partial_fit"):
            continue  # another order of columns is another path

        def ordered(labels, form=form):
            return put_in_order(NAMED[name](labels), form)

        assert check(ordered, Y, right, rtol=1e-9), form


@pytest.mark.parametrize("name", INDICATORS)
def test_functions_of_indicators(name):
    right, taken = INDICATORS[name](sp.csr_array(PLAIN.astype(np.int8))), set()
    for form, (_, Y) in FORMS.items():
        if check(INDICATORS[name], Y, right):
            taken.add(form)
    assert taken <= {"matrix: csr with explicit zeros"}
    for wrong in (2, -1, 0.5, np.nan):
        with pytest.raises(ValueError, match="0 and 1"):
            INDICATORS[name](sp.csr_array(np.where(PLAIN > 0, wrong, 0.0)))


def agreement(name: str, forms: dict[str, Any]) -> None:
    """Fit to labels of every form, and score them: the same number, or an error."""
    features = SCORES if name == "FBetaDecoder" else X
    right = ESTIMATORS[name]().fit(features, PLAIN).score(features, PLAIN)
    for form, (group, Y) in forms.items():

        def score(labels):
            return ESTIMATORS[name]().fit(features, labels).score(features, labels)

        if form == MOVED and name in ORDERED:
            continue  # another order of columns is another fit
        taken = check(score, Y, right, rtol=1e-9)
        assert taken or (name == "LowRankClassifier" and group in ("tags", "numbers")), form


FEW = ("FBetaClassifier", "FBetaDecoder", "FBetaReduction", "LowRankClassifier", "SizedClassifier")


@pytest.mark.parametrize("name", slow_but(FEW, sorted(ESTIMATORS)))
def test_estimators_with_a_form_of_each_group(name):
    first = {group: next(f for f in FORMS if f.startswith(group)) for group in GROUPS}
    agreement(name, {form: FORMS[form] for form in first.values()})


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ESTIMATORS.keys() - {"FBetaAuto"}))
def test_estimators_with_every_form(name):
    agreement(name, FORMS)


def tensors(torch: Any, Y: np.ndarray) -> dict[str, Any]:
    """Forms of 0/1 targets."""
    types = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64"
    plain = torch.tensor(Y)
    forms = {t: plain.to(getattr(torch, t)) for t in types.split()}
    return forms | {
        "not contiguous": torch.tensor(np.asfortranarray(Y)),
        "every second": plain.repeat_interleave(2, 0)[::2],
        "with a gradient": plain.double().requires_grad_(),
        "sparse": plain.to_sparse(),
        "NumPy": Y,
        "lists": Y.tolist(),
        "sparse matrix": sp.csr_array(Y),
        "one row less": plain[1:],
        "one label less": plain[:, 1:],
        "complex": plain.to(torch.complex64),
        **{f"with {v}": torch.where(plain > 0, v, 0.0) for v in (2.0, -1.0, np.nan, 255.0)},
    }


def test_targets_of_networks():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchmetrics")
    from fbeta import nn

    random = torch.Generator().manual_seed(0)
    z = {w: torch.randn(24, w, generator=random, dtype=torch.float64) for w in (3, 7, 10)}
    decoder = nn.DecoderHead(fbeta.FBetaDecoder().fit(SCORES, PLAIN))

    def made(head):
        return lambda Y: host([head.from_targets(2, Y).linear.bias.detach()])

    def moved(head):
        return lambda Y: host([head.start_at(Y).linear.bias.detach()])

    def metric(y):
        found = nn.FBetaScore(2.0)
        found.update(z[3] > 0, y)
        return found.compute()

    joint, sized = nn.JointHead(2, 3, 3), nn.CardinalityHead(2, 3, 3)
    functions = {
        "joint_loss": lambda y: nn.functional.joint_loss(z[10], y, 3),
        "cardinality_loss": lambda y: nn.functional.cardinality_loss(z[7], y, 3),
        "JointLoss.forward": lambda y: nn.JointLoss(3)(z[10], y),
        "CardinalityLoss.forward": lambda y: nn.CardinalityLoss(3)(z[7], y),
        "FBetaScore.update": metric,
        "JointHead.loss": lambda y: joint.loss(z[10], y),
        "CardinalityHead.loss": lambda y: sized.loss(z[7], y),
        "DecoderHead.loss": lambda y: decoder.loss(decoder(torch.tensor(SCORES)), y),
        "JointHead.from_targets": made(nn.JointHead),
        "CardinalityHead.from_targets": made(nn.CardinalityHead),
        "DecoderHead.from_targets": made(nn.DecoderHead),
        "JointHead.start_at": moved(joint),
        "CardinalityHead.start_at": moved(sized),
        "DecoderHead.start_at": moved(decoder),
    }
    assert functions.keys() == {*TARGETS.split(), *HEADS, "FBetaScore.update"}
    never = {"one row less", "one label less", "complex"}
    for name, function in functions.items():
        if name in ("DecoderHead.from_targets", "DecoderHead.start_at"):
            with pytest.raises((TypeError, AttributeError)):  # it has no layer to begin with
                function(torch.tensor(PLAIN))
            continue
        right, taken = function(torch.tensor(PLAIN)), set()
        for form, y in tensors(torch, PLAIN).items():
            if form in never and name.endswith(("from_targets", "start_at")):
                continue  # other rows, other frequencies
            with torch.no_grad():
                if check(function, y, right, rtol=1e-6):
                    taken.add(form)
        wrong = {f"with {value}" for value in (2.0, -1.0, np.nan, 255.0)}
        assert not taken & (never | wrong), name
        assert taken >= {"bool", "uint8", "int64", "float32", "float64", "not contiguous"}, name
