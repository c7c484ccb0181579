"""The speculative loop: draft, verify, commit; one Round at a time.

Works on token ids only and knows no drafter by name: plain decoding is the same loop with no drafter (K = 0).

    generation = run(target, drafter, prompt_ids, Settings(k=5))
    for round in generation:
        ...
    generation.trace()
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from dflash_lab.decode.clock import Clock
from dflash_lab.decode.evidence import alternatives, gather
from dflash_lab.decode.sampling import Sampler, Sampling
from dflash_lab.decode.target import Target
from dflash_lab.decode.verify import verify
from dflash_lab.drafters.protocol import Draft, Drafter
from dflash_lab.errors import LabError
from dflash_lab.trace import End, Round, Trace


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run: ``k`` drafted tokens a round, at most ``max_new_tokens`` in all, ``stop_ids`` end the text.

    ``alternatives`` is the number of most probable tokens kept per row for the inspector (0 = none).
    """

    k: int = 5
    max_new_tokens: int = 128
    stop_ids: frozenset[int] = frozenset()
    sampling: Sampling = field(default_factory=Sampling)
    alternatives: int = 0

    def __post_init__(self) -> None:
        if self.k < 0:
            raise LabError(f"k is {self.k}.", "Give 0 (plain decoding) or a positive number of drafted tokens.")
        if self.max_new_tokens < 1:
            raise LabError(f"max_new_tokens is {self.max_new_tokens}.", "Give at least 1.")


