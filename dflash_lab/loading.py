"""Checking and reading the models of a pair: every way this can fail has one sentence and a fix."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch

from dflash_lab.config.shapes import weight_shapes
from dflash_lab.errors import LabError
from dflash_lab.jobs import is_out_of_memory
from dflash_lab.paths import SAMPLES
from dflash_lab.sources import Report, Source

if TYPE_CHECKING:
    from dflash_lab.pairs import PairSpec

ROOM = 1.1
"""Memory asked for over the weights' own: the drafter's fused projections, caches and the steps' temporaries."""

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}


def target_source(spec: PairSpec, report: Report) -> Source:
    """Where the target is; the demo's is made first when it is not there."""
    if spec.target != "demo":
        return Source(spec.target, spec.target_revision)
    from dflash_lab.demo import target_dir

    return Source(str(target_dir(report)))


def drafter_source(spec: PairSpec) -> Source:
    """Where the drafter is: bundled with the lab, a folder, or on the hub."""
    bundled = SAMPLES / spec.drafter
    return Source(str(bundled)) if bundled.is_dir() else Source(spec.drafter, spec.drafter_revision)


def device_of(spec: PairSpec) -> str:
    """The device to load on: what was asked for, or the best there is. Raises LabError for one that is not there."""
    there = {
        "cuda": torch.cuda.is_available(),
        "balanced": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if spec.device == "auto":
        return next(device for device in ("cuda", "mps", "cpu") if there[device])
    if not there[spec.device]:
        raise LabError(
            f"{spec.name}: device is {spec.device!r}, and PyTorch sees no such device here",
            'Set device to "auto" or "cpu"',
        )
    return spec.device


def dtype_of(spec: PairSpec, config: Mapping[str, Any]) -> torch.dtype:
    """The dtype to load in: what was asked for, or the target config's own (bfloat16 when it names none)."""
    own = config.get("dtype") or config.get("torch_dtype") or _text(config).get("dtype") or "bfloat16"
    name = str(own).removeprefix("torch.") if spec.dtype == "auto" else spec.dtype
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise LabError(f"{spec.name}: the target's dtype is {own!r}", "Set dtype of the pair to bfloat16 or float32")
    return dtype


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config: multimodal ones nest it."""
    return config.get("text_config") or config


def bytes_needed(counts: Mapping[str, int], dtype: torch.dtype) -> int:
    """Bytes of so many values by stored dtype, once the floating ones are loaded as ``dtype``."""
    return sum(n * (dtype.itemsize if name in FLOATS else BYTES.get(name, 1)) for name, n in counts.items())


def bytes_free(device: str) -> int:
    """Bytes of memory that can be had on the device now (for "balanced", on all GPUs together)."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    if device == "balanced":
        return sum(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count()))
    if device == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return min(psutil.virtual_memory().available, _container_free())


def _container_free() -> int:
    """What a container's limit leaves (cgroup v2): the machine's free memory does not know of it."""
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (group / "memory.max").read_text(), (group / "memory.current").read_text()
        # Files that are cached count as used and are given back when memory is asked for.
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["file"]
        return int(limit) - int(used) + int(cached)
    except (OSError, ValueError, KeyError):  # no container, another kind of one, or "max"
        return 2**63


def check_memory(target: Source, drafter: Source, dtype: torch.dtype, device: str) -> None:
    """Refuse what cannot fit, by the safetensors headers, before anything is fetched or loaded.

    Raises LabError with both numbers.
    """
    counts = [source.value_counts() for source in (target, drafter)]
    needed = round(ROOM * sum(bytes_needed(c, dtype) for c in counts))
    free = bytes_free(device)
    if needed > free:
        raise LabError(
            f"{target.where} and its drafter need about {needed / 1e9:.1f} GB on {device} as "
            f"{str(dtype).removeprefix('torch.')}, and {free / 1e9:.1f} GB are free",
            "Free some memory, take a smaller dtype or pair, set device to balanced to use all GPUs, or let the lab "
            "drive a server",
        )


def check_fit(target: Mapping[str, Any], drafter_dir: Path) -> None:
    """Refuse a drafter whose weights do not fit the target's config. Raises LabError with tensor and both sizes."""
    shapes, hidden = weight_shapes(drafter_dir), _text(target).get("hidden_size")
    missing = [name for name in ("fc.weight", "hidden_norm.weight", "norm.weight") if name not in shapes]
    if missing or not any(name.startswith("layers.") for name in shapes):
        raise LabError(
            f"{drafter_dir} is not a DFlash drafter: its weights hold no {missing[0] if missing else 'layers'}",
            "Point at the drafter's folder, not at a target's or another method's head",
        )
    width, fused = shapes["norm.weight"][0], shapes["fc.weight"][-1]
    if hidden and (width != hidden or fused % hidden):
        tensor, size = ("norm.weight", width) if width != hidden else ("fc.weight's input", fused)
        raise LabError(
            f"The drafter was made for another target: its {tensor} is {size} wide, the target's hidden "
            f"size is {hidden}",
            "Load it with the target its model card names",
        )


def load_target(folder: Path, dtype: torch.dtype, device: str) -> tuple[Any, Any]:
    """Model (eval, frozen) and tokenizer; safetensors only, no code from the repository.

    Raises LabError when transformers cannot read it; running out of memory is passed on as it is.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # its bar would be drawn into the command line's own progress
    place = {"device_map": "auto"} if device == "balanced" else {}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, **place
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # whatever transformers raises is about these files, except a lack of memory
        if is_out_of_memory(error):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise LabError(
            f"transformers cannot load the target in {folder}: {lines[0] if lines else type(error).__name__}",
            "Check that the folder is complete and holds a causal language model this transformers version knows",
        ) from error
    if not place:
        model = model.to(device)
    return model.eval().requires_grad_(False), tokenizer


def load_tensors(folder: Path, model: Any) -> dict[str, torch.Tensor]:
    """The drafter's tensors on the device of the target's embedding table, in the target's dtype.

    Raises LabError for a mask embedding that cannot be used.
    """
    from safetensors.torch import load_file

    from dflash_lab.drafters import mask_embedding

    table = model.get_input_embeddings().weight
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        if path.name not in mask_embedding.FILES:
            tensors |= load_file(path, device=str(table.device))
    tensors |= {name: tensor.to(table.device) for name, tensor in mask_embedding.load(folder).items()}
    return {name: tensor.to(table.dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
