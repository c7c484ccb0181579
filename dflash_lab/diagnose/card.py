"""The reproducibility card: one block of text with what two people need to compare acceptance."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from typing import Any

from dflash_lab import __version__
from dflash_lab.config.schema import DrafterConfig
from dflash_lab.pairs import Pair
from dflash_lab.trace import DEFINITION


def card(pair: Pair, config: DrafterConfig, k: int, **settings: Any) -> dict[str, str]:
    """Label -> value; ``settings`` adds or overrides lines (engine, temperature, q rule, concurrency, contexts ...)."""
    thinking = pair.spec.thinking
    lines = {
        "pair": pair.spec.name,
        "target": f"{pair.target_id} @ {pair.target_revision}",
        "drafter": f"{pair.spec.drafter} @ {pair.drafter_revision}",
        "drafter weights": f"sha256 {weights_hash(pair)}",
        "config": f"sha256 {config_hash(config.raw)} (keys sorted)",
        "mask token": str(config.mask_token_id),
        "taps": ", ".join(map(str, config.target_layer_ids or ())) or "not in the file",
        "layers": " ".join("sliding" if kind == "sliding_attention" else "full" for kind in config.layer_types)
        + (f", window {config.sliding_window}" if config.sliding_window else ""),
        "RoPE": ", ".join(f"{key} {value}" for key, value in sorted(config.rope_parameters.items())),
        "engine": f"DFlash Lab {__version__}, replay",
        "libraries": f"torch {_version('torch')}, transformers {_version('transformers')}",
        "K, block": f"{k} drafted a round, {config.max_drafted} at most; trained block {config.block_size} "
        f"(1 anchor + {config.block_size - 1} masks)",
        "sampling": "greedy (temperature 0)",
        "template": _template(pair, thinking),
        "dtypes": f"target {_name(pair.dtype)}, drafter {_name(pair.weights.fc.dtype)}, on {pair.device}",
        "concurrency": "1 request at a time",
        "definition": DEFINITION,
    }  # fmt: skip
    return lines | {key.replace("_", " "): str(value) for key, value in settings.items()}


def text(lines: dict[str, str]) -> str:
    """The card as one block, labels aligned."""
    width = max(map(len, lines))
    return "\n".join(f"{label:{width}}  {value}" for label, value in lines.items())


def config_hash(raw: dict[str, Any]) -> str:
    """First 16 hex digits of the SHA-256 of the JSON with sorted keys: layout and order do not count."""
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:16]


def weights_hash(pair: Pair) -> str:
    """Of the weight files' bytes; the first 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(pair.drafter_dir.glob("*.safetensors")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _template(pair: Pair, thinking: bool | None) -> str:
    if not pair.tokenizer.chat_template:
        return "none: plain text"
    switch = {None: "", True: ", thinking on", False: ", thinking off"}[thinking]
    digest = hashlib.sha256(str(pair.tokenizer.chat_template).encode()).hexdigest()
    return f"the tokenizer's chat template (sha256 {digest[:16]}){switch}"


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"