class Generation:
    """A run under way: iterate it for Rounds; ``trace()`` is what has happened so far, also after a stop.

    Leaving the iteration early is how a run is cancelled: between two rounds, with nothing lost.
    """

    def __init__(self, target: Target, drafter: Drafter | None, prompt: Sequence[int], settings: Settings) -> None:
        self.prompt_ids = tuple(prompt)
        self.settings = settings
        self.first_token: int | None = None
        self.rounds: list[Round] = []
        self.end: End = "none"
        self.time_to_first_token_s = 0.0
        self.decode_s = 0.0
        self._target = target
        self._drafter = drafter
        self._limit = _token_limit(target, self.prompt_ids, settings)

    def __iter__(self) -> Iterator[Round]:
        return self._rounds()

    def trace(self, source: str = "loop", **about: str) -> Trace:
        """The run so far as a Trace; ``about`` adds provenance."""
        return Trace(
            prompt_ids=self.prompt_ids,
            first_token=self.first_token,
            rounds=tuple(self.rounds),
            k=self.settings.k,
            source=source,
            end=self.end,
            time_to_first_token_s=self.time_to_first_token_s,
            decode_s=self.decode_s,
            about=about,
        )

    @torch.inference_mode()
    def _rounds(self) -> Iterator[Round]:
        target, drafter, settings = self._target, self._drafter, self.settings
        started = time.perf_counter()
        clock = Clock(target.device)
        sampler = Sampler(settings.sampling, target.device)
        capacity = len(self.prompt_ids) + self._limit + settings.k + 1
        run = target.open(capacity, drafter.taps if drafter else ())
        no_draft = Draft(torch.empty(0, dtype=torch.long, device=target.device))

        # Prefill: the row of the last prompt token gives the first anchor.
        prompt = torch.tensor(self.prompt_ids, device=target.device)
        logits, taps = run.forward(prompt, last_only=True)
        if drafter:
            drafter.start(capacity)
            drafter.commit(prompt, taps)
        anchor = sampler.choose(logits)  # [1]
        self.first_token = token = int(anchor)
        self.time_to_first_token_s = time.perf_counter() - started
        emitted = 1
        self.end = self._end_of((token,), emitted)

        decode_started = time.perf_counter()
        round_started = decode_started
        while self.end == "none":
            t0 = clock.mark()
            draft = drafter.propose(anchor, settings.k, sampler) if drafter and settings.k else no_draft
            t1 = clock.mark()
            block = torch.cat([anchor, draft.ids])  # [1 + k]
            logits, taps = run.verify(block, draft.tree)  # [1 + k, V]
            verdict = verify(draft, logits, sampler)
            t2 = clock.mark()
            facts = gather(draft, logits, verdict, sampler)  # the round's one synchronisation

            # Commit: the anchor and the accepted tokens become context; the bonus is the next anchor.
            rewind_started = time.perf_counter()
            rewound = run.keep(block, facts.rows)
            rewind_s = time.perf_counter() - rewind_started if rewound else 0.0
            if drafter:
                drafter.commit(block[facts.kept], [rows[facts.kept] for rows in taps])
            last, path = facts.rows[-1], tuple(row - 1 for row in facts.rows[1:])
            bonus = facts.choices[last]
            anchor = verdict.choices[last : last + 1]

            tokens = self._cut((*(facts.drafted[i] for i in path), bonus), emitted)
            emitted += len(tokens)
            self.end = self._end_of(tokens, emitted)
            draft_alternatives = alternatives(draft.logits, settings.alternatives, sampler)
            target_alternatives = alternatives(logits, settings.alternatives, sampler)
            now = time.perf_counter()
            draft_s, verify_s = clock.between(t0, t1), clock.between(t1, t2)
            self.decode_s = now - decode_started
            self.rounds.append(
                Round(
                    anchor=token,
                    anchor_position=len(self.prompt_ids) + emitted - len(tokens) - 1,
                    block=1 + settings.k,
                    drafted=facts.drafted,
                    choices=facts.choices,
                    accepted=facts.accepted,
                    emitted=tokens,
                    bonus=bonus if len(tokens) == len(facts.rows) else None,
                    end=self.end,
                    draft_probs=facts.draft_probs,
                    target_probs=facts.target_probs,
                    ranks=facts.ranks,
                    draft_s=draft_s,
                    verify_s=verify_s,
                    rest_s=max(0.0, now - round_started - draft_s - verify_s),
                    rewind_s=rewind_s,
                    draft_alternatives=draft_alternatives,
                    target_alternatives=target_alternatives,
                    parents=facts.parents,
                    path=path if facts.parents else (),
                )
            )
            yield self.rounds[-1]
            token = bonus
            # Time spent by whoever reads the rounds is theirs, not the run's.
            paused = time.perf_counter() - now
            decode_started, round_started = decode_started + paused, now + paused

    def _cut(self, tokens: tuple[int, ...], emitted: int) -> tuple[int, ...]:
        """The tokens of this round that become text: up to the first stop token and the token limit."""
        room = tokens[: self._limit - emitted]
        stop = next((i for i, token in enumerate(room) if token in self.settings.stop_ids), None)
        return room if stop is None else room[: stop + 1]

    def _end_of(self, tokens: tuple[int, ...], emitted: int) -> End:
        if tokens[-1] in self.settings.stop_ids:
            return "eos"
        return "limit" if emitted >= self._limit else "none"


def run(target: Target, drafter: Drafter | None, prompt: Sequence[int], settings: Settings) -> Generation:
    """Prepare a run of ``prompt`` token ids; nothing is computed before the first round is asked for.

    Raises LabError for an empty prompt, an id outside the vocabulary, or a prompt that leaves no room in the
    target's context.
    """
    return Generation(target, drafter, prompt, settings)


def _token_limit(target: Target, prompt: tuple[int, ...], settings: Settings) -> int:
    """New tokens this run may emit: ``max_new_tokens``, or what the target's context leaves."""
    if not prompt:
        raise LabError("The prompt is empty.", "Give at least one token.")
    for token in prompt:
        if not 0 <= token < target.vocab_size:
            raise LabError(
                f"Prompt token id {token} is outside the target's vocabulary (0..{target.vocab_size - 1}).",
                "Encode the prompt with the target's own tokenizer.",
            )
    if target.context_length is None:
        return settings.max_new_tokens
    room = target.context_length - len(prompt) - settings.k
    if room < 1:
        raise LabError(
            f"The prompt has {len(prompt)} tokens; with {settings.k} drafted tokens a round it does not fit the "
            f"target's context of {target.context_length}.",
            "Shorten the prompt or draft fewer tokens.",
        )
    return min(settings.max_new_tokens, room)
