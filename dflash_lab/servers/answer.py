"""One request to a server and what came back, and the rounds that can be told from it.

Three grades of evidence, the best one there is is used:

| evidence | what it gives |
| --- | --- |
| accepted and drafted per step (vLLM, `--per-request-spec-decode-metrics detailed`) | every round, exactly |
| token ids per streamed chunk, one chunk a step | rounds; the draft length is the one asked for, not a report |
| neither | no rounds: only the counters' difference, a Summary |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dflash_lab.trace import UNKNOWN, End, Round, Trace


@dataclass(frozen=True, slots=True)
class Ask:
    """What to send: a chat of one user message, or (with `raw`) the text as it is; `prompt` may be token ids.

    `thinking` None leaves the template's default. `timeout_s` is for the whole answer. `label` is the caller's name for
    it and is not sent.
    """

    prompt: str | tuple[int, ...]
    max_tokens: int = 96
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    raw: bool = False
    ignore_eos: bool = False
    thinking: bool | None = None
    timeout_s: float = 300.0
    label: str = ""

    @property
    def is_chat(self) -> bool:
        """Whether the server is to apply its chat template."""
        return isinstance(self.prompt, str) and not self.raw


@dataclass(frozen=True, slots=True)
class Steps:
    """A server's own record of one request, a verify step an entry: tokens accepted and tokens drafted."""

    accepted: tuple[int, ...]
    drafted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished request. Ids are empty where the server gave none; times are the client's, in seconds.

    `chunks` are token ids as they were streamed; `finish` the server's reason ("stop", "length"); `acceptance_length`
    and `verify_steps` what the server itself says about the request, where it does.
    """

    ask: Ask
    text: str
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    chunks: tuple[tuple[int, ...], ...] = ()
    finish: str = ""
    steps: Steps | None = None
    acceptance_length: float | None = None
    draft_acceptance_rate: float | None = None
    verify_steps: int | None = None
    completion_tokens: int = 0
    started_s: float = 0.0
    time_to_first_token_s: float = 0.0
    total_s: float = 0.0
    about: dict[str, str] = field(default_factory=dict)

    @property
    def tokens_per_second(self) -> float | None:
        """Decode throughput: tokens after the first / seconds after the first token."""
        seconds = self.total_s - self.time_to_first_token_s
        return (self.completion_tokens - 1) / seconds if self.completion_tokens > 1 and seconds > 0 else None

    def trace(self, k: int, source: str) -> Trace | None:
        """The rounds of this request, None when they cannot be told.

        `about["rounds"]` says which evidence they rest on. Ids a server never reveals (a rejected draft) are
        `UNKNOWN`.
        """
        if not self.token_ids or not self.prompt_ids:
            return None
        steps = self.steps or self._steps_from_chunks(k)
        if steps is None:
            return None
        rounds = self._rounds(steps)
        if rounds is None:
            return None
        end: End = "eos" if self.finish == "stop" else "limit"
        return Trace(
            prompt_ids=self.prompt_ids,
            first_token=self.token_ids[0],
            rounds=tuple(rounds),
            k=k,
            source=source,
            end=end,
            time_to_first_token_s=self.time_to_first_token_s,
            decode_s=max(0.0, self.total_s - self.time_to_first_token_s),
            about={**self.about, "rounds": "per-request metrics" if self.steps else "streamed chunks"},
        )

    def _steps_from_chunks(self, k: int) -> Steps | None:
        """A chunk of n tokens is a step that accepted n - 1; a chunk of more than K + 1 holds several steps."""
        sizes = [len(chunk) for chunk in self.chunks if chunk]
        if not sizes or sum(sizes) != len(self.token_ids) or sizes[0] != 1 or max(sizes) > k + 1:
            return None
        return Steps(tuple(n - 1 for n in sizes[1:]), (k,) * (len(sizes) - 1))

    def _rounds(self, steps: Steps) -> list[Round] | None:
        """Lay the steps along the tokens; None when they do not cover them (steps without a draft in between)."""
        start, ids = len(self.prompt_ids), self.token_ids
        greedy = self.ask.temperature == 0
        rounds: list[Round] = []
        at = 0
        for accepted, drafted in zip(steps.accepted, steps.drafted, strict=True):
            if at + 1 >= len(ids):
                break  # a step begun before the server knew that the text had ended
            emitted = ids[at + 1 : at + accepted + 2]
            last = at + accepted + 1 >= len(ids) - 1
            end: End = ("eos" if self.finish == "stop" else "limit") if last else "none"
            rounds.append(
                Round(
                    anchor=ids[at],
                    anchor_position=start + at,
                    block=1 + drafted,
                    drafted=_padded(emitted[:accepted], drafted),
                    choices=ids[at + 1 : at + (drafted if greedy else accepted) + 2],
                    accepted=accepted,
                    emitted=emitted,
                    bonus=emitted[-1] if len(emitted) == accepted + 1 else None,
                    end=end,
                )
            )
            at += accepted + 1
        return rounds if at >= len(ids) - 1 else None


def _padded(ids: Sequence[int], width: int) -> tuple[int, ...]:
    return (*ids[:width], *(UNKNOWN,) * (width - len(ids)))
