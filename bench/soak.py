"""Four browsers work on one server for a while: runs at several K, cancels and keeps, all through the one queue.

    python -m bench.soak --minutes 10

Ends with one line of JSON: ``errors`` (messages on a page or exceptions in the server's log), ``lost`` (finished runs
that are not on disk and kept ones that are not in the notebook), ``rss_growth_mb`` (of the server, from the end of the
first quarter to the end), ``jobs_per_minute`` (finished and cancelled, all browsers together) and ``max_queue_wait_s``
(from the click until the page no longer says that it waits).
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from dflash_lab.errors import LabError
from dflash_lab.store import Store
from tests.browser.app import Server, launch, serve

PROMPTS = ("Name two rivers.", "Write a Python function that adds two numbers.", "What is 12 times 12?", "Say hello.")
VISITORS = 4
CANCELS = 0.2
KEEPS = 0.3


@dataclass
class Visitor:
    """One browser: what it does now, and what came of what it did before."""

    page: Page
    url: str
    dice: random.Random
    clicked: float = 0.0
    waiting: bool = False
    cancels: bool = False
    finished: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    cancelled: int = 0
    errors: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Whether a job of this visitor waits or runs."""
        return self.clicked > 0

    def start(self) -> None:
        """Open a link with another prompt and K and press Run."""
        k, prompt = self.dice.choice((0, 1, 3, 5)), self.dice.choice(PROMPTS)
        self.page.goto(f"{self.url}/?prompt={quote(prompt)}&k={k}&tokens={self.dice.choice((8, 16, 32))}")
        button = self.page.get_by_test_id("stMain").get_by_role("button", name="Run").first
        button.click()
        self.clicked, self.waiting, self.cancels = time.monotonic(), True, self.dice.random() < CANCELS

    def look(self) -> None:
        """One look at the page: note the start of the job, cancel it, or take down its end."""
        if self.waiting and not self.page.get_by_text("Waiting:", exact=False).is_visible():
            self.waits.append(time.monotonic() - self.clicked)
            self.waiting = False
        if self.cancels and (cancel := self.page.get_by_role("button", name="Cancel")).is_visible():
            cancel.click()
            self.cancels = False
        elif self.page.get_by_test_id("stAlertContentError").first.is_visible():
            self.errors.append(self.page.get_by_test_id("stAlertContentError").first.inner_text())
            self.clicked = 0.0
        elif self.page.get_by_text("Cancelled.", exact=False).first.is_visible():
            self.cancelled, self.clicked = self.cancelled + 1, 0.0
        elif self.page.get_by_test_id("stMetric").first.is_visible():
            self._end()

    def _end(self) -> None:
        name = parse_qs(urlsplit(self.page.url).query).get("run", [""])[0]
        self.finished.append(name)
        if self.dice.random() < KEEPS and (keep := self.page.get_by_role("button", name="Keep")).is_visible():
            keep.click()
            self.page.get_by_text("Kept in the notebook").wait_for()
            self.kept.append(name)
        self.clicked = 0.0


def soak(server: Server, browser: Browser, minutes: float) -> dict[str, float | int]:
    """Let the visitors work and return the figures of the last line."""
    process = next(p for p in psutil.Process().children() if "serve.py" in " ".join(p.cmdline()))
    visitors = []
    for n in range(VISITORS):
        page = browser.new_context().new_page()
        page.set_default_timeout(120_000)
        visitors.append(Visitor(page, server.url, random.Random(n)))
    begun, first = time.monotonic(), 0
    while (elapsed := time.monotonic() - begun) < 60 * minutes or any(v.busy for v in visitors):
        for visitor in visitors:
            if visitor.busy:
                visitor.look()
            elif elapsed < 60 * minutes:
                visitor.start()
        if not first and elapsed > 15 * minutes:
            first = process.memory_info().rss
        if elapsed > 60 * minutes + 300:
            break
    jobs = sum(len(v.finished) + v.cancelled for v in visitors)
    log = server.log.read_text()
    errors = [error for v in visitors for error in v.errors] + [x for x in log.splitlines() if "Traceback" in x]
    for error in errors:
        print(error)
    return {
        "errors": len(errors) + sum(v.busy for v in visitors),
        "lost": len(lost(server, visitors)),
        "rss_growth_mb": round((process.memory_info().rss - first) / 1e6, 1),
        "jobs_per_minute": round(60 * jobs / (time.monotonic() - begun), 1),
        "max_queue_wait_s": round(max((w for v in visitors for w in v.waits), default=0.0), 1),
    }


def lost(server: Server, visitors: list[Visitor]) -> list[str]:
    """Finished runs without a file, kept ones that the notebook has not."""
    missing = [n for v in visitors for n in v.finished if not n or not (server.data / "runs" / f"{n}.json").exists()]
    store = Store(server.data / "notebook.db")
    for name in (n for v in visitors for n in v.kept):
        try:
            if not store.get(name).kept:
                missing.append(name)
        except LabError:
            missing.append(name)
    return missing


def main() -> None:
    """Start a server with an empty data folder, soak it, print the line."""
    parser = argparse.ArgumentParser(description="Four browsers on one server for a while.")
    parser.add_argument("--minutes", type=float, default=10.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server, sync_playwright() as playwright:
        browser = launch(playwright)
        found = soak(server, browser, args.minutes)
        browser.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
