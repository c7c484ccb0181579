"""The story's table and the slide of a drafter, worked out by hand from a comparison whose figures are known."""

from __future__ import annotations

import json

import pytest

from dflash_lab.better_drafter import slide
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.cost import Costs, StepCost
from dflash_lab.drafters.method import PLAIN, Method, Missing
from dflash_lab.errors import LabError
from dflash_lab.forecast import predict
from dflash_lab.methods import Comparison, MethodRun
from dflash_lab.paths import SAMPLES
from dflash_lab.story_table import GUESSED, guessed_config, markdown, story_columns, story_methods
from dflash_lab.trace import Round, Trace

DEMO = SAMPLES / "smollm2-135m-dflash"
WRONG, RIGHT, FEW = Method("dflash", 15, config=GUESSED), Method("dflash", 15), Method("dflash", 5)
ONE, MTP, TREE = Method("dflash", 1), Method("mtp", 1), Method("ddtree", 8, 7)


def played(method, accepted, tok_s):
    rounds = tuple(
        Round(1, 9 + n, 1 + method.k, (7,) * method.k, (7,) * (method.k + 1), a, (7,) * (a + 1), 7, "none")
        for n, a in enumerate(accepted)
    )
    tokens = sum(a + 1 for a in accepted)
    return Trace((1,), 7, rounds, method.k, decode_s=tokens / tok_s)


FIGURES = {
    PLAIN: ((0,) * 6, 10.0),
    WRONG: ((0, 0, 0, 0), 5.0),
    RIGHT: ((2, 1, 0, 1), 8.0),
    FEW: ((2, 1, 0, 1), 12.0),
    ONE: ((1, 1, 0, 1), 14.0),
    MTP: ((1, 0, 0, 1), 13.0),
}


@pytest.fixture
def found():
    runs = tuple(
        MethodRun(method, f"p{n}", "chat", 0, played(method, *figures), "equal")
        for method, figures in FIGURES.items()
        for n in range(3)
    )
    missing = (Missing(TREE, "this target has linear-attention layers"),)
    prompts = ("p0", "p1", "p2")
    return Comparison(
        "id", "now", "pair", "cpu", "float32", tuple(FIGURES), missing, prompts, ("chat",) * 3, 1, 64, len(runs),
        runs=runs,
    )  # fmt: skip


def test_the_columns_are_the_storys_and_best_is_measured(found):
    columns = story_columns(found)
    assert {title: r.method for title, r in columns.items()} == {
        "Wrong config, K = 15": WRONG,
        "Right, K = 15": RIGHT,
        "Right, K = 5": FEW,
        "MTP, K = 1": MTP,
        "Best K (1)": ONE,
    }


def test_the_table_has_every_figure_and_says_what_it_rests_on(found):
    lines = markdown(found, story_columns(found)).splitlines()
    rows = {line.split("|")[1].strip(): [c.strip() for c in line.split("|")[2:-1]] for line in lines if "|" in line}
    assert [cell.split()[0] for cell in rows["Acceptance length"]] == ["1.00", "2.00", "2.00", "1.50", "1.75"]
    assert rows["Position 0"] == ["0%", "75%", "75%", "50%", "75%"]
    assert [cell.split()[0] for cell in rows["tok/s"]] == ["5.0", "8.0", "12.0", "13.0", "14.0"]
    assert rows["Speed-up"] == ["0.50", "0.80", "1.20", "1.30", "1.40"]
    assert rows["Rounds"] == ["12"] * 5
    assert "3 prompts, 64 new tokens, 18 of 18 runs" in lines[-2]
    assert lines[-1] == "DDTree, 8 nodes, depth 7 is left out: this target has linear-attention layers"


def test_the_story_asks_for_the_trained_block_and_five():
    methods = story_methods(15)
    assert {WRONG, RIGHT, FEW, ONE, MTP, TREE} <= set(methods) and len(set(methods)) == len(methods)
    assert max(m.k for m in story_methods(4) if m.kind == "dflash") == 4


def test_a_guessed_config_changes_mask_taps_and_layers_and_no_shape():
    right = DrafterConfig.from_json(json.loads((DEMO / "config.json").read_text()))
    theirs = DrafterConfig.from_json(json.loads((DEMO / "config.guessed.json").read_text()))
    guessed = guessed_config(right, 30)
    for field in ("mask_token_id", "taps", "layer_types", "num_hidden_layers", "hidden_size"):
        assert getattr(guessed, field) == getattr(theirs, field), field


def predictions():
    costs = {PLAIN: 100.0, Method("dflash", 3): 150.0, MTP: 110.0}
    steps = tuple(StepCost(method, 9, 9, 0.0, ms, 0.0, ms) for method, ms in costs.items())
    kept = Costs("pair", "cpu", "float32", steps)
    accepted = {PLAIN: (0,) * 4, Method("dflash", 3): (1, 0, 1, 0), MTP: (1, 1, 1, 0)}
    return [predict(m, [played(m, accepted[m], 1.0)] * 3, kept) for m in costs]


def test_a_drafter_is_slid_at_its_own_costs():
    slid = slide(predictions(), Method("dflash", 3), 1.0)
    assert (slid.now, slid.acceptance_length) == (1.5, 1.5)
    assert slid.tok_s == pytest.approx(1.5 / 0.150) == pytest.approx(10.0)
    assert slid.rivals == pytest.approx({"Target alone": 10.0, "MTP, K = 1": 1.75 / 0.110})
    assert slid.needed["MTP, K = 1"] == pytest.approx(1.75 / 0.110 * 0.150)
    assert f"An acceptance length of {1.75 / 0.110 * 0.150:.2f} overtakes MTP, K = 1." in slid.sentence()
    twice = slide(predictions(), Method("dflash", 3), 2.0)
    assert twice.acceptance_length == 2.0 and twice.tok_s == pytest.approx(2.0 / 0.150)


def test_what_a_round_cannot_yield_is_said():
    slow = slide(predictions(), MTP, 0.5)
    assert "overtakes" not in slow.sentence(), "it is ahead of everything as it is"
    with pytest.raises(LabError, match="cannot be slid"):
        slide(predictions(), Method("dflash", 9), 1.0)
    with pytest.raises(LabError, match="cannot be slid"):
        slide(predictions(), PLAIN, 1.0)
