"""The Config page in a real browser: the story of the guessed config, from its collapse to a verified save."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from dflash_lab.paths import SAMPLES
from tests.browser.app import Server, settled

DEMO = SAMPLES / "smollm2-135m-dflash"
RIGHT = json.loads((DEMO / "config.json").read_text())


def make_pair(server: Server, name: str, folder: Path) -> None:
    """A pair of the demo target and a copy of its drafter, so that saving touches no file of the project."""
    shutil.copytree(DEMO, folder)
    presets = server.data / "pairs"
    presets.mkdir(parents=True, exist_ok=True)
    (presets / f"{name}.toml").write_text(f'target = "demo"\ndrafter = "{folder}"\n')


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody can write to, root included; make what it holds through the yielded path's parent."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    yield folder
    subprocess.run(["umount", str(folder)], capture_output=True)


def lengths(page: Page) -> dict[str, float]:
    """The acceptance lengths on the tiles, by the config's name."""
    found = {}
    for tile in page.get_by_test_id("stMetric").all():
        label = tile.get_by_test_id("stMetricLabel").text_content() or ""
        if label.startswith("AL "):
            found[label.removeprefix("AL ").strip()] = float(tile.get_by_test_id("stMetricValue").text_content() or 0)
    return found


def until(page: Page, name: str) -> dict[str, float]:
    """Wait for the tile of that config and for the judgement to be the current edit's."""
    page.get_by_test_id("stMetricLabel").filter(has_text=f"AL {name}").wait_for()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    expect(page.get_by_text("Of the edit before this one")).to_have_count(0)
    settled(page)
    return lengths(page)


def finding(main: Locator, field: str) -> Locator:
    """The first error or warning that names a field."""
    return main.get_by_test_id("stMarkdown").filter(has_text=re.compile(f"(error|warning).*{field}")).first


def test_from_the_guessed_config_to_a_verified_save_in_three_clicks(visit, server, tmp_path, record_property):
    folder = tmp_path / "drafter"
    make_pair(server, "story", folder)
    page = visit("/config?pair=story&file=config.guessed.json")
    main = page.get_by_test_id("stMain")
    for field in ("mask_token_id", "target_layer_ids", "layer_types"):
        expect(finding(main, field)).to_be_visible()
    record = main.get_by_role("button", name="Record and judge")
    record.or_(page.get_by_test_id("stMetric").first).first.wait_for()
    if record.is_visible():  # else these texts were recorded before, and the page judges at once
        record.click()
    collapsed = until(page, "on disk")
    assert collapsed["on disk"] < 1.2 < 1.4 < collapsed["reference"]
    main.get_by_role("button", name="Take everything from the reference").click()
    repaired = until(page, "edited")
    assert repaired["edited"] == collapsed["reference"] and repaired["on disk"] == collapsed["on disk"]
    main.get_by_role("button", name="Save", exact=True).click()
    expect(main.get_by_text("read back and compared")).to_be_visible()
    assert json.loads((folder / "config.guessed.json").read_text()) == RIGHT
    record_property("acceptance length, guessed and right", (collapsed["on disk"], repaired["edited"]))
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_a_save_to_a_read_only_folder_fails_loudly_and_loses_nothing(visit, server, read_only, tmp_path):
    source = tmp_path / "source"
    make_pair(server, "readonly", source)
    bound = subprocess.run(["mount", "--bind", str(source), str(read_only)], capture_output=True)
    locked = subprocess.run(["mount", "-o", "remount,ro,bind", str(read_only)], capture_output=True)
    if bound.returncode or locked.returncode:
        pytest.skip("a folder that root cannot write to needs a bind mount")
    (server.data / "pairs/readonly.toml").write_text(f'target = "demo"\ndrafter = "{read_only}"\n')
    page = visit("/config?pair=readonly")
    main = page.get_by_test_id("stMain")
    main.get_by_role("button", name="Try a fault").click()
    page.get_by_role("button", name="Wrong mask token").click()
    page.keyboard.press("Escape")
    settled(page)
    main.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_test_id("stAlert").filter(has_text="Not taken: the save")).to_be_visible()
    assert json.loads((source / "config.json").read_text()) == RIGHT
    settled(page)
    assert "edit=" in page.url, "the edit is still there"


def test_an_edit_travels_in_its_link(visit):
    page = visit("/config")
    main = page.get_by_test_id("stMain")
    main.get_by_role("button", name="Try a fault").click()
    page.get_by_role("button", name="Reverse taps").click()
    expect(page).to_have_url(re.compile("edit="))
    settled(page)
    other = visit("/" + page.url.partition("://")[2].partition("/")[2])
    settled(other)
    expect(other.get_by_role("button", name="Undo the edit")).to_be_enabled()
    expect(finding(other.get_by_test_id("stMain"), "target_layer_ids")).to_be_visible()
