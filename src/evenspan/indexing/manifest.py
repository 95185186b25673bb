"""The manifest of a folder's index: a SQLite file that says which shards and documents are committed.

A shard counts from the moment in which one transaction names it, and not before. What lies in the folder besides is
left over from a run that died, and is removed by the next.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from evenspan.corpus.sources import INDEX_MANIFEST

MANIFEST = INDEX_MANIFEST
_TABLES = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS shards (
    number INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT, rows INTEGER, bytes INTEGER, digest TEXT
);
CREATE TABLE IF NOT EXISTS documents (name BLOB PRIMARY KEY, digest BLOB NOT NULL, key INTEGER NOT NULL) WITHOUT ROWID;
"""
_SEEN = """
PRAGMA synchronous = OFF;
PRAGMA journal_mode = OFF;
PRAGMA cache_size = -32768;
CREATE TABLE seen (name BLOB PRIMARY KEY) WITHOUT ROWID;
BEGIN;
"""
ROWS = 1 << 20  # room for the rows of a shard in a key
_ASKED = 500  # parameters in one question


def id_digest(name: str) -> bytes:
    """What stands for an id: of one size, whatever the id contains."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


class SeenIds:
    """The ids that a run has met, on disk: a million of them take no memory."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # a temporary file
        self._database.executescript(_SEEN)

    def add(self, name: str) -> bool:
        """Whether an id is new."""
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (id_digest(name),)).rowcount == 1

    def close(self) -> None:
        """Remove the file."""
        self._database.close()


@dataclass(frozen=True)
class Written:
    """A shard that was written and waits to be committed."""

    number: int
    file: str | None
    rows: int
    bytes: int
    digest: str


class Manifest:
    """An open manifest."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.path = folder / MANIFEST
        if read_only and not (self.path.exists() and self.path.stat().st_size):
            raise FileNotFoundError(f"There is no index in {folder}: it has no {MANIFEST}, or an empty one.")
        # One thread looks documents up while another commits a shard.
        self._turn = threading.RLock()
        with self._named_errors():
            self._database = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA synchronous = FULL")
            if not read_only:
                self._database.executescript(_TABLES)

    def get(self, name: str) -> Any:
        """A setting, None if it was never set."""
        rows = self._ask("SELECT value FROM settings WHERE name = ?", name)
        return json.loads(rows[0][0]) if rows else None

    def put(self, **values: Any) -> None:
        """Set some settings, all or none."""
        rows = [(name, json.dumps(value)) for name, value in values.items()]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)

    def reserve(self) -> int:
        """A number for a shard, never given out before."""
        with self._transaction():
            # A row that is gone again: SQLite remembers the highest number.
            number = self._database.execute("INSERT INTO shards DEFAULT VALUES").lastrowid
            self._database.execute("DELETE FROM shards WHERE number = ?", (number,))
        return int(number or 0)

    def digests(self, names: Sequence[str]) -> list[bytes | None]:
        """The content digest of each document, None for one that is not there."""
        return [None if document is None else document[0] for document in self._documents(names)]

    def keys(self, names: Sequence[str]) -> list[int | None]:
        """The key of each document's live row."""
        return [None if document is None else document[1] for document in self._documents(names)]

    def _documents(self, names: Sequence[str]) -> list[tuple[bytes, int] | None]:
        wanted = [id_digest(name) for name in names]
        documents: dict[bytes, tuple[bytes, int]] = {}
        for start in range(0, len(wanted), _ASKED):
            part = wanted[start : start + _ASKED]
            marks = ",".join("?" * len(part))
            rows = self._ask(f"SELECT * FROM documents WHERE name IN ({marks})", *part)  # noqa: S608
            documents.update((name, (digest, key)) for name, digest, key in rows)
        return [documents.get(name) for name in wanted]

    def commit(
        self, written: Written, documents: Sequence[tuple[str, bytes]], replaced: Written | None = None
    ) -> list[int]:
        """Make a shard count, in place of another if it holds what is left of it; returns the keys it outdates."""
        before = [key for key in self.keys([name for name, _ in documents]) if key is not None]
        with self._transaction():
            self._database.execute("INSERT INTO shards VALUES (?, ?, ?, ?, ?)", astuple(written))
            first = written.number * ROWS
            self._database.executemany(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?)",
                ((id_digest(name), digest, first + row) for row, (name, digest) in enumerate(documents)),
            )
            if replaced is not None:
                self._database.execute("DELETE FROM shards WHERE number = ?", (replaced.number,))
        return before

    def shards(self) -> list[Written]:
        """All committed shards, in order."""
        return [Written(*row) for row in self._ask("SELECT * FROM shards ORDER BY number")]

    def live(self, number: int) -> set[int]:
        """The rows of a shard that no later shard has replaced."""
        first = number * ROWS
        rows = self._ask("SELECT key FROM documents WHERE key >= ? AND key < ?", first, first + ROWS)
        return {key - first for (key,) in rows}

    def live_counts(self) -> dict[int, int]:
        """How many live rows each shard has."""
        return dict(self._ask(f"SELECT key / {ROWS}, count(*) FROM documents GROUP BY 1"))  # noqa: S608

    def forget_shard(self, number: int) -> None:
        """Drop a shard and the documents in it, which a run will then find missing."""
        with self._transaction():
            first = number * ROWS
            self._database.execute("DELETE FROM documents WHERE key >= ? AND key < ?", (first, first + ROWS))
            self._database.execute("DELETE FROM shards WHERE number = ?", (number,))

    def reconcile(self, present: Iterable[Sequence[int]]) -> Iterator[list[int]]:
        """Compare with the keys that a table has: forgets documents that are not there, yields keys that do not count."""
        with self._named_errors():
            self._database.execute("PRAGMA temp_store = FILE")
            self._database.execute("CREATE TEMP TABLE present (key INTEGER PRIMARY KEY)")
            try:
                with self._transaction():
                    for keys in present:
                        self._database.executemany("INSERT OR IGNORE INTO present VALUES (?)", ((key,) for key in keys))
                    self._database.execute("DELETE FROM documents WHERE key NOT IN (SELECT key FROM present)")
                strays = self._database.execute("SELECT key FROM present WHERE key NOT IN (SELECT key FROM documents)")
                while rows := strays.fetchmany(_ASKED):
                    yield [key for (key,) in rows]
            finally:
                self._database.execute("DROP TABLE IF EXISTS present")

    def count(self) -> int:
        """How many documents there are."""
        return int(self._ask("SELECT count(*) FROM documents")[0][0])

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._named_errors():
            return self._database.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._named_errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Errors of SQLite, with the file they are about."""
        try:
            with self._turn:
                yield
        except sqlite3.OperationalError as error:
            raise OSError(f"{self.path}: {error}. Once that is mended, the same command goes on.") from error
        except sqlite3.DatabaseError as error:
            raise RuntimeError(f"{self.path} is damaged ({error}): start the index over with --replace.") from error
