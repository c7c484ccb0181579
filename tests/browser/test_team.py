"""Several people on one server: one queue with names, and a demonstration that only lets them look."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.app import serve, settled
from tests.browser.test_run import link, run


def name(page: Page, visitor: str) -> None:
    """Type a name for the queue."""
    sidebar = page.get_by_test_id("stSidebar")
    sidebar.get_by_text("Queue").first.click()
    sidebar.get_by_label("Your name there").fill(visitor)
    sidebar.get_by_label("Your name there").press("Enter")
    settled(page)


def test_two_browsers_see_one_queue_with_names(visit):
    ada, bob = visit(link(tokens=900, prompt="Tell me everything about the history of bread.")), visit(link())
    name(ada, "Ada")
    name(bob, "Bob")
    run(ada)
    ada.get_by_text("speculative run:").wait_for()
    run(bob)
    mine, theirs = ada.get_by_test_id("stSidebar"), bob.get_by_test_id("stSidebar")
    expect(theirs.get_by_text("1. Ada: run at K = 3 on smollm2-demo")).to_be_visible()
    expect(theirs.get_by_text("2. Bob (you): run at K = 3 on smollm2-demo, 1 ahead")).to_be_visible()
    expect(mine.get_by_text("1. Ada (you): run at K = 3 on smollm2-demo")).to_be_visible()
    expect(mine.get_by_text("2. Bob: run at K = 3 on smollm2-demo, 1 ahead")).to_be_visible()
    for page in (bob, ada):
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_text("Cancelled.", exact=False).first).to_be_visible()
    expect(mine.get_by_text("Bob", exact=False)).to_have_count(0)


def test_a_demonstration_runs_a_prompt_and_leaves_nothing_behind(visit, tmp_path, demo_target_dir):
    with serve(tmp_path, "--", "--demo") as demo:
        page = visit(link(tokens=8), at=demo)
        expect(page.get_by_text("Nothing is saved or started.", exact=False)).to_be_visible()
        run(page)
        page.get_by_test_id("stPlotlyChart").first.wait_for()
        expect(page.get_by_role("button", name="Keep")).to_have_count(0)
        page.screenshot(path=tmp_path / "demo.png")
        assert not list(demo.data.rglob("*.json"))
