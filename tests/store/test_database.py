"""The notebook's file among other programs, killed writers, full disks and files that are none."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_lab.errors import LabError
from dflash_lab.store import Store
from dflash_lab.store.database import RECENT
from tests.store.made import experiment

WRITER = """
import sys
from pathlib import Path
from dflash_lab.store import Store
from tests.store.made import experiment
store, name, count = Store(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
for n in range(count):
    store.put(experiment(f"{name}-{n:04}", accepted=(3, 1, 0) * 300, kept=True))
    print(f"{name}-{n:04}", flush=True)
"""


def writer(path: Path, name: str, count: int, before: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", before + WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "notebook.db")


def test_what_was_put_is_got_back_unchanged(store):
    made = experiment(note="A **note**", tags=("a", "b"), kept=True)
    store.put(made)
    assert store.get(made.id) == made
    (entry,) = store.entries()
    assert (entry.title, entry.tags, entry.kept, entry.pair) == (made.title, ("a", "b"), True, "smollm2-demo")
    assert entry.acceptance_length == pytest.approx(2.5)


def test_recent_ones_are_bounded_and_kept_ones_are_not(store):
    for n in range(RECENT + 5):
        store.remember(experiment(f"r{n:03}"))
    store.remember(experiment("s", kind="sweep"))
    assert [e.id for e in store.entries(kind="run")] == [f"r{n:03}" for n in range(RECENT + 4, 4, -1)]
    store.keep("r010")
    for n in range(RECENT):
        store.remember(experiment(f"t{n:03}"))
    assert [e.id for e in store.entries(kept=True)] == ["r010"] and len(store.entries(kind="sweep")) == 1


def test_a_result_that_grows_keeps_the_words_it_was_given(store):
    store.remember(experiment("a", accepted=(1,)))
    store.change("a", title="Mine", verdict="It was the mask", kept=True)
    store.remember(experiment("a", accepted=(1, 2)))
    now = store.get("a")
    assert (now.title, now.verdict, now.kept, len(now.figures.traces[0].rounds)) == ("Mine", "It was the mask", True, 2)


def test_a_search_wants_every_word_and_takes_signs_literally(store):
    store.put(experiment("a", title="Mask at 100% noise", verdict="guilty"))
    store.put(experiment("b", title="Window", note="mask_token", tags=("fridge",)))
    assert [e.id for e in store.entries("MASK guilty")] == ["a"]
    assert [e.id for e in store.entries("100%")] == ["a"] and [e.id for e in store.entries("mask_")] == ["b", "a"]
    assert [e.id for e in store.entries("fridge")] == ["b"] and store.entries("100_") == ()


def test_the_baseline_is_kept_and_goes_with_its_experiment(store):
    store.remember(experiment("a"))
    store.pin("a")
    assert store.baseline == "a" and store.get("a").kept
    store.delete("a")
    assert store.baseline is None and store.entries() == ()
    with pytest.raises(LabError, match="There is no experiment 'a'"):
        store.pin("a")


def test_two_programs_write_at_once_and_lose_nothing(store):
    both = [writer(store.path, name, 15) for name in ("one", "two")]
    for process in both:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert len(store.entries()) == 30


@pytest.mark.parametrize("writes", [1, 4])
def test_a_writer_that_is_killed_loses_nothing_it_had_finished(store, writes):
    process = writer(store.path, "k", 10_000)
    said = [process.stdout.readline().strip() for _ in range(writes)]
    time.sleep(0.004 * writes)  # somewhere inside the next write
    os.kill(process.pid, signal.SIGKILL)
    said += process.communicate()[0].split()
    assert process.returncode == -signal.SIGKILL
    assert {e.id for e in store.entries()} >= set(said)
    for entry in store.entries():
        assert len(store.get(entry.id).figures.traces[0].rounds) == 900
    assert sqlite3.connect(store.path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.put(experiment("after"))


def test_a_disk_that_fills_is_told_and_what_was_there_stays(store):
    """The system refuses to let the file grow: to SQLite that is a disk that is full."""
    full = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (120_000, 120_000))\n"
    process = writer(store.path, "f", 1000, before=full)
    said, errors = process.communicate(timeout=120)
    assert process.returncode != 0 and "cannot be written" in errors and "LabError" in errors
    assert said.split() and {e.id for e in store.entries()} == set(said.split())
    store.put(experiment("after"))


def test_a_full_database_is_a_sentence(store, monkeypatch):
    store.put(experiment("a"))
    connect = sqlite3.connect

    def small(*args, **options):
        db = connect(*args, **options)
        db.execute("PRAGMA max_page_count = 12")
        return db

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(LabError, match="database or disk is full; what it held is unharmed. Free some space"):
        for n in range(50):
            store.put(experiment(f"b{n}", accepted=tuple(n % 4 for n in range(999))))
    monkeypatch.undo()
    assert "a" in {e.id for e in store.entries()}


def test_a_file_of_a_newer_lab_is_left_alone(store):
    store.put(experiment("a"))
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    before = store.path.read_bytes()
    for use in (store.entries, lambda: store.put(experiment("b")), lambda: store.get("a")):
        with pytest.raises(LabError, match="newer DFlash Lab: schema 9, this one has 2. Update the lab"):
            use()
    assert store.path.read_bytes() == before


def test_a_file_that_is_no_notebook_is_named(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 200)
    with pytest.raises(LabError, match="notes.txt is damaged or no notebook"):
        Store(path).entries()
    assert path.read_text() == "Dear diary, " * 200
    with pytest.raises(LabError, match="cannot be written"):
        Store(path / "below" / "notebook.db").entries()


def test_the_file_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH_LAB_DATA", str(tmp_path / "data"))
    assert Store().path == tmp_path / "data" / "notebook.db"
    monkeypatch.setenv("DFLASH_LAB_STORE", str(tmp_path / "mine.db"))
    assert Store().path == tmp_path / "mine.db"


def test_a_change_of_words_changes_nothing_else(store):
    made = experiment("a")
    store.put(made)
    assert store.change("a", note="new") == replace(made, note="new") == store.get("a")
