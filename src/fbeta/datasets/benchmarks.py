"""The benchmark data sets of the multi-label literature, by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fbeta._array import optional_import
from fbeta.datasets._registry import BASE_URL, BENCHMARKS, Benchmark, file_names
from fbeta.datasets.dataset import Dataset
from fbeta.datasets.files import DatasetError, PathLike
from fbeta.datasets.mulan import Nominal, read_mulan

_TIMEOUT = 60


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
        downloader = pooch.HTTPDownloader(timeout=_TIMEOUT, stream=False)
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
