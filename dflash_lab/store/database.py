"""The Store: experiments in one SQLite file, for several processes at once, whole or not at all.

A connection lives for one operation. Writes are transactions with ``synchronous = FULL`` in write-ahead mode: a
process that is killed, or a disk that is full, loses the write under way and nothing else.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dflash_lab.errors import LabError
from dflash_lab.paths import store_file
from dflash_lab.store.experiment import Experiment, Kind, pack, unpack
from dflash_lab.store.migrations import MIGRATIONS, migrate, version

RECENT = 30
"""Experiments of each kind that are remembered without being kept."""

PATIENCE_S = 10.0
"""How long a write waits for another process's."""

BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the notebook's list: what is known of an experiment without unpacking it."""

    id: str
    created: str
    kind: Kind
    kept: bool
    title: str
    pair: str
    tags: tuple[str, ...]
    headline: str
    acceptance_length: float | None


class Store:
    """The notebook's file: ``path``, or the one that DFLASH_LAB_STORE or the data folder gives.

    Every method raises LabError where the file cannot be read or written, is damaged, or is from a newer lab.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or store_file()

    def put(self, experiment: Experiment) -> None:
        """Write an experiment, new or changed. Surplus recent ones of its kind are dropped, the oldest first."""
        with self._open() as db:
            self._put(db, experiment)

    def remember(self, experiment: Experiment) -> None:
        """Write a result among the recent ones; one that was kept meanwhile keeps its words and stays kept."""
        with self._open() as db:
            old = self._find(db, experiment.id)
            if old is not None:
                words = {name: getattr(old, name) for name in ("title", "hypothesis", "verdict", "note", "tags")}
                experiment = replace(experiment, kept=old.kept, **words)
            self._put(db, experiment)

    def keep(self, experiment_id: str) -> Experiment:
        """Take one out of the recent ones, so that it stays; returns it. Raises LabError when there is none."""
        return self.change(experiment_id, kept=True)

    def change(self, experiment_id: str, **changes: object) -> Experiment:
        """Replace fields of an experiment in one transaction and return it. Raises LabError when there is none."""
        with self._open() as db:
            experiment = replace(self._get(db, experiment_id), **changes)  # type: ignore[arg-type]
            self._put(db, experiment)
        return experiment

    def get(self, experiment_id: str) -> Experiment:
        """The experiment of that id. Raises LabError when there is none."""
        with self._open(writes=False) as db:
            return self._get(db, experiment_id)

    def delete(self, experiment_id: str) -> None:
        """Drop an experiment for good. Raises LabError when there is none."""
        with self._open() as db:
            self._get(db, experiment_id)
            db.execute("DELETE FROM experiments WHERE id = ?", (experiment_id,))
            db.execute("DELETE FROM facts WHERE name = ? AND value = ?", (BASELINE, experiment_id))

    def entries(self, text: str = "", kind: Kind | None = None, kept: bool | None = None) -> tuple[Entry, ...]:
        """Experiments whose words hold every word of ``text``, newest first, of one kind or kept or not if asked."""
        query = "SELECT id, created, kind, kept, title, pair, tags, headline, acceptance_length FROM experiments"
        tests, values = ["1"], []
        for word in text.lower().split():
            tests.append("words LIKE ? ESCAPE '\\'")
            values.append(f"%{word.translate(LITERALLY)}%")
        if kind is not None:
            tests.append("kind = ?")
            values.append(kind)
        if kept is not None:
            tests.append(f"kept = {int(kept)}")
        with self._open(writes=False) as db:
            rows = db.execute(f"{query} WHERE {' AND '.join(tests)} ORDER BY created DESC, id DESC", values).fetchall()
        return tuple(
            Entry(name, created, kind, bool(kept), title, pair, tuple(json.loads(tags)), headline, length)
            for name, created, kind, kept, title, pair, tags, headline, length in rows
        )

    @property
    def baseline(self) -> str | None:
        """Id of the experiment that the app compares with; None when none is pinned."""
        with self._open(writes=False) as db:
            row = db.execute("SELECT value FROM facts WHERE name = ?", (BASELINE,)).fetchone()
        return row[0] if row else None

    def pin(self, experiment_id: str | None) -> None:
        """Make an experiment, kept from now on, the app's baseline; None unpins. Raises LabError when there is none."""
        with self._open() as db:
            if experiment_id is None:
                db.execute("DELETE FROM facts WHERE name = ?", (BASELINE,))
                return
            self._put(db, replace(self._get(db, experiment_id), kept=True))
            db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (BASELINE, experiment_id))

    def _find(self, db: sqlite3.Connection, experiment_id: str) -> Experiment | None:
        row = db.execute("SELECT body FROM experiments WHERE id = ?", (experiment_id,)).fetchone()
        return unpack(row[0]) if row else None

    def _get(self, db: sqlite3.Connection, experiment_id: str) -> Experiment:
        found = self._find(db, experiment_id)
        if found is None:
            raise LabError(f"There is no experiment {experiment_id!r} in {self.path}", "Pick one that the list shows")
        return found

    def _put(self, db: sqlite3.Connection, e: Experiment) -> None:
        length = e.figures.summary.acceptance_length if e.figures else None
        pair = str(e.pair.get("name", ""))
        words = " ".join([e.id, e.title, e.headline, e.hypothesis, e.verdict, e.note, *e.tags, pair, e.kind,
                          *(str(step.get("path", "")) for step in e.patch)]).lower()  # fmt: skip
        tags = json.dumps(list(e.tags))
        row = (e.id, e.created, e.kind, int(e.kept), e.title, words, pair, tags, e.headline, length, pack(e))
        db.execute(f"INSERT OR REPLACE INTO experiments VALUES ({', '.join('?' * len(row))})", row)
        db.execute(
            "DELETE FROM experiments WHERE NOT kept AND kind = ?1 AND id NOT IN (SELECT id FROM experiments "
            "WHERE NOT kept AND kind = ?1 ORDER BY created DESC, id DESC LIMIT ?2)",
            (e.kind, RECENT),
        )

    @contextmanager
    def _open(self, writes: bool = True) -> Iterator[sqlite3.Connection]:
        """A connection inside a transaction, on a migrated file; a writer waits for the writer before it."""
        db = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=PATIENCE_S, isolation_level=None)
            self._refuse_newer(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            migrate(db)
            db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            yield db
            db.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(error) from error
        finally:
            if db is not None:
                with suppress(sqlite3.Error):
                    db.close()  # rolls back what was not committed

    def _refuse_newer(self, db: sqlite3.Connection) -> None:
        if (found := version(db)) > len(MIGRATIONS):
            raise LabError(
                f"The notebook {self.path} is from a newer DFlash Lab: schema {found}, this one has {len(MIGRATIONS)}",
                "Update the lab, or give another file with --store or DFLASH_LAB_STORE; this one was not touched",
            )

    def _refusal(self, error: sqlite3.Error | OSError) -> LabError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return LabError(
                f"The notebook {self.path} is damaged or no notebook: {error}",
                "Put a copy of it back, or give another file with --store or DFLASH_LAB_STORE",
            )
        if code == sqlite3.SQLITE_BUSY:
            return LabError(
                f"Another program has been writing to {self.path} for {PATIENCE_S:g} s", "Try again, or close it"
            )
        return LabError(
            f"The notebook {self.path} cannot be written: {error}; what it held is unharmed",
            "Free some space or make the folder writable, or give another file with --store or DFLASH_LAB_STORE",
        )


LITERALLY = str.maketrans({"%": "\\%", "_": "\\_", "\\": "\\\\"})
