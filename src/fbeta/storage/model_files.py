"""Fitted models on disk: explicit, versioned state that is data and not code.

Models are stored with skops. Objects of the library are in the file as JSON under names that stay,
as :mod:`fbeta.storage.state` writes them, so that classes may move. Of the rest (arrays and objects
of scikit-learn) only the types listed here are made: loading runs no code from the file, as
unpickling would.
"""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from fbeta import __version__
from fbeta._array import optional_import
from fbeta._files import write_atomically
from fbeta.datasets import TableEncoder
from fbeta.decoding.rules import ExactDecode
from fbeta.estimators.base import Decisions, decide
from fbeta.labels.forms import read_predictions
from fbeta.methods import part_name
from fbeta.statistics.codes import MarginalCode
from fbeta.storage.archive import read_archive, unfolded_bound
from fbeta.storage.state import StateError, from_state, to_state

__all__ = [
    "TRUSTED",
    "ModelFileError",
    "StoredModel",
    "library_versions",
    "load_model",
    "save_model",
]

_KIND = "fbeta model"
_FORMAT = 2

# Of those that scikit-learn has, the ones whose state is numbers and arrays and nothing that could
# crash or call a function: no trees, whose indices are not checked, and no FunctionTransformer
_SKLEARN = {
    "calibration": ("CalibratedClassifierCV", "_CalibratedClassifier", "_SigmoidCalibration"),
    "decomposition._pca": ("PCA",),
    "decomposition._truncated_svd": ("TruncatedSVD",),
    "discriminant_analysis": ("LinearDiscriminantAnalysis",),
    "feature_extraction.text": ("TfidfTransformer",),
    "impute._base": ("MissingIndicator", "SimpleImputer"),
    "kernel_approximation": ("Nystroem",),
    "linear_model._logistic": ("LogisticRegression",),
    "model_selection._split": ("GroupKFold", "KFold", "RepeatedKFold", "ShuffleSplit"),
    "naive_bayes": ("BernoulliNB", "ComplementNB", "GaussianNB", "MultinomialNB"),
    "preprocessing._data": (
        "MaxAbsScaler",
        "MinMaxScaler",
        "Normalizer",
        "QuantileTransformer",
        "RobustScaler",
        "StandardScaler",
    ),
    "preprocessing._label": ("LabelEncoder",),
    "svm._classes": ("LinearSVC",),
}
_NUMBERS = (
    *(f"numpy.{name}" for name in ("bool", "bool_", "float32", "float64")),
    *(f"numpy.{'u' * unsigned}int{bits}" for unsigned in (0, 1) for bits in (8, 16, 32, 64)),
)

#: The types that a model file may have, by the way in which skops makes them.
TRUSTED: dict[str, tuple[str, ...]] = {
    "ObjectNode": tuple(f"sklearn.{m}.{name}" for m, names in _SKLEARN.items() for name in names),
    "JsonNode": ("builtins.str",),
    "DictNode": ("builtins.dict",),
    "ListNode": ("builtins.list",),
    "SetNode": ("builtins.set",),
    "TupleNode": ("builtins.tuple",),
    "TypeNode": tuple(f"builtins.{name}" for name in ("bool", "float", "int", "str")) + _NUMBERS,
    "NdArrayNode": ("numpy.ndarray", *_NUMBERS),
    "DTypeNode": ("numpy.dtype",),
    "SparseMatrixNode": ("scipy.sparse._csr.csr_array", "scipy.sparse._csr.csr_matrix"),
}


class ModelFileError(ValueError):
    """A file that is not a stored model, or one with types that are not trusted."""


