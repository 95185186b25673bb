"""Conditions in the SQL of Lance."""

from __future__ import annotations

from collections.abc import Iterable

from evenspan.indexing.filters import Filter, IsNull, Joined, Not, OneOf, Value


def condition(where: Filter) -> str:
    """A condition in Lance's SQL, from names that are columns and values that are quoted."""
    if isinstance(where, Joined):  # side by side: Lance limits how deep brackets go
        return f"({f' {where.word} '.join(map(condition, where.parts))})"
    if isinstance(where, Not):
        return f"(NOT {condition(where.part)})"
    column = f"`{where.column}`"  # letters, digits and underscores
    if isinstance(where, IsNull):
        return f"({column} IS NULL)"
    if isinstance(where, OneOf):
        return f"({column} IN ({', '.join(map(_literal, where.values))}))"
    return f"({column} {where.sign} {_literal(where.value)})"


def _literal(value: Value) -> str:
    # Not by LanceDB's own `lit(…).to_sql()`: it leaves a quote after a backslash as it is.
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if value == -(2**63) and isinstance(value, int):  # read as minus a number that is too large
        return "CAST('-9223372036854775808' AS BIGINT)"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def among(column: str, values: Iterable[int]) -> str:
    """Whether a column has one of some numbers."""
    return f"{column} IN ({', '.join(str(int(value)) for value in values)})"
