"""Options that several commands share: of functions and dataclasses, and how they are read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Any

import typer
from sklearn.model_selection import KFold, cross_val_score

from fbeta.datasets.cells import to_number
from fbeta.datasets.label_columns import LabelColumns
from fbeta.datasets.model_data import ModelInput, TrainingOptions
from fbeta.datasets.table_files import FileFormat
from fbeta.estimators.alpha_search import AlphaSearchCV
from fbeta.estimators.folds import ALPHAS
from fbeta.methods import METHODS
from fbeta.storage.model_files import ModelFileError, load_model

Missing = StrEnum("Missing", ["error", "mean"])
Nominal = StrEnum("Nominal", ["codes", "onehot"])
FormatName = StrEnum("FormatName", ["arff", "csv", "jsonl", "parquet", "svmlight", "tsv", "xlsx"])
Preset = StrEnum("Preset", ["quick", "best"])
UnreadCells = StrEnum("UnreadCells", {"missing": "missing", "error": "raise"})
#: Seconds that the automatic method takes at most, about, unless the user says otherwise.
TIME_LIMIT = 120.0
#: Seconds by the words of ``--preset``.
PRESETS = {"quick": 20.0, "best": 1800.0}
# beyond these, the square of beta is no number any more
LOWEST_BETA, HIGHEST_BETA = 1e-150, 1e150
_TABLE = "Columns of tables (CSV, Excel, Parquet, JSON Lines)"
_ARFF = "ARFF files"
_FILE = "How files are written"


def words(text: str | None) -> tuple[str, ...]:
    """Split the value of an option at its commas."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def number(expected: str, low: float, high: float = inf, whole: bool = False) -> dict[str, Any]:
    """Return the arguments of the option of a number of a range, with the usual digits only."""

    def read(text: Any) -> Any:
        value = to_number(text) if isinstance(text, str) else float(text)
        if value is None or str(text).strip().lower() in ("true", "false"):
            raise typer.BadParameter(f"expected a finite number, found {text!r}")
        if not low <= value <= high or (whole and not value.is_integer()):
            raise typer.BadParameter(f"expected {expected}, found {text!r}")
        return int(value) if whole else value

    return {"parser": read, "metavar": "INTEGER" if whole else "NUMBER"}


def integer(low: int) -> dict[str, Any]:
    """Return the arguments of the option of an integer that is not below another."""
    return number(f"an integer of at least {low}", low, 2**31 - 1, whole=True)


_BETA = number(f"a number from {LOWEST_BETA:g} to {HIGHEST_BETA:g}", LOWEST_BETA, HIGHEST_BETA)
_NOT_NEGATIVE = number("a number that is not negative", 0.0)


def numbers(text: str | None, default: tuple[float, ...], name: str) -> tuple[float, ...]:
    """Read the numbers of an option, none of them negative."""
    if text is None:
        return default
    try:
        found = tuple(_NOT_NEGATIVE["parser"](word) for word in words(text))
    except typer.BadParameter:
        found = ()
    if not found:
        raise ValueError(f"{name}: expected numbers with commas between, found {text!r}")
    return found


