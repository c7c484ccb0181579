"""One server, one chromium, and pages whose requests are watched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.app import WAIT_MS, Server, launch, serve

Visit = Callable[..., Page]
expect.set_options(timeout=WAIT_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder drives a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Keep the report, so that ``visit`` knows at its end whether the test failed."""
    report = yield
    setattr(item, f"report_{report.when}", report)
    return report


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, demo_target_dir: Path) -> Iterator[Server]:
    """The app on a free port, the demo target made, its data folder empty."""
    with serve(tmp_path_factory.mktemp("app")) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One chromium for all tests; every visit has a context of its own, as another person would."""
    with sync_playwright() as playwright:
        found = launch(playwright)
        yield found
        found.close()


@pytest.fixture
def visit(
    server: Server, browser: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Visit]:  # fmt: skip
    """Open a path as a new visitor. At the end: no request may have left the page's own server."""
    contexts: list[BrowserContext] = []
    foreign: list[str] = []

    def open_page(path: str = "/", width: int = 1280, scheme: str = "light", at: Server = server) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "request",
            lambda r: None if re.match(rf"({at.url}|ws{at.url[4:]}|data:|blob:)", r.url) else foreign.append(r.url),
        )
        page.goto(at.url + path)
        page.get_by_test_id("stMain").get_by_role("heading", level=1).wait_for()
        return page

    yield open_page
    if getattr(getattr(request.node, "report_call", None), "failed", False):
        for n, page in enumerate(page for context in contexts for page in context.pages):
            shot = tmp_path / f"failed-{n}.png"
            page.screenshot(path=shot)
            print(f"{page.url}: {shot}")
        print(server.log.read_text()[-3000:])
    for context in contexts:
        context.close()
    assert foreign == []
