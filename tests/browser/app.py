"""The app as a process of its own, and a chromium to look at it with."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
WAIT_MS = 300_000
"""How long a test waits for something on the page: a run takes seconds on free cores, minutes on busy ones."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running app: where it is, its data folder, its log."""

    url: str
    data: Path
    log: Path


@contextmanager
def serve(folder: Path, *options: str, base: str = "", **environment: str) -> Iterator[Server]:
    """Start the app with a data folder of its own under ``folder``, at path ``base``; stop it at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(f"http://127.0.0.1:{port}{base}", folder / "data", folder / "server.log")
    command = [sys.executable, "-m", "streamlit", "run", "serve.py", "--server.port", str(port)]
    command += ["--server.baseUrlPath", base, "--server.headless", "true", "--server.showEmailPrompt", "false"]
    with server.log.open("w") as log:
        process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"DFLASH_LAB_DATA": str(server.data)} | environment,
        )
        try:
            _wait_for_health(server, process)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for_health(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.url}/_stcore/health", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the app did not start:\n{server.log.read_text()}")


def launch(playwright: Playwright) -> Browser:
    """The system's chromium where there is one, else Playwright's own."""
    path = next((found for name in ("chromium", "google-chrome") if (found := shutil.which(name))), None)
    return playwright.chromium.launch(executable_path=path, args=FLAGS)


def settled(page: Page) -> None:
    """Wait until the page's script has run to its end and everything is drawn."""
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for(timeout=WAIT_MS)
    page.wait_for_timeout(300)


def whole(page: Page) -> None:
    """Make the window as high as the page: Streamlit scrolls inside it, so a full-page shot shows one screen."""
    width = page.viewport_size["width"] if page.viewport_size else 1280
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": width, "height": min(int(height) + 40, 6000)})
    page.wait_for_timeout(800)
