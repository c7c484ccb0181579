"""Weights' shapes: read from the header alone, and held against a config."""

import pytest

from dflash_lab.config.schema import ConfigError, DrafterConfig, check_shapes, weight_shapes
from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES
from tests.config import published

DEMO = SAMPLES / "smollm2-135m-dflash"


def test_header_shapes_equal_the_loaded_tensors_shapes():
    from safetensors import safe_open

    with safe_open(DEMO / "model.safetensors", "pt") as file:
        loaded = {name: tuple(file.get_tensor(name).shape) for name in file.keys()}  # noqa: SIM118
    assert weight_shapes(DEMO / "model.safetensors") == loaded == weight_shapes(DEMO)


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0[]"])
def test_a_broken_header_is_named_not_a_traceback(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(LabError, match=r"model\.safetensors"):
        weight_shapes(tmp_path)


@pytest.mark.parametrize("name", published.NAMES)
def test_a_config_fits_its_own_weights(name):
    config = DrafterConfig.from_json(published.raw(name))
    check_shapes(config, published.shapes(name), config.hidden_size)


@pytest.mark.parametrize(
    ("change", "tensor"),
    [
        ({"target_layer_ids": (1, 2)}, "fc.weight"),
        ({"hidden_size": 2560}, "fc.weight"),
        ({"intermediate_size": 1}, "mlp.gate_proj"),
        ({"num_attention_heads": 16}, "q_proj"),
        ({"num_key_value_heads": 4}, "k_proj"),
        ({"head_dim": 64}, "q_norm"),
        ({"attention_bias": True}, "q_proj.bias"),
        ({"num_hidden_layers": 2, "layer_types": ("full_attention",) * 2}, "layers.4"),
    ],
)
def test_a_structural_edit_is_refused_with_its_field_the_tensor_and_both_shapes(change, tensor):
    config = DrafterConfig.from_json(published.raw("Qwen3.6-27B-DFlash"))
    with pytest.raises(ConfigError) as caught:
        check_shapes(config.edited(**change), published.shapes("Qwen3.6-27B-DFlash"), 5120)
    assert caught.value.field == next(iter(change)) and tensor in caught.value.what


def test_biases_in_the_weights_need_attention_bias():
    config = DrafterConfig.from_json(published.raw("gpt-oss-20b-DFlash"))
    with pytest.raises(ConfigError, match=r"q_proj\.bias"):
        check_shapes(config.edited(attention_bias=False), published.shapes("gpt-oss-20b-DFlash"), 2880)


def test_a_draft_vocabulary_without_its_map_is_refused():
    name = "Qwen3.6-35B-A3B-speculator.dflash"
    config, shapes = DrafterConfig.from_json(published.raw(name)), published.shapes(name)
    del shapes["d2t"]
    with pytest.raises(ConfigError, match=r"hold no d2t \[32000\], which draft_vocab_size = 32000 asks for"):
        check_shapes(config, shapes, config.hidden_size)


def test_a_map_that_the_config_does_not_mention_is_refused():
    name = "Qwen3.6-35B-A3B-speculator.dflash"
    config, shapes = DrafterConfig.from_json(published.raw(name)), published.shapes(name)
    with pytest.raises(ConfigError, match="Set draft_vocab_size to 32000"):
        check_shapes(config.edited(draft_vocab_size=None), shapes, config.hidden_size)
