"""The schema as it is, and every step to it from a file of the lab before."""

from __future__ import annotations

import sqlite3

import pytest

from dflash_lab.store.migrations import MIGRATIONS, migrate, version

SCHEMA = {
    "experiments": ["id", "created", "kind", "kept", "title", "words", "pair", "tags", "headline",
                    "acceptance_length", "body"],
    "facts": ["name", "value"],
}  # fmt: skip
"""Change this only together with a new migration."""


def opened() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def schema(db: sqlite3.Connection) -> dict[str, list[str]]:
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    return {name: [row[1] for row in db.execute(f"PRAGMA table_info({name})")] for name in names}


def test_all_steps_make_the_pinned_schema():
    db = opened()
    migrate(db)
    assert schema(db) == SCHEMA and version(db) == len(MIGRATIONS) == 2


@pytest.mark.parametrize("start", range(len(MIGRATIONS)))
def test_a_file_of_every_earlier_version_arrives_with_its_rows(start):
    db = opened()
    migrate(db, MIGRATIONS[:start])
    assert version(db) == start
    if start:
        db.execute("INSERT INTO experiments VALUES ('a', 'now', 'run', 1, 't', 'w', 'p', '[]', 'h', 2.5, x'00')")
    migrate(db)
    assert schema(db) == SCHEMA
    assert db.execute("SELECT count(*) FROM experiments").fetchone()[0] == (1 if start else 0)


def test_a_step_that_fails_leaves_the_file_as_it_was():
    db = opened()
    migrate(db, MIGRATIONS[:1])
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, (*MIGRATIONS[:1], ("CREATE TABLE half (a)", "CREATE TABLE experiments (b)")))
    assert version(db) == 1 and list(schema(db)) == ["experiments"]
    migrate(db)
    assert schema(db) == SCHEMA
