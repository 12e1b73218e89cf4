"""The real files, read by a plain parser that shares no code with the library, and the law."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from fbeta import FBetaClassifier, decode
from fbeta.datasets import (
    CalibratedLaw,
    DatasetError,
    list_datasets,
    load,
    make_calibrated,
    read_mulan,
)
from fbeta.datasets.benchmarks import BENCHMARKS, all_label_sets, file_names
from fbeta.decoding.expected import expected_fbeta
from fbeta.losses import LogisticLoss

from .. import reference
from ..cases import slow_but

# train rows, test rows, features, labels, mean labels per row as published
PUBLISHED = {
    "scene": (1211, 1196, 294, 6, 1.074),
    "yeast": (1500, 917, 103, 14, 4.237),
    "birds": (322, 323, 260, 19, 1.014),
    "medical": (333, 645, 1449, 45, 1.245),
    "enron": (1123, 579, 1001, 53, 3.378),
    "bibtex": (4880, 2515, 1836, 159, 2.402),
    "delicious": (12920, 3185, 500, 983, 19.020),
}
ALL = [*PUBLISHED, "mediamill"]


def plain_parser(arff: Path, xml: Path) -> tuple[list[str], list[str], list[dict], list[dict]]:
    """Give feature names, label names, and for every row the non-zero features and labels."""
    labels = set(re.findall(r'<label name="(.*?)"', xml.read_text()))
    names, kinds, rows, in_data = [], [], [], False
    for line in arff.read_text().splitlines():
        if not line or line[0] == "%" or line.lower().startswith("@relation"):
            continue
        if line.lower() == "@data":
            in_data = True
        elif not in_data:
            declaration = line.split(" ", 1)[1]
            name, kind = re.match(r"(.+) (numeric|\{.*\})$", declaration).groups()
            names.append(name[1:-1].replace("\\'", "'") if name[0] == "'" else name)
            kinds.append(None if kind == "numeric" else kind[1:-1].split(","))
        elif line[0] == "{":
            pairs = (pair.split() for pair in line[1:-1].split(",") if pair)
            rows.append({int(j): word for j, word in pairs})
        else:
            rows.append(dict(enumerate(line.split(","))))
    numbers = [
        {j: float(w) if kinds[j] is None else kinds[j].index(w) for j, w in row.items()}
        for row in rows
    ]
    position = {name: k for k, name in enumerate(n for n in names if n not in labels)}
    place = {name: k for k, name in enumerate(n for n in names if n in labels)}
    X = [{position[names[j]]: v for j, v in row.items() if names[j] in position} for row in numbers]
    Y = [{place[names[j]]: v for j, v in row.items() if names[j] in place} for row in numbers]
    return list(position), list(place), X, Y


def as_array(rows: list[dict], width: int) -> np.ndarray:
    result = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        for j, value in row.items():
            result[i, j] = value
    return result


@pytest.mark.parametrize("name", slow_but(PUBLISHED.keys() - {"bibtex", "delicious"}, PUBLISHED))
def test_sizes_are_those_published(name: str, mulan: Path) -> None:
    n_train, n_test, n_features, n_labels, cardinality = PUBLISHED[name]
    data = load(name, data_home=mulan)
    X_train, Y_train, X_test, Y_test = data.split
    assert X_train.shape == (n_train, n_features)
    assert Y_train.shape == (n_train, n_labels)
    assert X_test.shape == (n_test, n_features)
    assert Y_test.shape == (n_test, n_labels)
    assert data.cardinality == pytest.approx(cardinality, abs=5e-4)
    assert data.name == name
    assert sparse.issparse(data.X) == (name in {"medical", "enron", "bibtex", "delicious"})


@pytest.mark.parametrize("name", slow_but(("yeast", "enron"), PUBLISHED))
def test_same_as_plain_parser(name: str, mulan: Path) -> None:
    xml = mulan / f"{name}.xml"
    for part in ("train", "test"):
        arff = mulan / f"{name}-{part}.arff"
        data = read_mulan(arff, xml)
        features, labels, X, Y = plain_parser(arff, xml)
        assert data.feature_names == tuple(features)
        assert data.label_names == tuple(labels)
        dense = data.X.toarray() if sparse.issparse(data.X) else data.X
        np.testing.assert_array_equal(dense, as_array(X, len(features)))
        np.testing.assert_array_equal(data.Y, as_array(Y, len(labels)))


def test_birds(mulan: Path) -> None:
    codes = load("birds", data_home=mulan)
    onehot = load("birds", data_home=mulan, nominal="onehot")
    assert codes.n_features == 260
    assert onehot.n_features == 271
    assert "Swainson's Thrush" in codes.label_names
    assert codes.feature_names is not None
    assert codes.feature_names[-2:] == ("hasSegments", "location")
    np.testing.assert_array_equal(onehot.X[:, 259:].argmax(axis=1), codes.X[:, 259])
    assert (codes.Y.sum(axis=1) == 0).mean() == pytest.approx(0.44, abs=0.02)


@pytest.mark.parametrize("name", PUBLISHED)
def test_checksums(name: str, mulan: Path) -> None:
    for file, known in zip(file_names(name), BENCHMARKS[name][1], strict=True):
        assert hashlib.sha256((mulan / file).read_bytes()).hexdigest() == known


def test_data_folder_from_the_environment(mulan: Path, monkeypatch) -> None:
    monkeypatch.setenv("FBETA_DATA", str(mulan))
    assert load("scene").n_labels == 6


def test_files_in_a_subfolder(mulan: Path, tmp_path: Path) -> None:
    (tmp_path / "scene").mkdir()
    for file in file_names("scene"):
        (tmp_path / "scene" / file).write_bytes((mulan / file).read_bytes())
    assert load("scene", data_home=tmp_path).n_samples == 2407


def test_a_copy_cut_between_two_rows_is_refused(mulan: Path, tmp_path: Path) -> None:
    for file in file_names("scene"):
        (tmp_path / file).write_bytes((mulan / file).read_bytes())
    path = tmp_path / "scene-test.arff"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    words = r"scene: expected 1211 train and 1196 test rows, .* found 1211 train and 1195 test"
    with pytest.raises(DatasetError, match=words):
        load("scene", data_home=tmp_path)


def test_list_datasets() -> None:
    assert sorted(list_datasets()) == sorted(ALL)


def test_unknown_name() -> None:
    with pytest.raises(DatasetError, match=r"unknown data set 'nope': expected one of \['scene'"):
        load("nope")


def write_mediamill(folder: Path, n_train: int) -> None:
    """Write files of the names, attributes and row counts of Mediamill."""
    names = [f"Att{j + 1}" for j in range(120)]
    labels = [f"Class{j + 1}" for j in range(101)]
    header = "@relation mediamill\n" + "".join(f"@attribute {name} numeric\n" for name in names)
    header += "".join(f"@attribute {name} {{0,1}}\n" for name in labels) + "@data\n"
    row = ",".join(["0.25"] * 120 + ["0", "1"] * 50 + ["0"]) + "\n"
    (folder / "mediamill-train.arff").write_text(header + row * n_train)
    (folder / "mediamill-test.arff").write_text(header + row * 12914)
    tags = "".join(f'<label name="{name}"></label>\n' for name in labels)
    (folder / "mediamill.xml").write_text(f"<labels>\n{tags}</labels>")


@pytest.mark.slow
def test_mediamill_is_ready_for_its_files(tmp_path: Path) -> None:
    write_mediamill(tmp_path, 30993)
    data = load("mediamill", data_home=tmp_path)
    assert data.X_train.shape == (30993, 120)
    assert data.Y_test.shape == (12914, 101)
    assert data.cardinality == 50


@pytest.mark.parametrize("home", [None, "empty"])
def test_mediamill_is_never_downloaded(home: str | None, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("FBETA_DATA", raising=False)
    folder = None if home is None else tmp_path
    with pytest.raises(DatasetError) as error:
        load("mediamill", data_home=folder, base_url="http://127.0.0.1:9")
    message = str(error.value)
    assert "expected mediamill-train.arff, mediamill-test.arff, mediamill.xml in a data" in message
    assert "no checksums are known" in message
    assert (f"not in {tmp_path}" if home else "FBETA_DATA") in message


def test_linear_scores_give_the_true_statistics():
    law = CalibratedLaw(n_labels=4, n_features=30, random_state=3)
    sample = law.sample(200, random_state=4)
    q = LogisticLoss().inverse_link(sample.X @ law.W.T)
    assert np.allclose(q, sample.statistics.to_code(), atol=1e-9)
    assert np.allclose(sample.statistics.cardinality_distribution().sum(axis=1), 1)


def test_labels_follow_the_law():
    sample = CalibratedLaw(n_labels=3, n_features=10, random_state=0).sample(40_000, random_state=1)
    gap = sample.Y.mean(axis=0) - sample.statistics.marginals().mean(axis=0)
    assert np.abs(gap).max() < 0.01


def test_expected_fbeta_is_the_definition():
    rng = np.random.default_rng(0)
    sets = all_label_sets(3)
    from fbeta import LabelStatistics

    p = rng.dirichlet(np.ones(8), size=6)
    q = LabelStatistics.from_distribution(p, sets)
    predictions = sets[rng.integers(0, 8, 6)]
    predictions[0] = 0
    for beta in (0.5, 2.0):
        expected = [reference.expected_fbeta(p[i], sets, predictions[i], beta) for i in range(6)]
        assert np.allclose(expected_fbeta(q, predictions, beta), expected)


def test_bayes_optimum_is_the_best_there_is():
    sample = CalibratedLaw(n_labels=3, n_features=10).sample(300, random_state=2)
    best = decode(sample.statistics, 1.0)
    assert sample.regret(best) == pytest.approx(0, abs=1e-12)
    for y in all_label_sets(3):
        assert sample.expected_fbeta(np.tile(y, (300, 1))) <= sample.bayes_fbeta() + 1e-12


def test_make_calibrated_is_reproducible():
    one, other = (make_calibrated(50, 3, 12, random_state=5) for _ in range(2))
    assert np.array_equal(one[0], other[0])
    assert np.array_equal(one[1], other[1])
    assert one[3] == other[3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 3, 5), "n_features must be at least 10"),
        ((10, 15, 300), "at most 14"),
        ((0, 3, 10), "n must"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_calibrated(*arguments)


def regret_after(law, test, n, seed):
    train = law.sample(n, random_state=seed)
    clf = FBetaClassifier(alpha=1.0, fit_intercept=False).fit(train.X, train.Y)
    return test.regret(clf.predict(test.X))


def test_consistency():
    """The regret, exact on the test points, falls with the sample and is small at 10,000."""
    law = CalibratedLaw(random_state=0)
    test = law.sample(5000, random_state=1)
    regrets = [regret_after(law, test, n, seed=2) for n in (100, 1000, 10_000)]
    assert regrets[0] > 2 * regrets[1] > 4 * regrets[2] > 0
    assert regrets[2] < 0.003


@pytest.mark.slow
def test_consistency_at_a_hundred_thousand():
    law = CalibratedLaw(random_state=0)
    test = law.sample(15_000, random_state=1)
    assert regret_after(law, test, 100_000, seed=2) < 0.001
