"""Parquet files, a shard each: for FAISS, Qdrant, Spark and everything else. Searched by an exact scan."""

from __future__ import annotations

import hashlib
import heapq
import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from evenspan.indexing.columns import TYPES, Columns, vectors_of
from evenspan.indexing.filters import Both, Either, Filter, IsNull, Not, OneOf
from evenspan.indexing.manifest import Written
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Hit, ShardWriter, hits
from evenspan.indexing.stores.folder import FolderStore

_LOOKS = 30  # seconds
_COMPARE = {
    "=": pyarrow.compute.equal,
    "!=": pyarrow.compute.not_equal,
    "<": pyarrow.compute.less,
    "<=": pyarrow.compute.less_equal,
    ">": pyarrow.compute.greater,
    ">=": pyarrow.compute.greater_equal,
}


@dataclass(frozen=True)
class ParquetWriter(ShardWriter):
    """Writes a file to one side, has it on the disk, then gives it its name."""

    folder: Path
    settings: IndexSettings

    def write(self, number: int, rows: Any) -> Written:  # noqa: D102
        # A name of its own each time: a worker that was given up may still be writing the same shard.
        name = f"shard-{number:06}-{uuid.uuid4().hex[:8]}.parquet"
        temporary, path = self.folder / f"_{name}.tmp", self.folder / name
        described = rows.replace_schema_metadata({"evenspan": json.dumps(self.settings.to_dict())})
        try:
            pyarrow.parquet.write_table(
                described, temporary, compression="zstd", use_dictionary=False, write_statistics=False
            )
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            digest, size = _digest(temporary), temporary.stat().st_size
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(self.folder)
        return Written(number, name, rows.num_rows, size, digest)


