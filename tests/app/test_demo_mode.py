"""The app as a demonstration: what its pages offer, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dflash_lab.access import DEMO
from dflash_lab.paths import SAMPLES
from dflash_lab.store import Store
from tests.store.made import experiment

APP = str(SAMPLES.parent / "app.py")


@pytest.fixture
def app(monkeypatch) -> Iterator[AppTest]:
    """The app as a demonstration of two pairs, with a notebook that was filled before."""
    Store().put(experiment("a", kept=True))
    monkeypatch.setenv(DEMO, "smollm2-demo,qwen3-8b")
    st.cache_resource.clear()
    yield AppTest.from_file(APP, default_timeout=120)
    from pages.lab import frame

    frame.worker().close()
    st.cache_resource.clear()


def button(page: AppTest, label: str):
    return next(b for b in page.button if b.label.startswith(label))


def test_only_its_pairs_and_its_limits_are_offered(app):
    app.query_params["pair"] = "gpt-oss-20b"
    app.run()
    pair = next(s for s in app.selectbox if s.label == "Pair")
    assert len(pair.options) == 2 and pair.value == "smollm2-demo" and not app.exception
    assert app.text_area[0].proto.max_chars == 2000 and app.number_input(key="tokens").max == 256
    assert "Nothing is saved or started" in app.sidebar.caption[0].value


def test_a_pair_that_is_not_there_is_told(app, monkeypatch):
    monkeypatch.setenv(DEMO, "smolm2-demo")
    app.run()
    assert not app.exception and "no pair 'smolm2-demo'. Closest: smollm2-demo" in app.error[0].value


def test_a_sweep_that_is_too_long_says_so_on_its_page(app):
    app.query_params["per_kind"] = "3"
    app.run()
    page = app.switch_page("pages/lab/sweep.py").run()
    button(page, "Sweep (").click().run()
    assert not page.exception and "60 runs are too many here. Ask for at most 24." in page.warning[0].value


def test_files_elsewhere_stay_closed(app, tmp_path):
    (tmp_path / "config.json").write_text('{"secret": 1}')
    app.query_params["file"] = str(tmp_path / "config.json")
    app.run()
    page = app.switch_page("pages/lab/config.py").run()
    assert any("its own files only" in e.value for e in page.error) and not page.exception
    assert button(page, "Save").disabled and "secret" not in str(page)


def test_the_notebook_can_be_read_and_nothing_in_it_changed(app):
    page = app.run().switch_page("pages/lab/notebook.py").run()
    assert not page.exception
    assert all(b.disabled for b in page.button if b.label in ("Pin", "Delete for good"))


def test_no_server_can_be_attached_to_or_launched(app):
    page = app.run().switch_page("pages/lab/servers.py").run()
    assert not page.exception and "calls and starts no servers" in page.info[0].value
    assert not [t for t in page.text_input if t.label == "Address"] and button(page, "Sweep K").disabled


def test_the_story_writes_nothing(app):
    page = app.run().switch_page("pages/lab/story.py").run()
    page.segmented_control(key="step").set_value("4. The lost write").run()
    assert not page.exception and button(page, "Save, verified").disabled