@dataclass(frozen=True)
class StoredModel:
    """A fitted estimator with what is needed to use it on files.

    Attributes
    ----------
    estimator : estimator
        Fitted.
    label_names : tuple of str, length s
        Names of the labels.
    feature_names : tuple of str, length d, or None
        Names of the features, where the training data had them.
    reading : mapping
        How the training file was read, so that later files are read alike.
    versions : mapping
        Of the libraries that the model was fitted with.
    training : mapping
        How the model was chosen: ``rows``, ``alpha``, ``cv_score`` and what was ``searched``, as
        far as it is known.
    """

    estimator: Any
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> list[Any]:
        """The transformers before the classifier, where it is in a pipeline."""
        pipeline = isinstance(self.estimator, Pipeline)
        return [step for _, step in self.estimator.steps[:-1]] if pipeline else []

    @property
    def classifier(self) -> Any:
        """The estimator of ours: the last step, where it is in a pipeline."""
        return self.estimator[-1] if isinstance(self.estimator, Pipeline) else self.estimator

    def features(self, X: Any) -> Any:
        """Return the features of shape (n, d) that the classifier takes."""
        with _unnamed_columns():
            return self.estimator[:-1].transform(X) if self.steps else X

    def names_of_features(self) -> tuple[str, ...] | None:
        """Return the names of the features that the classifier takes, where they are known."""
        if not self.steps:
            return self.feature_names
        try:
            return tuple(map(str, self.estimator[:-1].get_feature_names_out()))
        except (AttributeError, ValueError):  # a step that has no names
            return None

    def predict(self, X: Any, beta: float | None = None) -> NDArray[np.int8]:
        """Predict label sets as 0/1, of shape (n, s), whatever form the training labels had."""
        with _unnamed_columns():
            labels = self.estimator.predict(X, beta=beta)
        indicator = read_predictions(labels, self.classifier.classes_)
        return np.asarray(indicator.toarray(), dtype=np.int8)

    def decide(
        self,
        X: Any,
        betas: Sequence[float] | None = None,
        *,
        marginals: bool = False,
        limits: tuple[int, int | None] | None = None,
        **options: Any,
    ) -> Decisions:
        """Predict label sets as booleans (n, s) for several betas; feature maps and model run once.

        ``limits`` are the least and the largest number of labels; the other parameters are those of
        :meth:`fbeta.estimators.base.MultiLabelClassifier.decide`.
        """
        if marginals:
            self._check_has("predict_proba", "probabilities of its labels")
        if limits is not None:
            self._check_has("predict_statistics", "label statistics")
            options |= {"min_labels": limits[0], "max_labels": limits[1], "rule": ExactDecode()}
        with _unnamed_columns():
            return decide(self.estimator, X, betas, marginals=marginals, **options)

    def blank_row(self) -> Any:
        """Return one row without values, of shape (1, d), to try the model with."""
        first = self.estimator[0] if isinstance(self.estimator, Pipeline) else self.estimator
        if isinstance(first, TableEncoder):
            return first.blank_row()
        return np.zeros((1, int(self.estimator.n_features_in_)))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Estimate the marginals of the labels, of shape (n, s), if the classifier does."""
        found = np.asarray(self._classify("predict_proba", X, "probabilities of its labels"))
        # of a 1-D binary target it has the probability of each class
        return found[:, -len(self.label_names) :]

    def expected_fbeta(
        self, X: Any, beta: float | None = None, **options: Any
    ) -> NDArray[np.float64]:
        """Estimate the F_beta of each prediction, of shape (n,), if the classifier does."""
        what = "its own F_beta"
        return np.asarray(self._classify("expected_fbeta", X, what, beta=beta, **options))

    def _classify(self, method: str, X: Any, what: str, **options: Any) -> Any:
        """Call a method of the classifier, if it has it."""
        self._check_has(method, what)
        features = self.features(X)
        with _unnamed_columns():
            return getattr(self.classifier, method)(features, **options)

    def _check_has(self, method: str, what: str) -> None:
        if not hasattr(self.classifier, method):
            name = type(self.classifier).__name__
            raise ValueError(f"a model of {name} does not estimate {what}")


@contextmanager
def _unnamed_columns() -> Iterator[None]:
    """Allow plain arrays: the columns of files are matched by name before they get here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def library_versions() -> dict[str, str]:
    """Return the versions of everything that a model or a result may depend on.

    Examples
    --------
    >>> sorted(library_versions())
    ['fbeta', 'numpy', 'python', 'scikit-learn', 'scipy']
    """
    modules = {"numpy": np, "scipy": scipy, "scikit-learn": sklearn}
    libraries = {name: str(module.__version__) for name, module in modules.items()}
    return {"fbeta": __version__, "python": platform.python_version(), **libraries}


