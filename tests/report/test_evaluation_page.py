"""The page of ``fbeta evaluate --report``, as data and in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import FBetaClassifier, FBetaClassifierCV
from fbeta.cli import main
from fbeta.metrics import averaged_fbeta, fbeta_per_instance
from fbeta.report.evaluation_page import evaluation_page
from fbeta.report.inspection import BETA_GRID, inspect_betas, search_of
from fbeta.report.shell import page
from fbeta.rivals import Limo
from fbeta.storage.model_files import StoredModel, load_model

from ..cli.toys import TEST, TRAIN, write_csv

if TYPE_CHECKING:
    from ..browser import Browser

pytest.importorskip("typer", reason="typer is not installed")
pytest.importorskip("skops", reason="skops is not installed")

EVIL = '</script><script>document.title="pwned"</script><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, test data and their page, made by the command line."""
    folder = tmp_path_factory.mktemp("report")
    train = write_csv(folder / "train.csv", *TRAIN)
    test = write_csv(folder / "test.csv", *TEST)
    model, report = folder / "m.skops", folder / "page.html"
    fit = ["fit", train, "--label-prefix", "is_", "--alphas", "0.1,1,10", "--cv", 3, "-o", model]
    assert main([str(word) for word in fit]) == 0
    assert main(["evaluate", str(model), str(test), "--report", str(report)]) == 0
    return folder


