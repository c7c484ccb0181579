"""Fixtures shared by all tests: the demo pair, loaded once, and a data folder that is nobody's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dflash_lab.pairs import Pair

# Threads that spin while they wait cost ten times over as soon as anything else runs on the same cores (2 instead of
# 17 tok/s, measured); torch reads this when it is imported, and processes that tests start inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the user's experiments."""
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path_factory.mktemp("data")))


@pytest.fixture(autouse=True)
def _one_thread_for_tiny_models(request: pytest.FixtureRequest) -> Iterator[None]:
    """Matrices of 32 columns are slower on two threads than on one; the demo pair gets all cores."""
    torch = sys.modules.get("torch")
    if torch is None or any(name.startswith("demo_pair") for name in request.fixturenames):
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def demo_target_dir() -> Path:
    """Folder of the demo target; fetched and converted when it is not there."""
    from dflash_lab.demo import target_dir

    return target_dir()


def _load(dtype: str) -> Pair:
    from dflash_lab.pairs import get_pair, load

    return load(get_pair("smollm2-demo").model_copy(update={"dtype": dtype}))


@pytest.fixture(scope="session")
def demo_pair() -> Pair:
    """The demo pair in float32."""
    return _load("float32")


@pytest.fixture(scope="session")
def demo_pair_bf16() -> Pair:
    """The demo pair in its own dtype."""
    return _load("bfloat16")
