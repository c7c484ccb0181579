"""What is known about an engine's version before a single token is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dflash_lab.config.checks.finding import Finding

WINDOWS = (0, 26)
"""First vLLM release seen with both fixes: taps not one layer early (#40727), sliding layers as such (#40898)."""

CPU_K_NORM = (0, 32)


def version_of(text: str) -> tuple[int, ...]:
    """(0, 32, 0) of "0.32.0.dev1+cpu"; empty when it is no version."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def known_problems(version: str, config: Mapping[str, Any] | None = None, cpu: bool = False) -> list[Finding]:
    """What vLLM `version` is known to do to a DFlash drafter with this raw `config`, worst first."""
    return list(_problems(version_of(version), version, dict(config or {}), cpu))


def _problems(version: tuple[int, ...], text: str, config: dict[str, Any], cpu: bool) -> Iterator[Finding]:
    if not version:
        yield Finding("note", "engine", text, f"The server's version {text!r} is not known", check="engine_version")
        return
    if version < WINDOWS:
        yield Finding(
            "warning",
            "target_layer_ids",
            text,
            f"vLLM {text} may read every tap one layer early",
            why="Fixed in 2026; a shift of one layer costs 2-5% and shows only against a replay",
            source="vllm#40727",
            check="engine_version",
        )
        slides = config.get("layer_types") is None or "sliding_attention" in config["layer_types"]
        if slides:
            yield Finding(
                "warning",
                "layer_types",
                text,
                f"vLLM {text} may run sliding layers as full attention",
                why="3.27 became 4.57 at 6K context with windows; upgrade to 0.26 or newer",
                source="vllm#40898",
                check="engine_version",
            )
    draft = config.get("dflash_config") or {}
    names_taps = (
        config.get("eagle_aux_hidden_state_layer_ids")
        or config.get("aux_hidden_state_layer_ids")
        or (isinstance(draft, Mapping) and draft.get("target_layer_ids"))
    )
    if config and not names_taps:
        yield Finding(
            "error",
            "target_layer_ids",
            None,
            "The config names no taps where vLLM looks: it silently uses EAGLE-3's default layers",
            why="1.2% of the drafts were accepted then, 58.9% with the right taps",
            source="vllm#50170",
            check="engine_version",
        )
    if cpu and version >= CPU_K_NORM:
        yield Finding(
            "warning",
            "k_norm",
            text,
            f"vLLM {text} on a CPU norms the context keys of all drafter layers with layer 0's k_norm",
            why="Seen with the demo pair in float32: 1.73 instead of 1.80; the reading `vLLM 0.32, CPU` has it",
            source="found with this lab",
            check="engine_version",
        )
