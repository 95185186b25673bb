"""What PostgreSQL is asked, and how: connections, what to do when one is lost, names, conditions."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from evenspan.indexing.filters import Filter, IsNull, Joined, Not, OneOf

_SIGNS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TRIES = (1.0, 3.0, 10.0)  # seconds to wait for a server that is gone
Result = TypeVar("Result")


def connect(address: str) -> psycopg.Connection[Any]:
    """A connection that knows vectors; errors do not repeat the address, which may hold a password."""
    try:
        connection = psycopg.connect(address, autocommit=True, connect_timeout=10)
    except psycopg.ProgrammingError:  # an address that cannot be read: the message would repeat parts of it
        raise ValueError("This is no address of a PostgreSQL: write postgresql://user@host:port/database.") from None
    except psycopg.Error as error:
        raise ConnectionError(f"Cannot connect to PostgreSQL: {error}") from None
    return connection


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


def about(table: str) -> sql.Identifier:
    """The table that says what made an index."""
    return sql.Identifier(f"{table}_evenspan")


def shards(table: str) -> sql.Identifier:
    """The table of its committed shards."""
    return sql.Identifier(f"{table}_evenspan_shards")


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
