"""Figures of methods side by side carry the frames' numbers, and a tree is drawn as it hangs together."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from dflash_lab import method_figures
from dflash_lab.decode.loop import Settings, run
from dflash_lab.drafters.dflash import DFlashDrafter
from dflash_lab.drafters.tree import TreeDrafter
from dflash_lab.recording import record
from dflash_lab.replay import Replay
from dflash_lab.tokens import Wording
from dflash_lab.trace import Round
from dflash_lab.tree_figure import layout, tree_of_round
from dflash_lab.tree_replay import replay_trees
from tests.tiny import PROMPT, tiny_pair

# anchor -> a (0.6) -> c (0.5) -> e (0.5);  anchor -> b (0.3) -> d (0.5)
TREE = Round(
    1, 9, 6, (11, 12, 13, 14, 15), (12, 0, 14, 0, 99, 0), 2, (12, 14, 99), 99, "none",
    (0.6, 0.3, 0.5, 0.5, 0.5), (0.1, 0.9, 0.2, 0.8, 0.3), parents=(0, 0, 1, 2, 3), path=(1, 3),
)  # fmt: skip
WORDS = Wording((), {11: "<a>", 12: " b", 14: "a very long piece of text"})


def test_the_layout_keeps_depths_and_multiplies_probabilities_down_the_tree():
    nodes, middle = layout(TREE)
    assert [n.depth for n in nodes] == [1, 1, 2, 2, 3]
    assert [n.prefix_prob for n in nodes] == pytest.approx([0.6, 0.3, 0.3, 0.15, 0.15])
    assert [n.entry for n in nodes if n.accepted] == [1, 3]
    heights = {n.entry: n.height for n in nodes}
    assert heights[0] == heights[2] == heights[4] == 0 and heights[1] == heights[3] == 1 and middle == 0.5


def test_a_path_that_left_the_most_probable_branch_says_so():
    assert TREE.branched
    assert not replace(TREE, path=(0, 2), choices=(11, 13, 0, 0, 0, 0)).branched
    assert not replace(TREE, path=(), accepted=0).branched


def test_a_cut_tree_keeps_its_accepted_path():
    nodes, _ = layout(TREE, most=1)
    assert [n.entry for n in nodes] == [0, 1, 3]


def test_the_tree_marks_the_accepted_path_by_colour_and_shape_and_escapes_text():
    figure = tree_of_round(TREE, WORDS)
    by_name = {trace.name: trace for trace in figure.data if trace.name}
    assert list(by_name["accepted"].x) == [1, 2] and by_name["accepted"].marker.symbol == "diamond"
    assert by_name["drafted, not accepted"].text[0] == "&lt;a&gt;"
    assert len(by_name["accepted"].text[1]) == 14 and "a·very·long" in by_name["accepted"].customdata[1]
    sizes = by_name["drafted, not accepted"].marker.size
    assert sizes[0] > sizes[1] > sizes[2], "the more probable, the larger"
    assert "5 drafted, 2 accepted" in figure.layout.xaxis.title.text
    assert by_name["bonus"].text[1] == "#99"


def test_trees_of_the_loop_and_of_replay_are_the_same_picture():
    pair = tiny_pair(seed=1)
    drafter = TreeDrafter(DFlashDrafter(pair.weights, pair.config(), pair.target), 4)
    played = list(run(pair.target, drafter, PROMPT, Settings(12, 40)))
    recording = record(pair.target, PROMPT, 40, frozenset())
    replayed = replay_trees(Replay([recording]), drafter.dflash.stack, 4, [12])[12][0].rounds
    for one, other in zip(played, replayed, strict=True):
        drawn, again = layout(one)[0], layout(other)[0]
        assert [(n.entry, n.depth, n.height, n.accepted) for n in drawn] == [
            (n.entry, n.depth, n.height, n.accepted) for n in again
        ]
        assert all(n.prefix_prob is None for n in again), "replay keeps no probabilities"
        assert [n.prefix_prob for n in drawn] == sorted((n.prefix_prob for n in drawn), reverse=True)
        tree_of_round(other, Wording())


def speeds():
    return pd.DataFrame(
        {
            "series": ["DFlash", "DFlash", "DDTree"],
            "k": [5, 1, 16],
            "tok_s": [20.0, 15.0, 12.0],
            "tok_s_low": [19.0, None, 11.0],
            "tok_s_high": [22.0, None, 13.0],
            "predicted_tok_s": [21.0, 14.0, None],
        }
    )


def test_a_line_per_method_with_its_prediction_dotted_beside_it():
    figure = method_figures.against_drafted(speeds(), "tok_s", "tok/s", baseline=10.0)
    lines = {line.name: line for line in figure.data}
    assert list(lines) == ["DFlash", "DFlash, predicted", "DDTree"], "what was not predicted has no dotted line"
    assert list(lines["DFlash"].x) == [1, 5] and list(lines["DFlash"].y) == [15.0, 20.0]
    assert lines["DFlash"].error_y.array[1] == 2.0 and lines["DFlash"].error_y.arrayminus[1] == 1.0
    assert list(lines["DFlash, predicted"].y) == [14.0, 21.0]
    assert lines["DFlash, predicted"].line.color == lines["DFlash"].line.color
    assert figure.layout.shapes[0].y0 == 10.0 and figure.layout.xaxis.ticktext == ("1", "5", "16")


def test_kinds_of_prompts_stand_side_by_side():
    frame = pd.DataFrame(
        {
            "prompts": ["chat", "code", "chat", "code"],
            "label": ["DFlash", "DFlash", "MTP", "MTP"],
            "al": [1.5, 2.0, 1.4, 1.8],
            "al_low": [1.4, 1.8, 1.2, 1.7],
            "al_high": [1.6, 2.2, 1.6, 1.9],
            "rounds": [30, 20, 31, 25],
        }
    )
    first, second = method_figures.by_kind(frame, "al", "acceptance length").data
    assert (list(first.x), list(first.y)) == (["chat", "code"], [1.5, 2.0])
    assert second.name == "MTP" and second.customdata.tolist() == [[31], [25]]
    assert first.marker.pattern.shape != second.marker.pattern.shape


def test_acceptance_along_the_context_says_how_many_rounds():
    frame = pd.DataFrame(
        {"context": [32.0, 96.0], "al": [2.0, 1.5], "low": [1.8, None], "high": [2.2, None], "rounds": [9, 4]}
    )
    (line,) = method_figures.along_context({"DFlash": frame}).data
    assert line.name == "DFlash (13 rounds)" and list(line.y) == [2.0, 1.5]


def test_a_better_drafter_is_slid_against_its_rivals():
    curve = pd.DataFrame({"al": [1.0, 2.0], "tok_s": [10.0, 20.0]})
    figure = method_figures.better_drafter(curve, (1.5, 15.0), {"MTP": 18.0})
    assert list(figure.data[1].x) == [1.5] and figure.layout.shapes[0].y0 == 18.0
