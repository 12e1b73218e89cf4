"""Fitted models on disk: explicit, versioned state that is data and not code."""

from __future__ import annotations

import json
import os
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
import sklearn
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from fbeta import __version__
from fbeta._files import write_atomically
from fbeta.datasets import TableEncoder
from fbeta.decoding.exact import exact_decode
from fbeta.estimators.base import Decisions
from fbeta.estimators.features import split_fitted
from fbeta.methods import part_name
from fbeta.statistics.codes import MarginalCode
from fbeta.storage import archive
from fbeta.storage.archive import MODEL, SCHEMA, TRUSTED, ModelFileError, json_objects, load_skops

__all__ = [
    "TRUSTED",
    "ModelFileError",
    "StoredModel",
    "library_versions",
    "load_model",
    "save_model",
]

_KIND = "fbeta model"
_FORMAT = 3
_SKOPS_FORMAT = 2  # written before: an archive of skops as a whole, still read
# the columns of files are matched by name before they get to a model
_UNNAMED_COLUMNS = "X does not have valid feature names"


@dataclass(frozen=True)
class StoredModel:
    """A fitted estimator with what is needed to use it on files."""

    estimator: Any  # a classifier of the library, or a pipeline that ends with one
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None  # where the training data had them
    # how the training file was read, so that later files are read alike
    reading: Mapping[str, Any] = field(default_factory=dict)
    # of the libraries that the model was fitted with
    versions: Mapping[str, str] = field(default_factory=dict)
    # how the model was chosen: ``method``, ``rows``, ``alpha`` and ``cv_score``, where known
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> list[Any]:
        """The transformers before the classifier, where it is in a pipeline."""
        pipeline = isinstance(self.estimator, Pipeline)
        return [step for _, step in self.estimator.steps[:-1]] if pipeline else []

    @property
    def classifier(self) -> Any:
        """The estimator of the library: the last step, where it is in a pipeline."""
        return self.estimator[-1] if isinstance(self.estimator, Pipeline) else self.estimator

    def features(self, X: Any) -> Any:
        """Return the features of shape (n, d) that the classifier takes."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _UNNAMED_COLUMNS)
            return self.estimator[:-1].transform(X) if self.steps else X

    def names_of_features(self) -> tuple[str, ...] | None:
        """Return the names of the features that the classifier takes, where they are known."""
        if not self.steps:
            return self.feature_names
        try:
            return tuple(map(str, self.estimator[:-1].get_feature_names_out()))
        except (AttributeError, ValueError):  # a step without names
            return None

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
            options |= {"min_labels": limits[0], "max_labels": limits[1], "rule": exact_decode}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _UNNAMED_COLUMNS)
            rows = self.features(X)
            found: Decisions = self.classifier.decide(rows, betas, marginals=marginals, **options)
        dense = {b: y.toarray() if sp.issparse(y) else y for b, y in found.labels.items()}
        P = found.marginals.toarray() if sp.issparse(found.marginals) else found.marginals
        return Decisions(dense, found.expected, P)

    def predict(self, X: Any, beta: float | None = None) -> NDArray[np.int8]:
        """Predict label sets as 0/1, of shape (n, s), whatever form the training labels had."""
        found = self.decide(X, None if beta is None else [beta], expected=False)
        return np.asarray(*found.labels.values()).astype(np.int8)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Estimate the marginals of the labels, of shape (n, s), if the classifier does."""
        return np.asarray(self.decide(X, expected=False, marginals=True).marginals)

    def expected_fbeta(
        self, X: Any, beta: float | None = None, **options: Any
    ) -> NDArray[np.float64]:
        """Estimate the F_beta of each prediction, of shape (n,), if the classifier does."""
        self._check_has("expected_fbeta", "its own F_beta")
        found = self.decide(X, None if beta is None else [beta], **options)
        return np.asarray(*found.expected.values())

    def blank_row(self) -> Any:
        """Return one row without values, of shape (1, d), to try the model with."""
        steps, last = split_fitted(self.estimator)
        first = steps[0] if steps else last
        if isinstance(first, TableEncoder):
            return np.full((1, first.n_features_in_), None, dtype=object)
        shape = (1, int(self.estimator.n_features_in_))
        return sp.csr_array(shape) if getattr(first, "listed_", False) else np.zeros(shape)

    def _check_has(self, method: str, what: str) -> None:
        if not hasattr(self.classifier, method):
            name = type(self.classifier).__name__
            raise ValueError(f"a model of {name} does not estimate {what}")


