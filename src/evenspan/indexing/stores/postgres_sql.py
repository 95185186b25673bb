"""What PostgreSQL is asked, and how: connections, what to do when one is lost, names, conditions, writing shards."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from pgvector.psycopg import register_vector
from psycopg import sql

from evenspan.indexing.columns import vectors_of
from evenspan.indexing.filters import Filter, IsNull, Joined, Not, OneOf
from evenspan.indexing.manifest import Written
from evenspan.indexing.stores.base import ShardWriter

_SIGNS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TRIES = (1.0, 3.0, 10.0)  # seconds to wait for a server that is gone
Result = TypeVar("Result")


def connect(address: str) -> psycopg.Connection[Any]:
    """A connection; errors do not repeat the address, which may hold a password."""
    try:
        return psycopg.connect(address, autocommit=True, connect_timeout=10)
    except psycopg.ProgrammingError:  # an address that cannot be read: the message would repeat parts of it
        raise ValueError("This is no address of a PostgreSQL: write postgresql://user@host:port/database.") from None
    except psycopg.Error as error:
        raise ConnectionError(f"Cannot connect to PostgreSQL: {error}") from None


def insist(action: Callable[[], Result], again: Callable[[], None]) -> Result:
    """Do something that is harmless to repeat, again after a lost connection."""
    for wait in (*_TRIES, None):
        try:
            return action()
        except (psycopg.OperationalError, ConnectionError) as error:
            if wait is None:
                raise OSError(f"Lost PostgreSQL: {error}. Once it is back, the same command goes on.") from error
            time.sleep(wait)
            with contextlib.suppress(OSError, RuntimeError, psycopg.Error):  # the server may not have noticed yet
                again()
        except psycopg.Error as error:
            raise RuntimeError(f"PostgreSQL: {error}") from error
    raise AssertionError  # the last turn returns or raises


def tables(table: str) -> dict[str, sql.Composable]:
    """The tables of an index: its documents, what made it, and its committed shards."""
    endings = {"table": "", "about": "_evenspan", "shards": "_evenspan_shards"}
    return {name: sql.Identifier(table + ending) for name, ending in endings.items()}


def listed(names: Iterable[str]) -> sql.Composable:
    """Columns, one after the other."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def condition(where: Filter) -> tuple[sql.Composable, list[Any]]:
    """A condition with placeholders, and the values that go there."""
    if isinstance(where, Joined):
        parts, values = zip(*map(condition, where.parts), strict=True)
        return sql.SQL("({})").format(sql.SQL(f" {where.word} ").join(parts)), list(itertools.chain(*values))
    if isinstance(where, Not):
        part, held = condition(where.part)
        return sql.SQL("(NOT {})").format(part), held
    column = sql.Identifier(where.column)
    if isinstance(where, IsNull):
        return sql.SQL("({} IS NULL)").format(column), []
    if isinstance(where, OneOf):
        return sql.SQL("({} = ANY(%s))").format(column), [list(where.values)]
    # By code points, as in the other stores, and not by the language of the database.
    ordered = isinstance(where.value, str) and where.sign not in ("=", "!=")
    compared = '({} COLLATE "C" {} %s)' if ordered else "({} {} %s)"
    return sql.SQL(compared).format(column, sql.SQL(_SIGNS[where.sign])), [where.value]


@dataclass(frozen=True)
class PostgresWriter(ShardWriter):
    """Writes the rows of a shard in one transaction, which is also its commit."""

    address: str = field(repr=False)  # it may hold a password
    table: str

    def write(self, number: int, rows: Any) -> Written:  # noqa: D102
        names = [name for name in rows.schema.names if name != "vector"]
        columns = [rows[name].to_pylist() for name in names]
        records = list(zip(*columns, vectors_of(rows), strict=True))
        of_index, names = tables(self.table), [*names, "vector"]
        insert = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (id) DO UPDATE SET {}").format(
            of_index["table"],
            listed(names),
            sql.SQL(", ").join([sql.Placeholder()] * len(names)),
            sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in names[1:]),
        )
        # What is replaced goes as a whole: a column that the new row lacks must not keep its old value.
        delete = sql.SQL("DELETE FROM {table} WHERE id = ANY(%s)").format(**of_index)
        commit = "INSERT INTO {shards} (number, rows) VALUES (%s, %s) ON CONFLICT (number) DO NOTHING"

        def save() -> None:
            with connect(self.address) as connection:
                register_vector(connection)
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.execute(delete, (columns[0],))
                    cursor.executemany(insert, records)
                    cursor.execute(sql.SQL(commit).format(**of_index), (number, rows.num_rows))

        insist(save, lambda: None)
        return Written(number, None, rows.num_rows, 0, "")
