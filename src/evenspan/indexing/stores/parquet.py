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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from evenspan.indexing.columns import CHUNK, arrow_type, chunk_numbers, rows_of_documents, vectors_of
from evenspan.indexing.filters import Filter, IsNull, Joined, Not, OneOf
from evenspan.indexing.manifest import ROWS, Manifest, Snapshot, Written
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.base import Hit, ShardWriter, hits
from evenspan.indexing.stores.folder import FolderStore, sync_folder

_OPEN = 500  # files at a time: systems allow about 1,000
_HIDDEN = "_"  # begins the names of files that others must not read yet
Result = TypeVar("Result")
_COMPARE = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


@dataclass(frozen=True)
class ParquetWriter(ShardWriter):
    """Writes a file to one side, has it on the disk, then gives it its name."""

    folder: Path
    settings: IndexSettings
    hidden: bool = False  # until the index takes the place of another

    def write(self, number: int, rows: Any) -> Written:  # noqa: D102
        # A name of its own each time: a worker that was given up may still be writing the same shard.
        name = f"shard-{number:06}-{uuid.uuid4().hex[:8]}.parquet"
        temporary, path = self.folder / f"_{name}.tmp", self.folder / f"{_HIDDEN if self.hidden else ''}{name}"
        described = rows.replace_schema_metadata({"evenspan": json.dumps(self.settings.to_dict())})
        try:
            compression = dict.fromkeys(rows.column_names, "zstd") | {
                "vector.list.element": "none"
            }  # nothing to gain there
            options = {"use_dictionary": False, "write_statistics": False}
            pyarrow.parquet.write_table(described, temporary, compression=compression, **options)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            digest, size = _digest(temporary), temporary.stat().st_size
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(self.folder)
        return Written(number, name, int((chunk_numbers(rows) == 0).sum()), size, digest)


