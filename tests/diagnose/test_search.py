"""The search repairs the demo pair with no good config at hand, and knows no drafter's right values."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace

import pytest

from dflash_lab.config.schema import DrafterConfig
from dflash_lab.diagnose import proposals, search
from dflash_lab.diagnose.evidence import conversations, record_conversations
from dflash_lab.diagnose.players import PLAYERS
from dflash_lab.diagnose.proposals import Proposals
from dflash_lab.diagnose.search import repair
from dflash_lab.paths import SAMPLES
from dflash_lab.prompts import load_prompts

OWN = sorted(SAMPLES.glob("smollm2-135m-dflash*/config.json"))
GUESSED = SAMPLES / "smollm2-135m-dflash" / "config.guessed.json"


def read(path):
    return DrafterConfig.from_json(json.loads(path.read_text()))


@pytest.fixture(scope="module")
def demo(demo_pair):
    recordings = record_conversations(demo_pair, conversations(load_prompts())[:2], 64)
    right = read(OWN[0])
    # Whoever asked this pair for its own config would fail.
    return replace(demo_pair, raw_config={}), recordings, right


@pytest.mark.parametrize("module", [proposals, search])
def test_no_right_value_of_an_own_drafter_is_a_constant(module):
    literals = set()
    with open(module.__file__) as source:
        for node in ast.walk(ast.parse(source.read())):
            try:
                value = ast.literal_eval(node)
            except (ValueError, TypeError, SyntaxError, RecursionError):
                continue
            literals.add(
                tuple(value) if isinstance(value, list) else value if not isinstance(value, dict | set) else None
            )
    assert OWN
    for path in OWN:
        right = read(path)
        # 0, 1 and 2 stand in any program.
        forbidden = {right.target_layer_ids, right.mask_token_id, right.sliding_window, right.rope_theta} - {0, 1, 2}
        assert not literals & forbidden, path


def test_every_proposal_fits_the_weights(demo):
    pair, _, right = demo
    rules = Proposals(pair, 400)
    for config in (right, read(GUESSED)):
        for player in PLAYERS:
            for proposal in rules.of(player, config):
                edited = proposal.applied(config)
                assert edited is not None, proposal
                pair.stack(edited)


def test_equal_embedding_rows_are_one_mask(demo):
    pair, _, _ = demo
    rules = Proposals(pair, 400)
    tried = [p.changes["mask_token_id"] for p in rules.of("mask_token_id", read(GUESSED))]
    assert all(other not in tried for token in tried for other in rules.alike(token))


@pytest.mark.slow
def test_three_wrong_fields_are_named_and_repaired_and_the_right_file_is_never_opened(demo):
    pair, recordings, right = demo
    opened: list[str] = []
    watching = True

    def hook(event, args):
        if watching and event == "open" and isinstance(args[0], str):
            opened.append(args[0])

    sys.addaudithook(hook)
    found = repair(pair, recordings, read(GUESSED), budget_s=900)
    watching = False
    assert not [path for path in opened if "smollm2-135m-dflash" in path and path.endswith("config.json")]
    assert set(found.guilty) == {"mask_token_id", "target_layer_ids", "layer_types"}
    assert found.repaired.mask_token_id == right.mask_token_id
    # With so little text one layer more or less may slide: the field is named, its last detail needs longer contexts.
    assert "sliding_attention" in found.repaired.layer_types
    assert found.end == "done" and found.after > 1.3 * found.before
    for change in found.changes:
        assert change.certainty > 3 and change.low <= change.gain <= change.high
        assert change.was != change.now


@pytest.mark.slow
def test_a_healthy_config_is_not_accused(demo):
    pair, recordings, right = demo
    found = repair(pair, recordings, right, budget_s=900)
    assert found.guilty == () and found.repaired == right
    assert found.before == found.after


def test_a_config_that_cannot_run_is_made_to_run_at_the_field_the_refusal_names(demo):
    pair, recordings, right = demo
    broken = right.edited(use_sliding_window=False)
    found = repair(pair, recordings, broken, budget_s=0.01)
    assert found.end == "budget" and found.before is None and "use_sliding_window" in found.refused
    assert found.guilty == ("layer_types",) and found.changes[0].refused
    pair.stack(found.repaired)


def test_a_missing_mask_token_is_found_out_and_replaced(demo):
    pair, recordings, right = demo
    found = repair(pair, recordings, right.edited(mask_token_id=None), budget_s=0.01)
    assert found.guilty == ("mask_token_id",) and found.repaired.mask_token_id is not None


def test_a_stopped_search_hands_back_its_best_so_far(demo):
    pair, recordings, right = demo
    seen = []

    def watch(progress):
        seen.append(progress)
        return len(seen) < 5

    found = repair(pair, recordings, right.edited(mask_token_id=0), watch=watch)
    assert found.end == "cancelled" and len(seen) == 5
    assert 0 <= seen[-1].share <= 1 and seen[-1].text
