"""Facts for the checks, gathered from model folders: headers and small files only, unless the table is asked for."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from dflash_lab.config.checks.finding import EmbeddingFacts, Facts, TokenizerFacts
from dflash_lab.config.dialects import DRAFT
from dflash_lab.config.shapes import weight_shapes
from dflash_lab.errors import LabError

TABLES = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")


def gather(
    raw: dict[str, Any],
    drafter: Path | None = None,
    target: Path | None = None,
    *,
    drafted: int | None = None,
    thinking: bool | None = None,
    table: bool = False,
) -> Facts:
    """What the drafter's and the target's folders tell; `table` reads the target's embedding table, in seconds.

    Raises `LabError` for a file that is there and cannot be read; what is not there is left out.
    """
    mask = mask_of(raw)
    names = frozenset(path.name for path in drafter.iterdir()) if drafter else frozenset()
    has_weights = any(name.endswith(".safetensors") for name in names)
    return Facts(
        weight_shapes=weight_shapes(drafter) if drafter and has_weights else None,
        tokenizer=tokenizer_facts(target, mask) if target else None,
        target_config=_json(target / "config.json") if target else None,
        embedding=embedding_facts(target, mask) if target and table and mask is not None else None,
        transformers_version=_installed("transformers"),
        drafted=drafted,
        files=names,
        thinking=thinking,
    )


def mask_of(raw: dict[str, Any]) -> int | None:
    """The mask token as written, wherever it stands."""
    draft = raw.get(DRAFT)
    value = draft.get("mask_token_id") if isinstance(draft, dict) else None
    value = raw.get("mask_token_id") if value is None else value
    return value if type(value) is int else None


def tokenizer_facts(folder: Path, mask: int | None) -> TokenizerFacts | None:
    """From `tokenizer.json` and `tokenizer_config.json`; None without them. Needs the tokenizers library only."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise LabError(f"{path} cannot be read: {error}", "Download the tokenizer again") from error
    names = _json(folder / "tokenizer_config.json") or {}
    ids = {key: _token_id(tokenizer, names.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    return TokenizerFacts(
        size=tokenizer.get_vocab_size(),
        special_ids=frozenset(special),
        bos_id=ids["bos_token"],
        eos_ids=frozenset(i for i in [ids["eos_token"]] if i is not None),
        pad_id=ids["pad_token"],
        unk_id=ids["unk_token"],
        mask_text=tokenizer.id_to_token(mask) if mask is not None and mask >= 0 else None,
    )


def embedding_facts(folder: Path, mask: int) -> EmbeddingFacts | None:
    """From the target's table; None when no file holds it or the id is not one of its rows."""
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - a handle, not a dict
                if name.endswith(TABLES):
                    table = file.get_tensor(name)
                    return EmbeddingFacts.from_table(table, mask) if 0 <= mask < table.shape[0] else None
    return None


def _token_id(tokenizer: Any, token: Any) -> int | None:
    text = token.get("content") if isinstance(token, dict) else token
    return tokenizer.token_to_id(text) if isinstance(text, str) else None


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LabError(f"{path} cannot be read: {error}", "Correct it, or leave the target out") from error
    return found if isinstance(found, dict) else None


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
