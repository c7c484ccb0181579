"""The MTP head: its arithmetic against transformers' MtpModel, its chains against a plain recomputation, its text."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeMLP

from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.lossless import compare
from dflash_lab.decode.sampling import Sampling
from dflash_lab.decode.target import Target
from dflash_lab.drafters.mtp import MtpConfig, MtpDrafter, MtpHead, read_mtp
from dflash_lab.errors import LabError
from dflash_lab.prompts import load_prompts
from tests.tiny import HIDDEN, PROMPT, tiny_target

CONFIGS = {
    "plain": MtpConfig(heads=4, kv_heads=2, head_dim=8, rotary_dim=8, rope_theta=10000.0),
    "gated, zero-centred norms, a quarter of RoPE": MtpConfig(4, 2, 8, 2, 10000.0, gated=True, zero_centred=True),
}


def random_tensors(config: MtpConfig, dtype: torch.dtype = torch.float64, seed: int = 3) -> dict[str, torch.Tensor]:
    q = config.heads * config.head_dim
    kv = config.kv_heads * config.head_dim
    shapes = {
        "fc": (HIDDEN, 2 * HIDDEN),
        "layers.0.self_attn.q_proj": (q * (2 if config.gated else 1), HIDDEN),
        "layers.0.self_attn.k_proj": (kv, HIDDEN),
        "layers.0.self_attn.v_proj": (kv, HIDDEN),
        "layers.0.self_attn.o_proj": (HIDDEN, q),
        "layers.0.mlp.gate_proj": (48, HIDDEN),
        "layers.0.mlp.up_proj": (48, HIDDEN),
        "layers.0.mlp.down_proj": (HIDDEN, 48),
        **dict.fromkeys(("layers.0.self_attn.q_norm", "layers.0.self_attn.k_norm"), (config.head_dim,)),
        **dict.fromkeys(("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"), (HIDDEN,)),
        **dict.fromkeys(("pre_fc_norm_embedding", "pre_fc_norm_hidden"), (HIDDEN,)),
    }
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        one = 0.0 if config.zero_centred else 1.0
        tensors[f"{name}.weight"] = (one + 0.2 * noise if len(shape) == 1 else 0.3 * noise).to(dtype)
    return tensors


def tiny_head(name: str = "plain", dtype: torch.dtype = torch.float64, seed: int = 0) -> MtpHead:
    config = CONFIGS[name]
    return MtpHead(config, random_tensors(config, dtype, seed + 3), Target(tiny_target(dtype, seed)))


def loop(head: MtpHead, k: int, tokens: int = 40, **settings):
    drafter = MtpDrafter(head) if k else None
    generation = run(head.target, drafter, PROMPT, Settings(k, tokens, **settings))
    rounds = list(generation)
    return rounds, generation.trace().output_ids


def recomputed(head: MtpHead, ids: list[int], states: torch.Tensor, k: int) -> list[int]:
    """A greedy chain the slow way: every step runs all rows so far through the head at once, with no cache."""
    tokens, inputs, hidden = list(ids), states, None
    for _ in range(k):
        count = len(inputs)
        positions = torch.arange(count)

        def attend(q, key, value):
            key, value = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (key, value))
            scores = torch.einsum("qhd,khd->hqk", q, key) / q.shape[-1] ** 0.5
            scores = scores + torch.full(scores.shape[1:], float("-inf")).triu(1)
            return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1)

        hidden = head.rows(torch.tensor(tokens[1 : 1 + count]), inputs, positions, attend)[-1:]
        tokens.append(int(head.logits(hidden).argmax()))
        inputs = torch.cat([inputs, hidden])
    return tokens[len(ids) :]


@torch.inference_mode()
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_rows_equal_transformers_mtp_model(share):
    torch.manual_seed(0)
    model = Glm4MoeForCausalLM(
        Glm4MoeConfig(
            vocab_size=29,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            moe_intermediate_size=16,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_shared_experts=1,
            first_k_dense_replace=2,
            use_qk_norm=True,
            num_nextn_predict_layers=1,
            initializer_range=0.4,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": share},
        )
    )
    model = model.double().eval()
    oracle = MtpModel(model, 1)
    # Its layers are always mixtures of experts: the family's own dense MLP takes that place, as ours runs no experts.
    oracle.layers[0].mtp_block.mlp = Glm4MoeMLP(model.config)
    oracle = oracle.double().eval()
    for name, weight in oracle.named_parameters():
        if "norm" in name:
            weight.uniform_(0.5, 1.5)
    names = {"enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "eh_proj": "fc", "post_norm": "norm"}
    tensors = {}
    for name, weight in oracle.layers[0].state_dict().items():
        first, rest = name.split(".", 1)
        tensors[f"layers.0.{rest}" if first == "mtp_block" else f"{names[first]}.{rest}"] = weight
    config = MtpConfig(4, 2, 8, int(8 * share), 5000.0, eps=model.config.rms_norm_eps)
    head = MtpHead(config, tensors, Target(model))
    ids = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7])
    output = model(ids[None], output_hidden_states=True)
    hidden = output.hidden_states[-1][0]  # after the final norm

    # Its norms and RoPE round to float32, whatever the dtype.
    # The oracle reads two chunks through its cache, ours all rows at once and then through the drafter's cache.
    cache = MtpCache(config=model.config.get_mtp_config())
    places = torch.arange(1, len(ids))[None]
    theirs = torch.cat(
        [
            oracle.forward_layer(0, hidden[None, a:b], places[:, a:b], cache, input_ids=ids[None, a + 1 : b + 1])
            for a, b in ((0, 8), (8, 13))
        ],
        dim=1,
    )[0]
    torch.testing.assert_close(head.chains(ids, hidden[:13], 1)[0], theirs, rtol=1e-5, atol=2e-6)
    drafter = MtpDrafter(head)
    drafter.start(20)
    ours = [drafter._append(ids[a + 1 : b + 1], hidden[a:b]) for a, b in ((0, 8), (8, 13))]
    torch.testing.assert_close(torch.cat(ours), theirs, rtol=1e-5, atol=2e-6)


@torch.inference_mode()
def test_states_are_the_targets_hidden_states_after_its_final_norm():
    head = tiny_head()
    ids = torch.tensor(PROMPT)
    _, (raw,) = head.target.open(20, [head.target.num_layers - 1]).forward(ids)
    expected = head.target.model(ids[None], output_hidden_states=True).hidden_states[-1][0]
    torch.testing.assert_close(head.states(raw), expected)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_greedy_text_is_the_targets_own(name, k, dtype):
    for seed in range(3):
        head = tiny_head(name, dtype, seed)
        assert loop(head, k)[1] == loop(head, 0)[1]


@torch.inference_mode()
@pytest.mark.parametrize("name", CONFIGS)
def test_every_draft_of_the_loop_equals_the_slow_recomputation(name):
    head, k = tiny_head(name), 4
    rounds, output = loop(head, k)
    ids = [*PROMPT, *output]
    _, (raw,) = head.target.open(len(ids), [head.target.num_layers - 1]).forward(torch.tensor(ids))
    states = head.states(raw)
    assert sum(r.accepted for r in rounds) > 0, "cached rows of accepted drafts must have been replaced"
    for r in rounds:
        assert list(r.drafted) == recomputed(head, ids[: r.anchor_position + 1], states[: r.anchor_position], k)


@torch.inference_mode()
@pytest.mark.parametrize("name", CONFIGS)
def test_chains_accept_what_the_loop_accepts(name):
    head, k = tiny_head(name), 4
    rounds, output = loop(head, k, tokens=60)
    ids = torch.tensor([*PROMPT, *output])
    _, (raw,) = head.target.open(len(ids), [head.target.num_layers - 1]).forward(ids)
    count = len(ids) - k - 1
    drafted = head.logits(head.chains(ids, head.states(raw)[:count], k)).argmax(-1)  # [k, rows]
    for r in rounds:
        row = r.anchor_position - 1
        if row < count:
            agrees = drafted[:, row] == ids[row + 2 : row + 2 + k]
            assert int(agrees.long().cumprod(0).sum()) == r.accepted


def test_sampling_gives_the_q_each_token_was_drawn_from():
    rounds, _ = loop(tiny_head(), 3, sampling=Sampling(temperature=0.8, seed=5))
    assert all(len(r.drafted) == 3 and all(0 < q <= 1 for q in r.draft_probs) for r in rounds)


def test_a_folder_is_read_by_the_mtp_prefix_and_other_tensors_are_left_alone(tmp_path):
    config = CONFIGS["plain"]
    tensors = random_tensors(config)
    named = {f"mtp.{name}": tensor for name, tensor in tensors.items()}
    save_file(named | {"model.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    raw = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6, "hidden_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    found, read = read_mtp(tmp_path)
    assert found == config and read.keys() == tensors.keys()


def test_qwen35_configs_are_gated_with_zero_centred_norms_and_a_quarter_of_rope():
    raw = {
        "text_config": {
            "model_type": "qwen3_5_text",
            "num_attention_heads": 4,
            "head_dim": 8,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        }
    }
    config = MtpConfig.from_json(raw)
    assert config.gated and config.zero_centred and config.rotary_dim == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers is 2"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
        ({"rms_norm_eps": None}, "no 'rms_norm_eps'"),
    ],
)
def test_a_config_that_cannot_be_run_is_refused_by_field(change, says):
    raw = {"num_attention_heads": 4, "head_dim": 8, "rms_norm_eps": 1e-6} | change
    with pytest.raises(LabError, match=says):
        MtpConfig.from_json({key: value for key, value in raw.items() if value is not None})


def test_weights_of_another_target_are_refused_by_tensor():
    config = CONFIGS["plain"]
    tensors = random_tensors(config) | {"fc.weight": torch.zeros(16, 32)}
    with pytest.raises(LabError, match=r"mtp.fc.weight has shape \[16, 32\]"):
        MtpHead(config, tensors, Target(tiny_target()))
    del tensors["fc.weight"]
    with pytest.raises(LabError, match=r"mtp.fc.weight is missing"):
        MtpHead(config, tensors, Target(tiny_target()))


def test_experts_and_folders_without_a_head_are_refused(tmp_path):
    raw = {"num_attention_heads": 4, "head_dim": 8, "rms_norm_eps": 1e-6}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    save_file({"model.norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(LabError, match="holds no MTP head"):
        read_mtp(tmp_path)
    save_file({"mtp.layers.0.mlp.experts.0.up_proj.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    with pytest.raises(LabError, match="mixture of experts"):
        read_mtp(tmp_path)


def test_the_demo_pairs_head_drafts_the_targets_own_text(demo_pair):
    head = demo_pair.mtp()
    rounds = []
    for prompt in load_prompts()[:2]:
        ids = demo_pair.encode(prompt.prompt)
        drafted, plain = (
            run(demo_pair.target, drafter, ids, Settings(k, 32, demo_pair.stop_ids))
            for drafter, k in ((head, 3), (None, 0))
        )
        list(drafted), list(plain)
        assert compare(drafted.trace(), plain.trace(), demo_pair.target).verdict in ("equal", "near-tie")
        rounds += drafted.trace().rounds
    assert sum(r.accepted for r in rounds) > 0.1 * len(rounds)  # held-out text: 0.3 a round
