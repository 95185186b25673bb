"""The metadata columns of an index: their names and types; and the column of vectors."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenspan.corpus.documents import BadRowError, Document

Columns = dict[str, str]  # name and type, one of TYPES
TYPES = {"bool": "bool", "int": "int64", "float": "double", "str": "string"}  # and what Arrow calls them
_PYTHON = {"bool": bool, "int": int, "float": (int, float), "str": str}
# No metadata have names that begin with an underscore: which chunk a row is, where it lies, the words it is found by.
CHUNK, START, END, WORDS = "_chunk", "_start", "_end", "_words"
RESERVED = ("id", "text", "vector", "key", "digest", "score", CHUNK, START, END, WORDS)
_MOST = 200


def column_name(field: str) -> str:
    """A name that every store takes: letters, digits and underscores, not one of the index's own."""
    name = re.sub(r"\W", "_", field)[:40] or "_"
    # PostgreSQL counts bytes, and has columns of its own that nobody can add.
    while len(name.encode()) > 50:
        name = name[:-1]
    taken = name.lower() in (*RESERVED, "ctid", "xmin", "xmax", "cmin", "cmax", "tableoid") or name.startswith("_")
    return f"metadata_{name}" if taken else name


def parse_metadata(names: Sequence[str]) -> tuple[tuple[str, ...], Columns]:
    """`["lang", "year:int"]`: the fields to keep, and the types of those for which one is given."""
    fields, types = [], {}
    for entry in names:
        field, colon, kind = entry.rpartition(":")
        if colon and kind in TYPES:
            types[column_name(field)] = kind
        elif colon and kind in ("integer", "string", "number", "text", "boolean"):
            raise ValueError(f"Unknown column type {kind!r} in {entry!r}. Available: {', '.join(TYPES)}.")
        else:
            field = entry
        fields.append(field)
    return tuple(fields), types


def type_of(value: Any) -> str:
    """The column type of a value."""
    return next(name for name, kind in _PYTHON.items() if isinstance(value, kind))  # type: ignore[arg-type]


def widen(columns: Columns, metadata: Mapping[str, Any]) -> None:
    """Add the columns that a document needs; used on the first documents, before a column's type is settled."""
    for field, value in metadata.items():
        name, kind = column_name(field), type_of(value)
        if columns.get(name, kind) != kind:
            kind = "float" if {columns[name], kind} == {"int", "float"} else "str"
        columns[name] = kind
    if len(columns) > _MOST:
        raise ValueError(f"The rows have more than {_MOST} fields besides text and id: choose the metadata to keep.")


def fit(columns: Columns, document: Document) -> dict[str, Any]:
    """A document's metadata by column; new fields get a column; raises `BadRowError` where a value does not fit."""
    values: dict[str, Any] = {}
    for field, value in document.metadata.items():
        name = column_name(field)
        if name in values:
            raise BadRowError(f"two fields share the column {name!r}: name the metadata to keep")
        if name not in columns:
            widen(columns, {field: value})
        kind = columns[name]
        if kind == "str" and not isinstance(value, str):
            value = json.dumps(value)
        elif kind == "float" and type(value) is int:
            value = float(value)
        elif type_of(value) != kind:
            value = _read(value, kind, field)
        values[name] = value
    return values


def _read(value: Any, kind: str, field: str) -> Any:
    """Text that spells a number, as all of CSV does."""
    if isinstance(value, str) and kind == "bool" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, str) and kind in ("int", "float"):
        with contextlib.suppress(ValueError):
            number = int(value) if kind == "int" else float(value)
            if math.isfinite(number) and (kind == "float" or -(2**63) <= number < 2**63):
                return number
    advice = "its type can be given with the metadata to keep"
    raise BadRowError(f"field {field!r} is no {kind}, which its column is ({advice})")


def arrow_type(kind: str) -> Any:
    """The Arrow type of a column type."""
    import pyarrow

    return pyarrow.type_for_alias(TYPES[kind])


def with_vectors(documents: Any, vectors: NDArray[np.float32], kind: str = "float32") -> Any:
    """The same table with a column of vectors."""
    import pyarrow

    flat = pyarrow.array(np.ascontiguousarray(vectors, dtype=kind).reshape(-1))
    return documents.append_column("vector", pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]))


def vectors_of(rows: Any) -> NDArray[np.float32]:
    """The vectors of an Arrow table with such a column."""
    column = rows.column("vector").combine_chunks()
    return np.asarray(column.flatten().to_numpy().reshape(len(column), column.type.list_size), dtype=np.float32)


def rows_of_documents(first: Sequence[int], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """All rows of the documents that begin in some rows, if the rows are these chunks of their documents."""
    starts = np.flatnonzero(numbers == 0)
    places = np.searchsorted(starts, np.asarray(first, dtype=np.int64))
    ends = np.append(starts[1:], len(numbers))
    return np.concatenate([np.empty(0, np.int64), *map(np.arange, starts[places], ends[places])])


def chunk_numbers(rows: Any) -> NDArray[np.int64]:
    """Which chunk of its document each row of an Arrow table is; 0 for whole documents."""
    if CHUNK not in rows.schema.names:
        return np.zeros(rows.num_rows, dtype=np.int64)
    return np.asarray(rows[CHUNK].to_numpy(), dtype=np.int64)
