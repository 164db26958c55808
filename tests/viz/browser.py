"""A browser without a window, driven by the DevTools protocol
(https://chromedevtools.github.io/devtools-protocol/).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_PATIENCE_S = 30
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """One page. Errors of its scripts are in `errors`."""

    def __init__(self, socket: Any):
        self._socket = socket
        self._number = 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime"):
            self._call(f"{domain}.enable")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(answer["params"]["exceptionDetails"]))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def open(self, address: str) -> None:
        self._call("Page.navigate", url=address)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """The value of an expression as soon as it is true."""
        end = time.monotonic() + _PATIENCE_S
        while not (found := self.value(expression)):
            assert time.monotonic() < end, (expression, self.errors)
            time.sleep(0.02)
        return found

    def press(self, key: str) -> None:
        code = _CODES.get(key) or ord(key.upper())
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def drag(self, x: float, y: float, to_x: float) -> None:
        """Press the mouse at a point, move it, and let it go."""
        for kind, at in (("mousePressed", x), ("mouseMoved", to_x), ("mouseReleased", to_x)):
            self._call(
                "Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=1,
                clickCount=1,
            )  # fmt: skip

    def picture(self, path: Path) -> None:
        import base64

        found = self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    websocket = pytest.importorskip("websocket")
    program = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium here")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--disable-extensions", "--window-size=1500,900",
                "--remote-debugging-port=0", "--remote-allow-origins=*",
                f"--user-data-dir={folder}", "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            socket = websocket.create_connection(_page_of(Path(folder)), timeout=_PATIENCE_S)
            try:
                yield Browser(socket)
            finally:
                socket.close()
        finally:
            process.kill()
            process.wait()


def _page_of(folder: Path) -> str:
    """Where the first page listens."""
    import urllib.request

    end = time.monotonic() + _PATIENCE_S
    port_file = folder / "DevToolsActivePort"
    while time.monotonic() < end:
        if port_file.exists() and len(lines := port_file.read_text().splitlines()) > 1:
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json") as answer:
                pages = [each for each in json.load(answer) if each["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise AssertionError("the browser did not start")
