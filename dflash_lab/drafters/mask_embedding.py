"""A mask embedding that a checkpoint ships because the target's own row for the mask token is empty.

Beside the weights as ``mask_embedding.safetensors`` or ``mask_embedding.pt`` (MiMo-V2.5-Pro-FP4-DFlash): ``embedding``
``[H]`` or ``[1, H]``, and perhaps ``mask_token_id``; the ``.pt`` may also be the bare tensor.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from dflash_lab.errors import LabError

STEM = "mask_embedding"
FILES = (f"{STEM}.safetensors", f"{STEM}.pt")
ROW, TOKEN = f"{STEM}.embedding", f"{STEM}.mask_token_id"
"""Names of its tensors among a drafter's."""


@dataclass(frozen=True, slots=True)
class MaskEmbedding:
    """``row [H]``, in the place of the target's row for ``token``; for whatever mask token the config names if None."""

    row: torch.Tensor
    token: int | None

    @classmethod
    def read(cls, tensors: Mapping[str, torch.Tensor]) -> MaskEmbedding | None:
        """From a drafter's tensors; None where there is none."""
        if ROW not in tensors:
            return None
        token = tensors.get(TOKEN)
        return cls(tensors[ROW], None if token is None else int(token))

    def belongs_to(self, mask_token_id: int | None) -> bool:
        """Whether it stands for that token's row."""
        return self.token in (None, mask_token_id)


def load(folder: Path) -> dict[str, torch.Tensor]:
    """The folder's mask embedding as ``ROW`` and ``TOKEN``, nothing where it ships none; no code in the file is run.

    Raises LabError for a file that is something else.
    """
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        return {}
    try:
        found = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise _unusable(path, "cannot be read as tensors") from error
    if isinstance(found, torch.Tensor):
        found = {"embedding": found}
    row = found.get("embedding") if isinstance(found, Mapping) else None
    if not isinstance(row, torch.Tensor) or not row.is_floating_point() or row.numel() != row.shape[-1]:
        raise _unusable(path, "holds no vector `embedding`")
    token = found.get("mask_token_id")
    if token is None:
        return {ROW: row.flatten()}
    if not isinstance(token, int | torch.Tensor) or (isinstance(token, torch.Tensor) and token.numel() != 1):
        raise _unusable(path, f"has mask_token_id {token!r}")
    return {ROW: row.flatten(), TOKEN: torch.tensor(int(token))}


def _unusable(path: Path, what: str) -> LabError:
    return LabError(f"{path} {what}", "Download it again, or remove it to draft with the target's own row")
