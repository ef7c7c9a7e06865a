"""A headless Chromium for tests, driven over its debugging pipe; needs only the standard library and the browser.

The protocol is the Chrome DevTools Protocol: JSON messages, each ended by a NUL byte, on file descriptors 3 and 4.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT = 90.0

_CODES = {
    " ": ("Space", 32, " "),
    "ArrowLeft": ("ArrowLeft", 37, None),
    "ArrowUp": ("ArrowUp", 38, None),
    "ArrowRight": ("ArrowRight", 39, None),
    "ArrowDown": ("ArrowDown", 40, None),
    "Home": ("Home", 36, None),
    "End": ("End", 35, None),
    "Escape": ("Escape", 27, None),
    "Tab": ("Tab", 9, None),
    "+": ("Equal", 187, "+"),
    "-": ("Minus", 189, "-"),
}


def executable() -> str | None:
    """The browser of this machine, if it has one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser with one page, as a context manager.

    Attributes:
        errors: exceptions, and errors and warnings of the console, in order of arrival.
        requests: addresses that the page requested.
    """

    def __init__(self) -> None:
        path = executable()
        assert path is not None, "ask `executable` first"
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._profile = tempfile.mkdtemp(prefix="localdiff-chromium-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        options += ["--no-first-run", "--disable-extensions", f"--user-data-dir={self._profile}"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", path, *options, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, file: Path) -> float:
        """Load a page and wait until its script has run; returns the seconds from the start of the load until then."""
        self.errors.clear()
        self.requests.clear()
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.wait_for("document.documentElement && document.documentElement.dataset.ready === 'yes'")
        return float(self.evaluate("performance.now()")) / 1000

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + TIMEOUT
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"{condition} never came true; {self.errors}"
            time.sleep(0.02)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code, number, text = _CODES.get(key, (f"Key{key.upper()}", ord(key.upper()[0]), key))
        down: dict[str, Any] = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", **down, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **down)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        place = self.point_at(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def point_at(self, selector: str) -> dict[str, float]:
        """Move the mouse to the middle of an element."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        place = {"x": box[0], "y": box[1]}
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        return place

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """Choose a size, a scheme and a medium."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            assert left > 0, "the browser does not answer"
            if select.select([self._read], [], [], left)[0]:
                data = os.read(self._read, 1 << 20)
                assert data, "the browser is gone"
                self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        self._note(answer.get("method", ""), answer.get("params", {}))
        return answer

    def _note(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"].get("exception", {}).get("description", parameters)))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str(parameters["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
