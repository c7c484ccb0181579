"""Fixtures shared by all tests: the demo pair, loaded once, and a data folder that is nobody's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dflash_lab.pairs import Pair

# One thread a process, and as many processes as cores (pytest-xdist): threads of one step wait for each other at every
# matrix, and on cores that are not free that made a round ten times as long. torch reads this when it is imported;
# servers that tests start inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests measured (``record_property``): output of passing tests is not shown."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid}: {name} = {value}")


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the user's experiments."""
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path_factory.mktemp("data")))


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