def measured(folder: Path, beta: float, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """What ``fbeta evaluate --beta`` says."""
    capsys.readouterr()
    command = ["evaluate", folder / "m.skops", folder / "test.csv", "--json", "--beta", repr(beta)]
    assert main([str(word) for word in command]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


NUMBERS = """Object.fromEntries([...document.querySelectorAll("[id^=number-]")]
    .map(e => [e.id.slice(7), e.textContent]))"""
TABLE = """[...document.querySelectorAll("#by-label tbody tr")]
    .map(row => [...row.cells].map(cell => cell.textContent))"""


def check_numbers(
    browser: Browser, folder: Path, beta: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare everything that the page shows now with what the command line and metrics say."""
    shown, told = browser.run(NUMBERS), measured(folder, beta, capsys)
    for key in ("fbeta", "precision", "recall", "micro_fbeta", "hamming", "subset_accuracy"):
        assert shown[key] == f"{told[key]:.4f}", key
    stored = load_model(folder / "m.skops")
    predicted, Y = stored.predict(TEST[0], beta), TEST[1]
    assert shown["size"] == f"{predicted.sum(axis=1).mean():.2f}"
    by_label = averaged_fbeta(Y, predicted, beta, average="macro")
    rows = {row[0]: row[1:] for row in browser.run(TABLE)}
    for j, name in enumerate(stored.label_names):
        support, hits, size = Y[:, j].sum(), (Y * predicted)[:, j].sum(), predicted[:, j].sum()
        exact = [support, size, hits / size if size else 1, hits / support, by_label[j]]
        assert [float(cell) for cell in rows[name]] == pytest.approx(exact, abs=5.1e-4)


def test_the_slider_moves_the_numbers(
    browser: Browser, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    browser.open((made / "page.html").as_uri())
    assert browser.run("document.getElementById('beta-value').textContent") == "1"
    check_numbers(browser, made, 1.0, capsys)
    # by the keyboard: from 1, eight steps to the right are one octave
    browser.run("document.getElementById('beta').focus()")
    for _ in range(8):
        browser.press("ArrowRight")
    assert browser.run("document.getElementById('beta-value').textContent") == "2"
    assert browser.run("document.getElementById('beta').getAttribute('aria-valuetext')") == "beta 2"
    check_numbers(browser, made, 2.0, capsys)
    browser.press("Home")
    check_numbers(browser, made, 1 / 8, capsys)
    assert browser.run("location.hash") == "#beta=0.125"
    # by the mouse, at the right end of the slider
    box = browser.run("""(() => { const b = document.getElementById('beta').getBoundingClientRect();
                      return [b.right - 4, b.top + b.height / 2]; })()""")
    browser.click(*box)
    check_numbers(browser, made, 8.0, capsys)
    assert browser.complaints() == []


def test_a_link_opens_at_a_beta(
    browser: Browser, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for asked, beta in (("0.5", 0.5), ("3.9", 4.0), ("1e9", 8.0), ("nonsense", 1.0), ("-2", 1.0)):
        browser.open((made / "page.html").as_uri() + f"#beta={asked}")
        check_numbers(browser, made, beta, capsys)
    # one that is not on the grid: between 2 ** 0.75 and 2 ** 0.625
    browser.follow("#beta=1.6")
    check_numbers(browser, made, 2**0.625, capsys)


def test_everything_else_follows_the_slider(browser: Browser, made: Path) -> None:
    browser.open((made / "page.html").as_uri() + "#beta=4")
    stored, (X, Y) = load_model(made / "m.skops"), TEST
    shown = browser.run("""[...document.querySelectorAll("[data-calibration]")]
                        .filter(e => !e.hidden).map(e => Number(e.dataset.calibration))""")
    assert shown == [BETA_GRID.index(4.0)]
    line = float(browser.run("document.querySelector('.cursor').getAttribute('x1')"))
    browser.follow("#beta=1")
    middle = float(browser.run("document.querySelector('.cursor').getAttribute('x1')"))
    browser.follow("#beta=0.25")
    first = float(browser.run("document.querySelector('.cursor').getAttribute('x1')"))
    assert line - middle == pytest.approx(middle - first, abs=0.02)
    assert line > middle
    rows = browser.run("""["surest", "unsurest"].map(id => [...document.querySelectorAll(
        "#" + id + " tbody tr")].map(row => [...row.cells].map(cell =>
        [...cell.querySelectorAll(".tag")].map(e => e.textContent).join() || cell.textContent)))""")
    expected = stored.expected_fbeta(X, 0.25)
    predicted = stored.predict(X, 0.25)
    actual = fbeta_per_instance(Y, predicted, 0.25)
    for table, order in zip(rows, (np.argsort(-expected), np.argsort(expected)), strict=True):
        assert len(table) == 8
        assert [row[1] for row in table] == [f"{expected[i]:.3f}" for i in order[:8]]
        for number, _, got, true, guessed in table:
            i = int(number) - 1
            assert got == f"{actual[i]:.3f}"
            for words, labels in ((true, Y[i]), (guessed, predicted[i])):
                names = [n for n, on in zip(stored.label_names, labels, strict=True) if on]
                assert words == (",".join(names) or "none")


def test_the_table_sorts(browser: Browser, made: Path) -> None:
    browser.open((made / "page.html").as_uri())
    names = browser.run(f"{TABLE}.map(row => row[0])")
    counts = [int(row[1]) for row in browser.run(TABLE)]
    assert counts == sorted(counts, reverse=True)
    browser.run("document.querySelectorAll('#by-label th button')[0].click()")
    assert browser.run(f"{TABLE}.map(row => row[0])") == sorted(names)
    # by the keyboard, and the other way round
    browser.run("document.querySelectorAll('#by-label th button')[0].focus()")
    browser.press("Enter")
    assert browser.run(f"{TABLE}.map(row => row[0])") == sorted(names, reverse=True)
    browser.run("document.querySelectorAll('#by-label th button')[5].click()")
    scores = [float(row[5]) for row in browser.run(TABLE)]
    assert scores == sorted(scores, reverse=True)
    sorts = browser.run("""[...document.querySelectorAll("#by-label th")]
                        .map(e => e.getAttribute("aria-sort"))""")
    assert sorts == ["none"] * 5 + ["descending"]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_light_and_dark_from_a_phone_to_a_desk(
    browser: Browser, made: Path, width: int, dark: bool
) -> None:
    browser.open((made / "page.html").as_uri(), width=width, dark=dark)
    assert browser.run("innerWidth") == width
    assert browser.fits()
    colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    # it opens offline and asks for nothing but itself
    asked = [address for address in browser.requests() if not address.startswith("data:")]
    assert asked == [(made / "page.html").as_uri()]
    assert browser.complaints() == []
    slider = browser.run("document.getElementById('beta').getBoundingClientRect().width")
    assert slider > 0.9 * (width - 40) or slider > 1000


def test_the_keyboard_reaches_everything(browser: Browser, made: Path) -> None:
    browser.open((made / "page.html").as_uri())
    reached = []
    for _ in range(12):
        browser.press("Tab")
        reached.append(
            browser.run("""[document.activeElement.id || document.activeElement.tagName,
            getComputedStyle(document.activeElement).outlineStyle].join(" ")""")
        )
    assert reached[0].startswith("beta ")
    # where the focus is can be seen; tables that scroll are reached, too
    assert reached.count("BUTTON solid") == 6
    assert reached.count("DIV solid") >= 3


def test_names_from_files_are_text(browser: Browser, tmp_path: Path) -> None:
    X, Y = TRAIN
    names = [EVIL, "half \ud800 a character", "a\x1b[31m & <b>b</b>"]
    clf = FBetaClassifier().fit(X, Y)
    versions = {EVIL: EVIL}
    training = {
        "rows": 80,
        "method": EVIL,
        "searched": {"alphas": [EVIL], "scores": [], "folds": 1},
    }
    stored = StoredModel(clf, tuple(names), None, {}, versions, training)
    text = evaluation_page(stored, *TEST, title=f"{EVIL} on {EVIL}")
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    assert "<img" not in text
    assert text.count("</script>") == 2  # of the data and of the script
    browser.open(path.as_uri())
    assert browser.run("document.title") == f"{EVIL} on {EVIL}"
    assert browser.run("document.querySelectorAll('script, img').length") == 2
    shown = browser.run(f"{TABLE}.map(row => row[0])")
    assert {EVIL, names[2]} < set(shown)
    assert browser.complaints() == []
    # were a script to get into the page after all, it would not be run
    path.write_text(text.replace("</h1>", f"</h1>{EVIL}"), encoding="utf-8")
    browser.open(path.as_uri())
    assert browser.run("document.title") != "pwned"
    assert "Content Security Policy" in "".join(browser.complaints())


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<script.*?</script>|<[^>]+>", " ", html, flags=re.DOTALL).split())


def test_it_says_what_the_model_is_and_how_it_was_chosen(made: Path) -> None:
    text = text_of((made / "page.html").read_text(encoding="utf-8"))
    training = load_model(made / "m.skops").training
    for words in ("FBetaClassifier", "fitted to 80 rows", "measured on 30 rows", "features 4",
                  "labels 3", "scikit-learn", "m.skops on test.csv", "49 values from 0.125 to 8",
                  f"alpha = {training['alpha']:g} was chosen from 3 strengths",
                  f"{training['cv_score']:.4f}, was the highest"):  # fmt: skip
        assert words in text, words


def test_models_from_python() -> None:
    X, Y = TRAIN
    search = FBetaClassifierCV((0.1, 1.0), cv=2).fit(X, Y)
    text = text_of(evaluation_page(StoredModel(search, tuple("abc")), *TEST, title="t"))
    assert f"alpha = {search.alpha_:g} was chosen from 2 strengths" in text
    assert "over 2 folds" in text
    pipeline = make_pipeline(StandardScaler(), FBetaClassifier(beta=1.7)).fit(X, Y)
    html = evaluation_page(StoredModel(pipeline, tuple("abc")), *TEST, title="t")
    assert "steps before it StandardScaler" in text_of(html)
    assert "does not say how its parameters were chosen" in text_of(html)
    # its own beta is on the slider, besides the grid
    data = json.loads(re.findall(r'id="data">(.*?)</script>', html)[0])
    assert data["betas"] == sorted([*BETA_GRID, 1.7])
    assert data["betas"][data["start"]] == 1.7
    given = StoredModel(pipeline, tuple("abc"), training={"alpha": 1.0, "cv_score": None})
    assert "given, not searched" in text_of(evaluation_page(given, *TEST, title="t"))


def test_labels_that_the_model_does_not_know_count() -> None:
    X, Y = TEST
    model = StoredModel(FBetaClassifier().fit(*TRAIN), ("a", "b", "c"))
    wide = np.pad(Y, ((0, 0), (0, 1)), constant_values=1)
    html = evaluation_page(model, X, wide, title="t", unseen=["new"])
    data = json.loads(re.findall(r'id="data">(.*?)</script>', html)[0])
    assert data["labels"] == ["a", "b", "c", "new"]
    assert data["support"][-1] == len(Y)
    at = data["at"][data["start"]]
    assert (at["predicted"][-1], at["hits"][-1]) == (0, 0)
    padded = np.pad(model.predict(X), ((0, 0), (0, 1)))
    assert at["numbers"]["fbeta"] == f"{fbeta_per_instance(wide, padded).mean():.4f}"


def test_a_list_of_what_was_tried_is_shown() -> None:
    clf = FBetaClassifier().fit(*TRAIN)
    clf.leaderboard_ = [
        {"name": "forest <b>", "score": 0.61, "seconds": 1.0, "weight": 0.75},
        {"name": "linear", "score": 0.6, "seconds": 1.0, "weight": 0.25},
        {"name": "other", "score": 0.5, "seconds": 1.0, "weight": 0},
        {"name": "broken", "score": "<i>", "weight": None},
    ]
    html = evaluation_page(StoredModel(clf, tuple("abc")), *TEST, title="t")
    assert "It averages 2 out of 3 models" in text_of(html)
    assert "<td>forest &lt;b&gt;</td><td>0.6100</td><td>0.75</td>" in html
    assert "<td>other</td><td>0.5000</td><td></td>" in html


def test_methods_for_one_beta_and_without_an_expectation(browser: Browser, tmp_path: Path) -> None:
    model = StoredModel(Limo(epochs=2, random_state=0).fit(*TRAIN), tuple("abc"))
    path = tmp_path / "page.html"
    path.write_text(evaluation_page(model, *TEST, title="limo"), encoding="utf-8")
    browser.open(path.as_uri() + "#beta=4")
    assert browser.run("document.getElementById('beta').max") == "0"
    score = model.estimator.score(*TEST)
    assert browser.run("document.getElementById('number-fbeta').textContent") == f"{score:.4f}"
    words = browser.run("document.body.textContent")
    assert "fitted for one beta" in words
    assert "does not estimate the F_beta" in words
    assert browser.complaints() == []


def test_odd_data() -> None:
    X, Y = TRAIN
    empty = np.zeros_like(Y)
    model = StoredModel(FBetaClassifier().fit(X, empty), tuple("abc"))
    views = inspect_betas(model, TEST[0], np.zeros_like(TEST[1]))
    assert all(view.scores["fbeta"] == 1 and view.mean_size == 0 for view in views)
    assert evaluation_page(model, TEST[0][:1], TEST[1][:1], title="one row")


@pytest.mark.parametrize(
    "searched",
    [None, 3, {}, {"alphas": [1.0], "scores": [], "folds": 2}, {"alphas": "x", "scores": "y"},
     {"alphas": [float("nan")], "scores": [1.0], "folds": 2},
     {"alphas": [1.0], "scores": [1.0], "folds": "2"}],
)  # fmt: skip
def test_what_a_file_says_of_its_training_is_checked(searched: Any) -> None:
    assert search_of({"searched": searched}) is None


def test_the_shell_allows_no_script_by_default() -> None:
    assert "script-src 'none'" in page("t", "%TITLE% %STYLE%")
    # content is not a template
    assert "%TITLE% %STYLE%" in page("t", "%TITLE% %STYLE%")
