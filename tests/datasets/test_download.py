"""Downloads, from a server on this machine that can misbehave on request."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from fbeta.datasets import DatasetError, benchmarks, load

pytest.importorskip("pooch", reason="pooch is not installed")

HEADER = "@relation toy\n@attribute x numeric\n@attribute A {0,1}\n@data\n"
FILES = {
    "toy-train.arff": (HEADER + "1,0\n2,1\n3,1\n").encode(),
    "toy-test.arff": (HEADER + "4,0\n").encode(),
    "toy.xml": b'<labels><label name="A"/></labels>',
}


@pytest.fixture
def server(monkeypatch) -> Iterator[SimpleNamespace]:
    """A benchmark called toy and a server that has it; `damage` spoils the test file."""
    sha256 = tuple(hashlib.sha256(body).hexdigest() for body in FILES.values())
    monkeypatch.setattr(benchmarks, "BENCHMARKS", {"toy": ((3, 1, 1, 1), sha256)})
    for variable in ("FBETA_DATA", "FBETA_DATA_URL", "FBETA_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    state = SimpleNamespace(damage="none", requests=[], url="")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.path)
            folder, _, name = self.path.strip("/").partition("/")
            body = FILES[name] if folder == "toy" else b""
            damage = state.damage if name == "toy-test.arff" else "none"
            if damage == "absent":
                self.send_error(404)
                return
            sent = {"short": body[:-3], "cut": body[:-3], "corrupt": body.replace(b"4", b"5")}
            self.send_response(200)
            # "short" claims the full length and hangs up early; "cut" looks complete.
            length = len(body) if damage == "short" else len(sent.get(damage, body))
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(sent.get(damage, body))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        state.url = f"http://127.0.0.1:{http.server_address[1]}"
        yield state
        http.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def leaves_no_connection_open() -> Iterator[None]:
    """Let a forgotten socket warn in the test that forgot it, not in a later one."""
    yield
    gc.collect()


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_download_once(server, tmp_path: Path) -> None:
    data = load("toy", cache=tmp_path, base_url=server.url + "/")
    assert repr(data) == "Dataset('toy', 4 samples, 1 features, 1 labels, 3 train + 1 test)"
    assert data.X.tolist() == [[1], [2], [3], [4]]
    assert files_in(tmp_path) == sorted(FILES)
    assert sorted(server.requests) == sorted(f"/toy/{name}" for name in FILES)
    load("toy", cache=tmp_path, base_url=server.url)
    load("toy", cache=tmp_path, download=False)
    assert len(server.requests) == 3


def test_places_from_the_environment(server, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("FBETA_DATA_URL", server.url)
    monkeypatch.setenv("FBETA_CACHE", str(tmp_path))
    assert load("toy").n_samples == 4
    assert files_in(tmp_path) == sorted(FILES)


def test_data_folder_without_the_files_falls_back_to_the_cache(server, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "toy.xml").write_text("not all three files are here")
    data = load("toy", data_home=tmp_path / "home", cache=tmp_path / "cache", base_url=server.url)
    assert data.n_samples == 4


@pytest.mark.parametrize("damage", ["short", "cut", "corrupt", "absent"])
def test_damage_leaves_nothing_behind_and_a_new_try_works(
    server, tmp_path: Path, damage: str
) -> None:
    server.damage = damage
    with pytest.raises(DatasetError) as error:
        load("toy", cache=tmp_path, base_url=server.url)
    url = f"{server.url}/toy/toy-test.arff"
    assert str(error.value).startswith(f"{url}: expected a file with SHA-256 ")
    if damage == "absent":
        assert "404" in str(error.value)
    assert files_in(tmp_path) == ["toy-train.arff"]
    assert (tmp_path / "toy" / "toy-train.arff").read_bytes() == FILES["toy-train.arff"]
    server.damage = "none"
    assert load("toy", cache=tmp_path, base_url=server.url).n_samples == 4
    assert files_in(tmp_path) == sorted(FILES)


def test_a_damaged_cache_is_renewed(server, tmp_path: Path) -> None:
    load("toy", cache=tmp_path, base_url=server.url)
    (tmp_path / "toy" / "toy-test.arff").write_bytes(b"damaged")
    with pytest.raises(DatasetError, match=r"expected toy-train\.arff, toy-test\.arff, toy\.xml"):
        load("toy", cache=tmp_path, download=False)
    assert load("toy", cache=tmp_path, base_url=server.url).n_samples == 4
    assert (tmp_path / "toy" / "toy-test.arff").read_bytes() == FILES["toy-test.arff"]


def test_no_server(server, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"127\.0\.0\.1:9/toy/toy-train\.arff: expected a file"):
        load("toy", cache=tmp_path, base_url="http://127.0.0.1:9")
    assert files_in(tmp_path) == []


def test_not_a_url(server, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nowhere/toy/toy-train\.arff: expected a file"):
        load("toy", cache=tmp_path, base_url="nowhere")


def test_download_refused(server, tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as error:
        load("toy", data_home=tmp_path, cache=tmp_path, download=False)
    assert f"in a data folder (not in {tmp_path}) or {tmp_path / 'toy'}" in str(error.value)
    assert server.requests == []
