"""A headless Chromium that a test drives: open a page, look at it, note requests and errors."""

import base64
import contextlib
import io
import itertools
import json
import pathlib
import shutil
import subprocess
import tempfile
import time

import numpy as np
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",  # WebGL without a graphics card
    "--remote-debugging-port=0",
    "--window-size=900,600",
)


def executable() -> str | None:
    """The path of the browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


needs_browser = pytest.mark.skipif(
    executable() is None, reason=f"none of {', '.join(NAMES)} is installed"
)


class Page:
    """A tab, with the `requests` and `errors` of its page since `open`."""

    def __init__(self, socket):
        self._socket = socket
        self._ids = itertools.count(1)
        self.requests: list[str] = []
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters):
        """The result of a command of the DevTools protocol."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message) -> None:
        method, values = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Network.webSocketCreated":
            self.requests.append(values["url"])
        elif method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description", details)))
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "assert"):
            self.errors.append(str([x.get("value", x.get("description")) for x in values["args"]]))
        elif method == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.errors.append(values["entry"]["text"])

    def offline(self, off: bool) -> None:
        """Switch the network of the page off or on."""
        self.call(
            "Network.emulateNetworkConditions",
            offline=off,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def press(self, key: str) -> None:
        """Press and release a key, such as "Enter"."""
        code = {"Enter": 13, "Tab": 9}[key]
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def open(self, url: str) -> None:
        """Open a page in place of the page before, whose requests and errors are forgotten."""
        self.call("Page.navigate", url="about:blank")
        self.wait_for(lambda: self.evaluate("location.href") == "about:blank")
        self.requests.clear()
        self.errors.clear()
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str):
        """The value of a JavaScript expression in the page."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait_for(self, condition, seconds: float = 60):
        """The first true value of `condition()`; raises AssertionError after some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.evaluate("0")  # notes the requests and errors until now
            if value := condition():
                return value
            time.sleep(0.2)
        raise AssertionError(f"no success within {seconds} s; errors of the page: {self.errors}")

    def screenshot(self) -> np.ndarray:
        """The picture of the page, (height, width, 3) of uint8."""
        image = pytest.importorskip("PIL.Image")
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        return np.asarray(image.open(io.BytesIO(data)).convert("RGB"))


@contextlib.contextmanager
def opened():
    """A tab of a new browser, which ends with the block."""
    client = pytest.importorskip("websockets.sync.client")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [executable(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = _port(pathlib.Path(folder) / "DevToolsActivePort", process)
            target = _first_tab(port)
            with client.connect(target, max_size=None, open_timeout=60) as socket:
                yield Page(socket)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _port(file: pathlib.Path, process) -> int:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.1)
    raise AssertionError(f"the browser did not start; exit status {process.poll()}")


def _first_tab(port: int) -> str:
    from urllib.request import urlopen

    end = time.monotonic() + 60
    while time.monotonic() < end:
        with urlopen(f"http://127.0.0.1:{port}/json", timeout=30) as answer:
            tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
        if tabs:
            return tabs[0]["webSocketDebuggerUrl"]
        time.sleep(0.1)
    raise AssertionError("the browser has no tab")
