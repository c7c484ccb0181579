"""A config under edit: how its fields are laid out, what became of them, and the edit as a link.

An edit is the edited JSON itself; between it and the file lies an RFC 6902 patch. Knows no Streamlit and no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dflash_lab.config.checks import Finding
from dflash_lab.config.patch import apply, compare, diff
from dflash_lab.config.schema import DrafterConfig, LayerAttention
from dflash_lab.errors import LabError
from dflash_lab.pairs import DEMO_TARGET, PairSpec
from dflash_lab.paths import SAMPLES, cache_dir

LONGEST_LINK = 4000
"""Characters of a patch that still go into a link; browsers and proxies cut longer ones."""

Widget = Literal["id", "layers", "types", "whole", "real", "switch", "json", "text"]

GROUPS: dict[str, tuple[str, ...]] = {
    "What the drafter sees": (
        "mask_token_id",
        "target_layer_ids",
        "layer_types",
        "sliding_window",
        "use_sliding_window",
        "is_causal",
    ),
    "Positions": ("rope_theta", "rope_parameters", "max_position_embeddings"),
    "Draft": ("block_size", "num_target_layers"),
    "Scales and norms": (
        "rms_norm_eps",
        "input_embedding_scale",
        "output_multiplier",
        "final_logit_softcapping",
        "attention_value_scale",
        "is_neox_style",
        "hidden_act",
    ),
    "Read by vLLM only": ("use_swa", "swa_window_size"),
    "Follows from the weights": (
        "architectures",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "attention_bias",
        "attention_sink_bias",
    ),
}
"""Fields of every DFlash drafter, the ones that are wrong most often first."""

DFLASH2 = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
SPECULATORS = ("draft_vocab_size", "sample_from_anchor", "sliding_window_non_causal")

WIDGETS: dict[str, Widget] = {
    "mask_token_id": "id",
    "target_layer_ids": "layers",
    "layer_types": "types",
    "rope_parameters": "json",
    "architectures": "json",
    "hidden_act": "text",
    **dict.fromkeys(
        ("use_sliding_window", "is_causal", "is_neox_style", "use_swa", "attention_bias", "attention_sink_bias"),
        "switch",
    ),
    **dict.fromkeys(("sample_from_anchor", "sliding_window_non_causal"), "switch"),
    **dict.fromkeys(
        (
            "rope_theta",
            "rms_norm_eps",
            "input_embedding_scale",
            "output_multiplier",
            "final_logit_softcapping",
            "attention_value_scale",
        ),
        "real",
    ),
}
"""How a field is edited; the ones not named are whole numbers."""


def known_fields() -> frozenset[str]:
    """Every field the editor has a widget for."""
    return frozenset(field for fields in (*GROUPS.values(), DFLASH2, SPECULATORS) for field in fields)


def groups(config: DrafterConfig) -> dict[str, tuple[str, ...]]:
    """The fields to show for this drafter, by heading."""
    found = dict(GROUPS)
    if "DFlash2DraftModel" in config.architectures or config.conv_kernel_size:
        found["DFlash 2"] = DFLASH2
    if config.dialect == "speculators":
        found["Speculators only"] = SPECULATORS
    return found


def shown(value: Any) -> str:
    """A field's value as the file would say it; "absent" for none."""
    if value is None:
        return "absent"
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def set_field(raw: dict[str, Any], field: str, value: Any) -> dict[str, Any]:
    """``raw`` with another value of one field, put where its dialect keeps it. Raises ConfigError."""
    value = tuple(value) if isinstance(value, list) else value
    return DrafterConfig.from_json(raw).edited(**{field: value}).to_json()


def take(raw: dict[str, Any], reference: dict[str, Any], field: str) -> dict[str, Any]:
    """``raw`` with one field as in ``reference``, whatever their dialects. Raises ConfigError."""
    return set_field(raw, field, getattr(DrafterConfig.from_json(reference), field))


def differences(raw: dict[str, Any], reference: dict[str, Any]) -> list[Finding]:
    """What a reference says otherwise, as findings. A field that changes the arithmetic is a warning."""
    known = known_fields()
    return [
        Finding(
            "warning" if difference.field in known else "note",
            difference.field,
            difference.here,
            f"{difference.field} is {shown(difference.here)}, the reference has {shown(difference.there)}",
            difference.there,
            check="differs_from_reference",
        )
        for difference in compare(raw, reference)
    ]


def to_link(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The edit as a compact patch for a link; empty when there is none, or when it is too long for one."""
    text = json.dumps(diff(before, after), separators=(",", ":"), ensure_ascii=False)
    return "" if text == "[]" or len(text) > LONGEST_LINK else text


def from_link(text: str, before: dict[str, Any]) -> dict[str, Any]:
    """The edited JSON of a link's patch. Raises LabError when the patch is broken or does not fit the file."""
    try:
        patch = json.loads(text)
    except ValueError as error:
        raise LabError(f"The edit in the link is not JSON: {error}", "Copy the whole link") from error
    if not isinstance(patch, list) or not all(isinstance(step, dict) for step in patch):
        raise LabError("The edit in the link is not a list of patch steps", "Copy the whole link")
    return apply(patch, before)


def summary(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What an edit changed, in a few words."""
    fields = [difference.field for difference in compare(before, after)]
    if not fields:
        return "as on disk"
    return ", ".join(fields[:3]) + (f" and {len(fields) - 3} more" if len(fields) > 3 else "")


@dataclass(frozen=True, slots=True)
class LayerBox:
    """One drafter layer for a diagram: its rule in words, or why it has none."""

    index: int
    slides: bool
    text: str


def layer_boxes(config: DrafterConfig) -> list[LayerBox]:
    """What every layer sees."""
    boxes = []
    for i, kind in enumerate(config.layer_types):
        try:
            text = rule_text(config.attention(i))
        except LabError:
            text = "no usable window"
        boxes.append(LayerBox(i, kind == "sliding_attention", text))
    return boxes


def rule_text(rule: LayerAttention) -> str:
    """An attention rule in a few words."""
    return f"{'causal' if rule.causal else 'both ways'}, {f'window {rule.window}' if rule.window else 'all'}"


def drafter_folder(spec: PairSpec) -> Path | None:
    """Where the drafter's files are on this machine; None when nothing of it is here."""
    for folder in (SAMPLES / spec.drafter, Path(spec.drafter).expanduser()):
        if (folder / "config.json").exists():
            return folder
    if (cached := _in_hub_cache(spec.drafter, spec.drafter_revision)) is not None:
        return cached
    bundled = SAMPLES / "drafters" / Path(spec.drafter).name
    return bundled if (bundled / "config.json").exists() else None


def target_folder(spec: PairSpec) -> Path | None:
    """Where the target's config and tokenizer are on this machine; None when they are not."""
    if spec.target == DEMO_TARGET:
        folder = cache_dir() / "demo" / "SmolLM2-135M-Instruct"
        return folder if (folder / "config.json").exists() else None
    folder = Path(spec.target).expanduser()
    return folder if folder.is_dir() else _in_hub_cache(spec.target, spec.target_revision)


def _in_hub_cache(repo: str, revision: str | None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(repo, "config.json", revision=revision)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def target_layers(target_config: Mapping[str, Any] | None, config: DrafterConfig) -> int:
    """The target's number of layers, by its own config where that is at hand, else by the drafter's."""
    if target_config:
        text = target_config.get("text_config") or target_config
        if type(count := text.get("num_hidden_layers")) is int:
            return count
    return config.num_target_layers or 1 + max(config.target_layer_ids or (0,))
