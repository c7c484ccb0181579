"""Training text and the target's states along it, kept on disk so that every run after the first starts at once.

The text is an ``.npz`` of token sequences: ``ids`` (concatenated), ``length`` and ``prompt_length`` (one per row).
The last rows are held out. States are raw layer outputs in bfloat16, one safetensors file per 32 rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from dflash_lab.decode.target import Target
from dflash_lab.errors import LabError
from dflash_lab.recording import Recording

HELD_OUT = 96
"""Rows at the end of the text that no training step sees."""

SHARD = 32


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence: a prompt and the target's answer."""

    ids: tuple[int, ...]
    prompt_length: int


@dataclass(frozen=True, slots=True)
class Text:
    """A training row with the states of some layers, as ``Replay`` reads it: every token but the prompt's is text."""

    row: Row
    layers: dict[int, torch.Tensor]

    @property
    def ids(self) -> tuple[int, ...]:
        return self.row.ids

    @property
    def states(self) -> torch.Tensor:
        return next(iter(self.layers.values()))

    def rows(self, tap: int) -> torch.Tensor:
        """States ``[T - 1, H]`` of one layer: the last token's are never asked for."""
        return self.layers[tap][:-1].float()


def read_rows(path: Path) -> tuple[list[Row], list[Row]]:
    """(training rows, held-out rows) of a text file."""
    file = np.load(path)
    starts = np.concatenate([[0], np.cumsum(file["length"])])
    rows = [
        Row(tuple(int(i) for i in file["ids"][a:b]), int(p))
        for a, b, p in zip(starts[:-1], starts[1:], file["prompt_length"], strict=True)
    ]
    return rows[:-HELD_OUT], rows[-HELD_OUT:]


@torch.inference_mode()
def layer_outputs(target: Target, ids: Sequence[int], layers: Sequence[int]) -> dict[int, torch.Tensor]:
    """Raw outputs ``[T, H]`` of some layers along ``ids``, from one pass."""
    _, rows = target.open(len(ids), layers).forward(torch.tensor(ids, device=target.device), last_only=True)
    return dict(zip(layers, rows, strict=True))


def collect(target: Target, rows: Sequence[Row], layers: Sequence[int], folder: Path) -> Iterator[int]:
    """Write the states of ``rows``; yields the number done. Files that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(rows), SHARD):
        path = folder / f"{start:05d}.safetensors"
        part = rows[start : start + SHARD]
        if not path.exists():
            outputs = [layer_outputs(target, row.ids, layers) for row in part]
            tensors = {str(layer): torch.cat([o[layer] for o in outputs]).bfloat16() for layer in layers}
            save_file(tensors, path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)
        yield start + len(part)


class States:
    """The collected states of a folder, read row by row."""

    def __init__(self, folder: Path, rows: Sequence[Row]) -> None:
        self._files = {int(path.stem): path for path in sorted(folder.glob("*.safetensors"))}
        if not self._files:
            raise LabError(f"{folder} holds no states", "Run `python -m training states` first")
        self._rows = rows

    def __len__(self) -> int:
        return min(len(self._files) * SHARD, len(self._rows))

    def text(self, n: int, layers: Sequence[int]) -> Text:
        """Row ``n`` with the states of ``layers``."""
        first = n - n % SHARD
        start = sum(len(row.ids) for row in self._rows[first:n])
        end = start + len(self._rows[n].ids)
        with safe_open(self._files[first], "pt") as file:
            return Text(self._rows[n], {layer: file.get_slice(str(layer))[start:end] for layer in layers})


@torch.inference_mode()
def held_out_recordings(target: Target, rows: Sequence[Row], count: int, spare: int = 16) -> list[Recording]:
    """Recordings of ``count`` held-out rows: as far as each is this target's own greedy text.

    ``spare`` tokens are kept behind each text to judge drafts at its end. Rows with fewer than 32 tokens of text left
    are passed over (those sampled at a temperature, mostly).
    """
    layers = tuple(range(-1, target.num_layers))
    found: list[Recording] = []
    for row in rows:
        if len(found) == count:
            break
        run = target.open(len(row.ids), layers)
        logits, taps = run.forward(torch.tensor(row.ids, device=target.device))
        top = logits.topk(2, dim=-1)
        own = (top.indices[:-1, 0] == torch.tensor(row.ids[1:], device=target.device))[row.prompt_length - 1 :]
        greedy = int(own.long().cumprod(0).sum())
        if greedy < 32 + spare:
            continue
        end = row.prompt_length + greedy
        margins = (top.values[:, 0] - top.values[:, 1])[row.prompt_length : end - 1]
        found.append(
            Recording(
                prompt_ids=row.ids[: row.prompt_length],
                tokens=row.ids[row.prompt_length : end],
                length=greedy - spare,
                end="limit",
                margins=tuple(margins.tolist()),
                states=torch.stack(taps)[:, : end - 1],
            )
        )
    return found
