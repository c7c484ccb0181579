"""What each engine reads: z-lab's and transformers' columns against their real code, the others rule by rule."""

import pytest

from dflash_lab.config.engines import READERS, TargetFacts
from dflash_lab.config.readers import read_all, reading
from dflash_lab.config.schema import ConfigError, DrafterConfig, LayerAttention
from tests.config import published

BIG = "Qwen3.6-27B-DFlash"
SPECULATORS = "Qwen3.6-35B-A3B-speculator.dflash"
ZLAB_NAMES = [name for name in published.NAMES if name != SPECULATORS]
SIXTY_FOUR = TargetFacts(64)
CAUSAL, ALL = LayerAttention(True, 2048), LayerAttention(False)
EVERY_CAUSAL_LAYER = LayerAttention(True)


def layers(config: DrafterConfig) -> list[LayerAttention]:
    return [config.attention(i) for i in range(config.num_hidden_layers)]


def big(**changes):
    return DrafterConfig.from_json(published.raw(BIG)).edited(**changes).to_json()


@pytest.mark.parametrize("name", ZLAB_NAMES)
def test_the_zlab_reading_is_what_its_package_builds(name):
    import torch
    from dflash.model import DFlash2DraftModel, DFlashDraftModel, Qwen3Config

    raw = published.raw(name)
    kind = DFlash2DraftModel if "DFlash2DraftModel" in raw["architectures"] else DFlashDraftModel
    with torch.device("meta"):
        model = kind(Qwen3Config.from_dict(raw))
    config = reading(published.raw(name), "z-lab")
    assert list(config.taps) == list(model.target_layer_ids)
    assert (config.block_size, config.mask_token_id) == (model.block_size, model.mask_token_id)
    for i, layer in enumerate(model.layers):
        rule = config.attention(i)
        assert (rule.causal, rule.window) == (layer.self_attn.is_causal, layer.self_attn.sliding_window)
    assert config.rope_parameters.items() <= model.config.rope_parameters.items()


def test_zlab_really_crashes_where_the_table_says_so():
    from dflash.model import Qwen3Config, _make_cache

    raw = big(use_sliding_window=False)
    with pytest.raises(TypeError):
        _make_cache(Qwen3Config.from_dict(big(use_sliding_window=False)))
    assert read_all(raw).cells["layers"]["z-lab"].refused
    with pytest.raises(ConfigError) as caught:
        reading(raw, "z-lab")
    assert caught.value.field == "sliding_window"


def test_a_window_without_use_sliding_window_is_refused_by_some_and_ignored_by_others():
    cells = read_all(big(use_sliding_window=False), SIXTY_FOUR).cells["layers"]
    assert {name for name in READERS if cells[name].refused} >= {"z-lab", "vLLM", "SGLang", "transformers"}
    assert layers(reading(big(use_sliding_window=False), "z-lab, old")) == [ALL] * 5


def test_vllm_sorts_the_taps_that_zlab_takes_in_order():
    raw = big(target_layer_ids=(61, 46, 31, 16, 1))
    assert reading(raw, "z-lab").taps == (61, 46, 31, 16, 1)
    assert reading(raw, "vLLM").taps == (1, 16, 31, 46, 61)
    cell = read_all(raw).cells["taps"]["vLLM"]
    assert cell.differs and "sorted" in cell.why and "0.32" in cell.why


def test_vllm_refuses_duplicate_taps():
    assert read_all(big(target_layer_ids=(1, 1, 2, 3, 4))).cells["taps"]["vLLM"].refused


def test_vllm_without_ids_takes_eagle_threes_layers():
    raw = big(target_layer_ids=None)
    assert reading(raw, "vLLM", SIXTY_FOUR).taps == (1, 31, 60)
    assert reading(raw, "z-lab", SIXTY_FOUR).taps == (1, 16, 31, 46, 61)


def test_old_vllm_taps_one_layer_early_and_runs_every_layer_full():
    config = reading(published.raw(BIG), "vLLM, old")
    assert config.taps == (0, 15, 30, 45, 60) and layers(config) == [ALL] * 5
    assert reading(published.raw("MiMo-V2.5-Pro-FP4-DFlash"), "vLLM, old").taps[0] == -1


def test_old_vllm_takes_speculators_ids_as_they_are():
    assert reading(published.raw(SPECULATORS), "vLLM, old").taps == reading(published.raw(SPECULATORS), "vLLM").taps