def library_versions() -> dict[str, str]:
    """Return the versions of everything that a model or a result may depend on."""
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
    """Store a fitted estimator of the library in a file, completely or not at all.

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
    reading, versions, training : mapping, optional
        As in :class:`StoredModel`; simple values only. Versions of what is installed by default.

    Raises
    ------
    ModelFileError
        If the estimator has parts that could not be loaded again.
    ImportError
        If the estimator has parts of scikit-learn, and skops is not installed.

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
    _check_ours(classifier, ModelFileError)
    names = label_names
    if names is None:
        # a 1-D binary target has two classes and one label, which is the second class
        every = getattr(classifier, "label_names_", classifier.classes_)
        names = every[-classifier.n_labels_ :]
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", None)
    leaves: list[Any] = []
    content = {
        "kind": _KIND,
        "version": _FORMAT,
        "estimator": archive.to_state(estimator, leaves),
        "label_names": [str(name) for name in names],
        "feature_names": None if feature_names is None else [str(name) for name in feature_names],
        "reading": dict(reading or {}),
        "versions": dict(library_versions() if versions is None else versions),
        "training": dict(training or {}),
    }
    with write_atomically(path) as part:
        archive.write_archive(part, content, leaves)
        # what could not be loaded is not stored
        _check_file(part.read_bytes(), os.fspath(path))


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
        If the file has parts of scikit-learn or is of format 2, and skops is not installed.
    """
    name = os.fspath(path)
    # read once: what is checked is what is loaded
    data = Path(path).read_bytes()
    found, types = _check_file(data, name)
    if SCHEMA in found:
        load_skops()  # a missing package is no fault of the file
    try:
        with warnings.catch_warnings():
            # another version of scikit-learn warns; parts that do not fit fail below
            warnings.simplefilter("ignore")
            if MODEL in found:
                content = found[MODEL]
                content["leaves"] = archive.read_leaves(data, content, types)
            else:
                content = load_skops().loads(data, trusted=types)
                content["estimator"] = json.loads(content["estimator"])
            return _read_content(content, archive.unfolded_bound(len(data)))
    except ModelFileError as error:
        raise ModelFileError(f"{name}: {error}") from error
    # a forged file can raise any error of the libraries below
    except Exception as error:
        words = str(error) or type(error).__name__
        raise ModelFileError(f"{name}: not a model of fbeta: {words}") from error


def _check_file(data: bytes, name: str) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON members of a file and the types for skops to make; refuse other types."""
    try:
        found = archive.read_archive(data)
        types = {
            (str(node["__loader__"]), f"{node.get('__module__')}.{node.get('__class__')}")
            for node in json_objects(found.get(SCHEMA))
            if "__loader__" in node
        }
        number = _format_of(found)
    except Exception as error:
        raise ModelFileError(f"{name}: not a model of fbeta: {error}") from error
    if number is not None and number != (_FORMAT if MODEL in found else _SKOPS_FORMAT):
        raise ModelFileError(
            f"{name}: a model of format {number!r}, and this version of fbeta reads formats "
            f"{_SKOPS_FORMAT} and {_FORMAT}: fit it again, or use the version that wrote it"
        )
    unknown = sorted({type_ for loader, type_ in types if type_ not in TRUSTED.get(loader, ())})
    if unknown:
        raise ModelFileError(f"{name}: has types that are not trusted: {', '.join(unknown)}")
    return found, sorted({type_ for _, type_ in types})


def _format_of(found: Mapping[str, Any]) -> Any:
    """Return the number of the format, None if the file says that it is something else."""
    try:
        if MODEL in found:
            content = found[MODEL]
        else:
            content = found[SCHEMA]["content"]
            content = {key: json.loads(content[key]["content"]) for key in ("kind", "version")}
        return content["version"] if content["kind"] == _KIND else None
    except (KeyError, TypeError, ValueError):
        return None


def _check_ours(classifier: Any, error: type[ValueError]) -> None:
    if not isinstance(classifier, BaseEstimator) or part_name(type(classifier)) is None:
        raise error(f"{type(classifier).__name__} is not an estimator of fbeta")


def _read_content(content: Any, bound: int) -> StoredModel:
    """Make the model, and check that its parts fit together by a prediction for one row."""
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise ValueError("it holds something else")
    n_labels = len(content["label_names"])
    keys, objects = ("n_labels", "n_labels_"), json_objects(content["estimator"])
    counts = {repr(node[key]) for node in objects for key in keys if key in node}
    if counts - {repr(n_labels)}:
        # before anything is made for so many labels
        raise ValueError(f"it has {n_labels} names for its labels")
    estimator = archive.from_state(content["estimator"], content["leaves"])
    feature_names = content["feature_names"]
    stored = StoredModel(
        estimator,
        tuple(map(str, content["label_names"])),
        None if feature_names is None else tuple(map(str, feature_names)),
        dict(content["reading"]),
        dict(content["versions"]),
        dict(content.get("training", {})),  # the first files of format 2 do not have it
    )
    _check_ours(stored.classifier, ValueError)
    n_features = int(estimator.n_features_in_)
    if feature_names is not None and len(feature_names) != n_features:
        raise ValueError(f"it has {len(feature_names)} names for {n_features} features")
    if not 0 <= n_features <= bound // 64:
        # each has a coefficient in the file, with whose size the bound grows
        raise ValueError(f"it claims to have {n_features} features")
    classifier = split_fitted(estimator)[1]
    code = getattr(classifier, "code", None)
    # statistics of one row; independent labels stay factored
    sizes = () if isinstance(code, MarginalCode) else getattr(code, "cardinalities", ())
    if max(1, np.size(sizes)) * int(classifier.n_labels_) > bound // 64:
        # too large for a prediction that only checks the file
        return stored
    (labels,) = stored.decide(stored.blank_row()).labels.values()
    if labels.shape != (1, n_labels):
        raise ValueError(f"it has {n_labels} names for its labels")
    return stored
