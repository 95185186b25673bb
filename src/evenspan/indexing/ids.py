"""The ids that a run has met, on disk: a million of them take no memory."""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from collections.abc import Iterator, Sequence

_TABLES = """
PRAGMA synchronous = OFF;
PRAGMA journal_mode = OFF;
PRAGMA cache_size = -32768;
CREATE TABLE seen (name BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE invalid (id TEXT PRIMARY KEY) WITHOUT ROWID;
BEGIN;
"""
ASKED = 500  # parameters in one question


def id_digest(name: str) -> bytes:
    """What stands for an id: of one size, whatever the id contains."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


class SeenIds:
    """The ids of the documents of a source, and those of rows that are no documents any more."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # a temporary file
        self._database.executescript(_TABLES)

    def add(self, name: str) -> bool:
        """Whether an id is new."""
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (id_digest(name),)).rowcount == 1

    def reject(self, name: str, *, was_added: bool = False) -> None:
        """Remember the id of a row that cannot be used."""
        if was_added:
            self._database.execute("DELETE FROM seen WHERE name = ?", (id_digest(name),))
        self._database.execute("INSERT OR IGNORE INTO invalid VALUES (?)", (name,))

    def invalid(self) -> list[str]:
        """The ids whose every row was rejected."""
        names = [name for (name,) in self._database.execute("SELECT id FROM invalid")]
        gone = set(self.missing(map(id_digest, names)))
        return [name for name in names if id_digest(name) in gone]

    def missing(self, digests: Iterator[bytes]) -> Iterator[bytes]:
        """Those of some digests of ids that are of none that was met."""
        while some := list(itertools.islice(digests, ASKED)):
            ask = f"SELECT name FROM seen WHERE name IN ({marks(some)})"  # noqa: S608
            met = {name for (name,) in self._database.execute(ask, some)}
            yield from (name for name in some if name not in met)

    def close(self) -> None:
        """Remove the file."""
        self._database.close()


def marks(values: Sequence[object]) -> str:
    """A placeholder for each of some values."""
    return ",".join("?" * len(values))
