"""Figures carry the numbers of the trace, unaltered, and colours that mean the same everywhere."""

from __future__ import annotations

import pandas as pd
import pytest

from dflash_lab import plots
from dflash_lab.palette import CELLS
from dflash_lab.tokens import Wording
from dflash_lab.trace import Round, Trace

WORDS = Wording((), {7: "<b>bold</b>", 8: " eight"})


def play(accepted, k=3):
    rounds = tuple(
        Round(1, 10 * n, 1 + k, (7,) * k, (8,) * (k + 1), a, (8,) * (a + 1), 8, "none", (0.5,) * k, (0.25,) * k)
        for n, a in enumerate(accepted)
    )
    return Trace((1,), 8, rounds, k)


def test_heatmap_has_one_code_a_cell_and_one_clickable_square_a_cell():
    figure = plots.cells_heatmap(play([0, 2, 3]), WORDS)
    heat, squares = figure.data[0], figure.data[1]
    kinds = [[list(CELLS)[code] for code in row] for row in heat.z]
    assert kinds[0] == ["rejected", "accepted", "accepted"]
    assert kinds[2] == ["not reached", "rejected", "accepted"]
    assert [list(c) for c in squares.customdata] == [[n, i] for n in range(3) for i in range(3)]
    assert squares.marker.opacity == 0 and list(squares.x) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_heatmap_hover_escapes_the_models_text():
    text = plots.cells_heatmap(play([1]), WORDS).data[1].text[0]
    assert "&lt;b&gt;bold" in text and "“·eight”" in text and "drafter 50.0%, target 25.0%" in text


def test_heatmap_of_a_stretch_keeps_the_rounds_own_numbers():
    figure = plots.cells_heatmap(play([0] * 50), WORDS, range(20, 30))
    assert list(figure.data[0].x) == list(range(21, 31))
    assert list(figure.data[1].customdata[0]) == [20, 0]


def test_heatmap_of_nothing_is_still_a_figure():
    assert plots.cells_heatmap(play([], k=0), WORDS).data[0].z == ()


def test_a_draft_shorter_than_k_shows_as_not_drafted():
    trace = Trace((1,), 8, (Round(1, 0, 4, (7,), (8, 8), 0, (8,), 8, "none"),), 3)
    assert [row[0] for row in plots.cells_heatmap(trace, WORDS).data[0].z] == [1, 3, 3]


def test_per_position_bars_show_wilson_intervals_and_the_conditional_rate():
    summary = play([0, 1, 3, 3]).summary()
    bars, line = plots.per_position(summary).data
    assert list(bars.y) == [0.75, 0.5, 0.5] and list(line.y) == pytest.approx([0.75, 2 / 3, 1.0])
    low, high = summary.per_position[0].interval
    assert bars.y[0] - bars.error_y.arrayminus[0] == pytest.approx(low)
    assert bars.y[0] + bars.error_y.array[0] == pytest.approx(high)
    assert "4 rounds" in plots.per_position(summary).layout.xaxis.title.text


def test_histogram_counts_rounds_and_marks_the_mean():
    figure = plots.accepted_histogram(play([0, 1, 3, 3]).summary())
    assert list(figure.data[0].y) == [1, 1, 0, 2] and figure.layout.shapes[0].x0 == 1.75


def test_figures_of_an_empty_summary_are_still_figures():
    summary = play([], k=0).summary()
    plots.per_position(summary)
    plots.accepted_histogram(summary)


def test_against_k_draws_the_interval_and_the_baseline():
    frame = pd.DataFrame({"k": [1, 3], "tok_s": [10.0, 20.0], "tok_s_low": [9.0, None], "tok_s_high": [12.0, None]})
    figure = plots.against_k(frame, "tok_s", "tok/s", baseline=8.0)
    assert figure.data[0].error_y.arrayminus[0] == 1 and figure.layout.shapes[0].y0 == 8.0


def test_rate_heatmap_leaves_what_was_not_drafted_empty():
    table = pd.DataFrame([[0.5, 0.25], [None, 0.125]], index=[0, 1], columns=["K = 1", "K = 2"])
    z = plots.rate_heatmap(table, "K", "position").data[0].z
    assert z[1][0] is None and z[1][1] == 0.125


def test_step_costs_stack_draft_verify_and_rest():
    frame = pd.DataFrame({"k": [0, 5], "draft_ms": [0.0, 2.0], "verify_ms": [9.0, 12.0], "rest_ms": [0.1, 0.2]})
    figure = plots.step_costs(frame)
    assert [bar.name for bar in figure.data] == ["draft", "verify", "rest"]
    assert list(figure.data[1].x) == ["target alone", "K = 5"]
