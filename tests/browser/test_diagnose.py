"""The story's three-field fault, in a real browser: one click from symptom to the repaired config."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from dflash_lab.diagnose.story import GUESSED
from tests.browser.app import settled

LONG_MS = 900_000
"""Recording the target (once) and some two hundred scored configs: a minute on two idle cores, many on busy ones."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_wrong_fields_are_named_and_repaired_in_one_click(visit):
    page = visit("/diagnose?diagnose_file=config.guessed.json&budget=900")
    settled(page)
    page.get_by_test_id("stMain").get_by_role("button", name=re.compile("Diagnose$")).click()
    page.get_by_role("button", name="Cancel").wait_for()
    verdict = page.get_by_test_id("stAlert").first
    expect(verdict).to_contain_text("The config is wrong in", timeout=LONG_MS)
    for player in ("mask_token_id", "target_layer_ids", "layer_types"):
        expect(verdict).to_contain_text(player)
    settled(page)
    expect(page.get_by_test_id("stException")).to_have_count(0)
    with page.expect_download() as download:
        page.get_by_role("button", name="Repaired config.json").click()
    with open(download.value.path()) as file:
        repaired = json.load(file)
    guessed = json.loads(GUESSED.read_text())
    assert repaired["dflash_config"]["mask_token_id"] != guessed["dflash_config"]["mask_token_id"]
    assert "sliding_attention" in repaired["layer_types"]
    page.get_by_role("button", name="Apply to Config").click()
    page.get_by_text("Open the Config page").click()
    page.get_by_role("heading", level=1, name="Config").wait_for()
    settled(page)
    assert "edit=" in page.url and "file=config.guessed.json" in page.url
    assert json.loads(GUESSED.read_text()) == guessed  # an edit, not a write
