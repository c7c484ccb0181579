"""What a demonstration refuses, where it is refused: in the queue, at files, at servers and in the notebook."""

from __future__ import annotations

import pytest

from dflash_lab.access import DEMO, Access, access, take_arguments
from dflash_lab.config import files
from dflash_lab.diagnose.story import GUESSED, lost_write, practice_file, start_over
from dflash_lab.diagnose.task import DiagnoseTask
from dflash_lab.errors import LabError
from dflash_lab.jobs import Worker
from dflash_lab.paths import SAMPLES, data_dir
from dflash_lab.prompts import load_prompts
from dflash_lab.servers.http import Http
from dflash_lab.servers.keeper import Keeper
from dflash_lab.store import Store
from dflash_lab.store.collect import remember
from dflash_lab.tasks import RunTask, SweepTask
from tests.store.made import experiment


@pytest.fixture
def demo(monkeypatch):
    """A demonstration of the built-in pair."""
    monkeypatch.setenv(DEMO, "")
    return access()


def test_without_the_environment_everything_is_allowed(monkeypatch):
    monkeypatch.delenv(DEMO, raising=False)
    assert access() == Access() and not access().read_only


@pytest.mark.parametrize(
    ("arguments", "pairs"), [(["--demo"], ("smollm2-demo",)), (["--demo", "a, b,"], ("a", "b")), ([], None)]
)
def test_the_flag_names_the_pairs(monkeypatch, arguments, pairs):
    monkeypatch.setenv(DEMO, "")
    monkeypatch.delenv(DEMO)
    take_arguments(["streamlit", "run", "app.py", "--", *arguments])
    assert access().pairs == (pairs or ()) and access().read_only == (pairs is not None)


def test_a_misspelt_flag_is_refused_instead_of_opening_everything():
    with pytest.raises(LabError, match="unrecognized arguments: --readonly"):
        take_arguments(["streamlit", "run", "app.py", "--", "--readonly"])


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (RunTask("qwen3-8b", "Hi"), "qwen3-8b is not part"),
        (RunTask("smollm2-demo", "x" * 2001), "2001 characters"),
        (RunTask("smollm2-demo", "Hi", max_new_tokens=257), "257 new tokens"),
        (SweepTask("smollm2-demo", tuple(load_prompts()), (1, 3)), "36 runs"),
        (DiagnoseTask("smollm2-demo", {}, budget_s=600.0), "600 s"),
    ],
)
def test_the_queue_takes_nothing_that_is_too_much(demo, task, says):
    worker = Worker(admit=demo.check)
    with pytest.raises(LabError, match=says):
        worker.submit(task, title="too much")
    assert worker.snapshots() == ()
    worker.close()


def test_files_are_read_from_the_labs_own_folders_only_and_none_is_written(demo, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(SAMPLES / "prompts.jsonl")
    demo.check_file(GUESSED, SAMPLES)
    demo.check_file(tmp_path / "link.json", SAMPLES)
    for path in (tmp_path / "config.json", SAMPLES / ".." / "README.md"):
        with pytest.raises(LabError, match="its own files only"):
            demo.check_file(path, SAMPLES)
    file = files.read(tmp_path)
    for write in (
        lambda: files.save(file, {"a": 1}),
        lambda: files.create(tmp_path / "new.json", {}),
        lambda: files.overlay(file),
        lambda: lost_write(file, {}),
        start_over,
    ):
        with pytest.raises(LabError, match="nothing is saved"):
            write()
    assert practice_file().path == GUESSED
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "link.json"]
    assert list(data_dir().iterdir()) == []


def test_no_server_is_called_or_started_and_the_notebook_stays_as_it_is(demo):
    with pytest.raises(LabError, match="calls no servers"):
        Http("http://127.0.0.1:8000")
    with pytest.raises(LabError, match="started here"):
        Keeper().start(None, None)
    remember(experiment("a"))
    assert Store().entries() == ()
