"""The live parts of the guided tour "The Config That Wasn't": tasks for the worker, and a file to practise on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_lab.access import access
from dflash_lab.config import files
from dflash_lab.jobs import Cancelled, Job, ModelSlot
from dflash_lab.paths import SAMPLES, data_dir, write_whole
from dflash_lab.tasks import load_pair
from dflash_lab.trace import Summary

if TYPE_CHECKING:
    from dflash_lab.runs import Run

PAIR = "smollm2-demo"
GUESSED = SAMPLES / "smollm2-135m-dflash" / "config.guessed.json"
CONVERSATIONS = 2


@dataclass(frozen=True)
class LoopTask:
    """One prompt through the lab's own loop under `raw`, beside the target alone."""

    raw: dict[str, Any]
    prompt: str = "Write a Python function that counts the vowels in a string."
    k: int = 5
    tokens: int = 48

    def __call__(self, job: Job, slot: ModelSlot) -> Run:
        """Run it."""
        pair = load_pair(PAIR, job, slot)
        from dflash_lab.config.schema import DrafterConfig
        from dflash_lab.decode.loop import Settings
        from dflash_lab.runs import run_prompt

        return run_prompt(
            pair,
            self.prompt,
            Settings(self.k, self.tokens),
            config=DrafterConfig.from_json(self.raw),
            watch=lambda trace: job.report(len(trace.output_ids), self.tokens, "the lab's own loop"),
        )


@dataclass(frozen=True)
class ChoiceTask:
    """Acceptance at every K of `ks` under `raw`, replayed on two recorded conversations."""

    raw: dict[str, Any]
    ks: tuple[int, ...] = (1, 2, 3, 5, 7, 10, 15)

    def __call__(self, job: Job, slot: ModelSlot) -> dict[int, Summary]:
        """Replay them. Raises Cancelled."""
        pair = load_pair(PAIR, job, slot)
        from dflash_lab.config.schema import DrafterConfig
        from dflash_lab.diagnose.evidence import conversations, record_conversations
        from dflash_lab.prompts import load_prompts
        from dflash_lab.whatif import WhatIf

        recordings = record_conversations(
            pair,
            conversations(load_prompts())[:CONVERSATIONS],
            progress=lambda share, text: job.report(round(100 * share), 100, text),
        )
        if recordings is None:
            raise Cancelled
        job.checkpoint(0, 0, "replaying every K")
        swept = WhatIf(pair, recordings).sweep(DrafterConfig.from_json(self.raw), self.ks)
        return {k: effect.summary for k, effect in swept.items()}


def practice_file() -> files.ConfigFile:
    """A copy of the guessed config in the lab's data folder, made when it is not there; the original in a demo."""
    if access().read_only:
        return files.read(GUESSED)
    path = data_dir() / "story" / files.NAME
    if not path.exists():
        return start_over()
    return files.read(path)


def start_over() -> files.ConfigFile:
    """The practice file as it was at the beginning. Raises LabError in a demonstration."""
    access().refuse_writes()
    return files.read(write_whole(data_dir() / "story" / files.NAME, GUESSED.read_text(encoding="utf-8")))


def lost_write(file: files.ConfigFile, raw: dict[str, Any]) -> Path:
    """The write of the story: complete, without an error, and beside the file instead of over it."""
    import json

    access().refuse_writes()

    return write_whole(file.path.with_name("config.json.new"), json.dumps(raw, indent=2) + "\n")
