"""What PostgreSQL is asked, and how: connections, what to do when one is lost, names, conditions, writing shards."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from pgvector import HalfVector, Vector
from pgvector.psycopg import register_vector
from psycopg import sql

from evenspan.indexing.columns import WORDS, vectors_of
from evenspan.indexing.filters import Filter, IsNull, Joined, Not, OneOf
from evenspan.indexing.manifest import TakenOverError, Written
from evenspan.indexing.stores.base import ShardWriter
from evenspan.indexing.stores.postgres_index import Words, WordsDumper

# By the names of Arrow's types.
TYPES = {
    "string": "text", "large_string": "text", "int64": "int8", "double": "float8", "bool": "bool",
    "fixed_size_binary[16]": "bytea", "binary": "bytea", "int32": "int4",
}  # fmt: skip
_SIGNS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TRIES = (1.0, 3.0, 10.0)  # seconds to wait for a server that is gone
# Shut down, starting, too many connections, two transactions in each other's way; no state at all is a broken line.
_PASSING = (None, "57P01", "57P02", "57P03", "57P05", "53300", "40001", "40P01")
_FULL = "53100"
# A password that is not escaped would be taken for a host or a port, and then be shown.
_ADDRESS = re.compile(
    r"postgres(ql)?://([^:@/?#]*(:[^:@/?#]*)?@)?([^:@/?#\[]*|\[[^\]]*\])(:\d*)?(,[\w.:-]*)*(/[^/?@]*)?(\?[^@]*)?"
)
RUN = -1  # among the numbers of shards: the token of the run that may write
Result = TypeVar("Result")


def connect(address: str) -> psycopg.Connection[Any]:
    """A connection; errors do not repeat the address, which may hold a password."""
    if not _ADDRESS.fullmatch(address):
        raise ValueError(
            "This is not a PostgreSQL address: write postgresql://user@host:port/database, and : / ? # [ ] @ and % in a "
            "password as codes, such as %40."
        )
    try:
        return psycopg.connect(address, autocommit=True, connect_timeout=10)
    except psycopg.ProgrammingError:  # an address that cannot be read: the message would repeat parts of it
        raise ValueError("This is not a PostgreSQL address: write postgresql://user@host:port/database.") from None
    except psycopg.Error as error:
        raise ConnectionError(f"Cannot connect to PostgreSQL: {error}") from None


def insist(action: Callable[[], Result], again: Callable[[], None]) -> Result:
    """Do something that is harmless to repeat, again after a lost connection."""
    for wait in (*_TRIES, None):
        try:
            return action()
        except (psycopg.Error, ConnectionError) as error:
            if not _passes(error):
                raise told(error) from error
            if wait is None:
                raise OSError(f"Lost PostgreSQL: {error}. Once it is back, run the same command again.") from error
            time.sleep(wait)
            try:
                again()
            except TakenOverError:
                raise
            except (OSError, RuntimeError, psycopg.Error):  # the server may not have noticed yet
                continue
    raise AssertionError  # the last turn returns or raises


def _passes(error: Exception) -> bool:
    """Whether the server is gone, or busy, for a while."""
    if not isinstance(error, psycopg.OperationalError):
        return isinstance(error, ConnectionError)
    return error.sqlstate in _PASSING or str(error.sqlstate).startswith("08")


def told(error: Exception) -> Exception:
    """An error of the server, as one that is expected."""
    if getattr(error, "sqlstate", None) == _FULL:
        return OSError(f"PostgreSQL: {error}. Fix that and run the same command again.")
    return RuntimeError(f"PostgreSQL: {error}")


def check_run(connection: psycopg.Connection[Any], table: str, token: int) -> None:
    """Refuse to commit for a run that another has followed; whoever wants to follow waits for the transaction."""
    of_run = sql.SQL("SELECT rows FROM {shards} WHERE number = %s FOR SHARE").format(**tables(table))
    if connection.execute(of_run, (RUN,)).fetchall() != [(token,)]:
        raise TakenOverError(f"Another run has started writing to the table {table}: this one stops.")


def tables(table: str) -> dict[str, sql.Composable]:
    """The tables of an index: its documents, what made it, and its committed shards."""
    endings = {"table": "", "about": "_evenspan", "shards": "_evenspan_shards"}
    return {name: sql.Identifier(table + ending) for name, ending in endings.items()}


def listed(names: Iterable[str]) -> sql.Composable:
    """Columns, one after the other."""
    return sql.SQL(", ").join(map(column, names))


def column(name: str) -> sql.Composable:
    """A column in a statement with values, in which a percent sign stands for one."""
    return sql.SQL(sql.Identifier(name).as_string().replace("%", "%%"))


def condition(where: Filter) -> tuple[sql.Composable, list[Any]]:
    """A condition with placeholders, and the values that go there."""
    if isinstance(where, Joined):
        parts, values = zip(*map(condition, where.parts), strict=True)
        return sql.SQL("({})").format(sql.SQL(f" {where.word} ").join(parts)), list(itertools.chain(*values))
    if isinstance(where, Not):
        part, held = condition(where.part)
        return sql.SQL("(NOT {})").format(part), held
    of_filter = column(where.column)
    if isinstance(where, IsNull):
        return sql.SQL("({} IS NULL)").format(of_filter), []
    if isinstance(where, OneOf):
        return sql.SQL("({} = ANY(%s))").format(of_filter), [list(where.values)]
    # By code points, as in the other stores, and not by the language of the database.
    ordered = isinstance(where.value, str) and where.sign not in ("=", "!=")
    compared = '({} COLLATE "C" {} %s)' if ordered else "({} {} %s)"
    return sql.SQL(compared).format(of_filter, sql.SQL(_SIGNS[where.sign])), [where.value]


@dataclass(frozen=True)
class PostgresWriter(ShardWriter):
    """Writes the rows of a shard in one transaction, which is also its commit."""

    address: str = field(repr=False)  # it may hold a password
    table: str
    token: int

    def write(self, number: int, rows: Any) -> Written:  # noqa: D102
        names = [name for name in rows.schema.names if name != "vector"]
        types = [TYPES[str(rows.schema.field(name).type)] for name in names]
        columns = [rows[name].to_pylist() for name in names]
        if WORDS in names:
            types[names.index(WORDS)] = "tsvector"
            columns[names.index(WORDS)] = list(map(Words, columns[names.index(WORDS)]))
        half = str(rows.schema.field("vector").type.value_type) == "halffloat"
        kind, vector = ("halfvec", HalfVector) if half else ("vector", Vector)
        of_index, names = tables(self.table), [*names, "vector"]
        listing = sql.SQL(", ").join(map(sql.Identifier, names))
        copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(of_index["table"], listing)
        # What is replaced goes as a whole: a column that the new row lacks must not keep its old value.
        delete = sql.SQL("DELETE FROM {table} WHERE id = ANY(%s)").format(**of_index)
        commit = "INSERT INTO {shards} (number, rows) VALUES (%s, %s) ON CONFLICT (number) DO NOTHING"

        def save() -> None:
            with connect(self.address) as connection:
                register_vector(connection)
                connection.adapters.register_dumper(Words, WordsDumper)
                with connection.transaction(), connection.cursor() as cursor:
                    check_run(connection, self.table, self.token)
                    # A worker that was given up may be writing the same shard.
                    cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", (self.table, number))
                    cursor.execute(delete, (columns[0],))
                    with cursor.copy(copy) as lines:
                        lines.set_types([*types, kind])
                        for record in zip(*columns, map(vector, vectors_of(rows)), strict=True):
                            lines.write_row(record)
                    cursor.execute(sql.SQL(commit).format(**of_index), (number, rows.num_rows))

        insist(save, lambda: None)
        return Written(number, None, rows.num_rows, 0, "")
