"""Files on disk: written whole or not at all, and models that are data, not code.

Models are stored with skops. A file of it names the types that it consists of, and only those
listed here are made: loading runs none of the code that a stranger may have put into a file, as
unpickling would.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fbeta._estimator import MultiLabelClassifier

__all__ = [
    "TRUSTED",
    "ModelFileError",
    "StoredModel",
    "load_model",
    "save_model",
    "write_atomically",
    "write_text",
]

_KIND = "fbeta model"
_VERSION = 1

_ESTIMATORS = (
    "fbeta.models.linear.FBetaClassifier",
    "fbeta.models.linear.FBetaClassifierCV",
    "fbeta.models.reduction.FBetaReduction",
    "fbeta.selection.AlphaSearchCV",
)
# each in a file of its own in our package, whose name is no matter of trust
_RIVALS = (
    "BinaryRelevance",
    "CostSensitiveRelevance",
    "ExactFPlugIn",
    "Limo",
    "LowRankClassifier",
    "MacroFSvm",
    "ProbabilisticChain",
    "ReverseMultiLabel",
    "SubmodularMultiLabel",
    "ThresholdedRelevance",
)
_RIVAL = re.compile(rf"fbeta\.rivals\.[a-z][a-z_]*\.(?:{'|'.join(_RIVALS)})")
_PARTS = (
    "fbeta.codes.JointCode",
    "fbeta.codes.MarginalCode",
    "fbeta.codes.PlugInCode",
    "fbeta.labels.LabelForm",
    "fbeta.learners.LinearProbabilities",
    "fbeta.learners.LinearScores",
    "fbeta.losses.ExponentialLoss",
    "fbeta.losses.LogisticLoss",
    "fbeta.losses.SquaredLoss",
    "fbeta.models.reduction.ClassifierModel",
    "fbeta.rivals._softmax.SoftmaxModel",
    "fbeta.rivals._softmax_newton.Groups",
    "fbeta.rivals._structured.BundleModel",
    "fbeta.rivals.chain.ChainCode",
    "fbeta.rivals.chain.ChainModel",
    "fbeta.rivals.cost_sensitive.CostedModel",
    "fbeta.rivals.limo.ScoreThresholds",
    "fbeta.rivals.plug_in.PlugInModel",
    "fbeta.rivals.submodular.HighestScore",
    "fbeta.rivals.submodular.PairwiseModel",
    "fbeta.rivals.thresholded.HeldOutThresholds",
    "fbeta.rules.SignOfScores",
    "sklearn.linear_model._logistic.LogisticRegression",
    "sklearn.model_selection._split.KFold",
)
_NUMBERS = (
    *(f"numpy.{name}" for name in ("bool", "bool_", "float32", "float64")),
    *(f"numpy.{'u' * unsigned}int{bits}" for unsigned in (0, 1) for bits in (8, 16, 32, 64)),
)
_BUILTINS = tuple(f"builtins.{n}" for n in ("bool", "float", "frozenset", "int", "list", "set",
                                            "str", "tuple"))  # fmt: skip

#: The types that a model file may have besides the rivals, by the way in which skops makes them.
TRUSTED: dict[str, tuple[str, ...]] = {
    "ObjectNode": _ESTIMATORS + _PARTS,
    "JsonNode": ("builtins.str",),
    "DictNode": ("builtins.dict",),
    "ListNode": ("builtins.list",),
    "SetNode": ("builtins.set",),
    "TupleNode": ("builtins.tuple",),
    "TypeNode": _BUILTINS + _NUMBERS,
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
    """

    estimator: Any
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    reading: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def predict(self, X: Any, beta: float | None = None) -> NDArray[np.int8]:
        """Predict label sets as 0/1, whatever form the labels of the training had.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Features.
        beta : float, optional
            That of the estimator by default.

        Returns
        -------
        int8 ndarray of shape (n, s)
        """
        with warnings.catch_warnings():
            # the columns of files are matched by name before they get here, as plain arrays
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            labels = self.estimator.predict(X, beta=beta)
        indicator = self.estimator._label_form.read(labels, "the prediction")
        return np.asarray(indicator.toarray(), dtype=np.int8)


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path whose file takes the place of `path` at the end, all at once.

    Readers see the old file or the new one, never a part, and neither an error nor a kill in
    between leaves a broken file at `path`.

    Parameters
    ----------
    path : path
        File to be written; its folder is made where it is absent.

    Yields
    ------
    Path
        To be written to, in the same folder and with the same suffix.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.txt")
    ...     with write_atomically(file) as part:
    ...         _ = part.write_text("whole")
    ...     file.read_text()
    'whole'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        prefix=f".{path.stem[:60]}-", suffix=path.suffix, dir=path.parent
    )
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner can read; results are to be shared
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, whole or not at all.

    Parameters
    ----------
    path : path
        File to be written.
    text : str
        Its content.
    """
    with write_atomically(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def _umask() -> int:
    # the only way to read the mask is to set it
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def save_model(
    path: str | os.PathLike[str],
    estimator: Any,
    *,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    reading: Mapping[str, Any] | None = None,
    versions: Mapping[str, str] | None = None,
) -> None:
    """Store a fitted estimator of the library with skops, whole or not at all.

    Parameters
    ----------
    path : path
        File to be written, by custom with the suffix ``.skops``.
    estimator : estimator
        A fitted estimator of the library.
    label_names : sequence of str, optional
        Names of the labels; those of ``estimator.classes_`` by default.
    feature_names : sequence of str, optional
        Names of the features; those that the estimator saw in ``fit``, if any, by default.
    reading, versions : mapping, optional
        As in :class:`StoredModel`; simple values only.

    Raises
    ------
    ModelFileError
        If the estimator has parts that could not be loaded again.
    ImportError
        If skops is not installed.

    Examples
    --------
    >>> from fbeta import FBetaClassifier
    >>> clf = FBetaClassifier().fit([[0.0], [1.0]], [["sea"], ["sea", "sky"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(Path(folder, "model.skops"), clf)
    ...     stored = load_model(Path(folder, "model.skops"))
    >>> stored.label_names, stored.estimator.predict([[0.0]])
    (('sea', 'sky'), [['sea']])
    """
    check_is_fitted(estimator)
    # a 1-D binary target has two classes and one label, which is to have the second of them
    names = estimator.classes_[-estimator.n_labels_ :] if label_names is None else label_names
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", None)
    content = {
        "kind": _KIND,
        "version": _VERSION,
        "estimator": estimator,
        "label_names": [str(name) for name in names],
        "feature_names": None if feature_names is None else [str(name) for name in feature_names],
        "reading": dict(reading or {}),
        "versions": dict(versions or {}),
    }
    skops = _skops()
    with write_atomically(path) as part:
        skops.dump(content, part)
        _check_types(part, str(path))


def load_model(path: str | os.PathLike[str]) -> StoredModel:
    """Load a model that :func:`save_model` stored.

    Only the types in ``TRUSTED`` and the rivals are made, and no code from the file is run.

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
        If the file is not such a model, is damaged, or has a type that is not trusted.
    OSError
        If the file cannot be opened.
    ImportError
        If skops is not installed.
    """
    skops = _skops()
    Path(path).open("rb").close()
    types = _check_types(Path(path), str(path))
    try:
        with warnings.catch_warnings():
            # another version of scikit-learn warns; what does not fit fails below
            warnings.simplefilter("ignore")
            content = skops.load(path, trusted=types)
            return _read_content(content)
    # A file from anybody can be wrong in every way that the libraries below have an error for.
    except Exception as error:
        words = str(error) or type(error).__name__
        raise ModelFileError(f"{os.fspath(path)}: not a model of fbeta: {words}") from error


def _skops() -> Any:
    try:
        return importlib.import_module("skops.io")
    except ImportError as error:
        raise ImportError('storing models needs skops: pip install "fbeta[cli]"') from error


def _check_types(path: Path, name: str) -> list[str]:
    """Return the types in a file; refuse others than the trusted before anything is made."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
                # we do not compress: what claims to be small is small
                raise ValueError("it has compressed parts")
            schema = json.loads(archive.read("schema.json"))
        found = set(_types(schema))
    except Exception as error:
        raise ModelFileError(f"{name}: not a model of fbeta: {error}") from error
    unknown = sorted({type_ for loader, type_ in found if not _is_trusted(loader, type_)})
    if unknown:
        raise ModelFileError(f"{name}: has types that are not trusted: {', '.join(unknown)}")
    return sorted({type_ for _, type_ in found})


def _is_trusted(loader: str, type_: str) -> bool:
    rival = loader == "ObjectNode" and _RIVAL.fullmatch(type_) is not None
    return rival or type_ in TRUSTED.get(loader, ())


def _types(node: Any) -> Iterator[tuple[str, str]]:
    """Yield the loader and the type of every object that a schema describes."""
    if isinstance(node, dict):
        if "__loader__" in node:
            yield str(node["__loader__"]), f"{node.get('__module__')}.{node.get('__class__')}"
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from _types(part)


def _read_content(content: Any) -> StoredModel:
    """Check that the parts fit together, by a prediction for one instance among others."""
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise ValueError("it holds something else")
    if content["version"] != _VERSION:
        raise ValueError(f"expected version {_VERSION}, found {content['version']!r}")
    estimator = content["estimator"]
    if not isinstance(estimator, MultiLabelClassifier):
        raise ValueError("it holds another estimator")
    n_features = int(estimator.n_features_in_)
    feature_names = content["feature_names"]
    stored = StoredModel(
        estimator,
        tuple(map(str, content["label_names"])),
        None if feature_names is None else tuple(map(str, feature_names)),
        dict(content["reading"]),
        dict(content["versions"]),
    )
    if feature_names is not None and len(feature_names) != n_features:
        raise ValueError(f"it has {len(feature_names)} names for {n_features} features")
    predicted = stored.predict(np.zeros((1, n_features)))
    if predicted.shape != (1, len(stored.label_names)):
        raise ValueError(f"it has {len(stored.label_names)} names for its labels")
    if hasattr(estimator, "expected_fbeta"):
        estimator.expected_fbeta(np.zeros((1, n_features)))
    return stored
