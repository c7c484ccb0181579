"""The faults seen in public, as edits of a healthy config: for demonstrations, tests and ablations."""

from __future__ import annotations

from collections.abc import Callable

from dflash_lab.config.schema import DrafterConfig

Fault = Callable[[DrafterConfig], DrafterConfig | None]


def taps_one_higher(config: DrafterConfig) -> DrafterConfig | None:
    """Speculators' counting pasted into z-lab's field."""
    return config.edited(target_layer_ids=tuple(tap + 1 for tap in config.taps))


def taps_one_lower(config: DrafterConfig) -> DrafterConfig | None:
    """Ids taken for the layers' inputs."""
    return config.edited(target_layer_ids=tuple(tap - 1 for tap in config.taps))


def taps_reversed(config: DrafterConfig) -> DrafterConfig | None:
    """The right layers in the wrong order."""
    return config.edited(target_layer_ids=config.taps[::-1])


def wrong_mask(config: DrafterConfig) -> DrafterConfig | None:
    """Token 0, as a guessed file has it."""
    return None if config.mask_token_id == 0 else config.edited(mask_token_id=0)


def all_full(config: DrafterConfig) -> DrafterConfig | None:
    """Sliding layers run as full attention."""
    if "sliding_attention" not in config.layer_types:
        return None
    return config.edited(layer_types=("full_attention",) * config.num_hidden_layers)


def no_window(config: DrafterConfig) -> DrafterConfig | None:
    """Sliding layers keep their causality and see everything: a window as long as the context."""
    if "sliding_attention" not in config.layer_types:
        return None
    return config.edited(sliding_window=config.max_position_embeddings)


def no_context(config: DrafterConfig) -> DrafterConfig | None:
    """Every layer slides over one position: a slot sees itself and none of the context."""
    return config.edited(
        layer_types=("sliding_attention",) * config.num_hidden_layers, sliding_window=1, use_sliding_window=True
    )


def causal_flip(config: DrafterConfig) -> DrafterConfig | None:
    """The other rule inside the block, for every layer."""
    return config.edited(is_causal=not config.attention(0).causal)


def theta_tenth(config: DrafterConfig) -> DrafterConfig | None:
    """RoPE theta x 0.1."""
    return config.edited(rope_theta=config.rope_theta / 10)


FAULTS: dict[str, Fault] = {
    "Shift taps up by one": taps_one_higher,
    "Shift taps down by one": taps_one_lower,
    "Reverse taps": taps_reversed,
    "Wrong mask token": wrong_mask,
    "All layers full": all_full,
    "No window": no_window,
    "No context": no_context,
    "Flip causality": causal_flip,
    "RoPE theta x 0.1": theta_tenth,
}
"""By the name a person sees. A fault gives None where it would change nothing."""
