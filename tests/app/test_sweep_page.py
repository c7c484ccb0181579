"""The views of the Sweep page: what they say when empty, and what a finished job leaves."""

from __future__ import annotations

import pytest

from tests.app.test_pages import app, button, until_done  # noqa: F401  the fixture is used by name


@pytest.fixture
def sweep(app):  # noqa: F811
    """The Sweep page."""
    return app.switch_page("pages/lab/sweep.py").run()


def show(page, view):
    return page.segmented_control(key="view").set_value(view).run()


def test_the_tree_view_says_what_to_do_and_draws_any_round(sweep):
    show(sweep, "Tree of a round")
    assert not sweep.exception and "Press **Draft trees**" in sweep.info[0].value
    sweep.number_input(key="tree_tokens").set_value(12)
    button(sweep, "Draft trees").click().run()
    until_done(sweep)
    assert not sweep.exception
    assert [m.label for m in sweep.metric] == ["Acceptance length", "Speed-up", "Off the first branch"]
    first = sweep.get("plotly_chart")[0].proto.spec
    assert "16 drafted" in first
    slider = next(s for s in sweep.slider if s.label == "Round")
    other = 1 if slider.value != 1 else 2
    slider.set_value(other).run()
    assert not sweep.exception and sweep.get("plotly_chart")[0].proto.spec != first


def test_the_methods_view_says_what_to_do_and_ends_with_a_table(sweep):
    show(sweep, "Methods")
    assert not sweep.exception and "Press **Story table**" in sweep.info[0].value
    next(p for p in sweep.button_group if p.key == "methods_kinds").set_value(["lookup"])
    sweep.multiselect(key="methods_ks").set_value([1])
    sweep.number_input(key="methods_tokens").set_value(8)
    sweep.run()
    button(sweep, "Compare").click().run()
    until_done(sweep, 500)
    assert not sweep.exception and not sweep.error
    assert [tab.label for tab in sweep.tabs] == [
        "Table", "Speed", "Kinds of prompts", "Along the context", "A better drafter"
    ]  # fmt: skip
    assert "| | Prompt lookup, K = 1 |" in "".join(m.value for m in sweep.markdown)
    assert len(sweep.dataframe[0].value) == 2, "the target alone and the one method"
    assert any(b.label == "Keep" for b in sweep.button), "kept like other results"
