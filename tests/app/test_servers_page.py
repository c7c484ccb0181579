"""The Servers page under Streamlit's own test runner, against a real local HTTP server of vLLM's shapes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tests.app.test_pages import APP, button, until_done
from tests.servers.replies import Script, chat, chunk, counters, replying, usage

STEPS = {"per_step_accepted": [2, 0, 1], "per_step_drafted": [2, 2, 2]}

STREAM = [
    chat(chunk([10]) | {"prompt_token_ids": [7, 8]}),
    chat(chunk([11, 12, 13])),
    chat(chunk([14])),
    chat(chunk([15, 16], finish="length")),
    usage(7, **STEPS),
]


@pytest.fixture
def page() -> Iterator[AppTest]:
    """The page, with a worker of its own."""
    st.cache_resource.clear()
    app = AppTest.from_file(APP, default_timeout=120).run()
    yield app.switch_page("pages/lab/servers.py").run()
    from pages.lab import frame

    frame.worker().close()
    st.cache_resource.clear()


def test_the_empty_page_says_what_to_do_and_measures_nothing(page):
    assert not page.exception and page.title[0].value == "Servers"
    assert "Attach to a server" in page.info[0].value and button(page, "Measure").disabled


def test_an_address_where_nothing_answers_is_one_sentence(page):
    page.text_input(key="servers_url").set_value("127.0.0.1:9").run()
    assert not page.exception and page.error[0].value.startswith("Nothing answers at http://127.0.0.1:9")


def measured(page: AppTest, url: str) -> AppTest:
    page.text_input(key="servers_url").set_value(url).run()
    page.toggle(key="servers_replay").set_value(False).run()
    button(page, "Measure").click().run()
    return until_done(page)


def test_a_server_is_named_at_once_and_its_rounds_become_figures(page):
    with replying(Script(STREAM, metrics=[counters(10, 20, 5, 2)])) as url:
        measured(page, url)
    assert not page.exception and page.success[0].value.startswith("vLLM 0.32.0 serves demo")
    # Of each request's three rounds the last ended the text: 2 and 0 accepted of 2.
    assert next(m.value for m in page.metric if m.label == "Acceptance length") == "2.00"
    assert len(page.get("plotly_chart")) == 2


def test_a_server_that_answers_503_is_one_message(page):
    with replying(Script(STREAM, status=503, body="overloaded", metrics=[counters(10, 20, 5, 2)])) as url:
        measured(page, url)
    assert not page.exception and "answered 503" in page.error[0].value and not page.metric


def test_pasted_lines_become_a_summary(page):
    line = "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted: 150 tokens, Drafted: 300 tokens"
    page.text_area(key="servers_pasted").set_value(line).run()
    assert not page.exception and page.metric[-1].value == "2.50"
    page.text_area(key="servers_pasted").set_value("nothing of the kind").run()
    assert page.warning[-1].value.startswith("No acceptance figures in this text")
