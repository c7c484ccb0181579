"""The Sweep page in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.app import WAIT_MS, serve, settled

LINK = "/sweep?kinds=code&per_kind=1&ks=1&ks=3&sweep_tokens=12&repeats=1"


def start(page):
    settled(page)
    page.get_by_test_id("stMain").get_by_role("button", name=re.compile(r"^.*Sweep \(\d+ runs\)")).click()


def test_a_link_to_it_may_be_a_fresh_servers_first_request(visit, tmp_path, demo_target_dir):
    with serve(tmp_path) as fresh:
        page = visit(LINK, at=fresh)
        settled(page)
        expect(page.get_by_role("heading", name="Sweep", level=1)).to_be_visible()
        expect(page.get_by_text("Page not found")).to_have_count(0)
        expect(page.get_by_role("button", name="Sweep (3 runs)")).to_be_visible()


def test_a_sweep_ends_with_the_best_k_in_words(visit):
    page = visit(LINK)
    start(page)
    expect(page.get_by_test_id("stAlert").first).to_contain_text("K = ", timeout=WAIT_MS)
    page.get_by_test_id("stPlotlyChart").nth(4).wait_for()
    expect(page.get_by_test_id("stException")).to_have_count(0)
    page.reload()
    settled(page)
    expect(page.get_by_test_id("stAlert").first).to_contain_text("K = ")


def test_a_cancelled_sweep_keeps_the_runs_it_finished(visit):
    page = visit(LINK.replace("sweep_tokens=12", "sweep_tokens=32").replace("repeats=1", "repeats=3"))
    start(page)
    page.get_by_text(re.compile(r"^[1-9]\d* of \d+ runs")).wait_for()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled.", exact=False).first).to_be_visible()
    settled(page)
    expect(page.get_by_text("All figures")).to_be_visible()
