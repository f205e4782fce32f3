"""A headless Chromium that a test steers: through its debugging pipe, which needs no port and no package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Nothing answers here, so that whatever a page asks of the network fails.
_NOWHERE = "http://127.0.0.1:9"
_PATIENCE_S = 60.0


def found() -> str | None:
    """The browser's path, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a browser without a network. Use as a context manager.

    ``complaints`` are errors and warnings of its console and exceptions of its scripts, ``requests`` the addresses it
    asked for.
    """

    def __init__(self, path: str, width: int = 1400, height: int = 900) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        reading, self._out = os.pipe()
        self._in, writing = os.pipe()
        arguments = [
            path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--proxy-server={_NOWHERE}", f"--user-data-dir={self._folder.name}", "--remote-debugging-pipe",
            f"--window-size={width},{height}", "about:blank",
        ]  # fmt: skip
        # Chromium reads its commands from 3 and answers on 4; a shell cannot move what is beyond 9.
        moved = [fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (reading, writing)]
        script = f"import os, sys; os.dup2({moved[0]}, 3); os.dup2({moved[1]}, 4); os.execv(sys.argv[1], sys.argv[1:])"
        self._process = subprocess.Popen(
            [sys.executable, "-IS", "-c", script, *arguments],
            pass_fds=moved,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in (reading, writing, *moved):
            os.close(one)
        self._left = b""
        self._number = 0
        self._session: str | None = None
        self._size = width, height
        self._target = self._page()
        self._attach()

    def new_page(self) -> None:
        """Replace the page by a new one, of which nothing is noted yet."""
        old, self._session = self._target, None
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.call("Target.closeTarget", targetId=old)
        self.complaints, self.requests = [], []
        self._attach()

    def _attach(self) -> None:
        self._session = self.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(*self._size)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

    def open(self, path: Path, hash_: str = "") -> None:
        """Show the file ``path`` and wait until it is loaded."""
        self.call("Page.navigate", url=path.as_uri() + hash_)
        deadline = time.monotonic() + _PATIENCE_S
        while self.value("document.readyState + ' ' + location.protocol") != "complete file:":
            assert time.monotonic() < deadline, "the page did not load"
            time.sleep(0.05)

    def resize(self, width: int, height: int) -> None:
        """Another size of the window, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name: str) -> None:
        """``light`` or ``dark``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def scripts(self, on: bool) -> None:
        """Whether pages that are opened from now on may run scripts."""
        self.call("Emulation.setScriptExecutionDisabled", value=not on)

    def value(self, expression: str) -> Any:
        """What the JavaScript ``expression`` is in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click on the first element of ``selector``, with the mouse where it is seen."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'});"
            " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def key(self, name: str) -> None:
        """Press and release a key: ``ArrowDown``, ``Escape``, ``Tab``."""
        code = {"Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}[name]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def screenshot(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def printed(self) -> bytes:
        """The page as it would be printed, as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol and its answer; what the page says meanwhile is noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _page(self) -> str:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            for target in self.call("Target.getTargets")["targetInfos"]:
                if target["type"] == "page":
                    return str(target["targetId"])
            time.sleep(0.1)
        raise AssertionError("the browser opened no page")

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]
            assert ready, "the browser did not answer"
            part = os.read(self._in, 1 << 16)
            assert part, "the browser ended"
            self._left += part
        message, _, self._left = self._left.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told

    def _note(self, event: Mapping[str, Any]) -> None:
        if event.get("sessionId") != self._session:
            return
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(told["entry"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(told["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(told["request"]["url"]))
