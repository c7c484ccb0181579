"""Pairs: a target and its DFlash drafter, where they come from, and both of them loaded.

A spec is a file in ``sample_configs/pairs/`` or two folders. Listing specs imports neither torch nor transformers.
"""

from __future__ import annotations

import contextlib
import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dflash_lab.errors import LabError
from dflash_lab.paths import SAMPLES, data_dir

if TYPE_CHECKING:
    import torch

    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.decode.target import Target
    from dflash_lab.drafters.dflash import DFlashDrafter, DFlashStack, DFlashWeights
    from dflash_lab.drafters.draft_model import DraftModelDrafter
    from dflash_lab.drafters.mtp import MtpDrafter

Progress = Callable[[float, str], None]

PAIRS = SAMPLES / "pairs"
DEMO_TARGET = "demo"
DEMO_PAIR = "smollm2-demo"


class PairSpec(BaseModel):
    """Where a pair comes from and how to load it.

    ``target`` and ``drafter`` are folders or hub ids; target "demo" is the built-in one, and a drafter may be the
    name of a folder of ``sample_configs``. ``thinking`` is passed to the chat template as ``enable_thinking``.
    ``mtp`` is the folder of an MTP head, in ``sample_configs`` or anywhere; without it the target's own is looked for.
    ``draft_model`` is an ordinary small model with the target's tokenizer, a folder or hub id.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str = ""
    target: str
    drafter: str
    target_revision: str | None = None
    drafter_revision: str | None = None
    mtp: str | None = None
    draft_model: str | None = None
    device: Literal["auto", "cuda", "mps", "cpu", "balanced"] = "auto"
    dtype: Literal["auto", "float64", "float32", "bfloat16", "float16"] = "auto"
    thinking: bool | None = None
    notes: str = ""


def _presets() -> dict[str, Path]:
    """Name -> file: the lab's, then the user's, which replace the lab's of the same name."""
    return {path.stem: path for folder in (PAIRS, data_dir() / "pairs") for path in sorted(folder.glob("*.toml"))}


def list_pairs() -> list[PairSpec]:
    """Every preset that can be read, of the lab and of the user (``pairs/`` in the data folder); the demo first."""
    specs: list[PairSpec] = []
    for path in _presets().values():
        with contextlib.suppress(LabError):  # broken_presets tells
            specs.append(_read_spec(path))
    return sorted(specs, key=lambda spec: (spec.name != DEMO_PAIR, spec.target != DEMO_TARGET, spec.name.lower()))


def broken_presets() -> list[LabError]:
    """What is wrong with the presets that `list_pairs` leaves out: file, field, value and fix."""
    problems: list[LabError] = []
    for path in _presets().values():
        try:
            _read_spec(path)
        except LabError as error:
            problems.append(error)
    return problems


def get_pair(name: str) -> PairSpec:
    """The preset of that name. Raises LabError with the closest names, or with what is wrong in its file."""
    presets = _presets()
    if name in presets:
        return _read_spec(presets[name])
    close = difflib.get_close_matches(name, presets, 3, 0.3) or list(presets)
    raise LabError(f"There is no pair {name!r}", f"Closest: {', '.join(close)}")


def _read_spec(path: Path) -> PairSpec:
    try:
        return PairSpec(name=path.stem, **tomllib.loads(path.read_text()))
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{path} is not valid TOML: {error}", "Correct it there") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(map(str, problem["loc"]))
        value = "" if problem["type"] == "missing" else f" is {problem['input']!r}"
        raise LabError(f"{path}: {field}{value}: {problem['msg']}", f"Correct {field}") from error


