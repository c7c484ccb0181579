"""Replay: what a drafter config would have accepted, exactly, without running the target again.

Under greedy decoding the output does not depend on the drafter, so along a Recording the target's answer is known
at every position. At an anchor at position t the drafter sees the taps of positions < t and the token y[t]; the
loop would have accepted the longest prefix of its proposals that equals y[t+1..]. Two schedules:

| schedule | anchors drafted | used for |
| --- | --- | --- |
| lockstep | one per recording and step, real jumps of accepted + 1 | one config at one K, many texts |
| all anchors | every position of the text, once | few texts; many K of an all-causal drafter: a_K = min(a_max, K) |

A step of few rows costs nearly what one of many does, for it reads the same weights; so a handful of texts is
cheaper with all anchors in large batches, although not all of them are visited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dflash_lab.drafters.dflash import DFlashStack, visible
from dflash_lab.recording import Recording
from dflash_lab.trace import UNKNOWN, End, Round, Trace

ANCHORS_AT_ONCE = 256

LOCKSTEP_FROM = 48
"""Texts from which real jumps in lockstep are cheaper than all anchors at once (``bench/replay.py``)."""

FIRST_DEPTH = 3
"""Slots an all-causal drafter is asked for at first: few drafts are accepted further, and only those go deeper."""

Watch = Callable[[float], bool]
"""(share done) -> go on?"""


@dataclass(frozen=True, slots=True)
class Anchors:
    """Positions to draft from: ``recording [A]`` says in which text, ``position [A]`` where (prompt included)."""

    recording: torch.Tensor
    position: torch.Tensor

    def __getitem__(self, index: torch.Tensor | slice) -> Anchors:
        return Anchors(self.recording[index], self.position[index])

    def __len__(self) -> int:
        return self.recording.shape[0]


class Replay:
    """Some recordings, ready to be replayed under any config; holds no drafter.

    All texts lie one after the other in flat rows: ``offset[r]`` is the first row of recording r.
    """

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self.recordings = list(recordings)
        device = recordings[0].states.device
        sizes = [len(r.ids) for r in recordings]
        self.offset = torch.tensor([0, *sizes], device=device).cumsum(0)[:-1]
        self.ids = torch.tensor([token for r in recordings for token in r.ids], device=device)
        self.positions = torch.cat([torch.arange(n, device=device) for n in sizes])
        self.last = torch.tensor(sizes, device=device) - 1

    def rows(self, tap: int) -> torch.Tensor:
        """One tap's states of all texts, flat ``[rows, H]``; the last row of each text has none and is zero."""
        return torch.cat([F.pad(r.rows(tap), (0, 0, 0, 1)) for r in self.recordings])

    def context(self, stack: DFlashStack) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[L, rows, g * d]`` of every position of every text under ``stack``.

        The last row of a text has no states yet and is never seen by any anchor: it stays zero.
        """
        taps = [self.rows(tap) for tap in stack.config.taps]
        keys, values = stack.context(taps, self.positions)
        return keys.transpose(1, 2).flatten(2), values.transpose(1, 2).flatten(2)

    def proposals(
        self, stack: DFlashStack, context: tuple[torch.Tensor, torch.Tensor], anchors: Anchors, k: int
    ) -> torch.Tensor:
        """Final hidden rows ``[A, k, H]`` of the k slots behind each anchor."""
        rows = stack.block_rows(self.ids[self.offset[anchors.recording] + anchors.position], k)
        attend = _BatchedAttention(stack, context, self.offset[anchors.recording], anchors.position, rows.shape[1])
        # A head on a slice of three dimensions takes torch a hundred times as long as on a copy (2.13, bfloat16, CPU).
        return stack.forward(rows, attend.queries, attend)[:, stack.silent :].contiguous()

    def accepted(
        self, stack: DFlashStack, context: tuple[torch.Tensor, torch.Tensor], anchors: Anchors, k: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens the target would accept ``[A]`` and the drafted ids ``[A, k]`` (``UNKNOWN`` behind a rejection).

        When no proposal depends on a later slot, only anchors whose first slots were all accepted are drafted to
        their full depth.
        """
        if k <= FIRST_DEPTH + 1 or not all(rule.causal for rule in stack.rules):
            return self._accepted(stack, context, anchors, k)
        accepted, drafted = self._accepted(stack, context, anchors, FIRST_DEPTH)
        drafted = F.pad(drafted, (0, k - FIRST_DEPTH), value=UNKNOWN)
        depth = FIRST_DEPTH
        while depth < k and len(deeper := (accepted == depth).nonzero()[:, 0]):
            depth = min(k, 2 * depth + 1)
            accepted[deeper], drafted[deeper, :depth] = self._accepted(stack, context, anchors[deeper], depth)
        return accepted, drafted

    def _accepted(
        self, stack: DFlashStack, context: tuple[torch.Tensor, torch.Tensor], anchors: Anchors, k: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """``accepted`` in one pass. The head runs slot by slot, only on anchors whose earlier slots all matched."""
        hidden = self.proposals(stack, context, anchors, k)
        drafted = torch.full((len(anchors), k), UNKNOWN, device=hidden.device)
        accepted = torch.zeros(len(anchors), dtype=torch.long, device=hidden.device)
        alive = torch.arange(len(anchors), device=hidden.device)
        row = self.offset[anchors.recording] + anchors.position
        for slot in range(k):
            # Everything before this slot matched: the token at the slot before is the text's own.
            ids = stack.logits_given(hidden[alive, slot], self.ids[row[alive] + slot]).argmax(-1)
            drafted[alive, slot] = ids
            known = anchors.position[alive] + 1 + slot <= self.last[anchors.recording[alive]]
            truth = self.ids[(row[alive] + 1 + slot).clamp_max(len(self.ids) - 1)]
            alive = alive[(ids == truth) & known]
            if not len(alive):
                break
            accepted[alive] += 1
        return accepted, drafted

    def run(self, stack: DFlashStack, k: int, watch: Watch | None = None) -> list[Trace]:
        """The rounds the loop would run, one Trace per recording, by the cheaper schedule.

        Traces end early when ``watch`` says stop.
        """
        if len(self.recordings) >= LOCKSTEP_FROM:
            return self.lockstep(stack, k, watch)
        everywhere = self.everywhere(stack, k, watch)
        return [self._jump(i, k, everywhere[i] if everywhere else ()) for i in range(len(self.recordings))]

    @torch.inference_mode()
    def lockstep(self, stack: DFlashStack, k: int, watch: Watch | None = None) -> list[Trace]:
        """The rounds the loop would run, one Trace per recording; traces end early when ``watch`` says stop."""
        context = self.context(stack)
        device = self.ids.device
        starts = [len(r.prompt_ids) for r in self.recordings]
        done: list[list[tuple[int, int, tuple[int, ...]]]] = [[] for _ in self.recordings]
        at = list(starts)
        ends = [s + r.length - 1 for s, r in zip(starts, self.recordings, strict=True)]
        while live := [i for i, (p, end) in enumerate(zip(at, ends, strict=True)) if p < end]:
            anchors = Anchors(torch.tensor(live, device=device), torch.tensor([at[i] for i in live], device=device))
            accepted, drafted = self.accepted(stack, context, anchors, k)
            for i, a, ids in zip(live, accepted.tolist(), drafted.tolist(), strict=True):
                done[i].append((at[i], a, tuple(ids)))
                at[i] += a + 1
            share = sum(min(p, e) - s for p, s, e in zip(at, starts, ends, strict=True))
            if watch and not watch(share / max(1, sum(e - s for s, e in zip(starts, ends, strict=True)))):
                break
        return [self.trace(i, k, rounds) for i, rounds in enumerate(done)]

    @torch.inference_mode()
    def everywhere(
        self, stack: DFlashStack, k: int, watch: Watch | None = None
    ) -> list[list[tuple[int, tuple[int, ...]]]] | None:
        """(accepted, drafted) for every anchor position of every text, in order; None when ``watch`` said stop."""
        context = self.context(stack)
        anchors = self.all_anchors()
        results: list[tuple[int, tuple[int, ...]]] = []
        for low in range(0, len(anchors), ANCHORS_AT_ONCE):
            accepted, drafted = self.accepted(stack, context, anchors[low : low + ANCHORS_AT_ONCE], k)
            results += zip(accepted.tolist(), map(tuple, drafted.tolist()), strict=True)
            if watch and not watch(min(1.0, (low + ANCHORS_AT_ONCE) / len(anchors))):
                return None
        out, low = [], 0
        for r in self.recordings:
            out.append(results[low : low + r.length - 1])
            low += r.length - 1
        return out

    def all_anchors(self) -> Anchors:
        """Every position of every text that could be an anchor: all tokens but the last."""
        device = self.ids.device
        counts = [r.length - 1 for r in self.recordings]
        which = torch.repeat_interleave(torch.arange(len(counts), device=device), torch.tensor(counts, device=device))
        places = [
            torch.arange(len(r.prompt_ids), len(r.prompt_ids) + n, device=device)
            for r, n in zip(self.recordings, counts, strict=True)
        ]
        return Anchors(which, torch.cat(places))

    def sweep(self, stack: DFlashStack, ks: Sequence[int], watch: Watch | None = None) -> dict[int, list[Trace]]:
        """Traces for every K in ``ks``: one pass over all anchors when no proposal depends on K, else one each.

        A stopped sweep returns the K it finished.
        """
        if not stack.config.all_causal:
            out = {}
            for n, k in enumerate(ks):
                out[k] = self.run(stack, k)
                if watch and not watch((n + 1) / len(ks)):
                    break
            return out
        everywhere = self.everywhere(stack, max(ks), watch)
        if everywhere is None:
            return {}
        return {k: [self._jump(i, k, known) for i, known in enumerate(everywhere)] for k in ks}

    def _jump(self, i: int, k: int, known: Sequence[tuple[int, tuple[int, ...]]]) -> Trace:
        start, place, rounds = len(self.recordings[i].prompt_ids), 0, []
        while place < len(known):
            a, drafted = known[place]
            rounds.append((start + place, min(a, k), drafted[:k]))
            place += min(a, k) + 1
        return self.trace(i, k, rounds)

    def trace(self, i: int, k: int, rounds: Sequence[tuple[int, int, tuple[int, ...]]]) -> Trace:
        """Text ``i`` with these rounds: (anchor position, accepted, drafted) each."""
        recording = self.recordings[i]
        ids, text_end = recording.ids, len(recording.prompt_ids) + recording.length
        out = []
        for position, accepted, drafted in rounds:
            emitted = ids[position + 1 : min(position + accepted + 2, text_end)]
            end: End = recording.end if position + accepted + 2 >= text_end else "none"
            whole = len(emitted) == accepted + 1
            out.append(
                Round(
                    anchor=ids[position],
                    anchor_position=position,
                    block=1 + k,
                    drafted=drafted,
                    choices=ids[position + 1 : position + k + 2],
                    accepted=accepted,
                    emitted=emitted,
                    bonus=emitted[-1] if whole else None,
                    end=end,
                )
            )
        reached = out[-1].end if out else (recording.end if recording.length == 1 else "none")
        return Trace(recording.prompt_ids, recording.tokens[0], tuple(out), k, source="replay", end=reached)


class _BatchedAttention:
    """What each slot of A blocks of S rows sees: its own text's context rows, then its own block."""

    def __init__(
        self,
        stack: DFlashStack,
        context: tuple[torch.Tensor, torch.Tensor],
        offset: torch.Tensor,
        position: torch.Tensor,
        rows: int,
    ) -> None:
        self.stack, self.context, self.rows = stack, context, rows
        self.offset, self.position = offset, position
        self.queries = position[:, None] + torch.arange(rows, device=position.device)  # [A, S]
        self._gathered: dict[int | None, tuple[torch.Tensor, torch.Tensor]] = {}
        self._masks: dict[object, torch.Tensor] = {}

    def __call__(self, i: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        stack, rows = self.stack, self.rows
        heads, groups = stack.kv_heads, stack.heads // stack.kv_heads
        rule = stack.rules[i]
        index, flat = self._indices(rule.window)
        mask = self._mask(rule, index)
        blocks = []
        for store, own in zip(self.context, (k, v), strict=True):
            seen = store[i].index_select(0, flat).view(*index.shape, heads, own.shape[-1])
            blocks.append(torch.cat([seen, own.view(-1, rows, heads, own.shape[-1])], dim=1).transpose(1, 2))
        stacked = q.view(-1, rows, heads, groups, q.shape[-1]).permute(0, 2, 3, 1, 4).flatten(2, 3)
        out = F.scaled_dot_product_attention(stacked, blocks[0], blocks[1], mask)
        out = out.view(-1, heads, groups, rows, q.shape[-1]).permute(0, 3, 1, 2, 4)
        return out.reshape(q.shape[0], -1)

    def _indices(self, window: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Context positions ``[A, n]`` an anchor may see, right-aligned, and their flat rows (clamped)."""
        if window not in self._gathered:
            reach = int(self.position.max())
            n = reach if window is None else min(window - 1, reach)
            index = self.position[:, None] - n + torch.arange(n, device=self.position.device)
            flat = (self.offset[:, None] + index.clamp_min(0)).flatten()
            self._gathered[window] = index, flat
        return self._gathered[window]

    def _mask(self, rule: object, index: torch.Tensor) -> torch.Tensor:
        """Mask ``[A, 1, groups * S, n + S]``: no position before 0, and the layer's rule."""
        if rule not in self._masks:
            keys = torch.cat([index, self.queries], dim=1)
            mask = (keys >= 0)[:, None].expand(-1, self.rows, -1)
            seen = visible(rule, self.queries[..., None], keys[:, None])  # type: ignore[arg-type]
            if seen is not None:
                mask = mask & seen
            groups = self.stack.heads // self.stack.kv_heads
            self._masks[rule] = mask.repeat(1, groups, 1)[:, None]
        return self._masks[rule]
