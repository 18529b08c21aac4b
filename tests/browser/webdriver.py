"""Chromium through chromedriver's own protocol (W3C WebDriver): as much of it as opening a page and looking at it takes."""

import base64
import contextlib
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


class Browser:
    def __init__(self, address, session):
        self._base = f"{address}/session/{session}"

    def open(self, url):
        call(f"{self._base}/url", {"url": url})

    def run(self, script):
        """Run JavaScript in the page and return what it returns."""
        return call(f"{self._base}/execute/sync", {"script": script, "args": []})

    def text(self):
        return self.run("return document.body ? document.body.innerText : ''")

    def wait_until(self, script, timeout_s=240):
        """Wait until JavaScript returns something true, and return it."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(AssertionError):  # a page that is busy drawing does not answer in time
                found = self.run(script)
                if found:
                    return found
            time.sleep(0.25)
        raise AssertionError(f"never true: {script}; the page says: {self.text()[:2000]}")

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(call(f"{self._base}/screenshot")))


def call(url, value=None, method=None):
    data = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()[:2000]) from None


@contextmanager
def browser(driver, chromium, profile, width=1280, height=900):
    """Yield a browser with an empty profile; it and its driver end with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, process)
        arguments = [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
        wanted = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments, "binary": chromium}}
        session = call(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        try:
            yield Browser(address, session)
        finally:
            call(f"{address}/session/{session}", method="DELETE")
    finally:
        process.terminate()
        process.wait()


def wait_for(address, process, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if call(f"{address}/status")["ready"]:
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("chromedriver did not come up")
