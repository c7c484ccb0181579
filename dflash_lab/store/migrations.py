"""The database's schema as numbered steps; ``PRAGMA user_version`` says how many a file has been through.

A step is never changed once it is released: another one follows it. ``tests/store/test_migrations.py`` pins the
schema that they add up to.
"""

from __future__ import annotations

import sqlite3

Statements = tuple[str, ...]

MIGRATIONS: tuple[Statements, ...] = (
    (
        """CREATE TABLE experiments (
            id TEXT PRIMARY KEY,
            created TEXT NOT NULL,
            kind TEXT NOT NULL,
            kept INTEGER NOT NULL,
            title TEXT NOT NULL,
            words TEXT NOT NULL,
            pair TEXT NOT NULL,
            tags TEXT NOT NULL,
            headline TEXT NOT NULL,
            acceptance_length REAL,
            body BLOB NOT NULL
        )""",
        "CREATE INDEX experiments_by_age ON experiments (kept, kind, created)",
    ),
    ("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",),
)
"""``words`` is what a search looks through, lower case; ``body`` the whole experiment, packed (``experiment.pack``)."""


def version(connection: sqlite3.Connection) -> int:
    """Steps that the file has been through."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: tuple[Statements, ...] = MIGRATIONS) -> None:
    """Take the file through the steps it lacks, all of them or none; a second process waits and finds it done."""
    if version(connection) >= len(steps):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number, statements in enumerate(steps[version(connection) :], version(connection) + 1):
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
