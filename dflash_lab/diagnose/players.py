"""Players: the fields that are blamed and repaired as one, because alone they mean nothing."""

from __future__ import annotations

from collections.abc import Iterable

from dflash_lab.config.schema import FIELDS, DrafterConfig

PLAYERS: dict[str, tuple[str, ...]] = {
    "mask_token_id": ("mask_token_id",),
    "target_layer_ids": ("target_layer_ids",),
    "layer_types": ("layer_types", "sliding_window", "use_sliding_window"),
    "is_causal": ("is_causal",),
    "rope_parameters": ("rope_parameters",),
    "is_neox_style": ("is_neox_style",),
    "input_embedding_scale": ("input_embedding_scale",),
    "attention_value_scale": ("attention_value_scale",),
    "output_multiplier": ("output_multiplier",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "hidden_act": ("hidden_act",),
    "rms_norm_eps": ("rms_norm_eps",),
    "use_swa": ("use_swa", "swa_window_size"),
    "block_size": ("block_size",),
    "num_target_layers": ("num_target_layers",),
    "max_position_embeddings": ("max_position_embeddings",),
    "sliding_window_non_causal": ("sliding_window_non_causal",),
    "sample_from_anchor": ("sample_from_anchor",),
}
"""Name -> the fields that go together. Structural fields follow from the weights and are nobody's choice."""


def differing(bad: DrafterConfig, good: DrafterConfig) -> tuple[str, ...]:
    """Players in which two configs differ, in the order of `PLAYERS`."""
    return tuple(
        name for name, fields in PLAYERS.items() if any(getattr(bad, field) != getattr(good, field) for field in fields)
    )


def transplanted(base: DrafterConfig, donor: DrafterConfig, players: Iterable[str]) -> DrafterConfig:
    """`base` with the donor's values for these players. Raises `ConfigError` when they do not fit together."""
    fields = [field for name in players for field in PLAYERS[name]]
    return base.edited(**{field: getattr(donor, field) for field in fields}) if fields else base


def label(player: str) -> str:
    """The player as a person reads it: all of its fields."""
    return ", ".join(field for field in PLAYERS[player] if field in FIELDS)
