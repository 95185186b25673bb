"""The rows of a LanceDB table: their columns, who writes them, and which of them count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow

from evenspan.indexing.columns import CHUNK, END, START, WORDS, Columns, arrow_type
from evenspan.indexing.manifest import ROWS, Manifest, Written
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import ShardWriter


def connect(folder: Path) -> Any:
    """The database that a folder is."""
    return lancedb.connect(str(folder.resolve()))


@dataclass(frozen=True)
class LanceWriter(ShardWriter):
    """Appends a shard's rows, each with a key by which it can be found again."""

    folder: Path
    table: str

    def write(self, number: int, rows: Any) -> Written:  # noqa: D102
        # What another has written of this shard stays: it may be committed already. Twice is once, for who reads.
        keys = pyarrow.array(np.arange(rows.num_rows, dtype=np.int64) + number * ROWS)
        table = connect(self.folder).open_table(self.table)
        table.add(_conform(rows.append_column("key", keys), table.schema))
        return Written(number, None, rows.num_rows, 0, "")


def schema_of(settings: IndexSettings, columns: Columns) -> Any:
    """The columns of a new table."""
    own = {
        "id": pyarrow.string(),
        "text": pyarrow.large_string() if settings.text else None,
        "digest": pyarrow.binary(16),
        "vector": pyarrow.list_(pyarrow.type_for_alias(settings.vectors), settings.dimensions),
        "key": pyarrow.int64(),
        WORDS: pyarrow.large_string() if settings.full_text else None,
    }
    if settings.chunk_tokens is not None:
        own |= {CHUNK: pyarrow.int32(), START: pyarrow.int64(), END: pyarrow.int64()}
    others = {name: arrow_type(kind) for name, kind in columns.items()}
    return pyarrow.schema([(name, kind) for name, kind in (own | others).items() if kind is not None])


def _conform(rows: Any, schema: Any) -> Any:
    """Rows with all columns of a table: a later shard may have added some."""
    arrays = [
        rows[field.name].cast(field.type) if field.name in rows.schema.names else pyarrow.nulls(len(rows), field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def rows_that_count(manifest: Manifest, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of some rows that count, each once: others are not committed yet, or replaced, or written twice."""
    keys = manifest.keys([row["id"] for row in rows])
    counting = {
        row["key"]: row
        for row, key in zip(rows[::-1], keys[::-1], strict=True)
        if row["key"] - row.get(CHUNK, 0) == key
    }
    return list(counting.values())[::-1]
