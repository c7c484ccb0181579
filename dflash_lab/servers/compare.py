"""A server's rounds held against replay, anchor by anchor.

Replay drafts from the server's own anchors, so that one differing round does not shift all the later ones. Compared
are the rounds whose text the lab's own target also wrote, final rounds apart: the server may have cut them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch

from dflash_lab.drafters.dflash import DFlashStack
from dflash_lab.errors import LabError
from dflash_lab.recording import Recording
from dflash_lab.replay import ANCHORS_AT_ONCE, Anchors
from dflash_lab.servers.bend import VariantReplay
from dflash_lab.trace import Rate, Summary, Trace


@dataclass(frozen=True, slots=True)
class Difference:
    """One round in which server and replay disagree.

    `margin` is the distance of the target's two top logits at the first token they disagree on: a near-tie there
    would make it rounding.
    """

    request: int
    anchor_position: int
    server: int
    replay: int
    margin: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of holding a server's rounds against one reading.

    `observed_at` and `expected_at` count rounds accepted at each position, over the same `rounds` anchors.
    """

    rounds: int
    differences: tuple[Difference, ...]
    observed_at: tuple[int, ...]
    expected_at: tuple[int, ...]

    @property
    def equal_share(self) -> float | None:
        """Rounds with the same number of accepted tokens / rounds compared; None without any."""
        return 1 - len(self.differences) / self.rounds if self.rounds else None

    @property
    def observed(self) -> tuple[Rate, ...]:
        """The server's unconditional per-position rates over the compared rounds."""
        return tuple(Rate(hits, self.rounds) for hits in self.observed_at)

    @property
    def expected(self) -> tuple[Rate, ...]:
        """Replay's, over the same rounds."""
        return tuple(Rate(hits, self.rounds) for hits in self.expected_at)

    @property
    def observed_acceptance_length(self) -> float | None:
        """Mean accepted + 1 over the compared rounds."""
        return 1 + sum(self.observed_at) / self.rounds if self.rounds else None

    @property
    def expected_acceptance_length(self) -> float | None:
        """Replay's, over the same rounds."""
        return 1 + sum(self.expected_at) / self.rounds if self.rounds else None

    def summaries(self) -> tuple[Summary, Summary]:
        """(observed, expected) over the same rounds, final ones left out, for the figures that read Summaries."""
        return self._summary("server", self.observed_at), self._summary("replay", self.expected_at)

    def _summary(self, source: str, at: tuple[int, ...]) -> Summary:
        return Summary(
            source=source,
            definition="over the compared rounds: same anchors on both sides, final rounds left out",
            drafts=self.rounds,
            drafted=self.rounds * len(at),
            accepted=sum(at),
            accepted_at=at,
            counted=self.rounds,
            counted_accepted=sum(at),
        )

    def sentence(self, enough: float = 0.99) -> str:
        """The verdict in words."""
        share, rounds = self.equal_share, self.rounds
        if share is None:
            return "No round could be compared: the server's text is not the one this target writes."
        equal = f"{share:.1%} of {rounds} rounds are equal"
        if share >= enough:
            return f"The server matches what this config can do: {equal}."
        losses = [(e - o) / rounds for o, e in zip(self.observed_at, self.expected_at, strict=True)]
        worst = max(range(len(losses)), key=lambda i: losses[i])
        observed, expected = self.observed_acceptance_length, self.expected_acceptance_length
        if losses[worst] > 0.005:
            where = f"loses most at position {worst}, {losses[worst]:.1%} of rounds"
        else:
            where = "loses nothing, but accepts other rounds"
        return f"The server {where}: acceptance length {observed:.2f} where {expected:.2f} is expected; {equal}."


class Evidence:
    """A server's comparable rounds and the recordings under them: ready to be held against any stack.

    Raises LabError when a trace was not made greedily, has another prompt than its recording, or nothing compares.
    """

    def __init__(self, traces: Sequence[Trace], recordings: Sequence[Recording]) -> None:
        if not traces:
            raise LabError("The server gave no rounds", "Start vLLM with --per-request-spec-decode-metrics detailed")
        self.recordings = list(recordings)
        self.k = max(trace.k for trace in traces)
        where, positions, accepted = [], [], []
        for n, (trace, recording) in enumerate(zip(traces, recordings, strict=True)):
            _check(trace, recording)
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], _texts(trace, recording)))
            for r in trace.rounds:
                known_until = len(trace.prompt_ids) + common
                judged = r.anchor_position + r.accepted + 2 <= known_until
                if r.end == "none" and len(r.drafted) == self.k and judged:
                    where.append(n)
                    positions.append(r.anchor_position)
                    accepted.append(r.accepted)
        if not positions:
            raise LabError(
                "None of the server's rounds lies on text that this target writes too",
                "Check that both serve the same target in the same dtype, greedily",
            )
        self.replay = VariantReplay(self.recordings)
        device = self.replay.ids.device
        self.anchors = Anchors(torch.tensor(where, device=device), torch.tensor(positions, device=device))
        self.accepted = torch.tensor(accepted, device=device)

    def __len__(self) -> int:
        return len(self.anchors)

    @torch.inference_mode()
    def expected(self, stack: DFlashStack, only: torch.Tensor | None = None) -> torch.Tensor:
        """Tokens the target would accept under `stack`, an entry an anchor (of `only`, when given)."""
        anchors = self.anchors if only is None else self.anchors[only]
        context = self.replay.context(stack)
        parts = [
            self.replay.accepted(stack, context, anchors[low : low + ANCHORS_AT_ONCE], self.k)[0]
            for low in range(0, len(anchors), ANCHORS_AT_ONCE)
        ]
        return torch.cat(parts)

    def compare(self, stack: DFlashStack) -> Comparison:
        """Hold the rounds against one stack."""
        expected = self.expected(stack)
        differ = (expected != self.accepted).nonzero()[:, 0].tolist()
        return Comparison(
            rounds=len(self),
            differences=tuple(self._difference(i, int(expected[i])) for i in differ),
            observed_at=tuple(int((self.accepted > i).sum()) for i in range(self.k)),
            expected_at=tuple(int((expected > i).sum()) for i in range(self.k)),
        )

    def _difference(self, i: int, expected: int) -> Difference:
        n, position = int(self.anchors.recording[i]), int(self.anchors.position[i])
        recording, observed = self.recordings[n], int(self.accepted[i])
        token = position + min(observed, expected) - len(recording.prompt_ids)
        return Difference(n, position, observed, expected, recording.margins[token])


def _texts(trace: Trace, recording: Recording) -> zip[tuple[int, int]]:
    return zip(trace.output_ids, recording.tokens, strict=False)


def _check(trace: Trace, recording: Recording) -> None:
    if trace.prompt_ids != recording.prompt_ids:
        raise LabError(
            f"The server's prompt has {len(trace.prompt_ids)} tokens, the recording's {len(recording.prompt_ids)}, "
            "and they differ",
            "Record the token ids that the server reports",
        )
    if trace.about.get("temperature", "0") != "0":
        raise LabError("The server sampled, and replay is exact for greedy text only", "Ask with temperature 0")
