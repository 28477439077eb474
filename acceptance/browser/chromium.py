"""A headless Chromium without network, controlled through a pipe (DevTools protocol)."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome-headless-shell")
_FIRST_FD = 20
_SECONDS = 60.0
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--proxy-server=127.0.0.1:9",  # nothing listens there, so no request leaves the machine
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # only our own server is reached
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """The browser that `$BROWSER_BINARY` names, else the first that is installed."""
    chosen = os.environ.get("BROWSER_BINARY")
    return chosen or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser process. Use it in a `with` statement."""

    def __init__(self, binary: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sessiontree-browser-")
        theirs_in, ours_out = _pipe()
        ours_in, theirs_out = _pipe()

        def connect() -> None:
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
        command = [binary, *_FLAGS, *sandbox, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(3, 4),
            preexec_fn=connect,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        for _attempt in range(50):  # its children may still write for a moment
            try:
                self._folder.cleanup()
                return
            except OSError:
                time.sleep(0.1)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that arrive meanwhile are stored."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _SECONDS
        while True:
            # A page that grows sends events all the time, so the limit holds for the answer and not for each message.
            if time.monotonic() > end:
                raise TimeoutError(f"the browser did not answer {method} {str(parameters)[:200]}")
            answer = self._receive(_SECONDS)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def wait_for(self, is_meant: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for the first event of a kind, including stored ones."""
        seen = 0
        while True:
            for event in self.events[seen:]:
                if is_meant(event):
                    return event
            seen = len(self.events)
            self._receive(_SECONDS)

    def settle(self, seconds: float = 0.3) -> None:
        """Receive messages for some time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if b"\0" in self._buffer or select.select([self._in], [], [], left)[0]:
                self._receive(left)

    def _receive(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], seconds)[0]:
                raise TimeoutError("the browser did not respond")
            data = os.read(self._in, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self._buffer += data
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self.events.append(message)
        return message


def _pipe() -> tuple[int, int]:
    """A pipe whose ends have numbers that the browser's own two do not collide with."""
    ends = []
    for end in os.pipe():
        ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD))
        os.close(end)
    return ends[0], ends[1]


class Page:
    """A page in a browser."""

    def __init__(self, browser: Browser, width: int = 1280, *, dark: bool = False, scripts: bool = True) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, 900)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        if not scripts:
            self.call("Emulation.setScriptExecutionDisabled", value=True)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self._browser.wait_for(lambda event: event["method"] == "Page.loadEventFired" and self._is_ours(event))
        self._browser.settle()

    def ask(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click the middle of the first line of an element."""
        x, y = self.ask(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getClientRects()[0];"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self.click_at(x, y)

    def click_at(self, x: float, y: float) -> None:
        """Click a point of the window with the mouse."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self._browser.settle()

    def press(self, key: str) -> None:
        """Press a key on the keyboard."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key, ord(key.upper()) if len(key) == 1 else 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self._browser.settle()

    def events(self, method: str) -> list[dict[str, Any]]:
        found = (event for event in self._browser.events if event["method"] == method and self._is_ours(event))
        return [event["params"] for event in found]

    def requests(self) -> list[str]:
        """The URLs of all requests of the page."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def complaints(self) -> list[Any]:
        """Console messages, dialogs and errors."""
        kinds = (
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Page.javascriptDialogOpening",
        )
        return [event for kind in kinds for event in self.events(kind)]

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _is_ours(self, event: dict[str, Any]) -> bool:
        return bool(event.get("sessionId") == self._session)
