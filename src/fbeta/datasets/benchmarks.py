"""The benchmark data sets of the multi-label literature, by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fbeta._array import optional_import
from fbeta.datasets.dataset import Dataset, DatasetError, PathLike
from fbeta.datasets.mulan import Nominal, read_mulan

_TIMEOUT_SECONDS = 60
BASE_URL = "https://raw.githubusercontent.com/tsoumakas/mulan/master/data/multi-label"


@dataclass(frozen=True)
class Benchmark:
    """What is known of one data set.

    Parameters
    ----------
    n_train, n_test, n_features, n_labels : int
        Its size; nominal attributes count as one feature.
    sha256 : mapping from str to str
        Checksum of each file; empty where none is known, and nothing is downloaded then.
    """

    n_train: int
    n_test: int
    n_features: int
    n_labels: int
    sha256: Mapping[str, str] = field(default_factory=dict)


def file_names(name: str) -> tuple[str, str, str]:
    """Name the training, test and label file of a data set."""
    return f"{name}-train.arff", f"{name}-test.arff", f"{name}.xml"


def _known(name: str, size: tuple[int, int, int, int], *sha256: str) -> Benchmark:
    return Benchmark(*size, dict(zip(file_names(name), sha256, strict=True)))


BENCHMARKS: Mapping[str, Benchmark] = {
    "scene": _known(
        "scene",
        (1211, 1196, 294, 6),
        "b53ba93bdf412de922e3960389bcee24744fa3e872ce610511fc1d750888b64d",
        "ea38d20296b3ff7e220f477a3b802a9bcb2d768881fe6ee163efbc97ea527a42",
        "55d8b247b949ad5c52e5a73d8c6775ec6e5469ce9682465b45b333b68ee4bcc5",
    ),
    "yeast": _known(
        "yeast",
        (1500, 917, 103, 14),
        "e759dc991ff54694a4ff9c4314f3be0d6fd2b1994a4b563f57e416394c6aebbd",
        "4aaac102bff9669a765bf0b378602e5cc8c3b181048282e2f003117b496d552a",
        "c3056cc26444b5158b1588d1b73bec9c45429e10f0957ad085903423cb81f247",
    ),
    "birds": _known(
        "birds",
        (322, 323, 260, 19),
        "8f215db6ee163149901e753977f631ba8bea0e0e8e1abc42b234414822f8ae36",
        "51ba6326d65ccdd7c755b6461280eb6d2769c7f59d8e12fd4250f91e6ca28326",
        "0f4ea547b2b3d538c8402662daf689e0d4520cc8b4f5ba113c2e7c01700f010f",
    ),
    "medical": _known(
        "medical",
        (333, 645, 1449, 45),
        "c764f45756ab1c553b8b4eaaf5605a5610a43bbbcf37492d0f1a12bf9c9e2244",
        "6be472e75a6c0b0916187f343a398011b1b26f8f0ddc682c575312ad3532f6c4",
        "51fa9d5c09e48caff3f0a0c75db1c9aa85944f8e35451f3ad8bd56fc422286ce",
    ),
    "enron": _known(
        "enron",
        (1123, 579, 1001, 53),
        "2988cefc1cdf7a8004a20ef84615cc8fa1b5d7434c16687283b41454e2d9d194",
        "2f3aad54a8f54caaab4ab01246fe9dd385ba944a2633028f52747b57eac5474e",
        "ed40c92d7f613eed51714912cab10dddc4ce456262137d8fef230d44c7f4457b",
    ),
    "mediamill": Benchmark(30993, 12914, 120, 101),
    "bibtex": _known(
        "bibtex",
        (4880, 2515, 1836, 159),
        "8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174",
        "9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922",
        "08fe20013c1e75dcf1888c185f5187c95e76495b8518ce289b4d3afce38d1232",
    ),
    "delicious": _known(
        "delicious",
        (12920, 3185, 500, 983),
        "030186cdb542ebdd32052fcdbb1ebe30115b3a22518c1b4b198c45eb827aebe1",
        "2dfb01723a819914b0ca83361177ed413ce3f2169851d9f228d4692915d63944",
        "4e0c0f93c7d86a39b9fca4aaefaa00e9428f2c80277732dfbf03ca48e2c14da2",
    ),
}


def list_datasets() -> tuple[str, ...]:
    """Name the data sets that `load` knows.

    Returns
    -------
    tuple of str
        The names, roughly from small to large.

    Examples
    --------
    >>> from fbeta.datasets import list_datasets
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

    The three files ``NAME-train.arff``, ``NAME-test.arff`` and ``NAME.xml`` are taken from
    `data_home`, directly or from its subfolder ``NAME``. If they are not all there, they
    are downloaded once into `cache` and checked against known SHA-256 checksums. A data
    set without known checksums (mediamill) is never downloaded: put its files into a data
    folder.

    Parameters
    ----------
    name : str
        One of `list_datasets`.
    data_home : path, optional
        Folder with the files; the environment variable ``FBETA_DATA`` by default.
    cache : path, optional
        Folder for downloads; the environment variable ``FBETA_CACHE`` by default, else
        the user's cache folder.
    base_url : str, optional
        Where ``NAME/NAME-train.arff`` and so on are to be found; the environment variable
        ``FBETA_DATA_URL`` by default, else the repository of the Mulan project.
    download : bool
        Whether files may be downloaded. What the cache holds is used either way.
    nominal : {"codes", "onehot"}
        What becomes of nominal features, as in `read_mulan`; only birds has one with more
        than two values.

    Returns
    -------
    Dataset
        Train and test rows, and the split.

    Raises
    ------
    DatasetError
        If the name is unknown, or the files are absent, broken or of the wrong size.
    ImportError
        If an optional dependency is needed that is not installed.

    Examples
    --------
    >>> from fbeta.datasets import load
    >>> load("yeast")  # doctest: +SKIP
    Dataset('yeast', 2417 samples, 103 features, 14 labels, 1500 train + 917 test)
    """
    if name not in BENCHMARKS:
        raise DatasetError(f"unknown data set {name!r}: expected one of {list(BENCHMARKS)}")
    home = data_home or os.environ.get("FBETA_DATA")
    files = _find(name, Path(home)) if home else None
    if files is None:
        url = base_url or os.environ.get("FBETA_DATA_URL") or BASE_URL
        files = _fetch(name, cache, url, download, home)
    train, test, xml = files
    data = read_mulan(train, xml, test=test, nominal=nominal, name=name)
    _check_size(data, train.parent, BENCHMARKS[name], nominal)
    return data


def _find(name: str, folder: Path) -> list[Path] | None:
    for place in (folder, folder / name):
        files = [place / file for file in file_names(name)]
        if all(file.is_file() for file in files):
            return files
    return None


def _fetch(
    name: str, cache: PathLike | None, url: str, download: bool, home: PathLike | None
) -> list[Path]:
    """Give the cached files, downloading those that are absent or damaged."""
    checksums = BENCHMARKS[name].sha256
    wanted = ", ".join(file_names(name))
    where = f"not in {os.fspath(home)}" if home else "no data_home or FBETA_DATA given"
    if not checksums:
        raise DatasetError(
            f"{name}: expected {wanted} in a data folder ({where}); they are not downloaded, "
            "because no checksums are known for them"
        )
    pooch: Any = optional_import("pooch", "data", f"loading {name} without a data folder")
    folder = Path(cache or os.environ.get("FBETA_CACHE") or pooch.os_cache("fbeta")) / name
    files = []
    for file, checksum in checksums.items():
        path = folder / file
        # pooch compares the checksum of a cached file each time, so damage shows here.
        if not download and not (path.is_file() and pooch.file_hash(str(path)) == checksum):
            raise DatasetError(f"{name}: expected {wanted} in a data folder ({where}) or {folder}")
        files.append(_retrieve(pooch, f"{url.rstrip('/')}/{name}/{file}", checksum, path))
    return files


def _retrieve(pooch: Any, url: str, checksum: str, path: Path) -> Path:
    """Download one file unless it is there already, and only keep it if it is whole."""
    downloader = None
    if url.startswith("http"):
        # Streaming would leave the connection open after a refusal such as 404.
        downloader = pooch.HTTPDownloader(timeout=_TIMEOUT_SECONDS, stream=False)
    try:
        pooch.retrieve(
            url,
            known_hash=f"sha256:{checksum}",
            fname=path.name,
            path=path.parent,
            downloader=downloader,
        )
    # Network and HTTP failures are OSErrors; a wrong checksum is a ValueError.
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"{url}: expected a file with SHA-256 {checksum}, but the download failed: {error}"
        ) from error
    return path


def _check_size(data: Dataset, folder: Path, known: Benchmark, nominal: Nominal) -> None:
    """Refuse files of the right name but the wrong content, such as a cut-off copy."""
    assert data.train is not None
    assert data.test is not None
    # One-hot columns are not counted in the known size.
    n_features = data.n_features if nominal == "codes" else known.n_features
    found = (data.train.size, data.test.size, n_features, data.n_labels)
    expected = (known.n_train, known.n_test, known.n_features, known.n_labels)
    if found != expected:
        words = "{} train and {} test rows, {} features, {} labels"
        raise DatasetError(
            f"{folder}, {data.name}: expected {words.format(*expected)}, "
            f"found {words.format(*found)}"
        )
