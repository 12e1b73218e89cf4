"""Data to compare methods on: the benchmarks of the literature by name, and the paper's law."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fbeta._array import check_count, optional_import
from fbeta.datasets.dataset import Dataset, DatasetError, PathLike
from fbeta.datasets.mulan import Nominal, read_mulan
from fbeta.decoding.exact import decode
from fbeta.decoding.expected import expected_fbeta
from fbeta.losses import LogisticLoss
from fbeta.statistics import LabelStatistics, encode

_TIMEOUT_SECONDS = 60
BASE_URL = "https://raw.githubusercontent.com/tsoumakas/mulan/master/data/multi-label"
_MAX_LABELS = 14
# Dirichlet probabilities reach 1e-50 and their sums round to 1: the logit needs room on both sides
_MIN_PROBABILITY = 1e-12
_SIZES = {
    "scene": (1211, 1196, 294, 6),
    "yeast": (1500, 917, 103, 14),
    "birds": (322, 323, 260, 19),
    "medical": (333, 645, 1449, 45),
    "enron": (1123, 579, 1001, 53),
    "mediamill": (30993, 12914, 120, 101),
    "bibtex": (4880, 2515, 1836, 159),
    "delicious": (12920, 3185, 500, 983),
}
# as sha256sum writes them; a data set without checksums is not downloaded
_CHECKSUMS = """
b53ba93bdf412de922e3960389bcee24744fa3e872ce610511fc1d750888b64d  scene-train.arff
ea38d20296b3ff7e220f477a3b802a9bcb2d768881fe6ee163efbc97ea527a42  scene-test.arff
55d8b247b949ad5c52e5a73d8c6775ec6e5469ce9682465b45b333b68ee4bcc5  scene.xml
e759dc991ff54694a4ff9c4314f3be0d6fd2b1994a4b563f57e416394c6aebbd  yeast-train.arff
4aaac102bff9669a765bf0b378602e5cc8c3b181048282e2f003117b496d552a  yeast-test.arff
c3056cc26444b5158b1588d1b73bec9c45429e10f0957ad085903423cb81f247  yeast.xml
8f215db6ee163149901e753977f631ba8bea0e0e8e1abc42b234414822f8ae36  birds-train.arff
51ba6326d65ccdd7c755b6461280eb6d2769c7f59d8e12fd4250f91e6ca28326  birds-test.arff
0f4ea547b2b3d538c8402662daf689e0d4520cc8b4f5ba113c2e7c01700f010f  birds.xml
c764f45756ab1c553b8b4eaaf5605a5610a43bbbcf37492d0f1a12bf9c9e2244  medical-train.arff
6be472e75a6c0b0916187f343a398011b1b26f8f0ddc682c575312ad3532f6c4  medical-test.arff
51fa9d5c09e48caff3f0a0c75db1c9aa85944f8e35451f3ad8bd56fc422286ce  medical.xml
2988cefc1cdf7a8004a20ef84615cc8fa1b5d7434c16687283b41454e2d9d194  enron-train.arff
2f3aad54a8f54caaab4ab01246fe9dd385ba944a2633028f52747b57eac5474e  enron-test.arff
ed40c92d7f613eed51714912cab10dddc4ce456262137d8fef230d44c7f4457b  enron.xml
8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174  bibtex-train.arff
9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922  bibtex-test.arff
08fe20013c1e75dcf1888c185f5187c95e76495b8518ce289b4d3afce38d1232  bibtex.xml
030186cdb542ebdd32052fcdbb1ebe30115b3a22518c1b4b198c45eb827aebe1  delicious-train.arff
2dfb01723a819914b0ca83361177ed413ce3f2169851d9f228d4692915d63944  delicious-test.arff
4e0c0f93c7d86a39b9fca4aaefaa00e9428f2c80277732dfbf03ca48e2c14da2  delicious.xml
"""
_SHA256 = {file: checksum for checksum, file in map(str.split, _CHECKSUMS.split("\n")[1:-1])}


def file_names(name: str) -> tuple[str, str, str]:
    """Name the training, test and label file of a data set."""
    return f"{name}-train.arff", f"{name}-test.arff", f"{name}.xml"


#: Numbers of train rows, test rows, features (a nominal attribute is one) and labels; checksums.
BENCHMARKS: Mapping[str, tuple[tuple[int, int, int, int], tuple[str, ...]]] = {
    name: (size, tuple(_SHA256[file] for file in file_names(name) if file in _SHA256))
    for name, size in _SIZES.items()
}


def list_datasets() -> tuple[str, ...]:
    """Return the names of the data sets that `load` knows, roughly from small to large.

    Examples
    --------
    >>> list_datasets()
    ('scene', 'yeast', 'birds', 'medical', 'enron', 'mediamill', 'bibtex', 'delicious')
    """
    return tuple(BENCHMARKS)


def load(
    name: str,
    *,
    data_home: PathLike | None = None,
    cache: PathLike | None = None,
    base_url: str | None = None,
    download: bool = True,
    nominal: Nominal = "codes",
) -> Dataset:
    """Load a benchmark data set with its prescribed train/test split.

    The files ``NAME-train.arff``, ``NAME-test.arff`` and ``NAME.xml`` are taken from `data_home` or
    its subfolder ``NAME``. If they are not all there, they are downloaded once and checked against
    known SHA-256 checksums; mediamill, for which none are known, is not.

    Parameters
    ----------
    name : str
        One of `list_datasets`.
    data_home : path, optional
        Folder with the files; the environment variable ``FBETA_DATA`` by default.
    cache : path, optional
        Folder for downloads; by default that of ``FBETA_CACHE``, else the user's cache folder.
    base_url : str, optional
        Where ``NAME/NAME-train.arff`` and so on are; by default that of ``FBETA_DATA_URL``, else
        the repository of the Mulan project.
    download : bool
        Whether files may be downloaded. What the cache holds is used either way.
    nominal : {"codes", "onehot"}
        As in `read_mulan`; only birds has a nominal feature with more than two values.

    Returns
    -------
    Dataset
        Train and test rows, and the split.

    Raises
    ------
    DatasetError
        If the name is unknown, or the files are absent, broken or of the wrong size.

    Examples
    --------
    >>> load("yeast")  # doctest: +SKIP
    Dataset('yeast', 2417 samples, 103 features, 14 labels, 1500 train + 917 test)
    """
    if name not in BENCHMARKS:
        raise DatasetError(f"unknown data set {name!r}: expected one of {list(BENCHMARKS)}")
    home = data_home or os.environ.get("FBETA_DATA")
    places = [Path(home), Path(home, name)] if home else []
    found = ([place / file for file in file_names(name)] for place in places)
    files = next((paths for paths in found if all(path.is_file() for path in paths)), None)
    if files is None:
        url = base_url or os.environ.get("FBETA_DATA_URL") or BASE_URL
        files = _fetch(name, cache, url, download, home)
    train, test, xml = files
    data = read_mulan(train, xml, test=test, nominal=nominal, name=name)
    # refuse files of the right name but the wrong content, such as a cut-off copy
    expected, _ = BENCHMARKS[name]
    # One-hot columns are not counted in the known size.
    n_features = data.n_features if nominal == "codes" else expected[2]
    size = (len(data.Y_train), len(data.Y_test), n_features, data.n_labels)
    if size != expected:
        words = "{} train and {} test rows, {} features, {} labels"
        raise DatasetError(
            f"{train.parent}, {name}: expected {words.format(*expected)}, "
            f"found {words.format(*size)}"
        )
    return data


def _fetch(
    name: str, cache: PathLike | None, url: str, download: bool, home: PathLike | None
) -> list[Path]:
    """Give the cached files, downloading those that are absent or damaged."""
    checksums = BENCHMARKS[name][1]
    wanted = ", ".join(file_names(name))
    where = f"not in {os.fspath(home)}" if home else "no data_home or FBETA_DATA given"
    if not checksums:
        raise DatasetError(
            f"{name}: expected {wanted} in a data folder ({where}); they are not downloaded, "
            "because no checksums are known for them"
        )
    pooch: Any = optional_import("pooch", "data", f"loading {name} without a data folder")
    folder = Path(cache or os.environ.get("FBETA_CACHE") or pooch.os_cache("fbeta")) / name
    files = [folder / file for file in file_names(name)]
    for path, checksum in zip(files, checksums, strict=True):
        # pooch compares the checksum of a cached file each time, so damage shows here.
        if not download and not (path.is_file() and pooch.file_hash(str(path)) == checksum):
            raise DatasetError(f"{name}: expected {wanted} in a data folder ({where}) or {folder}")
        source = f"{url.rstrip('/')}/{name}/{path.name}"
        downloader = None
        if source.startswith("http"):
            # Streaming would leave the connection open after a refusal such as 404.
            downloader = pooch.HTTPDownloader(timeout=_TIMEOUT_SECONDS, stream=False)
        try:
            # a file that is there already is not downloaded, one that is not whole is not kept
            pooch.retrieve(
                source, f"sha256:{checksum}", path.name, path.parent, downloader=downloader
            )
        # Network and HTTP failures are OSErrors; a wrong checksum is a ValueError.
        except (OSError, ValueError) as error:
            raise DatasetError(
                f"{source}: expected a file with SHA-256 {checksum}, "
                f"but the download failed: {error}"
            ) from error
    return files


def all_label_sets(n_labels: int) -> NDArray[np.int8]:
    """Return all the 2^s label sets, of shape (2^s, s)."""
    numbers = np.arange(2 ** check_count("n_labels", n_labels))[:, None]
    return ((numbers >> np.arange(n_labels)[::-1]) & 1).astype(np.int8)


@dataclass(frozen=True)
class CalibratedSample:
    """Instances of a :class:`CalibratedLaw` with the truth about them.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Features.
    Y : int8 ndarray of shape (n, s)
        Labels.
    statistics : LabelStatistics
        The true q(x) of each instance.
    """

    X: NDArray[np.float64]
    Y: NDArray[np.int8]
    statistics: LabelStatistics

    def bayes_fbeta(self, beta: float = 1.0) -> float:
        """Return the highest F_beta that any classifier can expect on these instances."""
        return float(decode(self.statistics, beta, return_expected=True)[1].mean())

    def expected_fbeta(self, Y_pred: Any, beta: float = 1.0) -> float:
        """Return the F_beta to be expected of predictions, over the labels given the instances."""
        return float(expected_fbeta(self.statistics, Y_pred, beta).mean())

    def regret(self, Y_pred: Any, beta: float = 1.0) -> float:
        """Return how far predictions fall short of the Bayes optimum, exactly, from the true q."""
        return self.bayes_fbeta(beta) - self.expected_fbeta(Y_pred, beta)


class CalibratedLaw:
    """The law of the paper's Section 7.1, for any number of labels and features.

    Parameters
    ----------
    n_labels : int
        Number of labels s, at most 14: there are 2^s label sets.
    n_features : int
        Number of features d, at least the number ``s^2 + 1`` of statistics.
    random_state : int or Generator
        For the matrix W in [0, 1] and the Dirichlet parameters in [0.1, 1].

    Attributes
    ----------
    W : ndarray of shape (s^2 + 1, d)
        ``q(x) = sigmoid(W x)``.
    concentration : ndarray of shape (2^s,)
        Parameters of the Dirichlet law.

    Examples
    --------
    >>> law = CalibratedLaw(n_labels=3, n_features=20, random_state=0)
    >>> sample = law.sample(5, random_state=1)
    >>> sample.X.shape, sample.Y.shape, sample.statistics.joint.shape
    ((5, 20), (5, 3), (5, 3, 3))
    """

    def __init__(
        self, n_labels: int = 6, n_features: int = 100, random_state: int | np.random.Generator = 0
    ) -> None:
        s = check_count("n_labels", n_labels)
        if s > _MAX_LABELS:
            raise ValueError(f"n_labels must be at most {_MAX_LABELS}, got {n_labels}")
        check_count("n_features", n_features, low=s * s + 1)
        rng = np.random.default_rng(random_state)
        self.n_labels, self.n_features = s, n_features
        self.label_sets = all_label_sets(s)
        self.sizes = np.arange(1, s + 1)
        self._code = encode(sp.csr_array(self.label_sets), self.sizes).toarray().astype(float)
        self.W = rng.uniform(size=(s * s + 1, n_features))
        if np.linalg.matrix_rank(self.W) < len(self.W):
            raise ValueError("W does not have full row rank: choose another random_state")
        self._inverse = np.linalg.pinv(self.W)
        self.concentration = rng.uniform(0.1, 1.0, size=2**s)

    def sample(self, n: int, random_state: int | np.random.Generator = 0) -> CalibratedSample:
        """Draw n instances with their labels and true statistics."""
        rng = np.random.default_rng(random_state)
        p = rng.dirichlet(self.concentration, size=check_count("n", n))
        chosen = (p.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1)
        Y = self.label_sets[np.minimum(chosen, len(self.label_sets) - 1)]
        code = p @ self._code
        inner = np.clip(code, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        X = LogisticLoss().link(inner) @ self._inverse.T
        statistics = LabelStatistics.from_code(code, self.sizes, self.n_labels)
        return CalibratedSample(X, Y, statistics)


def make_calibrated(
    n_samples: int = 1000,
    n_labels: int = 6,
    n_features: int = 100,
    *,
    beta: float = 1.0,
    random_state: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.int8], LabelStatistics, float]:
    """Make data for which linear models are optimal and the optimum is known.

    Parameters
    ----------
    n_samples, n_labels, n_features : int
        Numbers of instances, of labels s and of features d, at least ``s^2 + 1``.
    beta : float > 0
        For the Bayes optimum.
    random_state : int
        Of the law and the sample; use :class:`CalibratedLaw` for several samples of one law.

    Returns
    -------
    X : ndarray of shape (n, d)
    Y : int8 ndarray of shape (n, s)
    statistics : LabelStatistics
        The true q(x).
    bayes : float
        The Bayes-optimal F_beta on these instances.

    Examples
    --------
    >>> X, Y, q, bayes = make_calibrated(100, n_labels=3, n_features=10)
    >>> X.shape, Y.shape, 0 < bayes < 1
    ((100, 10), (100, 3), True)
    """
    law_seed, sample_seed = np.random.SeedSequence(random_state).spawn(2)
    law = CalibratedLaw(n_labels, n_features, np.random.default_rng(law_seed))
    sample = law.sample(n_samples, np.random.default_rng(sample_seed))
    return sample.X, sample.Y, sample.statistics, sample.bayes_fbeta(beta)
