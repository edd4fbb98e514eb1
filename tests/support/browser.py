"""A real browser without a window, Chromium, spoken to in its DevTools protocol over a pipe.

The protocol needs no package for so little: commands and events are JSON, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

_PATIENCE_S: Final = 60.0
_FLAGS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # the sandbox refuses root; the pages are our own
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "about:blank",
)

Scheme = Literal["light", "dark"]


class Browser:
    """One page at a time. What it complains of and whatever it asks the network for is collected."""

    def __init__(self, executable: Path) -> None:
        self._executable = executable
        self._numbers = iter(range(1, 1 << 30))
        self._unread = b""
        self._session = ""
        self.errors: list[str] = []
        """Errors and warnings of the console, exceptions, and what the page's security policy has refused."""
        self.requests: list[str] = []
        """Addresses of everything that was asked for."""
        self._is_loaded = False

    def __enter__(self) -> Self:
        self._profile = tempfile.mkdtemp(prefix="holdfast-browser-")
        reads, self._to_browser = os.pipe()
        self._from_browser, writes = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{reads} 4>&{writes}', self._executable, *self._flags()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(reads, writes),
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)
        try:
            target = self._call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
                self._call(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to_browser)  # which ends it
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        os.close(self._from_browser)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _flags(self) -> list[str]:
        return [f"--user-data-dir={self._profile}", *_FLAGS]

    # -- what a test does ----------------------------------------------------------------------------------------------

    def open(self, page: Path, width: int, scheme: Scheme = "light") -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._is_loaded = False
        failed = self._call("Page.navigate", url=page.as_uri()).get("errorText")
        assert failed is None, failed
        self._read_until(lambda: self._is_loaded, f"{page} to be loaded")

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript, in the page."""
        said = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """All of the page, however long."""
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    # -- the protocol --------------------------------------------------------------------------------------------------

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(command).encode() + b"\0")
        answers: list[dict[str, Any]] = []
        self._read_until(lambda: bool(answers), f"the answer to {method}", number, answers)
        (answer,) = answers
        assert "error" not in answer, (method, answer["error"])
        found: dict[str, Any] = answer["result"]
        return found

    def _read_until(
        self, holds: Callable[[], bool], what: str, number: int = 0, answers: list[dict[str, Any]] | None = None
    ) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not holds():
            message = self._next(deadline, what)
            if "id" not in message:
                self._note(message["method"], message.get("params", {}))
            elif message["id"] == number and answers is not None:
                answers.append(message)

    def _next(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from_browser], [], [], max(0.0, deadline - time.monotonic()))
            read = os.read(self._from_browser, 1 << 20) if ready else b""
            if not read:
                raise TimeoutError(f"{self._executable} {'has ended' if ready else 'is silent'}: no {what}")
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: str, about: Mapping[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._is_loaded = True
        elif event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.errors.append(str(about["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(str(about["args"]))
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(str(about["entry"]["text"]))
        elif event == "Audits.issueAdded":
            self.errors.append(str(about["issue"]))
