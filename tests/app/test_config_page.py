"""The Config page's edits: taken, refused with a reason, undone, and never overwritten by what is no longer shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dflash_lab.paths import SAMPLES, data_dir

APP = str(SAMPLES.parent / "app.py")
DEMO = SAMPLES / "smollm2-135m-dflash"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[AppTest]:
    """The Config page on a copy of the demo drafter that nothing was recorded for, so that no model is loaded."""
    folder = tmp_path / "drafter"
    shutil.copytree(DEMO, folder)
    presets = data_dir() / "pairs"
    presets.mkdir(parents=True, exist_ok=True)
    (presets / "copied.toml").write_text(f'target = "demo"\ndrafter = "{folder}"\n')
    st.cache_resource.clear()
    app = AppTest.from_file(APP, default_timeout=120)
    app.query_params["pair"] = "copied"
    app.run()
    yield app.switch_page("pages/lab/config.py").run()
    from pages.lab import frame

    frame.worker().close()
    st.cache_resource.clear()


def button(page: AppTest, label: str):
    return next(b for b in page.button if b.label == label)


def edited(page: AppTest) -> dict:
    return page.session_state["config_bench"].raw


def written() -> dict:
    return json.loads((DEMO / "config.json").read_text())


def test_a_field_is_edited_and_undone(page):
    page.number_input(key="mask_token_id_1").set_value(7).run()
    assert edited(page)["dflash_config"]["mask_token_id"] == 7 and not page.exception
    button(page, "Undo the edit").click().run()
    assert edited(page) == written()


def test_values_of_widgets_that_a_fault_replaced_do_not_undo_it(page):
    stale = page._tree.get_widget_states()
    button(page, "RoPE theta x 0.1").click().run()
    assert edited(page)["rope_theta"] == 10_000
    page._run(stale)  # as a browser does whose screen is a moment behind
    assert edited(page)["rope_theta"] == 10_000


def test_a_structural_edit_is_refused_with_the_tensor_and_both_shapes(page):
    page.number_input(key="intermediate_size_1").set_value(1024).run()
    (refusal,) = [e.value for e in page.error if e.value.startswith("Not taken")]
    assert "layers.0.mlp.gate_proj.weight is [1536, 576]" in refusal and "[1024, 576]" in refusal
    assert edited(page) == written()


def test_broken_json_is_refused_with_its_place_and_nothing_is_lost(page):
    area = next(a for a in page.text_area if a.label == "config.json")
    area.set_value('{"hidden_size": 576,')
    button(page, "Take this text").click().run()
    assert any("line 1 column 21" in e.value for e in page.error) and not page.exception
    assert edited(page) == written()
