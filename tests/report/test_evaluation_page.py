"""The page of ``fbeta evaluate --report``, as data and in a real browser."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fbeta import FBetaClassifier, FBetaClassifierCV
from fbeta.cli import main
from fbeta.metrics import averaged_fbeta, fbeta_per_instance
from fbeta.report.evaluation import BETA_GRID, calibration_bins
from fbeta.report.pages import evaluation_page
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


@pytest.mark.slow
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
    got = fbeta_per_instance(Y, stored.predict(X, 4.0), 4.0)
    bins = calibration_bins(stored.expected_fbeta(X, 4.0), got)
    shown = browser.run("""[...document.querySelectorAll("#calibration circle title")]
                        .map(e => e.textContent)""")
    points = [tuple(map(float, words.removeprefix("this model: ").split(", "))) for words in shown]
    exact = [(group["expected"], group["actual"]) for group in bins]
    np.testing.assert_allclose(points, exact, atol=6e-4)
    line = float(browser.run("document.querySelector('.cursor').getAttribute('x1')"))
    browser.follow("#beta=1")
    middle = float(browser.run("document.querySelector('.cursor').getAttribute('x1')"))
    browser.follow("#beta=0.25")
    first = float(browser.run("document.querySelector('.cursor').getAttribute('x1')"))
    assert line - middle == pytest.approx(middle - first, abs=0.5)
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


def test_labels_are_found_by_a_search(browser: Browser, made: Path) -> None:
    browser.open((made / "page.html").as_uri())
    names = set(browser.run(f"{TABLE}.map(row => row[0])"))
    assert len(names) == 3
    browser.run("document.getElementById('search').focus()")
    browser.write(" S")
    found = set(browser.run(f"{TABLE}.map(row => row[0])"))
    assert found == {name for name in names if "s" in name.lower()}
    browser.write("nothing of the kind")
    assert browser.run(TABLE) == []
    browser.run("""(() => { const s = document.getElementById('search'); s.value = '';
                s.dispatchEvent(new Event('input')); })()""")
    assert len(browser.run(TABLE)) == 3


def test_both_tables_are_downloaded(browser: Browser, made: Path, tmp_path: Path) -> None:
    browser.open((made / "page.html").as_uri() + "#beta=2")
    click = "document.querySelector('[data-download=%s]').click()"
    labels = list(csv.reader(io.StringIO(browser.download(tmp_path, click % "labels"))))
    shown = browser.run(TABLE)
    assert labels[0] == ["label", "rows with it", "predicted", "precision", "recall", "F_beta"]
    assert [row[0] for row in labels[1:]] == [row[0] for row in shown]
    for row, cells in zip(labels[1:], shown, strict=True):
        assert [float(cell) for cell in row[1:]] == pytest.approx(
            [float(cell) for cell in cells[1:]], abs=5.1e-4
        )
    rows = list(csv.DictReader(io.StringIO(browser.download(tmp_path, click % "rows"))))
    assert [row["group"] for row in rows] == [
        name for name in ("surest", "unsurest", "overconfident") for _ in range(8)
    ]
    stored = load_model(made / "m.skops")
    predicted = stored.predict(TEST[0], 2.0)
    for row in rows:
        sets = np.flatnonzero(predicted[int(row["row"]) - 1])
        assert row["predicted"] == "; ".join(stored.label_names[j] for j in sets)
    assert browser.complaints() == []


def test_downloads_hold_no_formulas(browser: Browser, tmp_path: Path) -> None:
    stored = StoredModel(FBetaClassifier().fit(*TRAIN), ("=1+1", 'a "b", c', "-x"))
    path = tmp_path / "page.html"
    path.write_text(evaluation_page(stored, *TEST, title="t"), encoding="utf-8")
    browser.open(path.as_uri())
    click = "document.querySelector('[data-download=labels]').click()"
    rows = csv.reader(io.StringIO(browser.download(tmp_path, click)))
    assert {row[0] for row in rows} == {"label", "'=1+1", 'a "b", c', "'-x"}


def test_a_label_is_chosen(browser: Browser, made: Path) -> None:
    browser.open((made / "page.html").as_uri())
    stored, (X, Y) = load_model(made / "m.skops"), TEST
    browser.run("""(() => { const s = document.getElementById('label'); s.value = '1';
                s.dispatchEvent(new Event('change')); })()""")
    titles = browser.run("""[...document.querySelectorAll("#curve circle title")]
                         .map(e => e.textContent)""")
    assert titles[0].startswith(stored.label_names[1] + ": ")
    predicted = stored.predict(X)[:, 1]
    hits = (predicted * Y[:, 1]).sum()
    now = [float(word) for word in titles[-1].removeprefix("now: ").split(", ")]
    assert now == pytest.approx([hits / Y[:, 1].sum(), hits / predicted.sum()], abs=6e-4)
    axes = browser.run("""[...document.querySelectorAll("#curve .grid")].map(e =>
        Math.max(Math.abs(e.x1.baseVal.value - e.x2.baseVal.value),
                 Math.abs(e.y1.baseVal.value - e.y2.baseVal.value)))""")
    assert max(axes) == pytest.approx(min(axes))  # a square
    words = browser.run("document.querySelector('#features').textContent")
    assert "x" in words


def test_wrong_and_missed_tags_have_colours(browser: Browser, made: Path) -> None:
    browser.open((made / "page.html").as_uri())
    colours = browser.run("""["both", "wrong", "missed"].map(kind => {
        const e = document.querySelector(".tag." + kind);
        return e && getComputedStyle(e).color; })""")
    assert None not in colours
    assert len(set(colours)) == 3


def test_ids_and_texts_of_rows_and_words_that_speak_for_a_tag(
    browser: Browser, tmp_path: Path
) -> None:
    words = {"sea": "wave boat", "sky": "cloud star", "town": "street house"}
    rng = np.random.default_rng(0)
    for name, n in (("train.csv", 120), ("test.csv", 60)):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "caption", "tags"])
            for i in range(n):
                tags = rng.choice(list(words), size=rng.integers(1, 3), replace=False)
                caption = [*rng.choice(["old", "new", "near", "with", "of", "photo"], size=4)]
                caption += [rng.choice(words[tag].split()) for tag in tags]
                writer.writerow([f"{name}-{i}", " ".join(caption), ";".join(sorted(tags))])
    train, test, model = (str(tmp_path / n) for n in ("train.csv", "test.csv", "m.skops"))
    page = tmp_path / "page.html"
    fit = ["fit", train, "--label-column", "tags", "--alpha", "1", "-o", model]
    assert main(fit) == 0
    assert main(["evaluate", model, test, "--report", str(page)]) == 0
    browser.open(page.as_uri())
    head = browser.run("[...document.querySelectorAll('#surest th')].map(e => e.textContent)")
    assert head[:3] == ["row", "id", "caption"]
    row = browser.run("[...document.querySelectorAll('#surest td')].map(e => e.textContent)")
    assert row[1] == f"test.csv-{int(row[0]) - 1}"
    assert len(row[2].split()) >= 5
    found = browser.run("[...document.querySelectorAll('#label option')].map(e => e.textContent)")
    for j, tag in enumerate(found):
        browser.run(f"""(() => {{ const s = document.getElementById('label'); s.value = '{j}';
                    s.dispatchEvent(new Event('change')); }})()""")
        spoken = browser.run("document.querySelector('#features').textContent")
        assert all(word in spoken for word in words[tag].split())
    assert browser.complaints() == []


def test_a_classifier_of_data_frames() -> None:
    rng = np.random.default_rng(0)
    words = [
        " ".join(rng.choice(["wave", "boat", "cloud", "star", "street"], 5)) for _ in range(80)
    ]
    frame = pd.DataFrame({"size": rng.normal(size=80), "text": words})
    Y = np.column_stack([frame["size"] > 0, frame["text"].str.contains("wave")]).astype(int)
    stored = StoredModel(FBetaClassifier().fit(frame, Y), ("large", "sea"), ("size", "text"))
    html = evaluation_page(stored, frame, Y, title="t")
    data = json.loads(re.findall(r'id="data">(.*?)</script>', html)[0])
    assert [found[0][0] for found in data["features"]] == ["size", "text: wave"]
    assert data["columns"] == ["text"]
    assert all(row["cells"] == [words[int(number)]] for number, row in data["rows"].items())


@pytest.mark.parametrize("beta", [1e-300, 1e300])
def test_extreme_betas_are_shown(browser: Browser, tmp_path: Path, beta: float) -> None:
    stored = StoredModel(FBetaClassifier().fit(*TRAIN), tuple("abc"))
    path = tmp_path / "page.html"
    text = evaluation_page(stored, *TEST, title="%CONTENT%.csv", beta=beta)
    path.write_text(text, encoding="utf-8")
    browser.open(path.as_uri())
    assert browser.run("document.title") == "%CONTENT%.csv"
    assert "NaN" not in browser.run("document.body.textContent")
    column = 4 if beta > 1 else 3  # F is recall or precision there
    for row in browser.run(TABLE):
        assert row[5] == row[column]
    assert browser.complaints() == []


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
    for _ in range(17):
        browser.press("Tab")
        reached.append(
            browser.run("""[document.activeElement.id || document.activeElement.tagName,
            getComputedStyle(document.activeElement).outlineStyle].join(" ")""")
        )
    assert reached[0].startswith("beta ")
    # where the focus is can be seen; tables that scroll are reached, too
    assert reached.count("BUTTON solid") == 8  # six headings and two downloads
    assert {"search solid", "label solid"} <= set(reached)
    assert reached.count("DIV solid") >= 3


def test_names_from_files_are_text(browser: Browser, tmp_path: Path) -> None:
    X, Y = TRAIN
    names = [EVIL, "half \ud800 a character", "a\x1b[31m & <b>b</b>"]
    clf = FBetaClassifier().fit(X, Y)
    versions = {EVIL: EVIL}
    stored = StoredModel(clf, tuple(names), (EVIL, *"bcd"), {}, versions, {"rows": 80})
    ids = {EVIL: [f"{EVIL} {i}" for i in range(len(TEST[1]))]}
    text = evaluation_page(stored, *TEST, title=f"{EVIL} on {EVIL}", ids=ids, date=EVIL)
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    assert "<img" not in text
    assert text.count("</script>") == 2  # of the data and of the script
    browser.open(path.as_uri())
    assert browser.run("document.title") == f"{EVIL} on {EVIL}"
    assert browser.run("document.querySelectorAll('script, img').length") == 2
    shown = browser.run(f"{TABLE}.map(row => row[0])")
    assert {EVIL, names[2]} < set(shown)
    assert browser.run("document.querySelector('#surest td:nth-child(2)').textContent").startswith(
        EVIL
    )
    assert EVIL in browser.run("document.querySelector('#surest th:nth-child(2)').textContent")
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
    today = datetime.now().astimezone().strftime("%Y-%m-%d")
    for words in (
        f"30 rows, 3 labels, {today}",
        "Click a heading to sort.",
        "FBetaClassifier",
        "fitted to 80 rows",
        "measured on 30 rows",
        "features 4",
        "labels 3",
        "scikit-learn",
        "m.skops on test.csv",
        "49 values from 0.125 to 8",
        f"alpha = {training['alpha']:g} was chosen from 3 regularisation strengths",
        f"{training['cv_score']:.4f}, was the highest",
    ):
        assert words in text, words


def test_models_from_python() -> None:
    X, Y = TRAIN
    search = FBetaClassifierCV((0.1, 1.0), cv=2).fit(X, Y)
    text = text_of(evaluation_page(StoredModel(search, tuple("abc")), *TEST, title="t"))
    assert f"alpha = {search.alpha_:g} was chosen from 2 regularisation strengths" in text
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
