"""Small experiments with known figures, made without a model."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_lab.store import Experiment, Series
from dflash_lab.tokens import Segment, Wording
from dflash_lab.trace import Round, Trace


def trace(accepted: Sequence[int], k: int = 3, prompt: int = 1, tok_s: float = 10.0, text: int = 7) -> Trace:
    """Rounds that accepted ``accepted`` of ``k``, every token ``text``."""
    rounds, at = [], 4
    for a in accepted:
        choices = (text,) * (k + 1)
        rounds.append(Round(text, at, 1 + k, (text,) * a + (0,) * (k - a), choices, a, (text,) * (a + 1), text, "none"))
        at += a + 1
    tokens = sum(a + 1 for a in accepted)
    return Trace((prompt,) * 5, text, tuple(rounds), k, decode_s=tokens / tok_s)


def experiment(
    name: str = "20260101T000000-aaaaaa", accepted: Sequence[int] = (3, 0, 2, 1) * 8, **changes
) -> Experiment:
    """A run over two prompts, and the target alone."""
    k = changes.pop("k", 3)
    traces = (trace(accepted, k), trace(tuple(reversed(accepted)), k, prompt=2))
    alone = trace((0,) * 60, 0, tok_s=5.0)
    body = {
        "created": f"2026-01-01T00:00:00+00:00 {name}",
        "kind": "run",
        "title": "K = 3: Name two rivers",
        "headline": "Acceptance length 2.50 over 64 rounds",
        "pair": {"name": "smollm2-demo", "drafter_revision": "abc"},
        "config": {"mask_token_id": 6, "block_size": 16},
        "patch": [{"op": "replace", "path": "/mask_token_id", "value": 6}],
        "settings": {"pair": "smollm2-demo", "prompt": "Name two rivers", "k": k},
        "provenance": {"torch": "2.13.0", "commit": "abc"},
        "series": (
            Series("with the drafter", k, ("rivers", "hills"), traces),
            Series("target alone", 0, ("rivers",), (alone,)),
        ),
        "wording": Wording((Segment(0, 1, "<b>Rhine"),), {7: "Rhine", 0: "<img src=x>"}),
    }
    return Experiment(id=name, **body | changes)
