"""The manifest of a folder's index: a SQLite file that says which shards and documents are committed.

A shard counts from the moment in which one transaction names it, and not before. What lies in the folder besides is
left over from a run that died, and is removed by the next.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from evenspan.corpus.sources import INDEX_MANIFEST
from evenspan.indexing.ids import ASKED, SeenIds, id_digest, marks

MANIFEST = INDEX_MANIFEST
NEXT = "_manifest-next.sqlite"  # of what is built beside an index, to take its place
FORMAT = 2  # 1 had digests of text and metadata together, no generation, and no index of keys
_TABLES = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS shards (
    number INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT, rows INTEGER, bytes INTEGER, digest TEXT
);
CREATE TABLE IF NOT EXISTS documents (name BLOB PRIMARY KEY, digest BLOB NOT NULL, key INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS documents_key ON documents (key);
"""
ROWS = 1 << 20  # room for the rows of a shard in a key


def new_generation() -> str:
    """What tells an index from the one that it replaces."""
    return uuid.uuid4().hex[:12]


class TakenOverError(RuntimeError):
    """Another run has begun to write, because the lock of this one was lost."""


@dataclass(frozen=True)
class Written:
    """A shard that was written and waits to be committed."""

    number: int
    file: str | None
    rows: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class Snapshot:
    """What counts at one moment: the shards, and of those that are not whole the rows that count."""

    shards: tuple[Written, ...]
    live: dict[int, list[int]]


class Manifest:
    """An open manifest; a run that writes has a token, without which nothing is committed."""

    def __init__(self, folder: Path, name: str = MANIFEST, *, write: bool = False) -> None:
        self.path = folder / name
        if not write and not is_there(folder, name):
            raise FileNotFoundError(f"No index found in {folder}. Build one with `evenspan index`.")
        # One thread looks documents up while another commits a shard.
        self._turn = threading.RLock()
        self._token: str | None = None
        self._cached: tuple[tuple[int, int], Snapshot] | None = None
        before = _identity(self.path)
        with self._named_errors():
            self._database = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA synchronous = FULL")
            if write:
                self._database.executescript(_TABLES)
            # What had the name before it was opened: if that was replaced in between, it counts as replaced.
            self._file = before or _identity(self.path)
            stored = self.get("format") or 1
        if stored > FORMAT:
            self.close()
            raise ValueError(
                f"{folder} has format {stored}, and this evenspan reads up to {FORMAT}: install a newer evenspan."
            )

    def take(self, token: str) -> None:
        """Begin a run: whoever wrote before, and has lost its lock, commits nothing more."""
        self._token = token
        with self._transaction(checked=False):
            rows = [("run", json.dumps(self._token)), ("format", json.dumps(FORMAT))]
            self._database.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)

    def check(self, token: str | None) -> None:
        """Refuse to commit for a run that another has followed."""
        if token is not None and self.get("run") != token:
            raise TakenOverError(f"Another run has started writing to {self.path.parent}: this one stops.")

    @property
    def replaced(self) -> bool:
        """Whether another manifest has the name of this one by now."""
        return _identity(self.path) != self._file

    def version(self) -> tuple[int, int]:
        """Something else when anybody has committed something."""
        return int(self._ask("PRAGMA data_version")[0][0]), self._database.total_changes

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
        for start in range(0, len(wanted), ASKED):
            part = wanted[start : start + ASKED]
            rows = self._ask(f"SELECT * FROM documents WHERE name IN ({marks(part)})", *part)  # noqa: S608
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
                # Of the rows of a document the first one counts, which is the last to be put here.
                reversed([(id_digest(name), digest, first + row) for row, (name, digest) in enumerate(documents)]),
            )
            if replaced is not None:
                self._database.execute("DELETE FROM shards WHERE number = ?", (replaced.number,))
        return before

    def delete(self, names: Sequence[str]) -> list[int]:
        """Forget documents; returns the keys of their rows."""
        return self._delete("name", [id_digest(name) for name in names])

    def delete_keys(self, keys: Sequence[int]) -> list[int]:
        """Forget the documents whose rows have these keys; returns those of them that there were."""
        return self._delete("key", keys)

    def prune(self, seen: SeenIds) -> list[int]:
        """Forget the documents that a run has not met; returns the keys of their rows."""
        with self._named_errors():
            names = (name for (name,) in self._database.execute("SELECT name FROM documents"))
            gone = list(seen.missing(names))
        return self._delete("name", gone)

    def _delete(self, column: str, values: Sequence[Any]) -> list[int]:
        keys: list[int] = []
        with self._transaction():
            for start in range(0, len(values), ASKED):
                some = values[start : start + ASKED]
                statement = f"DELETE FROM documents WHERE {column} IN ({marks(some)}) RETURNING key"  # noqa: S608
                keys += (key for (key,) in self._database.execute(statement, some))
        return keys

    def snapshot(self) -> Snapshot:
        """What counts now, read at once: a run that goes on changes nothing in it."""
        version = self.version()
        if self._cached is None or self._cached[0] != version:
            with self._transaction("BEGIN", checked=False):
                shards, counts = self.shards(), self.live_counts()
                partial = [shard.number for shard in shards if counts.get(shard.number, 0) != shard.rows]
                live = {number: sorted(self.live(number)) for number in partial}
            self._cached = version, Snapshot(tuple(shards), live)
        return self._cached[1]

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
                while rows := strays.fetchmany(ASKED):
                    yield [key for (key,) in rows]
            finally:
                self._database.execute("DROP TABLE IF EXISTS present")

    def missing(self, present: Iterable[int]) -> int:
        """How many documents have none of these keys."""
        there = set(present)
        return sum(key not in there for (key,) in self._ask("SELECT key FROM documents"))

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
    def _transaction(self, begin: str = "BEGIN IMMEDIATE", *, checked: bool = True) -> Iterator[None]:
        with self._named_errors():
            self._database.execute(begin)
            try:
                if checked:
                    self.check(self._token)
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
            raise OSError(f"{self.path}: {error}. Fix that and run the same command again.") from error
        except sqlite3.DatabaseError as error:
            raise RuntimeError(f"{self.path} is damaged ({error}): rebuild the index with --replace.") from error


def is_there(folder: Path, name: str = MANIFEST) -> bool:
    """Whether a folder has a manifest with anything in it."""
    path = folder / name
    return path.exists() and path.stat().st_size > 0


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
