"""What each field of a drafter config means, who reads it where, and what a wrong value looks like.

Texts for the editor and for error messages. Versions: z-lab package 0.1.0, vLLM 0.32, SGLang's public source,
transformers 5.24, speculators 0.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["runtime", "rewire", "structural"]


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One field. `type` completes "Give ..."; `read_by` maps an engine to where it looks.

    `kind`: a runtime field applies to the next round; a rewired one changes the arithmetic while the weights
    still fit; a structural one follows from the weights and cannot be chosen.
    """

    meaning: str
    type: str
    kind: Kind
    wrong: str
    read_by: dict[str, str]


_STACK = {
    "z-lab": "top level, through Qwen3Config",
    "vLLM": "top level, or transformer_layer_config in a speculators file",
    "SGLang": "top level",
    "transformers": "top level",
    "speculators": "transformer_layer_config",
}
_DRAFT = {
    "z-lab": "dflash_config, then top level",
    "vLLM": "dflash_config, then top level",
    "SGLang": "dflash_config, then top level",
    "transformers": "top level only",
    "speculators": "top level",
}
_DFLASH2 = {
    "z-lab": "dflash_config, then top level",
    "vLLM": "dflash_config",
    "speculators": "top level (dflash2)",
}
_SHAPE_ERROR = "a shape error when the weights are loaded"
_SPECULATORS_ONLY = {"speculators": "top level", "vLLM": "top level of a speculators file"}


def _structural(meaning: str, type_: str = "a whole number above 0") -> FieldInfo:
    return FieldInfo(meaning, type_, "structural", _SHAPE_ERROR, _STACK)


