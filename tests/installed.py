"""Tries the package as others get it: ``python -m tests.installed dist`` makes a new virtual
environment for each archive of a folder, installs it there and runs ``check`` far from the sources.
``python tests/installed.py`` alone checks what is installed already, as the builder of wheels does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def check() -> None:
    """Fit, predict, and look for everything that a wheel has to have besides modules."""
    import numpy as np

    import fbeta
    from fbeta.datasets import make_calibrated
    from fbeta.linear.compiled import is_compiled
    from fbeta.report.pages import evaluation_page
    from fbeta.storage.model_files import StoredModel

    assert "site-packages" in fbeta.__file__, f"this is not an installed package: {fbeta.__file__}"
    assert (Path(fbeta.__file__).parent / "py.typed").exists()
    X, Y, _, bayes = make_calibrated(400, n_labels=3, n_features=10)
    clf = fbeta.FBetaClassifierCV(alphas=(0.1, 1.0), cv=3).fit(X, Y)
    assert bayes - 0.1 < clf.score(X, Y) < 1
    page = evaluation_page(StoredModel(clf, tuple("abc")), X, np.asarray(Y), title="toy")
    assert page.count("<script") == 2
    assert fbeta.FBetaClassifier().fit(X, [["sea"], ["sky"]] * 200).predict(X[:1])
    if os.environ.get("FBETA_REQUIRE_COMPILED", "") not in ("", "0"):
        assert is_compiled(), "the compiled solver is missing"
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    words = "with" if is_compiled() else "without"
    print(f"fbeta {fbeta.__version__} {words} the compiled solver works on Python "
          f"{sys.version.split()[0]}{'' if gil else ', free-threaded'}")  # fmt: skip


def try_archive(archive: Path, folder: Path) -> None:
    """Install an archive in a new virtual environment, and check it there."""
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([python, *install, f"fbeta[cli] @ {archive.resolve().as_uri()}"], check=True)
    print(archive.name, flush=True)
    # away from the sources, so that what is installed is imported
    subprocess.run([python, "-P", Path(__file__).resolve()], check=True, cwd=folder)
    subprocess.run([python, "-m", "fbeta.cli", "--version"], check=True, cwd=folder)


def main(folder: str) -> None:
    archives = sorted([*Path(folder).glob("*.tar.gz"), *Path(folder).glob("*.whl")])
    assert len(archives) >= 2, f"expected a source archive and a wheel in {folder}"
    for archive in archives:
        with tempfile.TemporaryDirectory() as place:
            try_archive(archive, Path(place))


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) > 1 else check()
