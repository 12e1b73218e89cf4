"""``fbeta export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fbeta._files import check_output, write_atomically
from fbeta.cli.app import app
from fbeta.cli.console import UserError, mendable
from fbeta.storage.model_files import load_model
from fbeta.storage.onnx_export import to_onnx


@app.command(epilog="Example: [bold]fbeta export model.skops -o model.onnx[/bold]")
def export(
    model: Annotated[Path, typer.Argument(help="A linear or cardinality model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the graph, .onnx.")],
    single: Annotated[
        bool, typer.Option("--float32", help="Take features in single precision.")
    ] = False,
) -> None:
    """Write a model with its exact decode as an ONNX graph."""
    with mendable():
        check_output(output, [model])
        stored = load_model(model)
        features = "float32" if single else "float64"
        try:
            graph = to_onnx(
                stored.estimator,
                label_names=stored.label_names,
                feature_names=stored.feature_names,
                features=features,
            )
        except TypeError as error:
            raise UserError(f"{model}: {error}") from error
        with write_atomically(output) as place:
            place.write_bytes(graph.SerializeToString())
    typer.echo(f"wrote {output}: {len(stored.label_names)} labels", err=True)