class ParquetStore(FolderStore):
    """A folder of Parquet files and a manifest that says which of them count."""

    kind = "parquet"
    content = ("shard-*.parquet", "_shard-*.tmp")

    def recover(self) -> None:
        """Drop shards whose files are missing or damaged, and files that no shard names."""
        listed: set[str | None] = set()
        for shard in self.catalogue.shards():
            path = self.folder / str(shard.file)
            if not path.exists() or path.stat().st_size != shard.bytes or _digest(path) != shard.digest:
                self.catalogue.forget_shard(shard.number)
            else:
                listed.add(shard.file)
        self._sweep(listed)

    def _sweep(self, listed: set[str | None]) -> None:
        for path in [*self.folder.glob("shard-*.parquet"), *self.folder.glob("_shard-*.tmp")]:
            if path.name not in listed:
                path.unlink(missing_ok=True)

    def writer(self) -> ShardWriter:  # noqa: D102
        settings = self.settings()
        if settings is None:
            raise RuntimeError(f"{self.location} was not started.")
        return ParquetWriter(self.folder, settings)

    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:  # noqa: D102
        path = self.folder / str(written.file)
        if not path.exists() or path.stat().st_size != written.bytes:
            raise OSError(
                f"A worker wrote {path}, which is not here: all machines must see the same folder at this path."
            )
        self.catalogue.commit(written, documents)

    def finish(self) -> None:
        """Write shards with outdated rows again without them: who reads the files sees no document twice."""
        counts, writer = self.catalogue.live_counts(), self.writer()
        for shard in self.catalogue.shards():
            if counts.get(shard.number, 0) == shard.rows:
                continue
            live = self.catalogue.live(shard.number)
            table = pyarrow.parquet.read_table(self.folder / str(shard.file))
            kept = table.take(pyarrow.array(sorted(live), pyarrow.int64()))
            if live:
                documents = list(zip(kept["id"].to_pylist(), kept["digest"].to_pylist(), strict=True))
                self.catalogue.commit(writer.write(self.reserve(), kept), documents, replaced=[shard])
            else:
                self.catalogue.forget_shard(shard.number)
        self._sweep({shard.file for shard in self.catalogue.shards()})

    def search(self, vectors: NDArray[np.float32], k: int, where: Filter | None = None) -> list[list[Hit]]:  # noqa: D102
        best: list[list[tuple[float, int, int]]] = [[] for _ in vectors]
        shards = self.catalogue.shards()
        expression = None if where is None else _expression(where)
        # Two passes: vectors alone first, then the rows that were found.
        for place, shard in enumerate(shards):
            places, found = self._vectors(shard, where, expression)
            if not len(places):
                continue
            scores = vectors @ found.T  # (queries, rows)
            take = min(k, len(places))
            chosen = np.argpartition(-scores, take - 1, axis=1)[:, :take]
            for query, columns in enumerate(chosen):
                entries = [(float(scores[query, at]), -place, -int(places[at])) for at in columns]
                best[query] = heapq.nlargest(k, best[query] + entries)
        wanted: dict[int, set[int]] = {}
        for entries in best:
            for _, place, row in entries:
                wanted.setdefault(-place, set()).add(-row)
        rows = {
            (place, row): values
            for place, numbers in wanted.items()
            for row, values in zip(sorted(numbers), self._read(shards[place], sorted(numbers)), strict=True)
        }
        return [
            hits([rows[-place, -row] for _, place, row in entries], [score for score, _, _ in entries])
            for entries in best
        ]

    def rows(self) -> Iterator[Hit]:  # noqa: D102
        for shard in self.catalogue.shards():
            live = self.catalogue.live(shard.number)
            start = 0
            for batch in pyarrow.parquet.ParquetFile(self.folder / str(shard.file)).iter_batches(1024):
                rows = [row for at, row in enumerate(batch.to_pylist()) if start + at in live]
                yield from hits(rows, [0.0] * len(rows))
                start += batch.num_rows

    def _vectors(
        self, shard: Written, where: Filter | None, expression: Any
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The places and vectors of a shard's live rows that pass the filter."""
        names = [] if where is None else sorted(filter_columns(where))
        file = self.folder / str(shard.file)
        there = set(pyarrow.parquet.read_schema(file).names)
        table = pyarrow.parquet.read_table(file, columns=["vector", *(name for name in names if name in there)])
        places = np.arange(table.num_rows)
        live = self.catalogue.live(shard.number)
        if len(live) < table.num_rows:
            places = np.array(sorted(live), dtype=np.int64)
            table = table.take(places)
        if where is not None:
            table = table.append_column("_place", pyarrow.array(places))
            types: Columns = self.columns()
            for name in names:
                if name not in there:  # a shard from before that column
                    table = table.append_column(name, pyarrow.nulls(table.num_rows, TYPES[types[name]]))
            table = table.filter(expression)
            places = table["_place"].to_numpy()
        return places, vectors_of(table)

    def _read(self, shard: Written, rows: Sequence[int]) -> list[dict[str, Any]]:
        file = self.folder / str(shard.file)
        names = [name for name in pyarrow.parquet.read_schema(file).names if name not in ("vector", "digest")]
        found: list[dict[str, Any]] = pyarrow.parquet.read_table(file, columns=names).take(rows).to_pylist()
        return found


def _await(path: Path, size: int) -> None:
    """Make sure that a file is here, which another machine may have written: some file systems show it late."""
    for _ in range(_LOOKS):
        if path.exists() and path.stat().st_size == size:
            return
        time.sleep(1)
        os.listdir(path.parent)  # has the folder read again where its entries are remembered
    raise OSError(f"A worker wrote {path}, which is not here: all machines must see the same folder at this path.")


def filter_columns(where: Filter) -> set[str]:
    """The columns that a filter looks at."""
    if isinstance(where, (Both, Either)):
        return filter_columns(where.left) | filter_columns(where.right)
    return filter_columns(where.part) if isinstance(where, Not) else {where.column}


def _expression(where: Filter) -> Any:
    if isinstance(where, Both):
        return _expression(where.left) & _expression(where.right)
    if isinstance(where, Either):
        return _expression(where.left) | _expression(where.right)
    if isinstance(where, Not):
        return ~_expression(where.part)
    column = pyarrow.compute.field(where.column)
    if isinstance(where, IsNull):
        return column.is_null()
    if isinstance(where, OneOf):
        # `isin` would say false, not unknown, of a value that is not there, and `not in` would then let it pass.
        return column.isin(list(where.values)) | (column.is_null() & pyarrow.scalar(None, pyarrow.bool_()))
    return _COMPARE[where.sign](column, where.value)


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Have a folder's entries on the disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
