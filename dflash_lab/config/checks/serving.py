"""The settings around the file: drafted tokens, prompts, and code that comes with the model."""

from __future__ import annotations

from collections.abc import Iterator

from dflash_lab.config.checks.finding import Finding
from dflash_lab.config.checks.subject import Subject

# (hidden size, target layers, mask token) of published drafters trained on answers without thinking.
TRAINED_WITHOUT_THINKING = frozenset({(2560, 36, 151669), (4096, 36, 151669)})


def drafts_beyond_the_block(s: Subject) -> Iterator[Finding]:
    block, drafted = s.block, s.facts.drafted
    if block is not None and drafted is not None and drafted > block - 1:
        yield Finding(
            "warning",
            "block_size",
            block,
            f"{drafted} drafted tokens need a block of {drafted + 1}, the drafter was trained on {block}",
            drafted + 1 if block < 2 else block,
            f"Draft at most {max(block - 1, 0)}: AL 1.31 was seen with 7 drafted on a block of 5, 2.74 with 5",
            "vllm#41834, vllm#50012",
        )


def block_without_room(s: Subject) -> Iterator[Finding]:
    if s.block is not None and s.block < 2:
        yield Finding(
            "error",
            "block_size",
            s.block,
            f"A block of {s.block} has no slot for a mask",
            16,
            "One slot is the anchor's, the others are drafted",
        )


def thinking_against_training(s: Subject) -> Iterator[Finding]:
    trained = s.facts.trained_thinking
    if trained is None and s.config is not None:
        known = (s.config.hidden_size, s.config.num_target_layers, s.config.mask_token_id)
        trained = False if known in TRAINED_WITHOUT_THINKING else None
    if trained is None or s.facts.thinking is None or trained == s.facts.thinking:
        return
    on, was = ("on", "without") if s.facts.thinking else ("off", "with")
    yield Finding(
        "warning",
        "enable_thinking",
        s.facts.thinking,
        f"Thinking is {on}, and the drafter was trained {was} it",
        trained,
        "The same pair was seen at 9.49 with one template and 2.71 with the other",
        "z-lab#60, z-lab#133",
    )


def brings_its_own_code(s: Subject) -> Iterator[Finding]:
    if s.raw.get("auto_map"):
        yield Finding(
            "warning",
            "auto_map",
            s.raw["auto_map"],
            "The file asks the engine to run code from the model's folder",
            None,
            "The lab never does; what that code changes cannot be seen in the config",
        )


CHECKS = (drafts_beyond_the_block, block_without_room, thinking_against_training, brings_its_own_code)
