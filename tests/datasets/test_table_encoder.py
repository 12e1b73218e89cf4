"""Tables as features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from fbeta import FBetaClassifier
from fbeta.datasets import TableEncoder
from fbeta.datasets.table_encoder import CategoryColumn, DateColumn, NumberColumn, TextColumn
from fbeta.storage.model_files import ModelFileError, load_model, save_model

from ..storage.test_forged_files import forge_state, node_of

TEXTS = ["red boat", "blue boat", "red sky over a boat", "sky", None, "boat boat boat"] * 10
FRAME = pd.DataFrame(
    {
        "size": [1.0, 2.0, np.nan, 4.0, 5.0, 6.0] * 10,
        "colour": ["red", "blue", "red", None, "blue", "red"] * 10,
        "note": [f"{text} {i}" if text else None for i, text in enumerate(TEXTS)],
        "when": pd.to_datetime([f"2024-01-{1 + i % 28:02d}" for i in range(60)]),
        "id": [f"r{i}" for i in range(60)],
        "same": ["x"] * 60,
    }
)
KINDS = {"colour": "categorical", "note": "text"}
Y = np.column_stack([FRAME["colour"] == "red", FRAME["size"] > 3]).astype(int)


def test_every_column_becomes_what_it_should() -> None:
    encoder = TableEncoder(KINDS).fit(FRAME)
    kinds = [type(part) for part in encoder.parts_]
    none = type(None)
    assert kinds == [NumberColumn, CategoryColumn, TextColumn, DateColumn, none, none]
    X = encoder.transform(FRAME)
    assert isinstance(X, sparse.csr_array)
    names = encoder.get_feature_names_out().tolist()
    assert X.shape == (60, len(names))
    dense = pd.DataFrame(X.toarray(), columns=names)
    size = FRAME["size"].fillna(FRAME["size"].mean())
    np.testing.assert_allclose(dense["size"], (size - size.mean()) / size.std(ddof=0))
    np.testing.assert_array_equal(dense["size is missing"], FRAME["size"].isna())
    np.testing.assert_array_equal(dense["colour=red"], FRAME["colour"] == "red")
    np.testing.assert_array_equal(dense["colour is missing"], FRAME["colour"].isna())
    texts = FRAME["note"].fillna("").tolist()
    oracle = TfidfVectorizer(sublinear_tf=True, strip_accents="unicode", min_df=2)
    expected = pd.DataFrame(
        oracle.fit_transform(texts).toarray(),
        columns=[f"note: {term}" for term in oracle.get_feature_names_out()],
    )
    pd.testing.assert_frame_equal(dense[expected.columns], expected)
    days = (FRAME["when"] - pd.Timestamp("1970-01-01")).dt.days
    np.testing.assert_allclose(dense["when: days"], (days - days.mean()) / days.std(ddof=0))
    weekdays = dense.groupby(FRAME["when"].dt.day_of_week)[["when: week sin", "when: week cos"]]
    assert (weekdays.std().fillna(0) < 1e-9).all(axis=None)


def test_columns_are_matched_by_name_and_new_values_are_no_trouble() -> None:
    encoder = TableEncoder(KINDS).fit(FRAME)
    mixed = FRAME[FRAME.columns[::-1]].assign(other=1)
    same = encoder.transform(mixed)
    np.testing.assert_array_equal(same.toarray(), encoder.transform(FRAME).toarray())
    new = FRAME.iloc[:1].assign(colour="green", note="nothing known", size=None, when=None)
    row = encoder.transform(new).toarray()[0]
    names = encoder.get_feature_names_out().tolist()
    assert [names[j] for j in np.flatnonzero(row) if "when" not in names[j]] == ["size is missing"]
    with pytest.raises(ValueError, match="lacks the columns \\['note'\\]"):
        encoder.transform(FRAME.drop(columns="note"))
    with pytest.raises(ValueError, match="X has 2 features, but TableEncoder is expecting 6"):
        encoder.transform(FRAME.to_numpy()[:, :2])


def test_trees_of_scikit_learn_take_sparse_features() -> None:
    X = TableEncoder(KINDS).fit_transform(FRAME)
    assert X.indices.dtype == X.indptr.dtype == np.int32
    DecisionTreeClassifier().fit(X, np.arange(len(FRAME)) % 2)


def test_the_order_of_day_and_month_is_told() -> None:
    frame = pd.DataFrame({"when": ["31/12/24", "30/12/24", "12/29/24"]})
    with pytest.raises(ValueError, match="row 3: expected a date with the day before the month, f"):
        TableEncoder({"when": "date"}).fit(frame).transform(frame)


def test_all_bad_cells_are_told_together() -> None:
    encoder = TableEncoder(KINDS).fit(FRAME)
    broken = FRAME.astype(object)
    broken.loc[3, "size"], broken.loc[5, "when"] = "large", "yesterday"
    words = (
        r"'size', row 4: expected a number, found 'large'; column 'when', row 6: expected a date"
    )
    with pytest.raises(ValueError, match=words):
        encoder.transform(broken)
    broken["size"] = [{"a": 1}] * len(broken)
    with pytest.raises(ValueError, match=r"'size', row 1: expected a number, found \"{'a': 1}\""):
        encoder.transform(broken)
    with pytest.raises(ValueError, match="'a' holds a list, 'b' holds a dict"):
        TableEncoder().fit(pd.DataFrame({"a": [["x"]], "b": [{}], "c": [1]}))
    with pytest.raises(ValueError, match="columns that are not there: \\['x'\\]"):
        TableEncoder({"x": "text"}).fit(FRAME)
    with pytest.raises(ValueError, match="of the same name"):
        TableEncoder().fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(ValueError, match="rows and columns"):
        TableEncoder().fit(np.zeros(3))


def test_wide_tables_are_sparse_and_narrow_ones_dense() -> None:
    narrow = TableEncoder().fit_transform(FRAME[["size", "colour"]])
    assert isinstance(narrow, np.ndarray)
    many = pd.DataFrame({"c": [f"v{i % 1200}" for i in range(2400)], "x": range(2400)})
    wide = TableEncoder({"c": "categorical", "x": "numeric"}).fit_transform(many)
    assert isinstance(wide, sparse.csr_array)
    assert wide.shape == (2400, 1001), "the thousand most frequent"


def test_odd_tables() -> None:
    empty = TableEncoder().fit(pd.DataFrame({"a": ["x"] * 3, "b": [None] * 3}))
    assert empty.transform(pd.DataFrame({"a": ["y"], "b": [1]})).shape == (1, 0)
    only = TableEncoder({"a": "text"}).fit(pd.DataFrame({"a": ["", None]}))
    assert only.transform(pd.DataFrame({"a": ["word"]})).shape == (1, 0)
    once = TableEncoder({"a": "categorical"}).fit(pd.DataFrame({"a": ["x", "y"]}))
    assert once.transform(pd.DataFrame({"a": ["x"]})).shape == (1, 0)
    nothing = TableEncoder({"a": "numeric", "b": "date"}).fit(
        pd.DataFrame({"a": [None], "b": [None]})
    )
    assert np.isfinite(nothing.transform(pd.DataFrame({"a": [1.0], "b": ["2024-01-01"]}))).all()


def test_it_is_an_estimator() -> None:
    encoder = TableEncoder({"size": "numeric"})
    assert clone(encoder).get_params() == {"kinds": {"size": "numeric"}}
    model = make_pipeline(TableEncoder(KINDS), FBetaClassifier()).fit(FRAME, Y)
    assert model.score(FRAME, Y) > 0.9


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    pytest.importorskip("skops", reason="skops is not installed")
    path = tmp_path_factory.mktemp("table") / "m.skops"
    model = make_pipeline(TableEncoder(KINDS), FBetaClassifier()).fit(FRAME, Y)
    save_model(path, model)
    loaded = load_model(path)
    assert loaded.feature_names == tuple(FRAME.columns)
    np.testing.assert_array_equal(loaded.predict(FRAME), model.predict(FRAME))
    np.testing.assert_array_equal(loaded.predict_proba(FRAME), model.predict_proba(FRAME))
    return path.read_bytes()


def part(name: str) -> Any:
    return lambda state: node_of(state, lambda node: node.get("fbeta") == name)


FORGED: list[tuple[str, str, Any]] = [
    ("NumberColumn", "scale", 0.0),
    ("NumberColumn", "mean", "1"),
    ("NumberColumn", "decimal", "x"),
    ("CategoryColumn", "values", {"tuple": ["a", "a"]}),
    ("CategoryColumn", "values", {"tuple": [1]}),
    ("CategoryColumn", "values", ["a"]),
    ("TextColumn", "terms", {"tuple": ["one"]}),
    ("TextColumn", "terms", {"tuple": []}),
    ("TextColumn", "idf", None),
    ("DateColumn", "order", "xyz"),
    ("DateColumn", "means", {"tuple": []}),
    ("DateColumn", "fill", float("nan")),
]


@pytest.mark.parametrize(("name", "key", "value"), FORGED)
def test_forged_columns_are_refused(
    stored: bytes, tmp_path: Path, name: str, key: str, value: Any
) -> None:
    def change(state: Any) -> None:
        part(name)(state)["params"][key] = value

    path = tmp_path / "m.skops"
    path.write_bytes(forge_state(stored, change))
    with pytest.raises(ModelFileError, match="does not fit together"):
        load_model(path)


def test_parts_of_another_kind_are_refused(stored: bytes, tmp_path: Path) -> None:
    def change(state: Any) -> None:
        part("TableEncoder")(state)["state"]["parts_"] = {"tuple": [1, 2]}

    path = tmp_path / "m.skops"
    path.write_bytes(forge_state(stored, change))
    with pytest.raises(ModelFileError, match="do not fit its columns"):
        load_model(path)


def test_a_file_has_words_and_numbers_only(stored: bytes) -> None:
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(stored)) as archive:
        text = archive.read("model.json").decode()
    assert "boat" in text
    # no pattern, no function, no transformer that could be told to read files
    assert "token_pattern" not in text
    assert "sklearn" not in text
