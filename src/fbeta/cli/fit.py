"""``fbeta fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fbeta._files import STDOUT, check_output
from fbeta.cli import options as o
from fbeta.cli.app import app
from fbeta.cli.console import UserError, mendable, print_tried, search_status
from fbeta.cli.fitting import PRESETS, Strategy
from fbeta.cli.reports import print_summary, print_training, training_json
from fbeta.cli.streaming import stream_fit
from fbeta.datasets.training import TrainingOptions, read_training
from fbeta.estimators.alpha_search import ALPHAS
from fbeta.methods import make_method
from fbeta.storage.model_files import save_model


@app.command(
    epilog="Example: [bold]fbeta fit scene-train.arff --labels scene.xml -o model.skops[/bold]"
)
@o.gathers_options
def fit(
    data: Annotated[
        Path,
        typer.Argument(help="CSV, Excel, Parquet, JSON Lines, ARFF or SVMlight file, or -."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the model, or -.")],
    method: o.Method = None,
    beta: o.Beta = 1.0,
    cv: o.Cv = None,
    alphas: o.Alphas = None,
    alpha: o.Alpha = None,
    jobs: o.Jobs = None,
    time_limit: o.TimeLimit = None,
    preset: o.PresetOption = None,
    memory: o.Memory = None,
    checkpoint: o.Checkpoint = None,
    *,
    options: o.DataOptions,
    as_json: o.Json = False,
) -> None:
    """Fit a model to labelled data and store it."""
    strengths = o.numbers(alphas, ALPHAS, "--alphas")
    method = default_method(method, alpha, alphas, memory, checkpoint)
    given = {"--cv": cv, "--alphas": alphas, "--jobs": jobs, "--time-limit": time_limit}
    given["--preset"] = preset
    if preset is not None and time_limit is not None:
        raise UserError("--preset and --time-limit: give one of them")
    seconds = time_limit if preset is None else PRESETS[preset.value]
    strategy = Strategy(alpha, strengths, cv or 5, jobs, seconds)
    with mendable():
        model = make_method(method, beta)
        strategy.check(model, method, given)
    training = options.training
    if memory is None and checkpoint is None:
        title, summary = _fit_whole(data, output, model, training, strategy, as_json)
    else:
        with mendable():
            if str(output) in ("-", STDOUT):
                raise UserError("--memory and --checkpoint: the model goes into a file")
            check_output(output, [data])
            summary = stream_fit(data, output, model, training, strategy, memory, checkpoint)
        title = f"Fitted to {data}"
    tried = summary.pop("leaderboard", [])
    summary = {"model": str(output), "method": method, "beta": beta, **summary}
    printed = str(output) in ("-", STDOUT)
    if as_json and tried:
        summary["leaderboard"] = tried
    print_summary(title, summary, as_json, err=printed)
    if tried and not as_json:
        print_tried(tried, err=printed)


def default_method(method: str | None, *strengths: Any) -> str:
    """Return the method to fit: the automatic one, unless a choice of alpha asks for the paper's.

    Examples
    --------
    >>> default_method(None, None), default_method(None, 0.1), default_method("br", None)
    ('auto', 'fbeta', 'br')
    """
    if method is not None:
        return method
    return "auto" if all(strength is None for strength in strengths) else "fbeta"


def _fit_whole(
    path: Path,
    output: Path,
    model: Any,
    training: TrainingOptions,
    strategy: Strategy,
    as_json: bool,
) -> tuple[str, dict[str, Any]]:
    """Fit to a file that is read whole, and store the model."""
    printed = str(output) in ("-", STDOUT)
    target = STDOUT if printed else output
    with mendable():
        check_output(target, [path, *training.inputs])
        train = read_training(path, training)
        strategy.check_rows(train.data.n_samples)
    if not as_json:
        print_training(train, err=printed)
    data = train.data
    with mendable():
        with search_status() as tell:
            model, found = strategy.fit(model, data, progress=tell)
        save_model(
            target,
            train.whole(model),
            label_names=data.label_names,
            feature_names=train.feature_names,
            reading=train.remembered,
            training={"rows": data.n_samples, **found},
        )
    summary = {"rows": data.n_samples, "features": data.n_features, "labels": data.n_labels}
    tried = getattr(model, "leaderboard_", [])
    return f"Fitted to {path}", {**summary, **found, **training_json(train), "leaderboard": tried}
