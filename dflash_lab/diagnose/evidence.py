"""What a diagnosis rests on: conversations recorded from the target, so that short and long contexts both occur."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dflash_lab.pairs import Pair
from dflash_lab.paths import cache_dir
from dflash_lab.prompts import Prompt
from dflash_lab.recording import Recording, RecordingStore, record
from dflash_lab.whatif import Progress

TOKENS = 96


def conversations(prompts: Iterable[Prompt]) -> list[list[Prompt]]:
    """Prompts of one kind, asked one after the other."""
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_kind.setdefault(prompt.kind, []).append(prompt)
    return list(by_kind.values())


def record_conversations(
    pair: Pair, talks: Sequence[Sequence[Prompt]], tokens: int = TOKENS, progress: Progress | None = None
) -> list[Recording] | None:
    """One recording per turn, its prompt being all the turns before it; None when stopped.

    Kept in the recording store, turn by turn; made once per target, whatever the drafter.
    """
    store = RecordingStore(cache_dir() / "recordings")
    target_key = f"{pair.target_id}@{pair.target_revision}/{str(pair.dtype).removeprefix('torch.')}"
    total = sum(len(talk) for talk in talks)
    out: list[Recording] = []
    for talk in talks:
        ids: list[int] = []
        for prompt in talk:
            ids += pair.encode(prompt.prompt)
            path = store.path(target_key, ids, tokens, pair.stop_ids)
            recording = store.load(path, pair.target.device)
            if recording is None:

                def on_token(done: int, asked: int) -> bool:
                    share = (len(out) + done / asked) / total
                    return progress is None or progress(share, f"Recording turn {len(out) + 1} of {total}")

                recording = record(pair.target, ids, tokens, pair.stop_ids, progress=on_token)
                if recording is None:
                    return None
                store.save(path, recording)
            out.append(recording)
            ids = list(recording.prompt_ids + recording.tokens[: recording.length])
    return out
