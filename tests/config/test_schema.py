"""The schema: three dialects, one set of names, nothing lost."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_lab.config.dialects import DIALECTS
from dflash_lab.config.schema import FIELDS, ConfigError, DrafterConfig, LayerAttention, default_taps
from tests.config import published

CAUSAL_2048 = LayerAttention(True, 2048)
ALL = LayerAttention(False)
BIG = "Qwen3.6-27B-DFlash"


def config(name: str = BIG) -> DrafterConfig:
    return DrafterConfig.from_json(published.raw(name))


@pytest.mark.parametrize("name", published.NAMES)
def test_an_unedited_config_gives_the_very_same_json_back(name):
    raw = published.raw(name)
    assert json.dumps(DrafterConfig.from_json(raw).to_json()) == json.dumps(raw)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", published.NAMES)
def test_a_conversion_runs_the_same_way_and_comes_back_unchanged(name, dialect):
    before = config(name)
    other = DrafterConfig.from_json(before.to_json(dialect))
    back = DrafterConfig.from_json(other.to_json(before.dialect))
    assert other.dialect == dialect
    for seen in (other, back):
        assert seen.taps == before.taps
        assert [seen.attention(i) for i in range(seen.num_hidden_layers)] == [
            before.attention(i) for i in range(before.num_hidden_layers)
        ]
        for field in FIELDS:
            if field not in ("architectures", "is_causal", "sliding_window_non_causal"):
                assert getattr(seen, field) == getattr(before, field), field
    assert back.extra == before.extra and back.is_causal == before.is_causal


def test_speculators_ids_are_layer_ids_plus_one():
    raw = config().to_json("speculators")
    assert raw["aux_hidden_state_layer_ids"] == [2, 17, 32, 47, 62]
    assert config().taps == (1, 16, 31, 46, 61)


def test_unknown_keys_survive_edits_and_conversions():
    raw = published.raw(BIG) | {"their_key": {"a": [1]}}
    raw["dflash_config"]["causal"] = None
    edited = DrafterConfig.from_json(raw).edited(mask_token_id=5)
    for dialect in DIALECTS:
        out = edited.to_json(dialect)
        assert out["their_key"] == {"a": [1]} and out["dflash_config"]["causal"] is None
    assert edited.extra["their_key"] == {"a": [1]}


@pytest.mark.parametrize("name", published.NAMES)
def test_the_default_rule_gives_the_published_taps(name):
    taps = config(name).taps
    rule = default_taps(published.TARGETS[name]["num_hidden_layers"], len(taps))
    assert (taps == rule) is not name.startswith(("Qwen3.8", "MiMo"))


def test_one_default_tap_is_the_middle_layer():
    assert default_taps(36, 1) == (18,)


def test_taps_default_to_the_rule_and_need_the_number_of_target_layers():
    bare = config().edited(target_layer_ids=None)
    assert bare.taps == (1, 16, 31, 46, 61)
    with pytest.raises(ConfigError, match="num_target_layers") as caught:
        _ = bare.edited(num_target_layers=None).taps
    assert caught.value.field == "target_layer_ids"


def test_sliding_layers_are_causal_with_a_window_and_full_ones_bidirectional():
    assert [config().attention(i) for i in range(5)] == [CAUSAL_2048] * 4 + [ALL]
    assert not config().all_causal


@pytest.mark.parametrize(
    ("causal", "sliding", "full"),
    [
        (True, CAUSAL_2048, LayerAttention(True)),
        (False, LayerAttention(False, 2048, two_sided=True), ALL),
    ],
)
def test_top_level_is_causal_overrides_every_layer(causal, sliding, full):
    edited = config().edited(is_causal=causal)
    assert edited.attention(0) == sliding and edited.attention(4) == full
    assert edited.all_causal is causal


@pytest.mark.parametrize(
    "change", [{"use_sliding_window": False}, {"use_sliding_window": None}, {"sliding_window": None}]
)
def test_a_sliding_layer_without_a_usable_window_is_refused_with_the_fix(change):
    with pytest.raises(ConfigError) as caught:
        config().edited(**change).attention(0)
    assert caught.value.field == "sliding_window" and "use_sliding_window" in caught.value.fix


def test_layers_are_full_below_max_window_layers_when_the_file_names_no_types():
    raw = published.raw(BIG) | {"max_window_layers": 3}
    del raw["layer_types"]
    assert DrafterConfig.from_json(raw).layer_types == ("full_attention",) * 3 + ("sliding_attention",) * 2


@pytest.mark.parametrize(
    ("stack", "theta"),
    [
        ({}, 10000.0),
        ({"rope_theta": 5}, 5),
        ({"rope_theta": 5, "rope_parameters": {"rope_theta": 7}}, 7),
        ({"rope_theta": 5, "rope_scaling": {"type": "yarn", "factor": 2.0}}, 5),
    ],
)
def test_rope_is_read_as_transformers_reads_it(stack, theta):
    from transformers import Qwen3Config

    raw = {k: v for k, v in published.raw(BIG).items() if not k.startswith("rope")} | stack
    ours = DrafterConfig.from_json(raw).rope_parameters
    theirs = Qwen3Config.from_dict(json.loads(json.dumps(raw))).rope_parameters
    assert ours["rope_theta"] == theta
    assert {key: theirs[key] for key in ours} == ours


@pytest.mark.parametrize("name", published.NAMES)
def test_an_edited_theta_lands_where_the_file_keeps_it(name):
    edited = config(name).edited(rope_theta=123.0)
    before, after = published.raw(name), edited.to_json()
    for raw in (before, after):
        place = raw.get("transformer_layer_config", raw)
        place.get("rope_parameters", place).pop("rope_theta")
    assert edited.rope_theta == 123.0 and before == after


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("block_size", "16"),
        ("block_size", 0),
        ("mask_token_id", True),
        ("target_layer_ids", ()),
        ("target_layer_ids", (1, "2")),
        ("layer_types", ("full_attention",)),
        ("layer_types", ("chunked",) * 5),
        ("rope_parameters", {"rope_theta": -1}),
        ("sliding_window", 0),
        ("hidden_size", None),
        ("no_such_field", 1),
    ],
)
def test_an_edit_that_cannot_be_is_refused_with_field_value_and_fix(field, value):
    with pytest.raises(ConfigError) as caught:
        config().edited(**{field: value})
    assert caught.value.field == field and caught.value.fix
    assert field in str(caught.value)


def test_every_attribute_has_a_text_for_the_editor():
    fields = set(DrafterConfig.model_fields) - {"dialect", "raw", "extra"} | {"rope_theta"}
    assert fields == set(FIELDS)
    assert all(info.meaning and info.type and info.wrong and info.read_by for info in FIELDS.values())


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(published.NAMES),
    dialect=st.sampled_from(DIALECTS),
    mask=st.integers(0, 300_000),
    taps=st.lists(st.integers(0, 80), min_size=1, max_size=8),
    block=st.integers(2, 64),
    theta=st.floats(1.0, 1e9),
    causal=st.sampled_from([None, True, False]),
)
def test_any_edit_survives_a_trip_through_any_dialect(name, dialect, mask, taps, block, theta, causal):
    changes = {"mask_token_id": mask, "target_layer_ids": tuple(taps), "block_size": block, "is_causal": causal}
    start = DrafterConfig.from_json(config(name).to_json(dialect))
    edited = start.edited(**changes, rope_theta=theta)
    again = DrafterConfig.from_json(json.loads(json.dumps(edited.to_json())))
    assert again == edited
    assert {key: getattr(again, key) for key in changes} == changes and again.rope_theta == theta
