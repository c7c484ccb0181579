"""The Notebook page under Streamlit's own test runner: cells, words, search, compare, pin, repeat."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dflash_lab.paths import SAMPLES
from dflash_lab.store import Store
from tests.store.made import experiment

APP = str(SAMPLES.parent / "app.py")


@pytest.fixture
def app() -> Iterator[AppTest]:
    """The app, with a worker of its own."""
    st.cache_resource.clear()
    page = AppTest.from_file(APP, default_timeout=180)
    yield page
    from pages.lab import frame

    frame.worker().close()
    st.cache_resource.clear()


def opened(app: AppTest, **address: str) -> AppTest:
    app.run()
    for name, value in address.items():
        app.query_params[name] = value
    page = app.switch_page("pages/lab/notebook.py").run()
    assert not page.exception and page.title[0].value == "Notebook"
    return page


def button(page: AppTest, label: str, n: int = 0):
    return [b for b in page.button if b.label == label][n]


def texts(page: AppTest) -> str:
    return "\n".join(m.value for kind in (page.markdown, page.caption, page.text, page.info) for m in kind)


def test_an_empty_notebook_says_what_fills_it(app):
    assert "Nothing here yet" in opened(app).info[0].value


def test_words_are_edited_found_again_and_kept(app):
    store = Store()
    store.remember(experiment("a", title="First"))
    store.remember(experiment("b", title="Second [x](http://evil.example)"))
    page = opened(app)
    page.text_input(key="hypothesis_a").set_value("The *mask* is wrong")
    page.text_input(key="tags_a").set_value("fridge, , mask")
    button(page, "Save", 1).click()
    page.run()
    now = store.get("a")
    assert (now.hypothesis, now.tags, now.kept, now.title) == ("The *mask* is wrong", ("fridge", "mask"), True, "First")
    assert "The \\*mask\\* is wrong" in texts(page), "drawn as it was written"
    page.text_input(key="q").set_value("mask FRIDGE").run()
    assert [c.key for c in page.checkbox] == ["pick_a"] and not page.exception
    page.text_input(key="q").set_value("nowhere").run()
    assert "No experiment fits" in page.info[0].value


def test_keep_pin_and_delete(app):
    store = Store()
    store.remember(experiment("a"))
    page = opened(app)
    button(page, "Keep").click().run()
    assert store.get("a").kept and not [b for b in page.button if b.label == "Keep"]
    button(page, "Pin").click().run()
    assert store.baseline == "a"
    button(page, "Delete for good").click().run()
    assert store.entries() == () and not page.exception


def test_a_link_to_an_experiment_shows_it_in_full(app):
    Store().put(experiment("a", note="Look: ![](http://evil.example/x.png)", kept=True))
    page = opened(app, id="a")
    assert "!\\[](http://evil.example/x.png)" in texts(page), "a note makes the browser fetch nothing"
    assert len(page.get("plotly_chart")) == 2
    button(page, "All experiments").click().run()
    assert page.text_input(key="q") is not None


def test_a_link_to_nothing_is_told(app):
    page = opened(app, id="zzz")
    assert "no such experiment" in page.warning[0].value and "There is no experiment 'zzz'" in texts(page)
    assert "'zzz'" in texts(opened(app, compare="zzz,yyy"))


def test_a_comparison_pairs_with_the_baseline_first(app):
    store = Store()
    store.put(experiment("a", accepted=(0, 1) * 16, title="Wrong", config={"mask_token_id": 0}))
    store.put(experiment("b", title="Right"))
    page = opened(app)
    page.checkbox(key="pick_a").check()
    page.checkbox(key="pick_b").check().run()
    button(page, "Compare (2)").click().run()
    assert page.query_params["compare"] in ("a,b", ["a,b"])
    assert "a clear difference; paired on 2 common prompts" in page.success[0].value
    assert page.success[0].value.startswith("**B minus A**: +")
    assert "mask\\_token\\_id" in texts(page) or any("mask_token_id" in str(d.value) for d in page.dataframe)
    store.pin("b")
    page.run()
    assert page.success[0].value.startswith("**B minus A**: -"), "the baseline is A now"
    assert len(page.get("plotly_chart")) == 4


def test_a_notebook_of_a_newer_lab_is_told_and_the_other_pages_work(app):
    import sqlite3

    store = Store()
    store.put(experiment("a"))
    db = sqlite3.connect(store.path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    page = opened(app)
    assert "cannot be shown" in page.error[0].value and "newer DFlash Lab" in texts(page)


def test_the_same_again_with_another_k_stands_beside_its_parent(app):
    asked = {"pair": "smollm2-demo", "prompt": "Say hi.", "k": 3, "max_new_tokens": 4, "baseline": False}
    Store().put(experiment("a", title="Hi", settings=asked, kept=True))
    page = opened(app)
    page.number_input(key="k_a").set_value(2)
    button(page, "Run again").click()
    page.run()
    deadline = time.monotonic() + 300
    while any(b.label == "Cancel" for b in page.run().button):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert not page.exception and not page.error
    new = next(e for e in Store().entries() if e.id != "a")
    made = Store().get(new.id)
    assert (made.title, made.parent, made.kept) == ("Hi: again with K = 2", "a", True)
    assert made.figures.k == 2 and made.hypothesis == "The same again, with K = 2 instead"
