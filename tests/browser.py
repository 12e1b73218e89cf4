"""A real Chromium, driven over a pipe by its DevTools protocol: no other package is needed."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--allow-file-access-from-files", "--remote-debugging-pipe",
)  # fmt: skip
KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Home": 36, "Tab": 9, "Enter": 13, " ": 32}


class Browser:
    """One window; pages are opened in it one after the other."""

    def __init__(self, profile: Path, timeout: float = 120) -> None:
        # Chromium reads commands from descriptor 3 and answers on 4, with zeros between them
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (*os.pipe(), *os.pipe())]
        commands, self._to, self._from, answers = ends

        def descriptors() -> None:
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self._process = subprocess.Popen(
            [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(3, 4),
            preexec_fn=descriptors, env={**os.environ, "HOME": str(profile)},
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._timeout = timeout
        self._rest, self._count, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        found = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """Leave nothing behind."""
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], self._timeout)
            assert ready, f"the browser has not answered for {self._timeout} seconds"
            part = os.read(self._from, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command, and return the answer to it; events on the way are kept."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]  # type: ignore[no-any-return]
            self.events.append(answer)

    def open(self, address: str, *, width: int = 1280, dark: bool = False) -> None:
        """Open a page without a network, at a width; one below 500 is that of a phone."""
        phone = width < 500
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=800,
                  deviceScaleFactor=1, mobile=phone)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Network.emulateNetworkConditions", offline=True, latency=0,
                  downloadThroughput=0, uploadThroughput=0)  # fmt: skip
        self.send("Page.navigate", url="about:blank")
        self.wait("about:blank")
        self.events.clear()
        self.send("Page.navigate", url=address)
        self.wait(address)

    def wait(self, address: str) -> None:
        """Wait until a page is loaded, that of a link for example."""
        want, end = address.partition("#")[0], time.monotonic() + self._timeout
        loaded = {f"complete {want}", f"complete {want}index.html"}
        while self._state() not in loaded:
            assert time.monotonic() < end, f"{address} was not loaded"
            time.sleep(0.01)

    def _state(self) -> str:
        try:
            return str(self.run("document.readyState + ' ' + location.href.split('#')[0]"))
        except AssertionError:
            return ""  # the one page is gone and the other not there yet

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page; a promise is waited for."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def follow(self, fragment: str) -> None:
        """Go to another fragment of the page, and wait until it has taken notice."""
        self.run(f"""new Promise(done => {{
            addEventListener("hashchange", () => done(), {{once: true}});
            location.hash = {json.dumps(fragment)};
        }})""")

    def press(self, key: str) -> None:
        """Press and release a key where the focus is."""
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=KEYS[key], **more)  # fmt: skip

    def click(self, x: float, y: float) -> None:
        """Press and release the mouse at a place of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def write(self, text: str) -> None:
        """Write text where the focus is."""
        self.send("Input.insertText", text=text)

    def download(self, folder: Path, script: str) -> str:
        """Evaluate an expression that starts a download, and return the text of its file."""
        self.send("Browser.setDownloadBehavior", behavior="allowAndName",
                  downloadPath=str(folder), eventsEnabled=True)  # fmt: skip
        first = len(self.events)
        self.run(script)
        while True:  # the file is there, and empty, before it is written
            for event in self.events[first:]:
                if event.get("method") == "Browser.downloadProgress":
                    if event["params"]["state"] == "completed":
                        return (folder / event["params"]["guid"]).read_text(encoding="utf-8-sig")
                    assert event["params"]["state"] == "inProgress", event
            self.events.append(self._receive())

    def picture(self) -> str:
        """Return the window as PNG in base64."""
        return str(self.send("Page.captureScreenshot")["data"])

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for, itself included."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [str(e["params"]["request"]["url"]) for e in sent]

    def complaints(self) -> list[str]:
        """Return what the page and the browser said of errors."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e.get("method") in kinds]

    def fits(self) -> bool:
        """Tell whether the page needs no scrolling to the side."""
        root = "document.documentElement"
        return bool(self.run(f"{root}.scrollWidth <= {root}.clientWidth"))
