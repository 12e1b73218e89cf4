"""The recipes of tests and of a release say what they should; `make dist` and the jobs run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def recipe(target):
    """The commands of a target."""
    return re.search(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.MULTILINE)[1]


def pins(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pinned = (Requirement(line) for line in lines if line and not line.startswith("#"))
    return {r.name.lower().replace("_", "-"): next(iter(r.specifier)).version for r in pinned}


def requirements(*extras):
    optional = PROJECT["project"]["optional-dependencies"]
    for line in [*PROJECT["project"]["dependencies"], *(r for e in extras for r in optional[e])]:
        requirement = Requirement(line)
        if requirement.name != "fbeta":
            yield requirement


ALL = ("cli", "plot", "pandas", "polars", "data", "stratify", "array-api", "test")


@pytest.mark.parametrize("requirement", list(requirements(*ALL)), ids=str)
def test_the_oldest_versions_are_the_lowest_that_are_allowed(requirement):
    (lowest,) = (s for s in requirement.specifier if s.operator == ">=")
    pinned = pins("constraints-oldest.txt")[requirement.name.lower().replace("_", "-")]
    oldest, allowed = Version(pinned), Version(lowest.version)
    # 3.6 allows 3.6.1, which may be the first that exists
    assert (oldest.major, oldest.minor) == (allowed.major, allowed.minor)
    assert oldest in requirement.specifier


def test_the_newest_versions_are_allowed():
    newest = pins("constraints.txt")
    for requirement in requirements(*ALL, "docs", "dev", "torch"):
        name = requirement.name.lower().replace("_", "-")
        assert Version(newest[name]) in requirement.specifier, name


def test_all_brings_what_the_commands_and_forms_of_labels_need():
    (everything,) = PROJECT["project"]["optional-dependencies"]["all"]
    assert set(ALL) - {"test"} <= Requirement(everything).extras


def test_tests_run_in_parallel_and_measure_what_they_cover():
    for name in ("test", "test-all"):
        assert "$(PARALLEL)" in recipe(name)
        assert "$(COVERAGE)" in recipe(name)
    covering = r"^COVERAGE := \$\(if \$\(COVER\),--cov=fbeta .*--cov-fail-under=95\)$"
    assert re.search(covering, MAKEFILE, re.MULTILINE)
    assert re.search(r"^PARALLEL := -n \$\(WORKERS\)", MAKEFILE, re.MULTILINE)
    assert PROJECT["tool"]["coverage"]["run"]["source"] == ["fbeta"]
    # nothing is left out but what only a GPU runs, and the archive that a test below unpacks
    assert PROJECT["tool"]["coverage"]["run"]["omit"] == ["*/_triton.py", "*/unpacked/*"]
    assert "omit" not in PROJECT["tool"]["coverage"]["report"]


def test_wheels_for_every_python_and_system():
    yaml = pytest.importorskip("yaml")
    wheels = PROJECT["tool"]["cibuildwheel"]
    wanted = {f"cp3{minor}-*" for minor in (11, 12, 13, 14)} | {"cp314t-*"}
    assert set(wheels["build"]) == wanted
    known = {c.rpartition(" ")[2] for c in PROJECT["project"]["classifiers"] if ":: 3." in c}
    assert known == {"3.11", "3.12", "3.13", "3.14"}
    assert wheels["test-command"] == "python {project}/tests/installed.py"
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    systems = {name.partition("-")[0] for name in jobs["wheels"]["strategy"]["matrix"]["os"]}
    assert systems == {"ubuntu", "macos", "windows"}
    assert jobs["publish"]["needs"] == ["sdist", "wheels"]
    compiled = (ROOT / "src" / "fbeta" / "linear" / "_engine.pyx").read_text(encoding="utf-8")
    assert "freethreading_compatible = True" in compiled


def test_jobs_run_what_developers_run():
    yaml = pytest.importorskip("yaml")
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    commands = {name: [s["run"] for s in job["steps"] if "run" in s] for name, job in jobs.items()}
    assert commands == {"test": [".ci/run"], "oldest": ["make test-oldest"]}
    assert "constraints-oldest.txt" in recipe(re.escape("$(OLDEST)/.installed"))


def test_the_checks_are_the_commands_of_the_readme():
    commands = re.findall(r"^make (.*)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert commands == ["lint", "docs", "test", "test-slow"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^make demo .*\nmake test ", readme, re.MULTILINE)


def test_the_demo_installs_no_more_than_it_needs():
    assert "constraints.txt,cli plot data)" in recipe(re.escape("$(DEMO_STAMP)"))
    command = [sys.executable, "requirements.py", "cli", "plot", "data"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {str(requirement) for requirement in requirements("cli", "plot", "data")}
    assert {str(Requirement(line)) for line in listed.splitlines()} == wanted


def test_requirements_follow_extras_that_name_extras():
    command = [sys.executable, "requirements.py", "dev", "pip"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    extras = PROJECT["project"]["optional-dependencies"]
    every = requirements(*(set(extras) - {"many-labels"}))
    assert set(listed.splitlines()) == {*map(str, every), "pip"} - {"fbeta"}


def test_hooks_check_what_lint_checks():
    yaml = pytest.importorskip("yaml")
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    (repository,) = yaml.safe_load(text)["repos"]
    hooked = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in repository["hooks"]}
    linted = set(re.findall(r"\$\(BIN\)/(\w+)", recipe("lint")))
    assert hooked == linted == {"ruff", "mypy"}


def test_the_configuration_of_pre_commit_is_valid():
    pytest.importorskip("pre_commit")
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The source archive of a release, unpacked."""
    # the first that know the expression of a licence
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("release")
    ignored = shutil.ignore_patterns(".git", ".venv*", "*.so", ".*cache", "site", "__pycache__",
                                     "*.egg-info", "build", "dist", ".hypothesis",
                                     ".coverage*")  # fmt: skip
    shutil.copytree(ROOT, folder / "source", ignore=ignored)
    command = "from setuptools import setup; setup()"
    done = subprocess.run(
        [sys.executable, "-c", command, "sdist", "--formats=tar", "--dist-dir", folder],
        cwd=folder / "source", capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.tar")
    # Python 3.11.2 has no filters
    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    shutil.unpack_archive(path, folder / "unpacked", **safe)
    return next((folder / "unpacked").iterdir())


def test_the_source_archive_is_whole(archive):
    """What a release is made of: everything in it that the build and the tests need."""
    for pattern in ("src/fbeta/**/*.py", "src/fbeta/report/*.*s", "src/fbeta/report/*.html",
                    "src/fbeta/linear/*.[hcp]*", "conftest.py", "tests/**/*.py", "docs/**/*.md",
                    "docs/*.py", "constraints*.txt", ".*.yaml", ".ci/run",
                    ".github/**/*.yml"):  # fmt: skip
        found = {p.relative_to(ROOT).as_posix() for p in ROOT.glob(pattern)}
        found -= {name for name in found if name.endswith((".so", ".pyc", "_engine.cpp"))}
        assert found, pattern
        missing = sorted(name for name in found if not (archive / name).exists())
        assert not missing, missing[:5]


@pytest.mark.slow
def test_the_tests_of_the_archive_collect_without_extras(archive):
    program = """if True:
        import sys, pytest
        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name in ("torch", "onnx", "hypothesis", "typer", "matplotlib", "dask"):
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        sys.meta_path.insert(0, Absent())
        sys.path.insert(0, "src")
        sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests", "src"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=archive, capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert "tests/linear/test_multinomial.py::" in done.stdout
