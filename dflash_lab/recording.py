"""Recordings: the target's own greedy text with the hidden states that any drafter config can be judged on.

Taken while generating, so that every state comes from the pass that committed its token. Kept in the model's dtype
as safetensors and memory-mapped when read back.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.sampling import Sampler, Sampling
from dflash_lab.decode.target import EMBEDDING_TAP, Target
from dflash_lab.drafters.protocol import Draft
from dflash_lab.errors import LabError
from dflash_lab.trace import End

FORMAT = 1

Progress = Callable[[int, int], bool]
"""(tokens done, tokens asked) -> go on? Called after every token."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One prompt's greedy text and the target's states along it.

    ``tokens`` holds ``length`` tokens of text and, behind it, a few more that only judge proposals reaching past
    its end. ``states [L + 1, T, H]``: row 0 the input of layer 0, row l + 1 the output of layer l, for the T
    positions that were run (prompt and all tokens but the last). ``margins[i]`` is the distance of the target's two
    top logits where it chose ``tokens[i + 1]``.
    """

    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    length: int
    end: End
    margins: tuple[float, ...]
    states: torch.Tensor

    def __post_init__(self) -> None:
        if self.states.shape[1] != len(self.prompt_ids) + len(self.tokens) - 1:
            raise LabError(
                f"A recording of {len(self.prompt_ids)} + {len(self.tokens)} tokens needs states for all but the last,"
                f" but has {self.states.shape[1]} rows",
                "Record the prompt again",
            )

    @property
    def ids(self) -> tuple[int, ...]:
        """Prompt and generated tokens, one after the other."""
        return self.prompt_ids + self.tokens

    def rows(self, tap: int) -> torch.Tensor:
        """States ``[T, H]`` of one tap (a 0-based layer output, or ``EMBEDDING_TAP``)."""
        return self.states[tap - EMBEDDING_TAP]


def recording_bytes(target: Target, positions: int) -> int:
    """Bytes a recording of so many positions takes, in RAM and on disk."""
    return (target.num_layers + 1) * positions * target.hidden_size * target.dtype.itemsize


class _Recorder:
    """Sits in the drafter's seat, drafts nothing, and keeps what the target hands out."""

    def __init__(self, target: Target) -> None:
        self.taps = tuple(range(EMBEDDING_TAP, target.num_layers))
        self._target = target
        self.states = torch.empty(0)
        self.length = 0

    def start(self, capacity: int) -> None:
        shape = (len(self.taps), capacity, self._target.hidden_size)
        self.states = torch.empty(shape, dtype=self._target.dtype, device=self._target.device)
        self.length = 0

    def commit(self, ids: torch.Tensor, taps: Sequence[torch.Tensor]) -> None:
        end = self.length + ids.shape[0]
        for row, tap in zip(self.states, taps, strict=True):
            row[self.length : end] = tap
        self.length = end

    def propose(self, anchor: torch.Tensor, k: int, sampler: Sampler) -> Draft:
        raise AssertionError("a recorder is run with k = 0")


def record(
    target: Target,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    stop_ids: frozenset[int],
    beyond: int = 16,
    progress: Progress | None = None,
    sampling: Sampling | None = None,
) -> Recording | None:
    """Generate (greedily unless ``sampling`` says otherwise) and keep what replay needs; None when stopped.

    The text ends at the first stop token or after ``max_new_tokens``; ``beyond`` tokens more are generated behind
    it (never part of the text) so that a draft of up to ``beyond`` - 1 tokens at its end can be judged too.

    Raises LabError for a prompt that does not fit the target's context.
    """
    recorder = _Recorder(target)
    generation = run(
        target,
        recorder,
        prompt_ids,
        Settings(0, max_new_tokens + beyond, sampling=sampling or Sampling(), alternatives=2),
    )
    tokens: list[int] = []
    margins: list[float] = []
    length, end = 0, "none"
    for r in generation:
        if not tokens:
            tokens.append(r.anchor)
        tokens.extend(r.emitted)
        best, second = r.target_alternatives[0].probs
        margins.append(math.log(best) - math.log(second) if second > 0 else math.inf)
        if not length:
            length, end = _text_end(tokens, max_new_tokens, stop_ids)
        if progress and not progress(min(len(tokens), max_new_tokens), max_new_tokens):
            return None
        if length and len(tokens) >= length + beyond:
            break
    if not length:  # the context ended first
        length, end = max(1, len(tokens) - beyond), "limit"
    states = recorder.states[:, : len(prompt_ids) + len(tokens) - 1].clone()
    return Recording(tuple(prompt_ids), tuple(tokens), length, end, tuple(margins), states)  # type: ignore[arg-type]


def _text_end(tokens: Sequence[int], limit: int, stop_ids: frozenset[int]) -> tuple[int, str]:
    stop = next((i for i, token in enumerate(tokens[:limit]) if token in stop_ids), None)
    if stop is not None:
        return stop + 1, "eos"
    return (limit, "limit") if len(tokens) >= limit else (0, "none")


@torch.inference_mode()
def check_is_greedy(target: Target, recording: Recording) -> None:
    """Check ``tokens[i + 1] == argmax`` of the recorded row everywhere, near-ties aside.

    Raises LabError for foreign text: an exact answer can only be replayed along the target's own greedy output.
    """
    logits = target.logits_from_last_layer(recording.rows(target.num_layers - 1)[len(recording.prompt_ids) - 1 :])
    wanted = torch.tensor(recording.tokens, device=logits.device)
    top = logits.max(-1).values
    behind = (top - logits.gather(-1, wanted[:, None])[:, 0]).double()
    worst = int(behind.argmax())
    # bfloat16 heads round to a few hundredths; foreign text is whole logits away.
    if float(behind[worst]) > (1e-3 if target.dtype in (torch.float32, torch.float64) else 0.25):
        raise LabError(
            f"Token {worst} of the recorded text is not this target's own greedy choice ({float(behind[worst]):.3g} "
            "below its top logit)",
            "Record the prompt with this target",
        )


class RecordingStore:
    """Recordings on disk by target, prompt and settings, shared by configs, K and sessions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, target_key: str, prompt_ids: Sequence[int], max_new_tokens: int, stop_ids: frozenset[int]) -> Path:
        """Where the recording of these inputs lives; ``target_key`` names target, revision and dtype."""
        key = json.dumps([FORMAT, target_key, list(prompt_ids), max_new_tokens, sorted(stop_ids)])
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.safetensors"

    def save(self, path: Path, recording: Recording) -> None:
        """Write whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = {name: getattr(recording, name) for name in ("prompt_ids", "tokens", "length", "end", "margins")}
        part = path.with_suffix(f".{os.getpid()}.part")
        save_file({"states": recording.states.contiguous()}, part, metadata={"recording": json.dumps(facts)})
        os.replace(part, path)

    def load(self, path: Path, device: torch.device) -> Recording | None:
        """The recording at ``path``, memory-mapped; None when there is none or it cannot be read."""
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                facts = json.loads(file.metadata()["recording"])
                states = file.get_tensor("states")
        except Exception:  # a damaged file is only a cache miss: it is recorded again
            return None
        tuples = {name: tuple(facts[name]) for name in ("prompt_ids", "tokens", "margins")}
        return Recording(**tuples, length=facts["length"], end=facts["end"], states=states)
