"""The library works with NumPy, SciPy and scikit-learn alone, and says what else it needs."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

EXTRAS = (
    "array_api_compat", "array_api_strict", "iterstrat", "matplotlib", "pandas", "polars",
    "pooch", "pyarrow", "rich", "skops", "typer",
)  # fmt: skip


def run_without_extras(code):
    """Run code in a new interpreter in which none of the extras can be imported."""
    program = f"""
        import sys
        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {EXTRAS!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Absent())
    """
    program = textwrap.dedent(program) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_library_needs_no_extra(tmp_path, monkeypatch):
    """One interpreter: what an import loads, what works, and what is said of what is missing."""
    (tmp_path / "d.csv").write_text("x,a\n1.0,1\n")
    monkeypatch.chdir(tmp_path)
    done = run_without_extras(
        """
        # public names are loaded when they are used
        import sys, fbeta
        loaded = {name for name in sys.modules if name.partition(".")[0] in ("fbeta", "sklearn")}
        assert loaded == {"fbeta"}, sorted(loaded)
        assert set(fbeta.__all__) <= set(dir(fbeta))
        from fbeta import *
        assert decode is fbeta.decode is fbeta.decoding.decode
        assert not hasattr(fbeta, "nothing_of_this_name")

        # all of this works
        import numpy as np
        import fbeta.datasets, fbeta.statistics.surrogate, fbeta.linear, fbeta.rivals
        X, Y, q, bayes = fbeta.datasets.make_calibrated(60, n_labels=3, n_features=10)
        clf = fbeta.FBetaClassifier().fit(X, Y)
        assert clf.predict(X).shape == (60, 3)
        assert fbeta.decode(q).shape == (60, 3)
        assert fbeta.FBetaClassifierCV(alphas=(1.0,), cv=2).fit(X, Y).alpha_ == 1.0
        assert fbeta.FBetaClassifier().fit(X, [{"a"}, {"b"}, set()] * 20).predict(X)

        # a missing extra is named
        import fbeta._array
        for function, extra in (
            (lambda: fbeta.datasets.read_csv("d.csv", labels=["a"]), "data"),
            (lambda: fbeta._array.array_namespace(object()), "array-api"),
        ):
            try:
                function()
            except ImportError as error:
                assert f"fbeta[{extra}]" in str(error), error
            else:
                raise AssertionError(f"nothing asks for {extra}")
        """
    )
    assert done.returncode == 0, done.stderr


def test_the_version_needs_no_extra():
    done = run_without_extras("from fbeta.cli import main; main(['--version'])")
    assert done.stdout.startswith("fbeta ")
    assert "the compiled solver" in done.stdout
    assert done.returncode == 0, done.stderr


def test_a_missing_compiled_solver_is_named(monkeypatch):
    from fbeta import cli

    monkeypatch.setattr(cli, "__file__", "/nowhere/fbeta/cli/__init__.py")
    assert "without the compiled solver: it was installed without a C++ compiler" in (
        cli.version_line()
    )


@pytest.mark.slow
def test_the_help_loads_no_command():
    pytest.importorskip("typer", reason="the command line needs the extra cli")
    pytest.importorskip("rich", reason="the command line needs the extra cli")
    program = """if True:
        import sys
        from fbeta.cli import main
        assert main(["--help"]) == 0
        assert not {"numpy", "sklearn", "pandas"} & set(sys.modules)
        from fbeta.cli.app import COMMANDS, load_commands
        commands = load_commands()
        assert list(COMMANDS) == list(commands)
        for name, summary in COMMANDS.items():
            first = commands[name].help.partition(2 * chr(10))[0]
            assert " ".join(first.split()) == summary, first
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "Fit a model" in done.stdout


def test_the_command_line_says_what_it_needs():
    done = run_without_extras("import sys; from fbeta.cli import main; sys.exit(main())")
    assert done.returncode == 2
    assert "fbeta[cli]" in done.stderr
    assert "Traceback" not in done.stderr
