"""What each engine makes of one and the same config.json, as a table and as a config our drafter can run.

An engine is a `Reader`: one method a row. The table shows their results and `reading` runs on them. Rules hold for
the version in `Reader.version` and come from public sources; transformers' own config class really runs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dflash_lab.config.engines import READERS, Reader, TargetFacts
from dflash_lab.config.errors import ConfigError
from dflash_lab.config.refusal import AnchoredAttention, Refused
from dflash_lab.config.schema import DrafterConfig, LayerAttention

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["READERS", "Cell", "Reader", "ReaderTable", "TargetFacts", "read_all", "reading"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One setting in one reader's eyes. `text` is what to show; `rule` the reader's rule, with its version.

    `differs` from the reference (z-lab's value, or the first reader's that has one); `refused`: the reader stops.
    """

    value: Any
    text: str
    rule: str
    refused: bool = False
    differs: bool = False

    @property
    def why(self) -> str:
        """One sentence when the cell stands out, else empty."""
        return self.rule if self.refused or self.differs else ""


@dataclass(frozen=True, slots=True)
class ReaderTable:
    """`cells[row][reader]`; rows and readers in a fixed order."""

    cells: dict[str, dict[str, Cell]]

    def frame(self) -> pd.DataFrame:
        """Texts, a row a setting, a column a reader."""
        import pandas as pd

        return pd.DataFrame({row: {name: c.text for name, c in cells.items()} for row, cells in self.cells.items()}).T

    def standing_out(self) -> list[tuple[str, str, str]]:
        """(row, reader, why) of every cell that differs or is a refusal."""
        return [(row, name, c.why) for row, cells in self.cells.items() for name, c in cells.items() if c.why]

    def to_json(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Plain data for `--json`."""
        return {
            row: {
                name: {"text": c.text, "why": c.why, "refused": c.refused, "differs": c.differs}
                for name, c in cells.items()
            }
            for row, cells in self.cells.items()
        }


def read_all(raw: Mapping[str, Any], target: TargetFacts | None = None) -> ReaderTable:
    """The table for one raw JSON. Never raises: whatever a reader would choke on is in its cells."""
    target = target or TargetFacts()
    return ReaderTable({row: _row(row, dict(raw), target, show) for row, show in _TEXTS.items()})


def reading(raw: Mapping[str, Any], reader: str, target: TargetFacts | None = None) -> DrafterConfig:
    """The config as `reader` would run it, in the terms of our own rules.

    Raises `ConfigError` where the reader refuses or crashes. Two things cannot be said in our terms and are left
    out: speculators' window from the anchor (ours moves with the slot), and vLLM's block, which is given at start.
    """
    if reader not in READERS:
        raise ConfigError("reader", reader, f"There is no reader {reader!r}", f"Readers: {', '.join(READERS)}")
    engine, target = READERS[reader], target or TargetFacts()
    values = {}
    for row in _TEXTS:
        try:
            values[row], _ = getattr(engine, row)(copy.deepcopy(dict(raw)), target)
        except Refused as refusal:
            raise ConfigError(
                refusal.field, refusal.value, f"{reader} stops at this file: {refusal}", refusal.rule
            ) from refusal
    config = DrafterConfig.from_json(dict(raw))
    multiplier, cap = values["logits"]
    changes: dict[str, Any] = {
        "target_layer_ids": values["taps"],
        "mask_token_id": values["mask_token_id"],
        "rope_parameters": values["rope"],
        "rms_norm_eps": values["rms_norm_eps"],
        "output_multiplier": multiplier,
        "final_logit_softcapping": cap,
        **_layer_fields(values["layers"], config),
    }
    if values["block_size"] is not None:
        changes["block_size"] = values["block_size"]
    if not engine.reads_rope_style:
        changes |= {"is_neox_style": None, "attention_value_scale": None}
    return config.edited(**changes)


def _row(row: str, raw: dict[str, Any], target: TargetFacts, show: Callable[[Any], str]) -> dict[str, Cell]:
    cells = {}
    for name, engine in READERS.items():
        try:
            value, rule = getattr(engine, row)(copy.deepcopy(raw), target)
            cells[name] = Cell(value, show(value), f"{rule} ({engine.version})")
        except Refused as refusal:
            cells[name] = Cell(None, str(refusal), f"{refusal.rule} ({engine.version})", refused=True)
    reference = next((c.value for c in cells.values() if not c.refused and c.value is not None), None)
    return {
        name: Cell(c.value, c.text, c.rule, c.refused, c.value is not None and c.value != reference)
        for name, c in cells.items()
    }


def _layer_fields(layers: tuple[LayerAttention, ...], config: DrafterConfig) -> dict[str, Any]:
    """Fields that make `DrafterConfig.attention` give these layers."""
    windows = {layer.window for layer in layers if layer.window is not None}
    usual = all(layer.causal == (layer.window is not None) for layer in layers)
    fields: dict[str, Any] = {
        "layer_types": tuple("full_attention" if la.window is None else "sliding_attention" for la in layers),
        "is_causal": None if usual else layers[0].causal,
        "sliding_window_non_causal": False if config.dialect == "speculators" else None,
        "use_swa": None,
        "swa_window_size": None,
    }
    if windows:
        fields |= {"sliding_window": windows.pop(), "use_sliding_window": True}
    return fields


def _taps(taps: tuple[int, ...]) -> str:
    """hidden_states indices: layer l's output is index l + 1, index 0 the embedding's."""
    return "[" + ", ".join(str(tap + 1) for tap in taps) + "]"


def _layers(layers: tuple[LayerAttention, ...]) -> str:
    """Runs of equal layers, for instance "4 x causal, window 2048; 1 x both ways, all"."""
    runs: list[tuple[LayerAttention, int]] = []
    for layer in layers:
        if runs and runs[-1][0] == layer:
            runs[-1] = (layer, runs[-1][1] + 1)
        else:
            runs.append((layer, 1))
    return "; ".join(f"{count} x {_attention(layer)}" for layer, count in runs)


def _attention(layer: LayerAttention) -> str:
    reach = "all" if layer.window is None else f"window {layer.window}"
    anchored = " from the anchor" if isinstance(layer, AnchoredAttention) else ""
    return f"{'causal' if layer.causal else 'both ways'}, {reach}{anchored}"


def _rope(rope: dict[str, Any]) -> str:
    rest = {key: value for key, value in rope.items() if key not in ("rope_theta", "rope_type")}
    scaling = rope["rope_type"] + "".join(f", {key} {value}" for key, value in sorted(rest.items()))
    return f"theta {rope['rope_theta']:g}; {scaling}" if isinstance(rope["rope_theta"], int | float) else str(rope)


def _logits(scale: tuple[float, float | None]) -> str:
    multiplier, cap = scale
    return f"x {multiplier:g}" + (f", capped at {cap:g}" if cap else "")


_TEXTS: dict[str, Callable[[Any], str]] = {
    "taps": _taps,
    "mask_token_id": str,
    "layers": _layers,
    "block_size": lambda block: "1 + K, given at start" if block is None else str(block),
    "rope": _rope,
    "rms_norm_eps": str,
    "logits": _logits,
}
