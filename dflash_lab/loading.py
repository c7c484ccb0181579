"""Finding, checking and reading the files of a pair: every way this can fail has one sentence and a fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES

if TYPE_CHECKING:
    from dflash_lab.pairs import PairSpec

Report = Callable[[float, str], None]


def target_folder(spec: PairSpec, report: Report) -> tuple[Path, str]:
    """Folder and revision of the target: the demo (made on first use), a local folder, or a hub snapshot."""
    if spec.target == "demo":
        from dflash_lab.demo import WHEEL_SHA256, target_dir

        return target_dir(lambda share, text: report(0.35 * share, text)), WHEEL_SHA256[:12]
    return _folder(spec.target, spec.target_revision)


def drafter_folder(spec: PairSpec, report: Report) -> tuple[Path, str]:
    """Folder and revision of the drafter: bundled, local, or a hub snapshot."""
    bundled = SAMPLES / spec.drafter
    if bundled.is_dir():
        return bundled, "bundled"
    report(0.3, f"Fetching {spec.drafter}")
    return _folder(spec.drafter, spec.drafter_revision)


def _folder(where: str, revision: str | None) -> tuple[Path, str]:
    local = Path(where).expanduser()
    if local.is_dir():
        return local, "local"
    from huggingface_hub import snapshot_download

    path = Path(
        snapshot_download(where, revision=revision, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja"])
    )
    return path, path.name


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json. Raises LabError with line and column for broken JSON."""
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        raise LabError(f"{folder} has no config.json", "Point at a model folder") from None
    except ValueError as error:
        raise LabError(f"{path} is not valid JSON: {error}", "Correct it there") from error
    if not isinstance(raw, dict):
        raise LabError(f"{path} does not hold a JSON object", "Give the model's config.json")
    return raw


def device_of(spec: PairSpec) -> str:
    """The device to load on: what was asked for, or the best there is."""
    if spec.device == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    return spec.device


def dtype_of(spec: PairSpec, target_dir: Path) -> torch.dtype:
    """The dtype to load in: what was asked for, or the target's own."""
    if spec.dtype != "auto":
        return getattr(torch, spec.dtype)
    raw = read_config(target_dir)
    name = raw.get("dtype") or raw.get("torch_dtype") or raw.get("text_config", {}).get("dtype") or "bfloat16"
    return getattr(torch, str(name).removeprefix("torch."))


def check_memory(target_dir: Path, drafter_dir: Path, dtype: torch.dtype, device: str) -> None:
    """Refuse what cannot fit."""


def check_fit(target_dir: Path, drafter_dir: Path) -> None:
    """Refuse a drafter whose shapes do not fit the target."""


def load_target(folder: Path, dtype: torch.dtype, device: str) -> tuple[Any, Any]:
    """Model (eval, frozen) and tokenizer; safetensors only, no code from the repository."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = {"device_map": "auto"} if device == "balanced" else {}
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, **place
    )
    if not place:
        model = model.to(device)
    return model.eval().requires_grad_(False), AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def load_tensors(folder: Path, model: Any) -> dict[str, torch.Tensor]:
    """The drafter's tensors on the device of the target's embedding table, in the target's dtype."""
    from safetensors.torch import load_file

    table = model.get_input_embeddings().weight
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path, device=str(table.device))
    return {name: tensor.to(table.dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
