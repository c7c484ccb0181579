"""The notebook in a real browser: keep, a link for somebody else, compare, and a report that asks nobody."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from dflash_lab.store import Store
from dflash_lab.store.compare import Side, compare
from dflash_lab.store.report import html
from tests.browser.app import settled
from tests.browser.test_run import finished, link, run
from tests.store.made import experiment

NASTY = "<script>document.title='owned'</script><img src=http://evil.example/a.png> ![x](http://evil.example/b.png)"


def test_a_run_is_kept_with_one_click_and_somebody_else_opens_it(visit, server):
    page = visit(link(tokens=12))
    run(page)
    finished(page)
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_text("Kept in the notebook")).to_be_visible()
    settled(page)
    page.get_by_role("link", name="Open in the notebook").click()
    expect(page.get_by_role("heading", name="Notebook", level=1)).to_be_visible()
    page.wait_for_url("**id=**")
    settled(page)
    other = visit("/" + page.url.partition("://")[2].partition("/")[2])
    expect(other.get_by_text("K = 3: Name two colours of the rainbow.").first).to_be_visible()
    expect(other.get_by_test_id("stPlotlyChart").first).to_be_visible()
    (kept,) = Store(server.data / "notebook.db").entries(kept=True)
    assert kept.acceptance_length is not None and f"id={kept.id}" in other.url


def test_two_are_compared_by_link_and_texts_of_others_are_only_text(visit, server):
    store = Store(server.data / "notebook.db")
    words = {"hypothesis": NASTY, "verdict": NASTY, "note": NASTY, "tags": (NASTY[:30],)}
    store.put(experiment("x-good", title=f"Good {NASTY}", **words))
    store.put(experiment("x-bad", accepted=(0, 1) * 16, title="Bad"))
    page = visit("/notebook?id=x-good")
    expect(page.get_by_text("Good <script>").first).to_be_visible()
    settled(page)
    assert page.title() != "owned"
    page.goto(f"{server.url}/notebook?compare=x-good,x-bad")
    expect(page.get_by_text(re.compile("a clear difference; paired on 2 common prompts"))).to_be_visible()
    expect(page.get_by_test_id("stPlotlyChart")).to_have_count(4)
    settled(page)
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0 and page.locator("img[src*=evil]").count() == 0


def test_the_report_opened_from_disk_makes_no_request(browser, tmp_path):
    good, bad = experiment("a", title=f"Good {NASTY}", note=NASTY), experiment("b", accepted=(0, 1) * 16)
    file = tmp_path / "report.html"
    file.write_text(html([good, bad], compare(Side.of(good), Side.of(bad))), encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.on("console", lambda m: said.append(m.text))
    page.goto(file.as_uri())
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    assert page.locator(".js-plotly-plot").count() == 8 and page.title() != "owned"
    page.locator(".js-plotly-plot").first.hover()
    assert page.locator("[data-title*=Share], [data-title*=cloud], [data-title*=Edit]").count() == 0
    page.wait_for_timeout(500)
    context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert [text for text in said if "Content Security Policy" in text] == []
