"""A real vLLM, one server a setting, on the demo pair in float32: needs ``make engines``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dflash_lab.pairs import Pair
from dflash_lab.prompts import load_prompts
from dflash_lab.servers.answer import Ask
from dflash_lab.servers.environment import VARIABLE, VllmEnvironment, find
from dflash_lab.servers.launch import Launch, ManagedServer
from dflash_lab.servers.load import Load, run_load
from dflash_lab.servers.speculation import Speculation
from dflash_lab.servers.vllm import VllmServer

PROMPTS = Path(__file__).resolve().parents[1] / "data" / "prompts.jsonl"
TOKENS = 48


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder needs vLLM's environment."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engines)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def environment() -> VllmEnvironment:
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} is not set: `make engines` runs these tests")
    return find()


@pytest.fixture(scope="session")
def prompts() -> list[str]:
    return [p.prompt for p in load_prompts(PROMPTS)][:6]


@contextmanager
def served(
    pair: Pair,
    environment: VllmEnvironment,
    folder: Path,
    k: int,
    config: dict[str, Any] | None = None,
    exact: bool = True,
) -> Iterator[ManagedServer]:
    """The pair on a vLLM of its own in the pair's dtype, with another config for the drafter when one is given.

    `exact` False turns prefix caching on.
    """
    speculation = Speculation("dflash", k, str(pair.drafter_dir)) if k else Speculation("none")
    launch = Launch(
        str(pair.target_dir),
        speculation,
        config,
        dtype=pair.spec.dtype,
        max_model_len=512,
        max_num_seqs=2,
        exact=exact,
        eager=True,
    )
    with ManagedServer(launch, environment, folder) as server:
        yield server.wait_ready()


def ask_all(server: ManagedServer, pair: Pair, prompts: list[str]) -> Load:
    """Every prompt, one at a time, as the token ids that the lab's own runs see."""
    asks = [Ask(tuple(pair.encode(prompt)), TOKENS) for prompt in prompts]
    load = run_load(VllmServer(server.url), asks)
    assert load.failure is None, load.sentence()
    return load
