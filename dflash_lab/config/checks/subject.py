"""The file under check, read so carefully that nothing in it can raise."""

from __future__ import annotations

from typing import Any

from dflash_lab.config.checks.finding import Facts
from dflash_lab.config.dialects import AUX, DRAFT, STACK, Dialect, dialect_of
from dflash_lab.config.errors import ConfigError
from dflash_lab.config.schema import DrafterConfig


class Subject:
    """Raw values by type, None where the file has none of that type; `config` is None when the schema refuses it."""

    def __init__(self, raw: dict[str, Any], facts: Facts) -> None:
        self.raw, self.facts = raw, facts
        self.dialect: Dialect = dialect_of(raw)
        self.draft = _object(raw.get(DRAFT))
        self.stack = _object(raw.get(STACK)) if self.dialect == "speculators" else raw
        self.config: DrafterConfig | None = None
        self.error: ConfigError | None = None
        try:
            self.config = DrafterConfig.from_json(raw)
        except ConfigError as error:
            self.error = error

    def drafting(self, name: str) -> Any:
        """A field of drafting as its dialect reads it: `dflash_config` first, speculators the top level first."""
        places = (self.raw, self.draft) if self.dialect == "speculators" else (self.draft, self.raw)
        return next((place[name] for place in places if name in place), None)

    def whole(self, name: str) -> int | None:
        """A whole number of the decoder stack."""
        return whole(self.stack.get(name))

    @property
    def mask(self) -> int | None:
        return whole(self.drafting("mask_token_id"))

    @property
    def block(self) -> int | None:
        return self.config.block_size if self.config else whole(self.drafting("block_size"))

    @property
    def taps(self) -> list[int] | None:
        """0-based layer outputs as written; None when absent or not a list of whole numbers."""
        if self.dialect == "speculators":
            ids = ids_of(self.raw.get(AUX))
            return None if ids is None else [i - 1 for i in ids]
        return ids_of(self.drafting("target_layer_ids"))

    @property
    def taps_field(self) -> str:
        return AUX if self.dialect == "speculators" else "target_layer_ids"

    def as_written(self, taps: list[int] | tuple[int, ...]) -> list[int]:
        """Taps in the file's own counting."""
        return [tap + 1 for tap in taps] if self.dialect == "speculators" else list(taps)

    @property
    def layer_types(self) -> list[Any]:
        types = self.stack.get("layer_types")
        return types if isinstance(types, list) else []

    @property
    def slides(self) -> bool:
        return "sliding_attention" in self.layer_types

    @property
    def target_layers(self) -> int | None:
        """The target's real number of layers, else what the file says; within reason."""
        known = whole(self.target("num_hidden_layers")) or whole(self.raw.get("num_target_layers"))
        return known if known is not None and 4 <= known <= 10_000 else None

    def target(self, name: str) -> Any:
        """A value of the target's config; a multimodal one keeps it in `text_config`."""
        config = _object(self.facts.target_config)
        text = _object(config.get("text_config"))
        return text.get(name, config.get(name))


def whole(value: Any) -> int | None:
    return value if type(value) is int else None


def real(value: Any) -> float | None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
        return None
    return float(value)


def ids_of(value: Any) -> list[int] | None:
    """A list of whole numbers, not empty."""
    return list(value) if isinstance(value, list) and value and all(type(i) is int for i in value) else None


def id_set(value: Any) -> frozenset[int]:
    """Token ids given as one number or a list."""
    values = value if isinstance(value, list) else [value]
    return frozenset(i for i in values if type(i) is int)


def _object(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
