"""Probes give their verdict from what they see; the verdict says what it is, and never more than was measured."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from dflash_lab.config import files
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.diagnose import probes
from dflash_lab.diagnose.card import card, text
from dflash_lab.diagnose.probes import Case
from dflash_lab.diagnose.search import Change, Repair
from dflash_lab.diagnose.verdict import judge
from dflash_lab.trace import summarise
from tests.diagnose.test_signature import trace
from tests.tiny import config_json

CONFIG = DrafterConfig.from_json(config_json())


def repair(changes=(), end="done", before=1.5):
    return Repair(CONFIG, CONFIG, changes, before, 2.0, 100, {"mask_token_id": 20}, 9.0, end)


def after(accepted):
    return summarise([trace(accepted)])


def change(certainty=12.0):
    return Change(
        "mask_token_id", {"mask_token_id": 0}, {"mask_token_id": 7}, "a special token", 0.5, 0.4, 0.6, certainty
    )


def case(**known):
    given = {"pair": SimpleNamespace(device=torch.device("cpu")), "config": CONFIG, "recordings": (),
             "traces": [trace([1] * 60)], "k": 3, "raw": CONFIG.raw}  # fmt: skip
    return Case(**(given | known))


def test_changed_fields_are_the_verdict_with_values_and_certainty():
    v = judge(repair((change(),)), after([0] * 30), after([2] * 30), [])
    assert v.kind == "config" and "mask_token_id" in v.headline
    assert v.change == "mask_token_id from 0 to 7" and "12 standard errors" in v.sure
    assert "1.00 now, 3.00 after (30 rounds" in v.brings


def test_a_search_that_was_cut_short_without_a_find_accuses_nobody():
    guilty = [probes.Probe("drafter of another target", "guilty", "", "find another")]
    v = judge(repair(end="budget"), after([0] * 30), after([0] * 30), guilty)
    assert v.kind == "unfinished"


def test_a_guilty_probe_counts_only_where_no_field_is_to_blame():
    guilty = [probes.Probe("template", "guilty", "", "use the template")]
    assert judge(repair(), after([0] * 30), after([0] * 30), guilty).kind == "not the config"
    assert judge(repair((change(),)), after([0] * 30), after([2] * 30), guilty).kind == "config"


def test_a_low_length_with_nothing_to_blame_is_a_weak_drafter_and_a_high_one_is_healthy():
    assert judge(repair(), after([1] * 30), after([1] * 30), []).kind == "weak drafter"
    assert judge(repair(), after([3] * 30), after([3] * 30), []).kind == "healthy"


def test_a_file_that_changed_since_is_guilty(tmp_path):
    path = tmp_path / "config.json"
    file = files.create(path, CONFIG.raw)
    assert probes.stale_file(case(file=file)).verdict == "ruled out"
    files.save(file, CONFIG.edited(mask_token_id=2).to_json())
    assert probes.stale_file(case(file=file)).verdict == "guilty"
    path.unlink()
    assert probes.stale_file(case(file=file)).verdict == "guilty"
    assert probes.stale_file(case()).verdict == "not tested"


@pytest.mark.parametrize(("version", "verdict"), [("0.20.1", "suspect"), ("0.26.0", "ruled out"), (None, "not tested")])
def test_an_old_engine_is_a_suspect_for_a_sliding_drafter(version, verdict):
    raw = config_json(layer_types=["sliding_attention"] * 3, sliding_window=8, use_sliding_window=True)
    assert probes.engine(case(raw=raw, engine=version)).verdict == verdict


def test_k_beyond_the_block_is_guilty_and_an_idle_last_position_a_suspect():
    assert probes.too_large_k(case(k=CONFIG.max_drafted + 1)).verdict == "guilty"
    assert probes.too_large_k(case(traces=[trace([1] * 60)])).verdict == "suspect"
    assert probes.too_large_k(case(traces=[trace([3] * 60)])).verdict == "ruled out"


def test_a_fall_with_context_is_guilty():
    assert probes.long_context(case(traces=[trace([3] * 60 + [0] * 60)])).verdict == "guilty"
    assert probes.long_context(case(traces=[trace([2] * 120)])).verdict == "ruled out"


def test_the_card_tells_two_configs_apart_and_survives_one_without_taps(demo_pair):
    raw = demo_pair.raw_config
    config = DrafterConfig.from_json(raw)
    lines = card(demo_pair, config, 5, concurrency=4)
    assert lines["concurrency"] == "4" and lines["target"].startswith("demo @ ")
    shuffled = DrafterConfig.from_json(json.loads(json.dumps(raw, sort_keys=True)))
    assert card(demo_pair, shuffled, 5)["config"] == lines["config"]
    other = config.edited(target_layer_ids=None)
    assert card(demo_pair, other, 5)["config"] != lines["config"]
    assert "not in the file" in text(card(demo_pair, other, 5))
