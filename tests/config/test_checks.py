"""The checks: each fires on its fault and is silent on every healthy published config; none ever raises."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_lab.config.checks import CHECKS, EmbeddingFacts, Facts, TokenizerFacts, check
from dflash_lab.config.checks.gather import mask_of
from dflash_lab.config.dialects import AUX, DRAFT, STACK
from dflash_lab.config.faults import FAULTS as PRESETS
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.paths import SAMPLES
from tests.config import published

DEMO = SAMPLES / "smollm2-135m-dflash"
BIG = "Qwen3.6-27B-DFlash"
SPECULATORS = "Qwen3.6-35B-A3B-speculator.dflash"
NESTED = "Qwen3.6-35B-A3B-DFlash"
# Facts of published drafters that other engines trip over: healthy, and still worth a line.
KNOWN_REMARKS = {
    ("MiMo-V2.5-Pro-FP4-DFlash", "use_swa_is_read_by_vllm_only"),
    ("MiMo-V2.5-Pro-FP4-DFlash", "mask_row_is_near_zero"),
    (SPECULATORS, "speculators_causality"),
}


def facts(name: str) -> Facts:
    """Everything known about a healthy pair."""
    mask = published.raw(name)
    mask = mask.get("mask_token_id") or mask[DRAFT]["mask_token_id"]
    config = published.target(name)
    return Facts(
        weight_shapes=published.shapes(name),
        tokenizer=TokenizerFacts(size=config["vocab_size"], special_ids=frozenset([mask]), mask_text="<mask>"),
        target_config=config,
        embedding=EmbeddingFacts(mask, 1.0, 1.0, 0, 0.3),
        transformers_version="5.24.0",
        drafted=7,
        thinking=False,
    )


def found(raw, given: Facts | None = None) -> dict[str, str]:
    return {finding.check: finding.severity for finding in check(raw, given)}


def changed(name: str, *path: str, to=...):
    """The published config with one value changed, or taken out."""
    raw = published.raw(name)
    place = raw
    for key in path[:-1]:
        place = place[key]
    if to is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return raw


@pytest.mark.parametrize("name", published.NAMES)
def test_a_published_config_has_no_error_and_no_unknown_warning(name):
    for given_facts in (None, facts(name)):
        for finding in check(published.raw(name), given_facts):
            assert finding.severity == "note" or (name, finding.check) in KNOWN_REMARKS, finding
            assert finding.severity != "error", finding


TAPS = [1, 16, 31, 46, 61]
NO_BLOCK = {k: v for k, v in published.raw(BIG).items() if k != DRAFT}
SLIDE = ["sliding_attention"] * 4 + ["full_attention"]

# check -> the faults that must make it speak, as raw configs; facts are the healthy pair's
FAULTS = {
    "unreadable": [changed(BIG, "hidden_size"), changed(BIG, "block_size", to="16"), changed(BIG, DRAFT, to=None)],
    "shapes_do_not_fit": [changed(BIG, "intermediate_size", to=9728), changed(BIG, "num_key_value_heads", to=4)],
    "hidden_size_of_another_target": [changed(BIG, "hidden_size", to=4096)],
    "vocabulary_of_another_target": [
        changed(BIG, "vocab_size", to=151936),
        changed(SPECULATORS, STACK, "vocab_size", to=1),
    ],
    "end_token_of_another_tokenizer": [changed(BIG, "eos_token_id", to=151645)],
    "dflash2_without_its_parts": [
        changed("Qwen3.8-27B-DFlash2", DRAFT, "selector_rank"),
        changed("Qwen3.8-27B-DFlash2", "architectures", to=["DFlashDraftModel"]),
    ],
    "drafter_is_quantised": [changed(BIG, "quantization_config", to={"bits": 4})],
    "dflash_config_missing": [changed(BIG, DRAFT), changed(BIG, DRAFT, to=None)],
    "field_given_twice": [changed(BIG, "mask_token_id", to=248070), changed(NESTED, "block_size", to=8)],
    "speculators_fields_in_a_zlab_file": [changed(BIG, AUX, to=[2, 17, 32, 47, 62])],
    "zlab_fields_in_a_speculators_file": [
        changed(SPECULATORS, DRAFT, to={"target_layer_ids": [1]}),
        changed(SPECULATORS, "target_layer_ids", to=[1]),
    ],
    "stack_fields_beside_the_stack": [changed(SPECULATORS, "hidden_size", to=2048)],
    "nested_file_for_old_readers": [published.raw(NESTED)],
    "mask_missing": [changed(BIG, DRAFT, "mask_token_id"), changed(BIG, DRAFT, "mask_token_id", to=None)],
    "mask_outside_vocabulary": [
        changed(BIG, DRAFT, "mask_token_id", to=-1),
        changed(BIG, DRAFT, "mask_token_id", to=248320),
        changed(SPECULATORS, "mask_token_id", to=248320),
    ],
    "mask_has_another_job": [changed(BIG, DRAFT, "mask_token_id", to=248044)],
    "mask_is_ordinary_text": [changed(BIG, DRAFT, "mask_token_id", to=1234)],
    "mask_is_not_the_published_one": [changed(BIG, DRAFT, "mask_token_id", to=151669)],
    "taps_missing": [changed(BIG, DRAFT, "target_layer_ids"), changed(SPECULATORS, AUX)],
    "taps_out_of_range": [
        changed(BIG, DRAFT, "target_layer_ids", to=[1, 16, 31, 46, 64]),
        changed(BIG, DRAFT, "target_layer_ids", to=[-1, 16, 31, 46, 61]),
        changed(SPECULATORS, AUX, to=[0, 7, 12, 17, 23, 28, 33, 38]),
    ],
    "taps_duplicated": [changed(BIG, DRAFT, "target_layer_ids", to=[1, 16, 31, 46, 46])],
    "taps_unsorted": [changed(BIG, DRAFT, "target_layer_ids", to=TAPS[::-1])],
    "taps_one_too_high": [
        changed(BIG, DRAFT, "target_layer_ids", to=[tap + 1 for tap in TAPS]),
        changed(SPECULATORS, AUX, to=[3, 8, 13, 18, 24, 29, 34, 39]),
    ],
    "taps_one_too_low": [changed(BIG, DRAFT, "target_layer_ids", to=[tap - 1 for tap in TAPS])],
    "taps_differ_from_rule": [changed(BIG, DRAFT, "target_layer_ids", to=[1, 16, 30, 46, 61])],
    "taps_bunched": [changed(BIG, DRAFT, "target_layer_ids", to=[59, 60, 61, 62, 63])],
    "taps_last_layer": [changed(BIG, DRAFT, "target_layer_ids", to=[1, 16, 31, 46, 63])],
    "tap_count_against_fc": [changed(BIG, DRAFT, "target_layer_ids", to=[1, 31, 61])],
    "num_target_layers_missing": [changed(BIG, "num_target_layers")],
    "num_target_layers_wrong": [changed(BIG, "num_target_layers", to=48)],
    "layer_types_length": [changed(BIG, "layer_types", to=SLIDE[1:])],
    "layer_types_unknown": [changed(BIG, "layer_types", to=[*SLIDE[:4], "chunked_attention"])],
    "sliding_without_window": [changed(BIG, "sliding_window", to=None), changed(BIG, "sliding_window")],
    "window_not_used": [
        changed(BIG, "use_sliding_window", to=False),
        changed(BIG, "use_sliding_window"),
        changed(SPECULATORS, STACK, "use_sliding_window", to=False),
    ],
    "window_without_sliding_layers": [changed(BIG, "layer_types", to=["full_attention"] * 5)],
    "window_as_long_as_the_context": [changed(BIG, "sliding_window", to=262144)],
    "window_shorter_than_the_block": [changed(BIG, "sliding_window", to=1), changed(BIG, "sliding_window", to=15)],
    "causality_unlike_published": [
        changed(BIG, "is_causal", to=True),
        changed(BIG, "is_causal", to=False),
        changed("Qwen3.8-27B-DFlash2", "is_causal"),
        changed(SPECULATORS, "sliding_window_non_causal", to=True),
    ],
    "causality_that_engines_read_differently": [changed(BIG, DRAFT, "causal", to=True)],
    "use_swa_is_read_by_vllm_only": [published.raw("MiMo-V2.5-Pro-FP4-DFlash")],
    "speculators_causality": [published.raw(SPECULATORS), changed(SPECULATORS, "sliding_window_non_causal")],
    "rope_theta_missing": [changed(BIG, "rope_theta")],
    "rope_theta_given_twice": [changed(NESTED, "rope_theta", to=10000)],
    "theta_far_from_target": [
        changed(BIG, "rope_theta", to=1e6),
        changed(BIG, "rope_theta"),
        changed(NESTED, "rope_parameters", "rope_theta", to=1e6),
    ],
    "target_is_stretched_and_drafter_is_not": [changed("Kimi-K2.5-DFlash", "rope_scaling", to=None)],
    "block_without_room": [changed(BIG, "block_size", to=1)],
    "brings_its_own_code": [changed(BIG, "auto_map", to={"AutoModel": "modeling.Draft"})],
}


def pair_of(raw) -> Facts:
    """Facts of the pair a mutated config came from."""
    if STACK in raw:
        return facts(SPECULATORS)
    if raw.get("num_target_layers") == 40:
        return facts(NESTED)
    if raw.get("num_target_layers") == 61:
        return facts("Kimi-K2.5-DFlash")
    healthy = facts(BIG)
    mask = (raw.get(DRAFT) or {}).get("mask_token_id")
    text = "the" if mask == 1234 else "<mask>"
    return replace(healthy, tokenizer=replace(healthy.tokenizer, mask_text=text))


@pytest.mark.parametrize(("name", "raw"), [(name, raw) for name, faults in FAULTS.items() for raw in faults])
def test_a_fault_is_found_by_its_check(name, raw):
    findings = [finding for finding in check(raw, pair_of(raw)) if finding.check == name]
    assert findings and all(finding.message and finding.field for finding in findings)


# fault -> the checks of which one must find it, on every published config it can be made on
FOUND_BY = {
    "Shift taps up by one": {"taps_one_too_high"},
    "Shift taps down by one": {"taps_one_too_low"},
    "Reverse taps": {"taps_unsorted"},
    "Wrong mask token": {"mask_is_not_the_published_one"},
    "All layers full": {"window_without_sliding_layers"},
    "No window": {"window_as_long_as_the_context"},
    "No context": {"window_shorter_than_the_block"},
    "Flip causality": {"causality_unlike_published"},
    "RoPE theta x 0.1": {"theta_far_from_target"},
}
# The same for edits no DrafterConfig can stand for, on the raw file.
RAW_FAULTS = {
    "use_sliding_window false": ("window_not_used", lambda raw, stack: stack.update(use_sliding_window=False)),
    "no sliding_window": ("sliding_without_window", lambda raw, stack: stack.update(sliding_window=None)),
    "one layer type too few": ("layer_types_length", lambda raw, stack: stack["layer_types"].pop()),
    "pad as mask": ("mask_has_another_job", lambda raw, stack: stack.update(pad_token_id=mask_of(raw))),
    "dialects mixed": ("speculators_fields_in_a_zlab_file", lambda raw, stack: raw.update({AUX: [2, 3]})),
    "no num_target_layers": ("num_target_layers_missing", lambda raw, stack: raw.pop("num_target_layers")),
    "no dflash_config": ("dflash_config_missing", lambda raw, stack: raw.pop(DRAFT)),
}


@pytest.mark.parametrize("fault", PRESETS)
@pytest.mark.parametrize("name", published.NAMES)
def test_every_preset_fault_of_every_published_config_is_found(name, fault):
    config = PRESETS[fault](DrafterConfig.from_json(published.raw(name)))
    if config is None:
        return
    checks = {finding.check for finding in check(config.to_json(), facts(name)) if finding.severity != "note"}
    assert checks & FOUND_BY[fault]


@pytest.mark.parametrize("fault", RAW_FAULTS)
@pytest.mark.parametrize("name", published.NAMES)
def test_every_raw_fault_of_every_published_config_is_found(name, fault):
    rule, spoil = RAW_FAULTS[fault]
    raw = published.raw(name)
    stack = raw.get(STACK, raw)
    slides = "sliding_attention" in stack.get("layer_types", [])
    if (STACK in raw and rule not in ("window_not_used", "sliding_without_window", "layer_types_length")) or (
        not slides and rule in ("window_not_used", "sliding_without_window")
    ):
        return
    if "layer_types" not in stack and rule == "layer_types_length":
        return
    spoil(raw, stack)
    assert rule in found(raw, facts(name))


@pytest.mark.parametrize("name", published.NAMES)
def test_drafting_past_the_block_of_any_published_config_is_found(name):
    block = DrafterConfig.from_json(published.raw(name)).block_size
    assert "drafts_beyond_the_block" in found(published.raw(name), replace(facts(name), drafted=block))
    assert "drafts_beyond_the_block" not in found(published.raw(name), replace(facts(name), drafted=block - 1))


# check -> facts, and the same facts made healthy
AROUND = {
    "mask_row_is_near_zero": ({"embedding": EmbeddingFacts(248070, 1e-4, 1.0, 0, 0.1)}, {}),
    "mask_row_is_like_another": ({"embedding": EmbeddingFacts(248070, 1.0, 1.0, 248071, 0.999)}, {}),
    "drafts_beyond_the_block": ({"drafted": 16}, {"drafted": 15}),
    "thinking_against_training": ({"thinking": True, "trained_thinking": False}, {"thinking": True}),
    "nested_rope_on_old_transformers": ({"transformers_version": "4.57.1"}, {"transformers_version": "5.24.0"}),
}
OWNERS = {"nested_rope_on_old_transformers": NESTED}


@pytest.mark.parametrize("name", AROUND)
def test_a_fault_around_the_file_is_found_and_its_absence_is_not(name):
    owner = OWNERS.get(name, BIG)
    wrong, right = AROUND[name]
    assert name in found(published.raw(owner), replace(facts(owner), **wrong))
    assert name not in found(published.raw(owner), replace(facts(owner), **right))


def test_every_check_has_a_fault_that_shows_it():
    assert {rule.__name__ for rule in CHECKS} == set(FAULTS) | set(AROUND)


def test_a_zero_mask_row_is_a_warning_when_the_real_vector_is_shipped():
    zero = EmbeddingFacts(248070, 1e-4, 1.0, 0, 0.1)
    bare = replace(facts(BIG), embedding=zero)
    shipped = replace(bare, files=frozenset(["mask_embedding.pt"]))
    assert found(published.raw(BIG), bare)["mask_row_is_near_zero"] == "error"
    assert found(published.raw(BIG), shipped)["mask_row_is_near_zero"] == "warning"


def test_the_tokenizers_unknown_token_is_no_mask():
    tokenizer = TokenizerFacts(size=248320, special_ids=frozenset([248070]), unk_id=248070)
    assert "mask_has_another_job" in found(published.raw(BIG), replace(facts(BIG), tokenizer=tokenizer))


def test_the_guessed_demo_config_is_told_from_the_right_one():
    right, guessed = (json.loads((DEMO / name).read_text()) for name in ("config.json", "config.guessed.json"))
    demo = Facts(tokenizer=TokenizerFacts(size=49152, special_ids=frozenset(range(17)), unk_id=0))
    assert set(found(right, demo).values()) == {"note"}
    assert {"mask_has_another_job", "taps_bunched"} <= set(found(guessed, demo))


def test_facts_about_another_mask_say_nothing_about_this_one():
    stale = replace(facts(BIG), embedding=EmbeddingFacts(7, 1e-4, 1.0, 0, 0.999))
    assert not {"mask_row_is_near_zero", "mask_row_is_like_another"} & set(found(published.raw(BIG), stale))


def test_the_qwen3_drafters_are_known_to_be_trained_without_thinking():
    thinking = replace(facts("Qwen3-8B-DFlash-b16"), thinking=True)
    assert "thinking_against_training" in found(published.raw("Qwen3-8B-DFlash-b16"), thinking)


def test_a_suggested_value_heals_the_fault():
    for name, raw in (
        ("taps_one_too_high", FAULTS["taps_one_too_high"][0]),
        ("taps_unsorted", FAULTS["taps_unsorted"][0]),
    ):
        healed = copy.deepcopy(raw)
        healed[DRAFT]["target_layer_ids"] = next(f.suggested for f in check(raw, facts(BIG)) if f.check == name)
        assert healed == published.raw(BIG)


def test_embedding_facts_are_taken_from_the_table():
    import torch

    table = torch.eye(4, 8) * 3
    table[2] = 0
    table[3] = table[1] * 2
    zero, alike = EmbeddingFacts.from_table(table, 2), EmbeddingFacts.from_table(table, 3)
    assert (zero.mask_norm, zero.median_norm) == (0.0, 3.0)
    assert alike.nearest_id == 1 and alike.nearest_cosine == pytest.approx(1.0)


# --- no JSON makes a check raise -------------------------------------------------------------------------------

KEYS = sorted({key for name in published.NAMES for key in published.raw(name)} | set(published.raw(BIG)[DRAFT]) | {AUX})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 70)
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.sampled_from(["", "sliding_attention", "full_attention", "default", "x"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=6,
)


def healthy_or_odd(raw) -> None:
    for finding in check(raw, Facts()):
        assert finding.severity in ("error", "warning", "note") and finding.message
    odd = Facts(
        target_config=raw if isinstance(raw, dict) else None, drafted=3, transformers_version="x", thinking=True
    )
    check(raw, odd)
    check(raw, facts(BIG))


@pytest.mark.slow
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(JSON | st.dictionaries(st.sampled_from(KEYS), JSON, max_size=12))
def test_no_json_makes_a_check_raise(raw):
    healthy_or_odd(raw)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_mutation_of_a_published_config_makes_a_check_raise(data):
    raw = published.raw(data.draw(st.sampled_from(published.NAMES)))
    for _ in range(data.draw(st.integers(1, 3))):
        places = [raw, *(value for value in raw.values() if isinstance(value, dict))]
        place = data.draw(st.sampled_from(places))
        key = data.draw(st.sampled_from([*place, *KEYS]))
        if data.draw(st.booleans()):
            place[key] = data.draw(JSON)
        else:
            place.pop(key, None)
    healthy_or_odd(raw)