class ParquetStore(FolderStore):
    """A folder of Parquet files and a manifest that says which of them count."""

    kind = "parquet"
    content = ("shard-*.parquet", "_shard-*")

    def names(self, manifest: Manifest) -> set[str]:  # noqa: D102
        files = [str(shard.file) for shard in manifest.shards()]
        return {*files, *(f"{_HIDDEN}{file}" for file in files)}

    def recover(self) -> None:
        """Forget shards whose files are missing or cut off, and let the files of a new index be seen."""
        for shard in self.manifest.shards():
            path = self._path(shard)
            if not path.exists() or path.stat().st_size != shard.bytes:
                self.manifest.forget_shard(shard.number)
        self._show()

    def verify(self, *, repair: bool) -> list[str]:  # noqa: D102
        problems = []
        for shard in self.manifest.shards():
            path = self._path(shard)
            if not path.exists() or path.stat().st_size != shard.bytes or _digest(path) != shard.digest:
                what = "damaged" if path.exists() else "missing"
                problems.append(f"{path} is {what}: {len(self.manifest.live(shard.number)):,} documents are lost")
                if repair:
                    self.manifest.forget_shard(shard.number)
        return problems

    def _show(self) -> None:
        """Give the files of an index that serves their names."""
        for shard in () if self._beside else self.manifest.shards():
            hidden = self.folder / f"{_HIDDEN}{shard.file}"
            if hidden.exists():
                hidden.replace(self.folder / str(shard.file))

    def writer(self) -> ShardWriter:  # noqa: D102
        return ParquetWriter(self.folder, self.made_with(), hidden=self._beside)

    def commit(self, written: Written, documents: Sequence[tuple[str, bytes]]) -> None:  # noqa: D102
        path = self._path(written)
        if not path.exists() or path.stat().st_size != written.bytes:
            self.manifest.check(self._token)  # or else whoever followed this run has removed it
            advice = "all machines must see the same folder at this path"
            raise OSError(f"A worker wrote {path}, which is not here: {advice}.")
        self.manifest.commit(written, documents)

    def vectors(self, names: Sequence[str]) -> NDArray[np.float32]:  # noqa: D102
        keys = [key for key in self.manifest.keys(names) if key is not None]
        shards = {shard.number: shard for shard in self.manifest.shards()}
        by_document = [np.empty((0, self.made_with().dimensions), dtype=np.float32)] * len(keys)
        ordered = sorted(range(len(keys)), key=keys.__getitem__)
        for number, places in itertools.groupby(ordered, key=lambda place: keys[place] // ROWS):
            of_shard = list(places)
            table = _read_columns(self._open_file(shards[number]), "vector", CHUNK)
            vectors, numbers = vectors_of(table), chunk_numbers(table)
            for place in of_shard:
                by_document[place] = vectors[rows_of_documents([keys[place] % ROWS], numbers)]
        return np.concatenate(by_document)

    def delete_where(self, where: Filter) -> int:  # noqa: D102
        snapshot = self.manifest.snapshot()
        keys = [
            shard.number * ROWS + int(row)
            for shard in snapshot.shards
            for row in self._vectors(shard, snapshot, where)[0]
        ]
        return len(self.manifest.delete_keys(keys))

    def tidy(self) -> None:
        """Write shards with outdated rows again without them: who reads the files sees no document twice."""
        counts, writer = self.manifest.live_counts(), self.writer()
        for shard in self.manifest.shards():
            if counts.get(shard.number, 0) == shard.rows:
                continue
            live = sorted(self.manifest.live(shard.number))
            if live:
                rows = pyarrow.parquet.read_table(self._path(shard))
                kept = rows.take(rows_of_documents(live, chunk_numbers(rows)))
                documents = list(zip(kept["id"].to_pylist(), kept["digest"].to_pylist(), strict=True))
                self.manifest.commit(writer.write(self.reserve(), kept), documents, replaced=shard)
            else:
                self.manifest.forget_shard(shard.number)
        self._sweep()

    def finish(self) -> None:  # noqa: D102
        super().finish()
        self._show()

    def nearest(self, vectors: NDArray[np.float32], k: int, where: Filter | None) -> list[list[Hit]]:  # noqa: D102
        return self._undisturbed(lambda snapshot: self._nearest(snapshot, vectors, k, where))

    def _undisturbed(self, read: Callable[[Snapshot], Result]) -> Result:
        """What is read of what counts at one moment: again, where a run has meanwhile written a shard anew."""
        while True:
            snapshot = self.manifest.snapshot()
            try:
                return read(snapshot)
            except OSError:
                if self.manifest.snapshot() is snapshot:  # the file is damaged
                    raise

    def _nearest(
        self, snapshot: Snapshot, vectors: NDArray[np.float32], k: int, where: Filter | None
    ) -> list[list[Hit]]:
        best: list[list[tuple[float, int, int]]] = [[] for _ in vectors]
        shards = snapshot.shards
        # Two passes: vectors alone first, then the rows that were found.
        for place, shard in enumerate(shards):
            numbers, candidates = self._vectors(shard, snapshot, where)
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
        # Open from now on: a run that goes on may remove files.
        snapshot, files = self._undisturbed(
            lambda now: (now, {shard.number: self._open_file(shard) for shard in now.shards[:_OPEN]})
        )
        for shard in snapshot.shards:
            file = files.get(shard.number) or self._open_file(shard)
            live = set(self._live(file, shard, snapshot).tolist())
            start = 0
            for batch in file.iter_batches(1024):
                rows = [row for at, row in enumerate(batch.to_pylist()) if start + at in live]
                yield from hits(rows, [0.0] * len(rows))
                start += batch.num_rows

    def _vectors(
        self, shard: Written, snapshot: Snapshot, where: Filter | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The row numbers and vectors of a shard's live rows that pass the filter."""
        names = [] if where is None else sorted(_columns_of(where))
        file = self._open_file(shard)
        present = set(file.schema_arrow.names)
        table = file.read(columns=["vector", *(name for name in names if name in present)])
        numbers = self._live(file, shard, snapshot)
        if len(numbers) < table.num_rows:
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

    @staticmethod
    def _live(file: Any, shard: Written, snapshot: Snapshot) -> NDArray[np.int64]:
        """The numbers of the rows that count."""
        if shard.number not in snapshot.live:
            return np.arange(file.metadata.num_rows)
        return rows_of_documents(snapshot.live[shard.number], chunk_numbers(_read_columns(file, "id", CHUNK)))

    def _read(self, shard: Written, rows: Sequence[int]) -> list[dict[str, Any]]:
        file = self._open_file(shard)
        names = [name for name in file.schema_arrow.names if name not in ("vector", "digest")]
        return list(file.read(columns=names).take(rows).to_pylist())

    def _path(self, shard: Written) -> Path:
        path, hidden = self.folder / str(shard.file), self.folder / f"{_HIDDEN}{shard.file}"
        return hidden if not path.exists() and hidden.exists() else path

    def _open_file(self, shard: Written) -> Any:
        path = self._path(shard)
        try:
            return pyarrow.parquet.ParquetFile(path)
        except (OSError, ValueError) as error:
            raise OSError(f"{path} is damaged ({error}): run `evenspan verify` with --repair.") from error


def _read_columns(file: Any, *names: str) -> Any:
    """Those of some columns that a file has."""
    return file.read(columns=[name for name in names if name in file.schema_arrow.names])


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
