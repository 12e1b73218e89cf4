"""A fit that was killed goes on from its file, and to the same result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from fbeta import FBetaClassifier
from fbeta.blocks import CheckpointError, RowBlocks

from .toys import SMALL, make_rows

PROGRAM = """
import os, signal, sys
import numpy as np
from fbeta import FBetaClassifier
from fbeta.blocks import RowBlocks
folder, last, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def watch(news):
    if news["passes"] == last and news["rows"] > (0 if where == "begin" else 2000):
        os.kill(os.getpid(), signal.SIGKILL)
blocks = RowBlocks(np.load(f"{folder}/X.npy"), np.load(f"{folder}/Y.npy"), memory=200_000,
                   rows=500, checkpoint=f"{folder}/state.npz", progress=watch)
FBetaClassifier(tol=1e-8).fit(blocks)
"""


def fit(X, Y, path=None, **settings):
    settings = {"tol": 1e-8} | settings
    blocks = RowBlocks(X, Y, memory=SMALL, rows=500, checkpoint=path)
    return FBetaClassifier(**settings).fit(blocks), blocks.passes


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.parametrize(("last", "where"), [(1, "begin"), (3, "end"), (4, "begin")])
def test_killed_at_any_moment(tmp_path, last, where):
    X, Y = make_rows()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(last), where],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    path = tmp_path / "state.npz"
    assert path.exists() == (last > 1)
    resumed, passes = fit(X, Y, path)
    whole, all_passes = fit(X, Y)
    np.testing.assert_allclose(resumed.coef_, whole.coef_, rtol=1e-6, atol=1e-7)
    # the first pass is made again, for the rows that are held
    assert passes <= all_passes - max(0, last - 2)
    assert not path.exists()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] in ([], ["."])


def interrupted(path, X, Y, **settings):
    def stop(news):
        if news["passes"] == 3:
            raise KeyboardInterrupt

    blocks = RowBlocks(X, Y, memory=SMALL, rows=500, checkpoint=path, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        FBetaClassifier(tol=1e-8, **settings).fit(blocks)
    assert path.exists()


def test_other_data_or_settings_are_refused(tmp_path):
    X, Y = make_rows()
    path = tmp_path / "state.npz"
    interrupted(path, X, Y)
    other = X.copy()
    other[17, 3] += 1e-3
    flipped = Y.copy()
    flipped[20, 0] ^= 1
    settings = [{"alpha": 2.0}, {"fit_intercept": False}, {"tol": 1e-7}]
    tried = [((other, Y), {}), ((X, flipped), {}), *(((X, Y), own) for own in settings)]
    for args, settings in tried:
        with pytest.raises(CheckpointError, match="other data or with other settings"):
            fit(*args, path, **settings)
    assert path.exists()
    fit(X, Y, path)
    assert not path.exists()


def test_what_is_no_checkpoint_is_refused(tmp_path):
    X, Y = make_rows()
    path = tmp_path / "state.npz"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(CheckpointError, match="no checkpoint"):
        fit(X, Y, path)
    interrupted(tmp_path / "other.npz", X, Y)
    path.write_bytes((tmp_path / "other.npz").read_bytes()[:-200])
    with pytest.raises(CheckpointError, match="no checkpoint"):
        fit(X, Y, path)