def names(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Read the names of an option; none, and one that is not known, are errors."""
    found, listed = words(text), ", ".join(known)
    unknown = [repr(name) for name in found if name not in known]
    if unknown:
        raise ValueError(f"{option}: unknown {', '.join(unknown)}: expected {listed}")
    if not found:
        raise ValueError(f"{option}: expected one or more of {listed}")
    return tuple(dict.fromkeys(found))


def completing(known: Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """Return what completes the last of several names with commas between."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = words(before)
        return [
            f"{before}{comma}{name}"
            for name in known()
            if name.startswith(last) and name not in taken
        ]

    return complete


def option(
    help: str, *names: str, default: Any = None, panel: str | None = None, **more: Any
) -> Any:
    """Make an option with a default, named as the parameter or the field that has it."""
    return typer.Option(default, *names, help=help, rich_help_panel=panel, **more)


def argument(help: str) -> Any:
    """Make an argument."""
    return typer.Argument(..., help=help)


def method_option(help: str, default: str | None = None) -> Any:
    """Make an option of one or more methods; ``{}`` in its help stands for their names."""
    known = completing(lambda: list(METHODS))
    return option(help.format(", ".join(METHODS)), default=default, autocompletion=known)


BETA = option("Above 1 recall counts more, below precision.", default=1.0, **_BETA)
OTHER_BETA = option("Another beta instead of that of the model.", **_BETA)
MODEL = argument("A model of [bold]fbeta fit[/bold].")
MEMORY = option("Read the file in blocks and stay inside this: 2GB. For files or folders.")
JSON = option("Print JSON for scripts.", "--json", default=False)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How the parameters of a method are chosen: a fixed alpha, or folds, jobs and seconds."""

    cv: int | None = option("Number of folds for the choice of alpha (default: 5).", **integer(2))
    alphas: str | None = option("Strengths to choose from: 0.1,1,10 (default: 1e-4 to 1e3)")
    alpha: float | None = option("A fixed strength of regularisation, no folds.", **_NOT_NEGATIVE)
    jobs: int | None = option(
        "Folds that are run at the same time.", "--jobs", "-j", **integer(-(2**30))
    )
    time_limit: float | None = option(
        "Seconds that the method auto may take, about (default: 120).", **_NOT_NEGATIVE
    )
    preset: Preset | None = option("Search for 20 seconds (quick), or half an hour at most (best).")

    @property
    def folds(self) -> int:
        """Number of folds."""
        return self.cv or 5

    @property
    def strengths(self) -> tuple[float, ...]:
        """The alphas to choose from."""
        return numbers(self.alphas, ALPHAS, "--alphas")

    def check(self, model: Any, method: str) -> None:
        """Refuse options that say nothing of a method."""
        if self.preset is not None and self.time_limit is not None:
            raise ValueError("--preset and --time-limit: give one of them")
        # options, and the parameters of methods that have a search of their own
        own = {"alpha": "alpha", "cv": "cv", "alphas": "alpha", "jobs": "n_jobs"}
        own |= {"time_limit": "time_limit", "preset": "time_limit"}
        given = {n: f"--{n.replace('_', '-')}" for n in own if getattr(self, n) is not None}
        known = model.get_params(deep=False)
        limits = [words for name, words in given.items() if own[name] == "time_limit"]
        if "time_limit" not in known and limits:
            raise ValueError(f"{limits[0]}: the method {method} has no time limit, only auto has")
        useless = [words for name, words in given.items() if own[name] not in known]
        if "alpha" not in known and useless:
            raise ValueError(f"{', '.join(useless)}: the method {method} has no alpha")
        others = ", ".join(words for name, words in given.items() if name != "alpha")
        if "alpha" in known and self.alpha is not None and others:
            raise ValueError(f"{others}: with --alpha there is nothing to choose")

    def check_rows(self, rows: int) -> None:
        """Raise before the work begins where there are more folds than rows."""
        if self.alpha is None and self.folds > rows:
            raise ValueError(
                f"--cv {self.folds}: there are only {rows} rows: choose fewer folds, or an --alpha"
            )

    def fit(
        self,
        model: Any,
        *data: Any,
        always_score: bool = False,
        progress: Callable[[Any], None] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Fit an estimator to X and Y, or to blocks; return it, and how alpha was chosen."""
        begin = time.perf_counter()
        alpha, score = self.alpha, None
        known = model.get_params(deep=False)
        if alpha is not None:
            model = model.set_params(alpha=alpha).fit(*data)
        elif "alpha" in known:
            # the search itself is kept: it knows how far to trust what the model expects
            search = AlphaSearchCV(model, alphas=self.strengths, cv=self.folds, n_jobs=self.jobs)
            model = search.fit(*data)
            alpha, score = model.alpha_, model.best_score_
        else:
            limit = TIME_LIMIT if self.time_limit is None else self.time_limit
            limit = PRESETS[self.preset.value] if self.preset else limit
            cv = "auto" if self.folds == 5 and hasattr(model, "candidates") else self.folds
            chosen = {"cv": cv, "n_jobs": self.jobs, "time_limit": limit}
            model = model.set_params(**{k: v for k, v in chosen.items() if k in known})
            told = {"progress": progress} if progress and "time_limit" in known else {}
            model = model.fit(*data, **told)
            score = getattr(model, "best_score_", None)
        if score is None and always_score:
            folds = KFold(self.folds, shuffle=True, random_state=0)
            score = float(cross_val_score(model, *data, cv=folds).mean())
        return model, {"alpha": alpha, "cv_score": score, "seconds": time.perf_counter() - begin}


def _file_format(
    format: FormatName | None = option(
        "By default from the suffix, csv for the standard input (-).", panel=_FILE
    ),
    sep: str | None = option("Between cells; found by default.", panel=_FILE),
    encoding: str | None = option(
        "Of text; UTF-8, UTF-16 and Windows-1252 are found.", panel=_FILE
    ),
) -> FileFormat:
    """Say how a file is written."""
    kind: Any = format
    return FileFormat(kind, sep, encoding)


_SOURCE: Any = _file_format


def _model_opener(
    source: FileFormat = _SOURCE,
    errors: UnreadCells = option(
        "Cells that cannot be read count as missing, or are an error.", default="missing"
    ),
    missing: str | None = option("", hidden=True),
) -> Callable[[Path, Path], ModelInput]:
    """Return what loads a model for a file of rows, and reads them."""

    def open_model(model: Path, data: Path) -> ModelInput:
        if missing is not None:
            raise ValueError(
                "--missing belongs to fbeta fit: the model remembers what becomes of missing values"
            )
        try:
            return ModelInput(load_model(model), source, errors.value)
        except ModelFileError as error:
            if data.suffix != ".skops" or model.suffix == ".skops":
                raise
            raise ValueError(
                f"{model}: expected a model: the model comes first, then the data ({data})"
            ) from error

    return open_model


def _training_options(
    source: FileFormat = _SOURCE,
    labels: Path | None = option("XML file of Mulan that names the labels.", panel=_ARFF),
    n_labels: int | None = option(
        "Number of labels of a MEKA file, negative if they come last.",
        panel=_ARFF,
        **integer(-(2**30)),
    ),
    nominal: Nominal | None = option("Nominal features (default: codes).", panel=_ARFF),
    label_columns: str | None = option("0/1 columns: a,b,c", panel=_TABLE),
    label_prefix: str | None = option("Begin of the names of 0/1 columns.", panel=_TABLE),
    label_column: str | None = option("The column that lists labels by name.", panel=_TABLE),
    delimiter: str | None = option("Between the names in it; found by default.", panel=_TABLE),
    join_labels: bool = option(
        "Names that differ in case, blanks or Unicode form only are one label.",
        "--join-labels",
        default=False,
        panel=_TABLE,
    ),
    text: str | None = option("Columns of text.", panel=_TABLE),
    categorical: str | None = option("Columns of categories.", panel=_TABLE),
    numeric: str | None = option("Columns of numbers.", panel=_TABLE),
    date: str | None = option("Columns of dates.", panel=_TABLE),
    id: str | None = option(
        "Columns that name the rows: no features, but written with predictions.", panel=_TABLE
    ),
    drop: str | None = option("Columns to leave out: a,b", panel=_TABLE),
    missing: Missing | None = option(
        "A missing number is an error, or the mean (default: mean in tables, error in ARFF)."
    ),
) -> TrainingOptions:
    """Say how a training file is read."""
    given = {"text": text, "categorical": categorical, "numeric": numeric, "date": date, "id": id}
    kinds: dict[str, str] = {}
    for kind, columns in given.items():
        for column in words(columns):
            if kinds.setdefault(column, kind) != kind:
                raise ValueError(f"--{kind} {column}: it is in --{kinds[column]}, too")
    names, prefix, one = words(label_columns) or None, label_prefix or None, label_column or None
    return TrainingOptions(
        source,
        labels,
        n_labels,
        LabelColumns(names, prefix, one, delimiter, join=join_labels),
        words(drop),
        kinds,
        missing and missing.value,
        nominal and nominal.value,  # type: ignore[arg-type]
    )


# of parameters whose values these functions make of options
OPEN_MODEL: Any = _model_opener
TRAINING: Any = _training_options
