"""A connection to PostgreSQL for one table: the lock of a run that writes, and what is done when either is lost."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from pgvector.psycopg import register_vector
from psycopg import sql

from evenspan.indexing.stores.postgres_sql import RUN, Result, check_run, connect, insist, tables


class PostgresSession:
    """Statements about a table; a run that writes holds the lock of `base`, which the table is or is to replace."""

    def __init__(self, address: str, base: str, table: str, *, write: bool) -> None:
        self.address, self.base, self.table, self._write = address, base, table, write
        self.token = secrets.randbits(62)
        # One thread looks documents up while another writes; only one of them may connect again.
        self._turn = threading.RLock()
        self.connection = connect(address)

    def lock(self) -> None:
        """Keep a second run out; the server lets go when the connection ends."""
        (got,) = self.run("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (f"evenspan {self.base}",))[0]
        if not got:
            raise RuntimeError(f"Another run is writing to PostgreSQL table {self.base}: wait for it, or stop it.")

    def take(self, *names: str) -> None:
        """Begin a run on tables: whoever wrote there before, and has lost its lock, commits nothing more."""
        for name in names:
            if self.exists(f"{name}_evenspan_shards"):
                take = "INSERT INTO {shards} VALUES (%s, %s) ON CONFLICT (number) DO UPDATE SET rows = EXCLUDED.rows"
                self.run(take, (RUN, self.token), **tables(name))

    def exists(self, table: str) -> bool:
        """Whether there is a table of that name."""
        return bool(self.run("SELECT to_regclass(%s) IS NOT NULL", (f'"{table}"',))[0][0])

    def run(self, statement: str, values: Sequence[Any] = (), **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """Execute a statement with names in braces: those of the tables, and of other parts."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql.SQL(statement).format(**(tables(self.table) | parts)), values)
            return cursor.fetchall() if cursor.description is not None else []

    def ask(self, statement: str, values: Sequence[Any] = (), **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """Execute a statement that is harmless to repeat, again after a lost connection."""
        return self.insist(lambda: self.run(statement, values, **parts))

    def insist(self, action: Callable[[], Result]) -> Result:
        """Do something that is harmless to repeat, again after a lost connection."""
        with self._turn:
            return insist(action, self._reconnect)

    def commit(self, action: Callable[[], Result]) -> Result:
        """Do something in one transaction, if no other run has followed."""

        def checked() -> Result:
            with self.connection.transaction():
                self.check(self.table)
                return action()

        return self.insist(checked)

    def check(self, table: str) -> None:
        """Make sure that no other run has followed on a table."""
        check_run(self.connection, table, self.token)

    def _reconnect(self) -> None:
        self.connection.close()
        self.connection = connect(self.address)
        register_vector(self.connection)
        if self._write:
            self.lock()
            if self.exists(f"{self.table}_evenspan_shards"):
                self.check(self.table)

    def close(self) -> None:
        """Let go of the lock and the connection."""
        if self._write:
            with contextlib.suppress(psycopg.Error):  # the server would notice the end of the connection a little later
                self.run("SELECT pg_advisory_unlock_all()")
        self.connection.close()
