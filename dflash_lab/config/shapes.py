"""A checkpoint's tensor shapes, from its header, against the shapes a config asks for."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_lab.config.errors import ConfigError
from dflash_lab.errors import LabError

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig

Shape = tuple[int, ...]


def weight_shapes(path: Path | str) -> dict[str, Shape]:
    """Tensor name -> shape of a safetensors file, or of every one in a folder, without loading a weight.

    Raises `LabError` when there is none, a header cannot be read, or a file is shorter than its header says.
    """
    return {name: entry["shape"] for name, entry in _entries(Path(path)).items()}


def value_counts(path: Path | str) -> dict[str, int]:
    """Number of values by stored dtype (safetensors' names: BF16, F32, I8, ...). Raises as `weight_shapes`."""
    counts: Counter[str] = Counter()
    for entry in _entries(Path(path)).values():
        counts[entry["dtype"]] += math.prod(entry["shape"])
    return dict(counts)


def _entries(path: Path) -> dict[str, Any]:
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise LabError(f"{path} holds no safetensors file", "Point at the model's folder, weights included")
    return {name: entry for file in files for name, entry in _header(file).items()}


def _header(file: Path) -> dict[str, Any]:
    # 8 bytes little-endian length, then JSON: read by hand, so that a check needs neither torch nor numpy.
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > file.stat().st_size - 8:
                raise ValueError("its header is longer than the file")
            header = json.loads(stream.read(length))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        end = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        if end > file.stat().st_size:
            raise ValueError(f"it is cut off after {file.stat().st_size:,} of {end:,} bytes")
        return {name: {"dtype": str(e["dtype"]), "shape": tuple(e["shape"])} for name, e in entries.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{file} cannot be read as safetensors: {error}", "Download it again") from error


def check_shapes(config: DrafterConfig, shapes: Mapping[str, Shape], target_hidden_size: int) -> None:
    """Raise `ConfigError` when a weight cannot fit: the field to blame, the tensor's name and both shapes.

    Tensors a config says nothing about (a mask embedding, the target-to-draft map) are left alone.
    """
    if "fc.weight" in shapes and len(config.taps) * target_hidden_size != shapes["fc.weight"][-1]:
        width = shapes["fc.weight"][-1]
        count, rest = divmod(width, target_hidden_size)
        wanted = f"{len(config.taps)} taps x {target_hidden_size}"
        fix = f"List {count} layers" if not rest else "Use the target this drafter was trained for"
        raise ConfigError(
            "target_layer_ids",
            list(config.taps),
            f"fc.weight is {_text(shapes['fc.weight'])}: its width {width} is not {wanted}",
            fix,
        )
    layers = {int(m[1]) for name in shapes if (m := re.match(r"layers\.(\d+)\.", name))}
    if layers and len(layers) != config.num_hidden_layers:
        raise ConfigError(
            "num_hidden_layers",
            config.num_hidden_layers,
            f"the weights hold {len(layers)} layers (layers.{max(layers)} is the last), "
            f"the config says {config.num_hidden_layers}",
            f"Set num_hidden_layers to {len(layers)}",
        )
    if "d2t" in shapes and not config.has_draft_vocabulary:
        size = shapes["d2t"][0]
        raise ConfigError(
            "draft_vocab_size",
            config.draft_vocab_size,
            f"d2t is [{size}] in the weights: the drafter has a vocabulary of its own",
            f"Set draft_vocab_size to {size}",
        )
    for name, wanted_shape, fields in expected_shapes(config, target_hidden_size):
        field = _blamed(config, fields, wanted_shape, shapes.get(name))
        value = getattr(config, field)
        if name not in shapes:
            raise ConfigError(
                field,
                value,
                f"the weights hold no {name} {_text(wanted_shape)}, which {field} = {value!r} asks for",
                f"Correct {field}, or use the checkpoint this config belongs to",
            )
        if shapes[name] != wanted_shape:
            raise ConfigError(
                field,
                value,
                f"{name} is {_text(shapes[name])} in the weights and {_text(wanted_shape)} by the config",
                f"Correct {field}: it follows from the weights and cannot be chosen",
            )
    biases = [name for name in shapes if name.endswith("self_attn.q_proj.bias")]
    if biases and not config.attention_bias:
        raise ConfigError(
            "attention_bias",
            False,
            f"{biases[0]} {_text(shapes[biases[0]])} is in the weights, the config asks for none",
            "Set attention_bias to true",
        )


def _blamed(config: DrafterConfig, fields: tuple[str, ...], wanted: Shape, found: Shape | None) -> str:
    """The field behind the first dimension that differs."""
    if found is not None and len(found) == len(wanted):
        for field, want, have in zip(fields, wanted, found, strict=False):
            if want != have:
                return field
    return fields[0]


def expected_shapes(config: DrafterConfig, target_hidden_size: int) -> Iterator[tuple[str, Shape, tuple[str, ...]]]:
    """(tensor, shape, the field behind each dimension) that the config asks for."""
    c, h = config, config.hidden_size
    query, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    yield "fc.weight", (h, len(c.taps) * target_hidden_size), ("hidden_size", "target_layer_ids")
    yield "hidden_norm.weight", (h,), ("hidden_size",)
    yield "norm.weight", (h,), ("hidden_size",)
    for i in range(c.num_hidden_layers):
        attention, mlp = f"layers.{i}.self_attn.", f"layers.{i}.mlp."
        # Norms before projections: they alone tell head_dim from the number of heads.
        yield f"{attention}q_norm.weight", (c.head_dim,), ("head_dim",)
        yield f"{attention}k_norm.weight", (c.head_dim,), ("head_dim",)
        yield f"{attention}q_proj.weight", (query, h), ("num_attention_heads", "hidden_size")
        yield f"{attention}k_proj.weight", (kv, h), ("num_key_value_heads", "hidden_size")
        yield f"{attention}v_proj.weight", (kv, h), ("num_key_value_heads", "hidden_size")
        yield f"{attention}o_proj.weight", (h, query), ("hidden_size", "num_attention_heads")
        if c.attention_bias:
            for name, width in (("q_proj", query), ("k_proj", kv), ("v_proj", kv), ("o_proj", h)):
                yield f"{attention}{name}.bias", (width,), ("attention_bias",)
        yield f"layers.{i}.input_layernorm.weight", (h,), ("hidden_size",)
        yield f"layers.{i}.post_attention_layernorm.weight", (h,), ("hidden_size",)
        yield f"{mlp}gate_proj.weight", (c.intermediate_size, h), ("intermediate_size", "hidden_size")
        yield f"{mlp}up_proj.weight", (c.intermediate_size, h), ("intermediate_size", "hidden_size")
        yield f"{mlp}down_proj.weight", (h, c.intermediate_size), ("hidden_size", "intermediate_size")
        if c.conv_kernel_size and c.conv_group_size:
            rows = 2 * c.conv_kernel_size * (h // c.conv_group_size)
            for name in ("attention_conv", "mlp_conv"):
                conv = f"layers.{i}.{name}."
                yield (
                    f"{conv}base_kernel",
                    (2, c.conv_kernel_size, h),
                    ("conv_kernel_size",) * 2 + ("hidden_size",),
                )
                yield f"{conv}kernel_projection.weight", (rows, h), ("conv_group_size", "hidden_size")
    if c.selector_rank:
        selector = "candidate_selector."
        yield f"{selector}hidden_projection.weight", (c.selector_rank, h), ("selector_rank", "hidden_size")
        for name in ("predecessor_codebook", "successor_codebook"):
            yield f"{selector}{name}", (c.vocab_size, c.selector_rank), ("vocab_size", "selector_rank")
    if c.draft_vocab_size and c.has_draft_vocabulary:
        yield "d2t", (c.draft_vocab_size,), ("draft_vocab_size",)
        yield "lm_head.weight", (c.draft_vocab_size, h), ("draft_vocab_size", "hidden_size")


def _text(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
