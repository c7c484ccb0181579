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
