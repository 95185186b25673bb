"""What stands for the id of a document, and the ids that a run has met."""

from __future__ import annotations

import hashlib
import sqlite3


def id_digest(name: str) -> bytes:
    """What stands for an id: of one size, whatever the id contains."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


class SeenIds:
    """The ids that a run has met, on disk: a million of them take no memory."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # a temporary file
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA cache_size = -32768")
        self._database.execute("CREATE TABLE seen (name BLOB PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, name: str) -> bool:
        """Whether an id is new."""
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (id_digest(name),)).rowcount == 1

    def close(self) -> None:
        """Remove the file."""
        self._database.close()
