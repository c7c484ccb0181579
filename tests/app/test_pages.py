"""What the pages do with what people enter: Streamlit's own test runner, the real worker, the real pair."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dflash_lab.paths import SAMPLES

APP = str(SAMPLES.parent / "app.py")


@pytest.fixture
def app() -> Iterator[AppTest]:
    """The app on its first page, with a worker of its own."""
    st.cache_resource.clear()
    page = AppTest.from_file(APP, default_timeout=120)
    yield page.run()
    from pages.lab import frame

    frame.worker().close()
    st.cache_resource.clear()


def button(page: AppTest, label: str):
    return next(b for b in page.button if b.label.startswith(label))


def until_done(page: AppTest, seconds: float = 300) -> AppTest:
    deadline = time.monotonic() + seconds
    while any(b.label == "Cancel" for b in page.run().button):
        assert time.monotonic() < deadline, "the job did not end"
        time.sleep(0.3)
    return page


def test_an_empty_page_says_what_to_do(app):
    assert not app.exception
    assert app.title[0].value == "Run"
    assert "Press **Run**" in app.info[0].value


def test_an_example_fills_the_prompt(app):
    box = next(s for s in app.selectbox if s.label == "Examples")
    box.select(box.options[4]).run()
    assert app.text_area[0].value == box.options[4].split(": ", 1)[1]


def test_the_drafter_decides_how_far_k_goes(app):
    slider = next(s for s in app.slider if s.label.startswith("Drafted tokens"))
    assert (slider.min, slider.max, slider.value) == (0, 30, 5)
    pair = next(s for s in app.selectbox if s.label == "Pair")
    pair.set_value("gpt-oss-20b").run()
    assert next(s for s in app.slider if s.label.startswith("Drafted tokens")).max == 14


def test_an_empty_prompt_becomes_a_sentence_and_the_worker_lives_on(app):
    app.text_area[0].set_value("   ")
    button(app, "Run").click().run()
    until_done(app)
    assert "prompt is empty" in app.error[0].value.lower() and not app.exception
    app.text_area[0].set_value("Say hi.")
    app.number_input(key="tokens").set_value(4)
    button(app, "Run").click().run()
    until_done(app)
    assert [m.label for m in app.metric] == ["Acceptance length", "Decode", "Speed-up", "First token"]
    assert all(m.help for m in app.metric), "each figure has its definition"


def test_k_zero_is_the_target_alone_and_shows_no_rounds(app):
    app.number_input(key="tokens").set_value(4)
    next(s for s in app.slider if s.label.startswith("Drafted tokens")).set_value(0)
    button(app, "Run").click().run()
    until_done(app)
    assert not app.exception
    assert any("Nothing was drafted" in i.value for i in app.info)
    assert app.metric[0].value == "n/a"


def test_a_pair_that_cannot_be_loaded_fails_in_one_sentence(app, tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path))
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs/gone.toml").write_text('target = "/no/such/folder"\ndrafter = "smollm2-135m-dflash"')
    app.run()
    next(s for s in app.selectbox if s.label == "Pair").set_value("gone").run()
    button(app, "Run").click().run()
    until_done(app)
    assert app.error[0].value.startswith("There is no folder /no/such/folder.") and not app.exception


def test_one_visitor_may_not_fill_the_queue(app):
    app.number_input(key="tokens").set_value(400)
    for _ in range(5):
        button(app, "Run").click().run()
    assert "already have 4 jobs" in app.warning[0].value


def test_a_run_that_nobody_knows_is_told(app):
    page = AppTest.from_file(APP, default_timeout=60)
    page.query_params["run"] = "20200101T000000-abcdef"
    page.run()
    assert not page.exception and "20200101T000000-abcdef" in page.warning[0].value


def test_a_sweep_of_nothing_cannot_be_started(app):
    app.switch_page("pages/lab/sweep.py").run()
    assert app.title[0].value == "Sweep" and "Press **Sweep**" in app.info[0].value
    app.multiselect[0].set_value([]).run()
    assert button(app, "Sweep").disabled


def test_a_damaged_pair_file_is_named_not_raised(app, tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path))
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs/bad.toml").write_text("target = ")
    app.run()
    assert not app.exception and "bad.toml is not valid TOML" in app.error[0].value
