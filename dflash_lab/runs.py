"""One prompt through the loop, beside the plain target, and the finished runs kept on disk."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_lab.decode.loop import Settings, run
from dflash_lab.decode.lossless import Lossless, compare
from dflash_lab.errors import LabError
from dflash_lab.paths import data_dir, write_whole
from dflash_lab.tokens import Segment, Wording, word
from dflash_lab.trace import Trace

if TYPE_CHECKING:
    from dflash_lab.config.schema import DrafterConfig
    from dflash_lab.drafters.protocol import Drafter
    from dflash_lab.pairs import Pair

Watch = Callable[[Trace], bool]
"""Called with the run so far after every round; returns False to stop the run there."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished (or cancelled) run: the speculative trace, the plain one beside it, and whether they agree.

    ``wording`` is the speculative trace in words, so that a kept run can be read without its tokenizer.

    ``plain`` and ``lossless`` are None when no baseline was asked for; ``lossless`` also at temperature > 0, where
    two samples need not agree.
    """

    id: str
    created: str
    pair: str
    prompt: str
    kind: str
    speculative: Trace
    plain: Trace | None = None
    lossless: Lossless | None = None
    wording: Wording = field(default_factory=Wording)

    @property
    def speed_up(self) -> float | None:
        """Decode throughput over the plain target's, measured in the same session; None without both."""
        fast = self.speculative.tokens_per_second
        slow = self.plain.tokens_per_second if self.plain else None
        return fast / slow if fast and slow else None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, traces with their schema version."""
        body = asdict(self)
        body["speculative"] = self.speculative.to_json()
        body["plain"] = self.plain.to_json() if self.plain else None
        return body

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Run:
        """Read what ``to_json`` wrote."""
        return cls(
            **{
                **data,
                "speculative": Trace.from_json(data["speculative"]),
                "plain": Trace.from_json(data["plain"]) if data["plain"] else None,
                "lossless": Lossless(**data["lossless"]) if data["lossless"] else None,
                "wording": _wording_from_json(data["wording"]),
            }
        )


def _wording_from_json(data: dict[str, Any]) -> Wording:
    names = {int(token): name for token, name in data["names"].items()}  # JSON keys are text
    return Wording(tuple(Segment(**s) for s in data["segments"]), names)


def run_prompt(
    pair: Pair,
    prompt: str,
    settings: Settings,
    *,
    config: DrafterConfig | None = None,
    baseline: bool = True,
    thinking: bool | None = None,
    kind: str = "",
    tree_depth: int = 0,
    watch: Watch | None = None,
) -> Run:
    """Run ``prompt`` through the loop under ``config`` (the pair's own when None), then the plain target.

    A ``tree_depth`` above 0 drafts trees of so many positions (DDTree), with ``settings.k`` as their budget.
    ``settings.stop_ids`` are joined with the pair's own. ``watch`` sees the speculative run first, then the plain
    one, after every round.

    Raises LabError for an empty prompt, one that does not fit, or a config that does not fit the weights.
    """
    if not prompt.strip():
        raise LabError("The prompt is empty", "Type a prompt or pick an example")
    ids = pair.encode(prompt, thinking)
    target = pair.target
    settings = _with_stops(settings, pair.stop_ids)
    about = _about(pair, settings, tree_depth)
    drafter = _drafter(pair, config, tree_depth) if settings.k else None
    speculative, finished = _watched(run(target, drafter, ids, settings), watch, about)
    plain = verdict = None
    if baseline and finished:
        plain, _ = _watched(run(target, None, ids, _plain(settings)), watch, {**about, "method": "plain"})
        if settings.sampling.temperature == 0:
            verdict = compare(speculative, plain, target)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Run(
        _new_id(created),
        created,
        pair.spec.name,
        prompt,
        kind,
        speculative,
        plain,
        verdict,
        word(pair.tokenizer, speculative),
    )


def _drafter(pair: Pair, config: DrafterConfig | None, tree_depth: int) -> Drafter:
    from dflash_lab.drafters.tree import TreeDrafter

    chain = pair.drafter(config)
    return TreeDrafter(chain, tree_depth) if tree_depth else chain


def _watched(generation: Any, watch: Watch | None, about: dict[str, str]) -> tuple[Trace, bool]:
    """Drive a Generation to its end or until ``watch`` says stop; returns the trace and whether it ended."""
    for _ in generation:
        if watch and not watch(generation.trace(**about)):
            return generation.trace(**about, cancelled="yes"), generation.end != "none"
    return generation.trace(**about), True


def _with_stops(settings: Settings, stop_ids: frozenset[int]) -> Settings:
    return Settings(
        settings.k,
        settings.max_new_tokens,
        settings.stop_ids | stop_ids,
        settings.sampling,
        settings.alternatives,
    )


def _plain(settings: Settings) -> Settings:
    return Settings(0, settings.max_new_tokens, settings.stop_ids, settings.sampling, settings.alternatives)


def _about(pair: Pair, settings: Settings, tree_depth: int) -> dict[str, str]:
    s = settings.sampling
    about = {
        "pair": pair.spec.name,
        "method": ("ddtree" if tree_depth else "dflash") if settings.k else "plain",
        "device": str(pair.device),
        "dtype": str(pair.dtype).removeprefix("torch."),
        "temperature": f"{s.temperature:g}",
    }
    if tree_depth:
        about["tree_depth"] = str(tree_depth)
    if s.temperature:
        about |= {"q_rule": s.q_rule, "top_k": str(s.top_k), "top_p": f"{s.top_p:g}", "seed": str(s.seed)}
    return about


def _new_id(created: str) -> str:
    stamp = created.replace("-", "").replace(":", "").partition("+")[0]
    return f"{stamp}-{uuid.uuid4().hex[:6]}"


def _folder() -> Path:
    return data_dir() / "runs"


def save_run(finished: Run) -> Path:
    """Write the run as JSON into the data folder, whole or not at all, and return its path."""
    return write_whole(_folder() / f"{finished.id}.json", json.dumps(finished.to_json()))


def load_run(run_id: str) -> Run:
    """Read a kept run.

    Raises LabError when there is none by that id, or its file cannot be read.
    """
    path = _folder() / f"{Path(run_id).name}.json"
    try:
        return Run.from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        raise LabError(f"There is no run {run_id!r} in {path.parent}", "Pick one of the kept runs") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"Run file {path} cannot be read: {error}", "Delete it or run the prompt again") from error


def kept_runs() -> tuple[str, ...]:
    """Ids of the kept runs, newest first."""
    return tuple(sorted((p.stem for p in _folder().glob("*.json")), reverse=True))
