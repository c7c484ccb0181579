"""Layer types, windows and causality: what the layers see, and whether every engine will agree."""

from __future__ import annotations

from collections.abc import Iterator

from dflash_lab.config.checks.finding import Finding
from dflash_lab.config.checks.subject import Subject, whole

KINDS = ("full_attention", "sliding_attention")


def layer_types_length(s: Subject) -> Iterator[Finding]:
    layers = s.whole("num_hidden_layers")
    if s.layer_types and layers is not None and len(s.layer_types) != layers:
        yield Finding(
            "error",
            "layer_types",
            s.layer_types,
            f"layer_types names {len(s.layer_types)} layers, num_hidden_layers is {layers}",
            None,
            "transformers 5 refuses the file",
        )


def layer_types_unknown(s: Subject) -> Iterator[Finding]:
    unknown = [kind for kind in s.layer_types if kind not in KINDS]
    if unknown:
        yield Finding(
            "error",
            "layer_types",
            s.layer_types,
            f"{unknown[0]!r} is not a layer type of DFlash",
            None,
            f"Layers are {KINDS[0]} or {KINDS[1]}",
        )


def sliding_without_window(s: Subject) -> Iterator[Finding]:
    window = whole(s.stack.get("sliding_window"))
    if s.slides and (window is None or window < 1):
        yield Finding(
            "error",
            "sliding_window",
            s.stack.get("sliding_window"),
            "A layer slides, and the config gives it no window",
            None,
            "z-lab 0.1.0 crashes in DynamicCache, vLLM raises ValueError, older code runs without a window",
            "vllm#40898",
        )


def window_not_used(s: Subject) -> Iterator[Finding]:
    """Qwen3Config drops the window unless use_sliding_window is true, whatever layer_types says."""
    if s.slides and s.stack.get("use_sliding_window") is not True:
        yield Finding(
            "error",
            "use_sliding_window",
            s.stack.get("use_sliding_window"),
            "A layer slides, and use_sliding_window is not true: transformers drops the window",
            True,
            "z-lab 0.1.0 crashes in DynamicCache, vLLM raises ValueError, older code runs without a window",
        )


def window_without_sliding_layers(s: Subject) -> Iterator[Finding]:
    window = whole(s.stack.get("sliding_window"))
    if s.layer_types and not s.slides and window is not None and s.stack.get("use_sliding_window") is True:
        yield Finding(
            "warning",
            "layer_types",
            s.layer_types,
            f"A window of {window} is switched on, and no layer slides",
            None,
            "A drafter trained with sliding layers and run with full ones falls position by position",
            "vllm#40898, z-lab#126",
        )


def window_as_long_as_the_context(s: Subject) -> Iterator[Finding]:
    window = whole(s.stack.get("sliding_window"))
    if s.config and s.slides and window is not None and window >= s.config.max_position_embeddings:
        yield Finding(
            "warning",
            "sliding_window",
            window,
            f"A window of {window} never ends within {s.config.max_position_embeddings} positions",
            None,
            "Sliding layers then see all of the context: published windows are 1024 to 4096",
        )


def window_shorter_than_the_block(s: Subject) -> Iterator[Finding]:
    """A slot at P + i sees positions above P + i - window: with a window of i or less, none of the context."""
    window = whole(s.stack.get("sliding_window"))
    if s.config and s.slides and window is not None and 0 < window < s.config.block_size:
        yield Finding(
            "warning",
            "sliding_window",
            window,
            f"A window of {window} is shorter than the block of {s.config.block_size}: slots from {window} on see none "
            "of the context",
            None,
            "Without its context the drafter guesses: published windows are 1024 to 4096",
        )


def causality_unlike_published(s: Subject) -> Iterator[Finding]:
    """Full layers are bidirectional in every published drafter, sliding ones causal, but for DFlash 2's."""
    causal, second = s.raw.get("is_causal"), s.drafting("conv_kernel_size") is not None
    if s.dialect == "speculators" and s.raw.get("sliding_window_non_causal") is True:
        causal = False
    types = s.config.layer_types if s.config else s.layer_types
    if causal is True and ("full_attention" in types or second):
        message = "is_causal true makes every layer causal"
        why = "Full layers, and all of DFlash 2's, are bidirectional in every published drafter"
    elif causal is False and s.slides and not second:
        message = "The sliding layers are made bidirectional"
        why = "They are causal in every published drafter of the first DFlash"
    elif causal is None and s.slides and second and s.dialect != "speculators":
        message = "is_causal is absent, so the sliding layers are causal"
        why = "Published DFlash 2 drafters say is_causal false"
    else:
        return
    suggested = False if second else None
    yield Finding("warning", "is_causal", s.raw.get("is_causal"), message, suggested, why)


def causality_that_engines_read_differently(s: Subject) -> Iterator[Finding]:
    if "causal" in s.draft and s.raw.get("is_causal") is None:
        yield Finding(
            "warning",
            "dflash_config.causal",
            s.draft["causal"],
            "dflash_config.causal is read by vLLM only",
            None,
            "z-lab and SGLang go by layer_types; top-level is_causal is the one more engines read",
        )


def use_swa_is_read_by_vllm_only(s: Subject) -> Iterator[Finding]:
    if s.drafting("use_swa") is True:
        yield Finding(
            "warning",
            "use_swa",
            True,
            "use_swa and swa_window_size are read by vLLM only",
            None,
            "z-lab and SGLang run these layers as full attention unless layer_types says otherwise",
        )


def speculators_causality(s: Subject) -> Iterator[Finding]:
    if s.dialect != "speculators" or not s.slides:
        return
    value = s.raw.get("sliding_window_non_causal")
    if value is None:
        yield Finding(
            "warning",
            "sliding_window_non_causal",
            None,
            "sliding_window_non_causal is absent: speculators takes false, vLLM takes true",
            False,
            "The layers then run the other way round than they were trained",
        )
    elif value is False and "full_attention" in s.layer_types:
        yield Finding(
            "warning",
            "sliding_window_non_causal",
            False,
            "vLLM makes every layer causal, full ones too; speculators only the sliding ones",
            None,
            "The full layers were trained bidirectional",
        )


CHECKS = (
    layer_types_length,
    layer_types_unknown,
    sliding_without_window,
    window_not_used,
    window_without_sliding_layers,
    window_as_long_as_the_context,
    window_shorter_than_the_block,
    causality_unlike_published,
    causality_that_engines_read_differently,
    use_swa_is_read_by_vllm_only,
    speculators_causality,
)
