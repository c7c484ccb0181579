"""Screenshots of every page, light and dark, into docs/screens: ``make screens``.

A page is opened at its link, brought to the state worth showing, and shot at its full height.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.app import ROOT, WAIT_MS, launch, serve, settled, whole

FOLDER = ROOT / "docs" / "screens"


def run(page: Page) -> None:
    """A finished run, at a round in which something was accepted."""
    page.get_by_test_id("stMain").get_by_role("button", name="Run").first.click()
    page.get_by_test_id("stMetric").first.wait_for(timeout=WAIT_MS)
    settled(page)
    page.get_by_role("button", name="Next").click()
    settled(page)


def config(page: Page) -> None:
    """The guessed config, judged beside the right one."""
    record = page.get_by_role("button", name="Record and judge")
    record.or_(page.get_by_test_id("stMetric").first).first.wait_for(timeout=WAIT_MS)
    if record.is_visible():
        record.click()
    page.get_by_test_id("stMetric").first.wait_for(timeout=WAIT_MS * 2)
    settled(page)


def sweep(page: Page) -> None:
    """A finished sweep."""
    page.get_by_test_id("stMain").get_by_role("button", name="Sweep (").first.click()
    page.get_by_test_id("stAlert").filter(has_text="K =").wait_for(timeout=WAIT_MS * 2)
    settled(page)


def tree(page: Page) -> None:
    """The round that accepted most."""
    page.get_by_role("button", name="Draft trees").click()
    page.get_by_test_id("stMetric").first.wait_for(timeout=WAIT_MS)
    settled(page)


def diagnose(page: Page) -> None:
    """A finished diagnosis of the guessed config."""
    page.get_by_test_id("stMain").get_by_role("button", name=re.compile("Diagnose$")).click()
    page.get_by_test_id("stAlert").filter(has_text="The config is wrong in").wait_for(timeout=WAIT_MS * 6)
    settled(page)


PAGES: dict[str, tuple[str, Callable[[Page], None]]] = {
    "run": ("/?prompt=Write+a+Python+function+that+adds+two+numbers.&k=5&tokens=64", run),
    "config": ("/config?file=config.guessed.json", config),
    "diagnose": ("/diagnose?diagnose_file=config.guessed.json&budget=300", diagnose),
    "sweep": ("/sweep?kinds=code&kinds=maths&per_kind=1&ks=1&ks=3&ks=5&ks=7&sweep_tokens=48", sweep),
    "sweep-tree": ("/sweep?view=Tree+of+a+round&tree_tokens=32", tree),
}


def main() -> None:
    """Shoot every page; the second colour scheme reopens what the first has made."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server, sync_playwright() as playwright:
        browser = launch(playwright)
        for name, (path, prepare) in PAGES.items():
            place = server.url + path
            for scheme in ("light", "dark"):
                page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
                page.goto(place)
                page.get_by_test_id("stMain").get_by_role("heading", level=1).wait_for(timeout=WAIT_MS)
                settled(page)
                if scheme == "light":
                    prepare(page)
                    place = page.url
                settled(page)
                whole(page)
                page.screenshot(path=FOLDER / f"{name}-{scheme}.png")
                print(FOLDER / f"{name}-{scheme}.png", flush=True)
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