FIELDS: dict[str, FieldInfo] = {
    "architectures": FieldInfo(
        "The model class: DFlashDraftModel, or DFlash2DraftModel with convolutions and a candidate selector",
        "a list of class names",
        "structural",
        "the engine picks another class, or refuses the file",
        {"z-lab": "top level", "vLLM": "top level", "SGLang": "top level", "speculators": "top level"},
    ),
    "hidden_size": _structural("Width of a hidden row; the target's, because the embeddings are the target's"),
    "intermediate_size": _structural("Width inside the MLP"),
    "num_hidden_layers": _structural("Number of drafter layers; also the number of default taps"),
    "num_attention_heads": _structural("Query heads of a layer"),
    "num_key_value_heads": _structural("Key and value heads of a layer"),
    "head_dim": _structural("Width of one head; Qwen3Config takes 128 when it is absent"),
    "vocab_size": FieldInfo(
        "Size of the vocabulary; the target's table and head are used, so it must be the target's",
        "a whole number above 0",
        "structural",
        "nothing for DFlash, whose table and head are the target's; a shape error in DFlash 2's selector",
        _STACK,
    ),
    "attention_bias": _structural("Whether q, k, v and o projections have biases", "true or false"),
    "attention_sink_bias": FieldInfo(
        "Whether attention has learned sinks",
        "true or false",
        "structural",
        "sinks in the weights stay unused: lower acceptance, no error",
        {"vLLM": "top level"},
    ),
    "hidden_act": FieldInfo("The MLP's activation", "an activation's name", "rewire", "acceptance collapses", _STACK),
    "rms_norm_eps": FieldInfo(
        "Epsilon of every RMSNorm", "a small number, mostly 1e-6", "rewire", "nearly nothing", _STACK
    ),
    "rope_parameters": FieldInfo(
        "The drafter's own RoPE: theta, type and, for yarn, its factor and trained length",
        'a flat object, for instance {"rope_theta": 10000000, "rope_type": "default"}',
        "rewire",
        "no error; acceptance is lower and falls with distance",
        {
            "z-lab": "rope_parameters, or rope_theta and rope_scaling, as transformers does; absent: 10000",
            "vLLM": "either; theta 1000000 when absent",
            "SGLang": "either",
            "transformers": "rope_scaling, else rope_parameters, else rope_theta; absent: 10000",
            "speculators": "transformer_layer_config",
        },
    ),
    "rope_theta": FieldInfo(
        "RoPE's base",
        "a number above 0, mostly the target's",
        "rewire",
        "no error; acceptance is lower and falls with distance",
        {
            "z-lab": "rope_parameters, else top level; absent: 10000",
            "vLLM": "rope_parameters, else top level; absent: 1000000",
            "SGLang": "rope_parameters, else top level",
            "transformers": "rope_parameters, else top level (4.57: top level only); absent: 10000",
            "speculators": "transformer_layer_config",
        },
    ),
    "max_position_embeddings": FieldInfo(
        "The longest position the drafter claims; RoPE scalings measure from it",
        "a whole number above 0",
        "rewire",
        "nothing without RoPE scaling; an engine may cap its context at it",
        _STACK,
    ),
    "block_size": FieldInfo(
        "Trained block: one anchor and block_size - 1 masks",
        "a whole number, 1 or more",
        "runtime",
        "K above block_size - 1 leaves the trained range: late positions are rarely accepted",
        _DRAFT
        | {
            "z-lab": "dflash_config, then top level; absent: 16",
            "vLLM": "not read: num_speculative_tokens K is given, block = 1 + K",
            "SGLang": "dflash_config, then top level; absent: 16; --speculative-num-draft-tokens overrides",
            "speculators": "top level; absent: 8",
        },
    ),
    "mask_token_id": FieldInfo(
        "The token whose embedding fills the slots to be drafted",
        "the id the drafter was trained with, a whole number",
        "rewire",
        "no error; acceptance length 1.0 to 1.2",
        _DRAFT,
    ),
    "target_layer_ids": FieldInfo(
        "The taps: target layers whose outputs become the drafter's context, 0-based, in order",
        "a list of layer ids, 0 or more each",
        "rewire",
        "same count: no error, acceptance drops 2-16% or collapses; another count: a shape error at fc",
        {
            "z-lab": "dflash_config, then top level, else the default rule; in the given order",
            "vLLM": "eagle_aux_hidden_state_layer_ids, else dflash_config; sorted and de-duplicated",
            "SGLang": "dflash_config, then top level; range-checked",
            "transformers": "top level only",
            "speculators": "aux_hidden_state_layer_ids, each one higher",
        },
    ),
    "num_target_layers": FieldInfo(
        "Number of the target's layers: default taps and range checks",
        "a whole number above 0",
        "rewire",
        "missing: z-lab stops with AttributeError even when taps are given; wrong: other default taps",
        {"z-lab": "top level", "SGLang": "top level, validated"},
    ),
    "layer_types": FieldInfo(
        "Each layer's attention: full is bidirectional, sliding is causal with a window",
        "one of full_attention, sliding_attention a layer",
        "rewire",
        "no error; acceptance drops, worst past the window",
        _STACK,
    ),
    "sliding_window": FieldInfo(
        "W: how many positions a sliding layer sees, its own included",
        "a whole number above 0",
        "rewire",
        "no error; long contexts lose acceptance",
        _STACK
        | {
            "z-lab": "top level, null unless use_sliding_window is true",
            "vLLM": "dflash_config.swa_window_size, else top level",
            "SGLang": "top level, required when a layer slides",
            "speculators": "transformer_layer_config, counted from the anchor",
        },
    ),
    "use_sliding_window": FieldInfo(
        "Whether sliding_window counts at all: Qwen3Config drops the window unless this is true",
        "true or false",
        "rewire",
        "z-lab 0.1.0 crashes in DynamicCache, vLLM raises ValueError, z-lab's old code runs without a window",
        _STACK,
    ),
    "is_causal": FieldInfo(
        "Overrides, for every layer, whether a slot sees later slots of its block",
        "true, false, or nothing",
        "rewire",
        "no error; position 0 nearly normal, later positions fall steeply",
        {"z-lab": "top level", "vLLM": "top level, then dflash_config.causal"},
    ),
    "input_embedding_scale": FieldInfo(
        "Factor on the target's raw embedding rows",
        "a number",
        "rewire",
        "no error; acceptance drops",
        {"z-lab": "dflash_config, then top level"},
    ),
    "output_multiplier": FieldInfo(
        "Factor on the logits",
        "a number",
        "rewire",
        "greedy: nothing without a soft cap; sampling: the wrong temperature",
        {"z-lab": "dflash_config, then top level", "vLLM": "logit_scale instead"},
    ),
    "final_logit_softcapping": FieldInfo(
        "Soft cap c on the logits: c tanh(logit / c)",
        "a number above 0, or nothing",
        "rewire",
        "greedy: nothing; sampling: the wrong distribution",
        {"z-lab": "dflash_config, then top level"},
    ),
    "is_neox_style": FieldInfo(
        "RoPE pairs dimension j with j + d/2 (true, the default) or with its neighbour (false)",
        "true, false, or nothing",
        "rewire",
        "no error; acceptance length near 1, worse with distance",
        {"vLLM": "top level"},
    ),
    "attention_value_scale": FieldInfo(
        "Factor on the values",
        "a number, or nothing",
        "rewire",
        "no error; acceptance drops",
        {"vLLM": "top level"},
    ),
    "use_swa": FieldInfo(
        "Makes every layer slide, without layer_types",
        "true, false, or nothing",
        "rewire",
        "no error",
        {"vLLM": "dflash_config"},
    ),
    "swa_window_size": FieldInfo(
        "The window use_swa asks for; goes before sliding_window",
        "a whole number above 0, or nothing",
        "rewire",
        "no error",
        {"vLLM": "dflash_config"},
    ),
    "conv_kernel_size": FieldInfo(
        "DFlash 2: length of the causal convolution",
        "a whole number above 0",
        "structural",
        _SHAPE_ERROR,
        _DFLASH2,
    ),
    "conv_group_size": FieldInfo(
        "DFlash 2: channels that share one kernel",
        "a whole number above 0",
        "structural",
        _SHAPE_ERROR,
        _DFLASH2,
    ),
    "selector_rank": FieldInfo(
        "DFlash 2: rank of the candidate selector",
        "a whole number above 0",
        "structural",
        _SHAPE_ERROR,
        _DFLASH2,
    ),
    "selector_top_k": FieldInfo(
        "DFlash 2: candidates a slot chooses from",
        "a whole number above 0",
        "rewire",
        "slightly lower acceptance",
        _DFLASH2,
    ),
    "draft_vocab_size": FieldInfo(
        "Size of a reduced draft vocabulary with its d2t map",
        "a whole number above 0, or nothing",
        "structural",
        _SHAPE_ERROR,
        _SPECULATORS_ONLY,
    ),
    "sample_from_anchor": FieldInfo(
        "Whether the anchor's slot drafts too: block_size proposals instead of block_size - 1",
        "true, false, or nothing",
        "rewire",
        "every proposal is one position off: acceptance near 1",
        {"speculators": "top level", "vLLM": "refused for DFlash when true"},
    ),
    "sliding_window_non_causal": FieldInfo(
        "Whether sliding layers are bidirectional inside the block; full layers always are",
        "true, false, or nothing",
        "rewire",
        "no error; later positions fall. vLLM takes absent as true, speculators as false",
        _SPECULATORS_ONLY,
    ),
}