def test_old_zlab_code_wants_the_block_size_at_the_top_level():
    cell = read_all(published.raw("Qwen3.6-35B-A3B-DFlash")).cells["block_size"]["z-lab, old"]
    assert cell.refused and "block_size" in cell.text


@pytest.mark.parametrize(
    ("value", "sliding", "full"),
    [(None, LayerAttention(False, 4096, True), ALL), (False, LayerAttention(True, 4096), EVERY_CAUSAL_LAYER)],
)
def test_vllm_and_speculators_disagree_about_causality(value, sliding, full):
    raw = published.raw(SPECULATORS)
    raw["sliding_window_non_causal"] = value
    if value is None:
        del raw["sliding_window_non_causal"]
    ours = LayerAttention(True, 4096)
    assert layers(reading(raw, "vLLM")) == [sliding] * 5 + [full]
    assert layers(reading(raw, "speculators")) == [ours] * 5 + [ALL] == layers(DrafterConfig.from_json(raw))


def test_vllm_prefers_is_causal_to_its_own_causal_and_both_to_layer_types():
    raw = big()
    raw["dflash_config"]["causal"] = True
    assert layers(reading(raw, "vLLM"))[4] == EVERY_CAUSAL_LAYER and layers(reading(raw, "z-lab"))[4] == ALL
    assert layers(reading(raw | {"is_causal": False}, "vLLM"))[4] == ALL


def test_only_vllm_gives_a_use_swa_file_its_window():
    raw = published.raw("MiMo-V2.5-Pro-FP4-DFlash")
    assert {layer.window for layer in layers(reading(raw, "vLLM"))} == {1024}
    assert {layer.window for layer in layers(reading(raw, "z-lab"))} == {None}


def test_an_absent_theta_is_10000_to_zlab_and_a_million_to_vllm():
    raw = published.raw(BIG)
    del raw["rope_theta"]
    assert reading(raw, "z-lab").rope_theta == 1e4 and reading(raw, "vLLM").rope_theta == 1e6


def test_only_zlab_scales_and_caps_the_logits():
    raw = published.raw("Muse-Glimmer-30B-DFlash2")
    config = reading(raw, "z-lab")
    assert (config.output_multiplier, config.final_logit_softcapping) == (0.19612, 20.0)
    config = reading(raw, "vLLM")
    assert (config.output_multiplier, config.final_logit_softcapping) == (1.0, None)
    assert reading(raw | {"logit_scale": 0.5}, "vLLM").output_multiplier == 0.5


def test_sglang_checks_ids_and_number_of_layers_against_the_target():
    assert "64" in read_all(published.raw(BIG), TargetFacts(48)).cells["taps"]["SGLang"].text
    assert read_all(big(target_layer_ids=(1, 2, 3, 4, 64)), SIXTY_FOUR).cells["taps"]["SGLang"].refused


def test_transformers_own_generator_reads_the_top_level_only():
    cells = read_all(published.raw(BIG)).cells
    assert cells["taps"]["transformers"].refused and cells["block_size"]["transformers"].value == 16
    top = published.raw(BIG) | {"mask_token_id": 248070, "target_layer_ids": [1, 16, 31, 46, 61]}
    assert reading(top, "transformers").attention(0) == LayerAttention(False, 2048, two_sided=True)


def test_speculators_runs_a_sliding_layer_without_a_window_as_full_in_silence():
    raw = published.raw(SPECULATORS)
    raw["transformer_layer_config"]["use_sliding_window"] = False
    cell = read_all(raw).cells["layers"]["speculators"]
    assert cell.text == "6 x both ways, all" and not cell.refused


@pytest.mark.parametrize("name", published.NAMES)
def test_every_cell_that_stands_out_says_why_and_for_which_version(name):
    table = read_all(published.raw(name), TargetFacts(published.TARGETS[name]["num_hidden_layers"]))
    for row, reader, why in table.standing_out():
        assert READERS[reader].version in why, row
    assert list(table.frame().columns) == list(READERS) and table.frame().notna().all(axis=None)
    assert all(cell.text for cells in table.cells.values() for cell in cells.values())


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"dflash_config": None},
        {"dflash_config": [], "num_target_layers": "x"},
        {"rope_parameters": 3, "layer_types": 4, "num_hidden_layers": -1},
        {"transformer_layer_config": None, "speculators_model_type": "dflash"},
        {"rope_theta": "x", "rope_scaling": {"rope_type": ["?"]}, "num_hidden_layers": 10**9},
    ],
)
def test_a_broken_file_fills_the_table_with_refusals_instead_of_raising(raw):
    assert read_all(raw).frame().notna().all(axis=None)