def save_model(
    path: str | os.PathLike[str],
    estimator: Any,
    *,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    reading: Mapping[str, Any] | None = None,
    versions: Mapping[str, str] | None = None,
    training: Mapping[str, Any] | None = None,
) -> None:
    """Store a fitted estimator of the library with skops, whole or not at all.

    Parameters
    ----------
    path : path
        File to be written, by custom with the suffix ``.skops``.
    estimator : estimator
        A fitted estimator of the library, or a scikit-learn pipeline that ends with one.
    label_names : sequence of str, optional
        Names of the labels; those of ``estimator.classes_`` by default.
    feature_names : sequence of str, optional
        Names of the features; those that the estimator saw in ``fit``, if any, by default.
    reading : mapping, optional
        As in :class:`StoredModel`; simple values only.
    versions : mapping, optional
        As in :class:`StoredModel`; what is installed by default.
    training : mapping, optional
        As in :class:`StoredModel`; simple values only.

    Raises
    ------
    ModelFileError
        If the estimator has parts that could not be loaded again.
    ImportError
        If skops is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from fbeta import FBetaClassifier
    >>> clf = FBetaClassifier().fit([[0.0], [1.0]], [["sea"], ["sea", "sky"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(Path(folder, "model.skops"), clf)
    ...     stored = load_model(Path(folder, "model.skops"))
    >>> stored.label_names, stored.estimator.predict([[0.0]])
    (('sea', 'sky'), [['sea']])
    """
    check_is_fitted(estimator)
    classifier = StoredModel(estimator, ()).classifier
    _check_ours(classifier)
    # a 1-D binary target has two classes and one label, which is to have the second of them
    names = classifier.classes_[-classifier.n_labels_ :] if label_names is None else label_names
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", None)
    leaves: list[Any] = []
    content = {
        "kind": _KIND,
        "version": _FORMAT,
        "estimator": json.dumps(to_state(estimator, leaves)),
        "leaves": leaves,
        "label_names": [str(name) for name in names],
        "feature_names": None if feature_names is None else [str(name) for name in feature_names],
        "reading": dict(reading or {}),
        "versions": dict(library_versions() if versions is None else versions),
        "training": dict(training or {}),
    }
    skops = _skops()
    with write_atomically(path) as part:
        skops.dump(content, part)
        # what could not be loaded is not stored
        _check_types(part.read_bytes(), os.fspath(path))


def load_model(path: str | os.PathLike[str]) -> StoredModel:
    """Load a model that :func:`save_model` stored.

    Only the parts in ``fbeta.methods.PARTS`` and the types in ``TRUSTED`` are made, and no
    code from the file is run.

    Parameters
    ----------
    path : path
        File to read; it may come from anybody.

    Returns
    -------
    StoredModel

    Raises
    ------
    ModelFileError
        If the file is not such a model, is damaged, is of a format or has a part that this version
        does not know, has a type that is not trusted, or would unfold to more than 1 GiB and eight
        times its size. All of this is known before anything of that size is made.
    OSError
        If the file cannot be opened.
    ImportError
        If skops is not installed.
    """
    skops = _skops()
    # read once: what is checked is what is loaded
    data = Path(path).read_bytes()
    types = _check_types(data, os.fspath(path))
    try:
        with warnings.catch_warnings():
            # another version of scikit-learn warns; what does not fit fails below
            warnings.simplefilter("ignore")
            return _read_content(skops.loads(data, trusted=types), unfolded_bound(len(data)))
    except StateError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error
    # A file from anybody can be wrong in every way that the libraries below have an error for.
    except Exception as error:
        words = str(error) or type(error).__name__
        raise ModelFileError(f"{os.fspath(path)}: not a model of fbeta: {words}") from error