@dataclass
class Pair:
    """A loaded pair. Weights are never changed; a config edit makes another stack on the same weights.

    ``tensors`` are the drafter's checkpoint as read; ``raw_config`` its config.json as read.
    """

    spec: PairSpec
    tokenizer: Any
    model: Any
    tensors: Mapping[str, torch.Tensor]
    raw_config: dict[str, Any]
    drafter_dir: Path
    target_dir: Path
    target_revision: str
    drafter_revision: str

    @property
    def config_path(self) -> Path:
        """The drafter's config.json on disk."""
        return self.drafter_dir / "config.json"

    @property
    def target_id(self) -> str:
        """The target's hub id, folder, or "demo"."""
        return self.spec.target

    @cached_property
    def target(self) -> Target:
        """The target as the loop sees it."""
        from dflash_lab.decode.target import Target

        return Target(self.model)

    @cached_property
    def weights(self) -> DFlashWeights:
        """The drafter's weights, fused once."""
        from dflash_lab.drafters.dflash import DFlashWeights

        return DFlashWeights(self.tensors)

    @cached_property
    def config(self) -> DrafterConfig:
        """The drafter's own config. Raises ConfigError when no engine could run it."""
        from dflash_lab.config.schema import DrafterConfig

        return DrafterConfig.from_json(self.raw_config)

    def drafter(self, config: DrafterConfig | None = None) -> DFlashDrafter:
        """A drafter for the loop, under ``config`` (the pair's own when None)."""
        from dflash_lab.drafters.dflash import DFlashDrafter

        return DFlashDrafter(self.weights, config or self.config, self.target)

    def mtp(self) -> MtpDrafter:
        """The pair's MTP head as a drafter. Raises LabError where there is none, or none this code can run."""
        from dflash_lab.drafters.mtp import MtpDrafter, MtpHead, read_mtp

        config, tensors = read_mtp(SAMPLES / self.spec.mtp if self.spec.mtp else self.target_dir)
        placed = {name: tensor.to(self.device, self.dtype) for name, tensor in tensors.items()}
        return MtpDrafter(MtpHead(config, placed, self.target))

    @cached_property
    def draft_target(self) -> Target:
        """The small model that ``draft_model`` names, loaded once.

        Raises LabError where none is named, it cannot be loaded, or it reads other token ids than the target.
        """
        from dflash_lab import loading
        from dflash_lab.decode.target import Target

        if self.spec.draft_model is None:
            raise LabError(f"The pair {self.spec.name} names no draft model", "Add draft_model to its preset")
        spec = self.spec.model_copy(update={"target": self.spec.draft_model, "target_revision": None})
        folder, _ = loading.target_source(spec, lambda share, text: None).folder(lambda share, text: None)
        model, tokenizer = loading.load_target(folder, self.dtype, str(self.device))
        if tokenizer.get_vocab() != self.tokenizer.get_vocab():
            raise LabError(
                f"{self.spec.draft_model} has another tokenizer than the target", "Take a model of the same family"
            )
        return Target(model)

    def small_model(self) -> DraftModelDrafter:
        """The pair's ordinary draft model as a drafter. Raises LabError where there is none that fits."""
        from dflash_lab.drafters.draft_model import DraftModelDrafter

        return DraftModelDrafter(self.draft_target, self.target.vocab_size)

    def stack(self, config: DrafterConfig | None = None) -> DFlashStack:
        """The drafter's arithmetic for replay, under ``config`` (the pair's own when None)."""
        from dflash_lab.drafters.dflash import DFlashStack

        return DFlashStack(self.weights, config or self.config, self.target)

    @property
    def device(self) -> torch.device:
        """Where the target's embedding table is."""
        return self.target.device

    @property
    def dtype(self) -> torch.dtype:
        """The target's (and drafter's) dtype."""
        return self.target.dtype

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a text: the generation config's, else the tokenizer's."""
        eos = self.model.generation_config.eos_token_id
        if eos is None:
            eos = self.tokenizer.eos_token_id
        return frozenset() if eos is None else frozenset([eos] if isinstance(eos, int) else eos)

    def encode(self, prompt: str, thinking: bool | None = None) -> list[int]:
        """Token ids of one user turn under the chat template, ready for the answer; plain text without a template."""
        if not self.tokenizer.chat_template:
            return self.tokenizer(prompt)["input_ids"]
        thinking = self.spec.thinking if thinking is None else thinking
        options = {} if thinking is None else {"enable_thinking": thinking}
        turn = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False, **options)
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]


def load(spec: PairSpec, progress: Progress | None = None) -> Pair:
    """Load target, tokenizer and drafter. ``progress(share, text)`` is told what is going on.

    Raises LabError, one sentence and a fix, for whatever can be wrong with paths, hub, files, shapes or memory.
    """
    from dflash_lab import loading
    from dflash_lab.sources import read_config

    report = progress or (lambda share, text: None)

    def span(start: float, end: float) -> Progress:
        return lambda share, text: report(start + share * (end - start), text)

    report(0.0, "Finding the files")
    target_source, drafter_source = loading.target_source(spec, span(0.0, 0.4)), loading.drafter_source(spec)
    target_config = target_source.config()
    device, dtype = loading.device_of(spec), loading.dtype_of(spec, target_config)
    loading.check_memory(target_source, drafter_source, dtype, device)
    drafter_dir, drafter_revision = drafter_source.folder(span(0.0, 0.1))
    raw_config = read_config(drafter_dir)
    loading.check_fit(target_config, drafter_dir)
    target_dir, target_revision = target_source.folder(span(0.1, 0.4))
    report(0.4, "Loading the target")
    model, tokenizer = loading.load_target(target_dir, dtype, device)
    report(0.9, "Loading the drafter")
    tensors = loading.load_tensors(drafter_dir, model)
    report(1.0, "Loaded")
    return Pair(spec, tokenizer, model, tensors, raw_config, drafter_dir, target_dir, target_revision, drafter_revision)
