"""The Diagnose page and the guided story under Streamlit's own test runner, with the real worker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dflash_lab.config import files
from dflash_lab.diagnose.story import GUESSED, practice_file
from dflash_lab.paths import SAMPLES

APP = str(SAMPLES.parent / "app.py")


@pytest.fixture
def app() -> Iterator[AppTest]:
    """The app, with a worker of its own."""
    st.cache_resource.clear()
    page = AppTest.from_file(APP, default_timeout=180)
    yield page.run()
    from pages.lab import frame

    frame.worker().close()
    st.cache_resource.clear()


def button(page: AppTest, label: str):
    return next(b for b in page.button if b.label == label)


def test_the_empty_page_says_what_to_do_and_offers_the_drafters_own_file_first(app):
    page = app.switch_page("pages/lab/diagnose.py").run()
    assert not page.exception and page.title[0].value == "Diagnose"
    assert "Press **Diagnose**" in page.info[0].value
    assert page.selectbox(key="diagnose_file").options[:2] == ["config.json", "config.guessed.json"]


def test_a_file_that_is_no_json_is_named_and_nothing_is_queued(app, tmp_path):
    broken = tmp_path / "config.json"
    broken.write_text('{"mask_token_id": ')
    page = app.switch_page("pages/lab/diagnose.py").run()
    page.text_input(key="diagnose_path").set_value(str(broken)).run()
    assert "not JSON" in page.error[0].value and "line 1" in page.error[0].value
    assert button(page, "Diagnose").disabled and not page.exception


def test_a_queued_diagnosis_can_be_cancelled(app):
    page = app.switch_page("pages/lab/diagnose.py").run()
    button(page, "Diagnose").click().run()
    button(page, "Cancel").click().run()
    from pages.lab import frame

    job = frame.worker().snapshots()[-1]
    assert job.kind == "diagnose" and (job.status == "cancelled" or frame.worker()._jobs[job.id].cancelled)
    assert not page.exception


def test_the_lost_write_of_the_story_changes_nothing_and_the_verified_save_does(app):
    page = app.switch_page("pages/lab/story.py").run()
    page.segmented_control(key="step").set_value("4. The lost write").run()
    before = practice_file()
    assert before.raw == json.loads(GUESSED.read_text())
    button(page, "Write it the old way").click().run()
    assert "No error" in page.info[0].value
    assert practice_file().sha256 == before.sha256
    button(page, "Read it back").click().run()
    assert "still differs" in page.info[0].value
    button(page, "Save, verified").click().run()
    assert practice_file().sha256 != before.sha256 and files.versions(before.path)
    assert not page.exception


@pytest.mark.parametrize(
    "step", ["1. The engine?", "2. The class?", "3. The file", "5. The three fields", "6. The choice of K"]
)
def test_every_step_of_the_story_opens(app, step):
    page = app.switch_page("pages/lab/story.py").run()
    page.segmented_control(key="step").set_value(step).run()
    assert not page.exception and page.subheader