def _skops() -> Any:
    return optional_import("skops.io", "cli", "storing models")


def _check_types(data: bytes, name: str) -> list[str]:
    """Return the types in a file; refuse others than the trusted before anything is made."""
    try:
        schema = read_archive(data)
        found = set(_types(schema))
    except Exception as error:
        raise ModelFileError(f"{name}: not a model of fbeta: {error}") from error
    _check_format(schema, name)
    unknown = sorted({type_ for loader, type_ in found if type_ not in TRUSTED.get(loader, ())})
    if unknown:
        raise ModelFileError(f"{name}: has types that are not trusted: {', '.join(unknown)}")
    return sorted({type_ for _, type_ in found})


def _check_format(schema: Any, name: str) -> None:
    """Refuse models of another format, which have other types, with the right words."""
    try:
        kind, number = (json.loads(schema["content"][k]["content"]) for k in ("kind", "version"))
    except (KeyError, TypeError, ValueError):
        return
    if kind == _KIND and number != _FORMAT:
        raise ModelFileError(
            f"{name}: a model of format {number!r}, and this version of fbeta reads format "
            f"{_FORMAT}: fit it again, or use the version that wrote it"
        )


def _types(node: Any) -> Iterator[tuple[str, str]]:
    """Yield the loader and the type of every object that a schema describes."""
    if isinstance(node, dict):
        if "__loader__" in node:
            yield str(node["__loader__"]), f"{node.get('__module__')}.{node.get('__class__')}"
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from _types(part)


def _check_ours(classifier: Any) -> None:
    if not isinstance(classifier, BaseEstimator) or part_name(type(classifier)) is None:
        raise ModelFileError(f"{type(classifier).__name__} is not an estimator of fbeta")


def _read_content(content: Any, bound: int) -> StoredModel:
    """Check that the parts fit together, by a prediction for one instance among others."""
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise ValueError("it holds something else")
    state = json.loads(content["estimator"])
    n_labels = len(content["label_names"])
    if any(number != n_labels for number in _label_counts(state)):
        # before anything is made for so many
        raise ValueError(f"it has {n_labels} names for its labels")
    estimator = from_state(state, content["leaves"])
    feature_names = content["feature_names"]
    stored = StoredModel(
        estimator,
        tuple(map(str, content["label_names"])),
        None if feature_names is None else tuple(map(str, feature_names)),
        dict(content["reading"]),
        dict(content["versions"]),
        dict(content.get("training", {})),  # files of earlier versions do not have it
    )
    _check_ours(stored.classifier)
    n_features = int(estimator.n_features_in_)
    if feature_names is not None and len(feature_names) != n_features:
        raise ValueError(f"it has {len(feature_names)} names for {n_features} features")
    if not 0 <= n_features <= bound // 64:
        # one coefficient for each is in the file, which the bound grows with
        raise ValueError(f"it claims to have {n_features} features")
    if _statistics_of(stored.classifier) > bound // 64:
        # an honest model of such a size is used with care, and not just to see whether it works
        return stored
    row = stored.blank_row()
    if stored.predict(row).shape != (1, n_labels):
        raise ValueError(f"it has {n_labels} names for its labels")
    if hasattr(stored.classifier, "expected_fbeta"):
        stored.expected_fbeta(row)
    return stored


def _label_counts(state: Any) -> Iterator[Any]:
    """Yield every number of labels that a state claims."""
    if isinstance(state, dict):
        yield from (state[key] for key in ("n_labels", "n_labels_") if key in state)
        state = list(state.values())
    if isinstance(state, list):
        for part in state:
            yield from _label_counts(part)


def _statistics_of(classifier: Any) -> int:
    """Return how many statistics one instance may have."""
    classifier = getattr(classifier, "best_estimator_", classifier)
    code = getattr(classifier, "_code", None)
    # labels that are independent stay factored
    sizes = () if isinstance(code, MarginalCode) else getattr(code, "cardinalities", ())
    return max(1, np.size(sizes)) * int(classifier.n_labels_)
