"""Parquet files, a shard each: for FAISS, Qdrant, Spark and everything else. Searched by an exact scan."""

from __future__ import annotations

import functools
import hashlib
import heapq
import itertools
import json
import operator
import os
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

from evenspan.indexing.columns import arrow_type, vectors_of
from evenspan.indexing.filters import Filter, IsNull, Joined, Not, OneOf
from evenspan.indexing.manifest import Written
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Hit, ShardWriter, hits
from evenspan.indexing.stores.folder import FolderStore

_COMPARE = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


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
            options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
            pyarrow.parquet.write_table(described, temporary, **options)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            digest, size = _digest(temporary), temporary.stat().st_size
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(self.folder)
        return Written(number, name, rows.num_rows, size, digest)


class ParquetStore(FolderStore):
    """A folder of Parquet files and a manifest that says which of them count."""

    kind = "parquet"
    content = ("shard-*.parquet", "_shard-*.tmp")

    def recover(self) -> None:
        """Drop shards whose files are missing or damaged, and files that no shard names."""
        for shard in self.manifest.shards():
            path = self.folder / str(shard.file)
            if not path.exists() or path.stat().st_size != shard.bytes or _digest(path) != shard.digest:
                self.manifest.forget_shard(shard.number)
        self._sweep()

    def _sweep(self) -> None:
        """Remove files that no shard names."""
        listed = {shard.file for shard in self.manifest.shards()}
        for path in [path for pattern in self.content for path in self.folder.glob(pattern)]:
            if path.name not in listed:
                path.unlink(missing_ok=True)

    def writer(self) -> ShardWriter:  # noqa: D102
        return ParquetWriter(self.folder, self.made_with())

    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:  # noqa: D102
        path = self.folder / str(written.file)
        if not path.exists() or path.stat().st_size != written.bytes:
            advice = "all machines must see the same folder at this path"
            raise OSError(f"A worker wrote {path}, which is not here: {advice}.")
        self.manifest.commit(written, documents)

    def finish(self) -> None:
        """Write shards with outdated rows again without them: who reads the files sees no document twice."""
        counts, writer = self.manifest.live_counts(), self.writer()
        for shard in self.manifest.shards():
            if counts.get(shard.number, 0) == shard.rows:
                continue
            live = sorted(self.manifest.live(shard.number))
            if live:
                kept = pyarrow.parquet.read_table(self.folder / str(shard.file)).take(live)
                documents = list(zip(kept["id"].to_pylist(), kept["digest"].to_pylist(), strict=True))
                self.manifest.commit(writer.write(self.reserve(), kept), documents, replaced=shard)
            else:
                self.manifest.forget_shard(shard.number)
        self._sweep()

    def search(self, vectors: NDArray[np.float32], k: int, where: Filter | None = None) -> list[list[Hit]]:  # noqa: D102
        best: list[list[tuple[float, int, int]]] = [[] for _ in vectors]
        shards = self.manifest.shards()
        # Two passes: vectors alone first, then the rows that were found.
        for place, shard in enumerate(shards):
            numbers, candidates = self._vectors(shard, where)
            if not len(numbers):
                continue
            scores = vectors @ candidates.T  # (queries, rows)
            take = min(k, len(numbers))
            chosen = np.argpartition(-scores, take - 1, axis=1)[:, :take]
            for query, columns in enumerate(chosen):
                entries = [(float(scores[query, at]), -place, -int(numbers[at])) for at in columns]
                best[query] = heapq.nlargest(k, best[query] + entries)
        wanted = sorted({(-place, -number) for entries in best for _, place, number in entries})
        rows: dict[tuple[int, int], dict[str, Any]] = {}
        for place, of_shard in itertools.groupby(wanted, key=operator.itemgetter(0)):
            keys = list(of_shard)
            rows.update(zip(keys, self._read(shards[place], [number for _, number in keys]), strict=True))
        return [
            hits([rows[-place, -number] for _, place, number in entries], [score for score, _, _ in entries])
            for entries in best
        ]

    def rows(self) -> Iterator[Hit]:  # noqa: D102
        for shard in self.manifest.shards():
            live = self.manifest.live(shard.number)
            start = 0
            for batch in self._open(shard).iter_batches(1024):
                rows = [row for at, row in enumerate(batch.to_pylist()) if start + at in live]
                yield from hits(rows, [0.0] * len(rows))
                start += batch.num_rows

    def _vectors(self, shard: Written, where: Filter | None) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The row numbers and vectors of a shard's live rows that pass the filter."""
        names = [] if where is None else sorted(_columns_of(where))
        file = self._open(shard)
        present = set(file.schema_arrow.names)
        table = file.read(columns=["vector", *(name for name in names if name in present)])
        numbers = np.arange(table.num_rows)
        live = self.manifest.live(shard.number)
        if len(live) < table.num_rows:
            numbers = np.array(sorted(live), dtype=np.int64)
            table = table.take(numbers)
        if where is not None:
            table = table.append_column("_number", pyarrow.array(numbers))
            types = self.columns()
            for name in names:
                if name not in present:  # a shard from before that column
                    table = table.append_column(name, pyarrow.nulls(table.num_rows, arrow_type(types[name])))
            table = table.filter(_expression(where))
            numbers = table["_number"].to_numpy()
        return numbers, vectors_of(table)

    def _read(self, shard: Written, rows: Sequence[int]) -> list[dict[str, Any]]:
        file = self._open(shard)
        names = [name for name in file.schema_arrow.names if name not in ("vector", "digest")]
        return list(file.read(columns=names).take(rows).to_pylist())

    def _open(self, shard: Written) -> Any:
        path = self.folder / str(shard.file)
        try:
            return pyarrow.parquet.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise OSError(f"{path} is damaged ({error}): run the command that made the index again.") from error


def _columns_of(where: Filter) -> set[str]:
    """The columns that a filter looks at."""
    if isinstance(where, Joined):
        return set().union(*map(_columns_of, where.parts))
    return _columns_of(where.part) if isinstance(where, Not) else {where.column}


def _expression(where: Filter) -> Any:
    if isinstance(where, Joined):
        return functools.reduce(operator.and_ if where.word == "and" else operator.or_, map(_expression, where.parts))
    if isinstance(where, Not):
        return ~_expression(where.part)
    column = pyarrow.compute.field(where.column)
    if isinstance(where, IsNull):
        return column.is_null()
    if isinstance(where, OneOf):
        # `isin` would say false, not unknown, of a value that is not there, and `not in` would then let it pass.
        return column.isin(list(where.values)) | (column.is_null() & pyarrow.scalar(None, pyarrow.bool_()))
    return getattr(pyarrow.compute, _COMPARE[where.sign])(column, where.value)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Have a folder's entries on the disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
