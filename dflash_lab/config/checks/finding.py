"""What a check says, and what it may know besides the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from dflash_lab.config.shapes import Shape

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong or worth knowing. `check` is the check's name; `source` where the failure was seen in public.

    An error cannot run, or ruins acceptance; a warning costs acceptance or breaks in some engine; a note is
    something a person comparing two runs would want to know.
    """

    severity: Severity
    field: str
    value: Any
    message: str
    suggested: Any = None
    why: str = ""
    source: str = ""
    check: str = ""


@dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """The target's tokenizer around one mask token."""

    size: int
    special_ids: frozenset[int] = frozenset()
    bos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    pad_id: int | None = None
    unk_id: int | None = None
    mask_text: str | None = None

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, mask_token_id: int | None) -> Self:
        """From a transformers tokenizer; `mask_text` stays None for an id the tokenizer never produces."""
        size = len(tokenizer)
        known = mask_token_id is not None and 0 <= mask_token_id < size
        added = getattr(tokenizer, "added_tokens_decoder", {})
        special = set(tokenizer.all_special_ids) | {i for i, token in added.items() if token.special}
        eos = tokenizer.eos_token_id
        return cls(
            size=size,
            special_ids=frozenset(special),
            bos_id=tokenizer.bos_token_id,
            eos_ids=frozenset([] if eos is None else [eos]),
            pad_id=tokenizer.pad_token_id,
            unk_id=tokenizer.unk_token_id,
            mask_text=tokenizer.decode([mask_token_id]) if known else None,
        )


@dataclass(frozen=True, slots=True)
class EmbeddingFacts:
    """The mask's row in the target's embedding table: norms, and the row most like it (cosine)."""

    mask_token_id: int
    mask_norm: float
    median_norm: float
    nearest_id: int
    nearest_cosine: float

    @classmethod
    def from_table(cls, table: Any, mask_token_id: int) -> Self:
        """From the table ``[V, H]``, a torch tensor of any dtype; the id must be one of its rows."""
        rows = table.detach().float()
        norms = rows.norm(dim=1)
        row = rows[mask_token_id]
        cosines = (rows @ row) / (norms * norms[mask_token_id]).clamp_min(1e-12)
        cosines[mask_token_id] = -1.0
        nearest = int(cosines.argmax())
        return cls(
            mask_token_id=mask_token_id,
            mask_norm=float(norms[mask_token_id]),
            median_norm=float(norms.median()),
            nearest_id=nearest,
            nearest_cosine=float(cosines[nearest]),
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a check may use beside the file; whatever is None or empty is simply not checked.

    `drafted` is K, `files` the names in the drafter's folder, `thinking` whether prompts enable thinking and
    `trained_thinking` whether the drafter was trained on such text.
    """

    weight_shapes: Mapping[str, Shape] | None = None
    tokenizer: TokenizerFacts | None = None
    target_config: Mapping[str, Any] | None = None
    embedding: EmbeddingFacts | None = None
    transformers_version: str | None = None
    drafted: int | None = None
    files: frozenset[str] = frozenset()
    thinking: bool | None = None
    trained_thinking: bool | None = None
