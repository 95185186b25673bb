"""Index a corpus: read, encode, write, commit, shard after shard; the same call goes on where the last one ended."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace as replace_fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding import Encoder
from evenspan.formatting import counted
from evenspan.indexing.estimate import IndexEstimate, estimate
from evenspan.indexing.layout import Layout
from evenspan.indexing.pieces import Cutter
from evenspan.indexing.plan import EncodingOptions, IndexPlan, Portion, Shard, ShardSize
from evenspan.indexing.reading import Rejects, SourceRows
from evenspan.indexing.settings import NO_CALIBRATION, IndexSettings
from evenspan.indexing.stores import locate_store, store_kind
from evenspan.indexing.stores.base import Store
from evenspan.indexing.stores.options import StoreOptions
from evenspan.indexing.summary import IndexProgress, IndexSummary
from evenspan.models.calibrating import calibrated, calibration_of, uncalibrated
from evenspan.models.features import TokenizedTexts
from evenspan.models.loading import load
from evenspan.prefetching import prefetched


def index(
    model: str | os.PathLike[str] | SentenceTransformer,
    source: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    store: str | os.PathLike[str],
    calibration: Calibration | str | None = None,
    *,
    field: str = "text", id_field: str | None = None, metadata: Sequence[str] | None = None,
    source_format: str | None = None, max_chars: int = 10_000_000, batch_tokens: int | None = None,
    document_prompt: str | None = None, query_prompt: str | None = None, keep_text: bool = True,
    replace: bool = False, prune: bool = False, table: str | None = None, shard: ShardSize = ShardSize(),
    rejects: str | os.PathLike[str] | None = None, max_rejects: float = 0.1, engine: str = "local",
    address: str | None = None, workers: int | None = None, device: str | None = None, progress: bool = True,
    chunk_tokens: int | None = None, overlap: int = 0, full_text: bool = False,
    store_options: StoreOptions | str | None = None, dry_run: bool = False,
) -> IndexSummary:  # fmt: skip
    """Encode a source's documents, calibrated, into a store; the same call goes on after a crash, and brings up to date.

    Args:
        model: a folder, a name on the hub, `miniature:cls`, or a model, which is left as it was.
        source: a file, a folder, a glob, `-` for standard input, `hf:OWNER/NAME[:CONFIG[:SPLIT]]`, or rows as mappings.
        store: a folder (LanceDB), `parquet:FOLDER`, or `postgresql://…`.
        calibration: by default the one that the model was saved with, or `Calibration()`; `"none"` for the plain model.
        field: the field of the text.
        id_field: the field of the id, or `"@line"` for file and line; by default `id`, or `_id` where there is no `id`.
        metadata: the other fields to keep, such as `["lang", "year:int"]`; by default all.
        source_format: jsonl, csv, tsv, parquet or text, where the name does not say.
        max_chars: longer texts are skipped.
        batch_tokens: tokens in a batch, padding included; by default 4,096, on a GPU 32,768 and more for small models.
        document_prompt: in place of the model's own.
        query_prompt: in place of the model's own.
        keep_text: whether the store holds the texts.
        replace: whether to start the index over, beside the one that is there, which serves until the new one is whole.
        prune: whether documents that are gone from the source leave the index, once all of it was read.
        table: in PostgreSQL; by default `evenspan`.
        shard: how many documents and tokens are committed at a time.
        rejects: a file for the rows that are skipped, with the reasons; by default beside the index.
        max_rejects: a larger share of such rows stops the run.
        engine: `"local"`, or `"ray"` for more than one GPU or machine.
        address: of a Ray cluster; by default one is started.
        workers: processes of Ray that encode; by default one for each GPU, or for two CPUs.
        device: where the model computes.
        progress: whether a bar shows how far it is, in a terminal.
        chunk_tokens: cuts documents between sentences into chunks of at most so many tokens, a vector each.
        overlap: tokens that a chunk has in common with the one before, at most.
        full_text: whether the store's own full-text index is built, for hybrid search; not in Parquet files.
        store_options: of vectors and the store's own index, as in `"hnsw,m=24,vectors=float16"`; see `StoreOptions`.
        dry_run: only count, and estimate bytes and time by a timed sample; returns an `IndexEstimate`.
    """
    options = EncodingOptions(
        engine, address, workers, device, document_prompt, query_prompt, batch_tokens, keep_text, shard, progress,
        Layout(chunk_tokens, overlap, full_text, store_options),
    )  # fmt: skip
    opening, shown = _located(store, table, options, write=not dry_run, replace=replace)
    rejected = Rejects(rejects, max_rejects)
    rows = SourceRows(source, source_format, field, id_field, metadata, max_chars)
    with _encoder(model, calibration, options) as (encoder, settings):
        if dry_run:
            return _estimate(opening, shown, rows, max_rejects, encoder, settings, options, new=replace)
        with _opened(opening) as opened:
            return _fill(opened, rows, rejected, encoder, settings, options, replace=replace, prune=prune)


def _located(
    store: str | os.PathLike[str], table: str | None, options: EncodingOptions, *, write: bool, replace: bool
) -> tuple[Callable[[], Store], str]:
    """How to open a store that can hold what is asked for, and its name in messages."""
    opening = locate_store(store, write=write, replace=replace and write, table=table)
    kind = store_kind(store)
    shown = "PostgreSQL" if kind == "postgres" else os.fspath(store)  # an address may hold a password
    options.layout.check(kind, shown, keep_text=options.keep_text)
    return opening, shown


@contextlib.contextmanager
def _opened(opening: Callable[[], Store]) -> Iterator[Store]:
    """A store for a run, which leaves no empty one behind when it fails, and says so when another run was the cause."""
    with contextlib.closing(opening()) as store:
        try:
            yield store
        except BaseException:
            store.check_run()  # its files are not to be touched
            store.discard()
            raise


def _estimate(
    opening: Callable[[], Store],
    shown: str,
    rows: SourceRows,
    max_rejects: float,
    encoder: Encoder,
    settings: IndexSettings,
    options: EncodingOptions,
    *,
    new: bool,
) -> IndexEstimate:
    """What a run would do to the index that is there, unless a new one is to be made."""
    with contextlib.ExitStack() as stack:
        there = None
        if not new:
            with contextlib.suppress(FileNotFoundError):
                there = stack.enter_context(contextlib.closing(opening()))
        there = None if there is None or there.settings() is None else there
        return estimate(there, shown, rows, max_rejects, encoder, settings, options)


def _start(
    store: Store, settings: IndexSettings, rows: SourceRows, options: EncodingOptions, *, replace: bool
) -> IndexSettings:
    """Make a new index, or make sure that the one that is there fits; returns the settings with what is kept of it."""
    stored = store.settings()
    if stored is not None and options.layout.options is None and not replace:
        settings = settings.kept_like(stored)
    if stored is None or (replace and stored != settings):
        store.start(settings)
    else:
        settings.check_same(stored, store.location)
        if options.query_prompt not in (None, stored.query_prompt):
            raise ValueError(
                f"{store.location} uses the query prompt {stored.query_prompt!r}, not "
                f"{settings.query_prompt!r}: leave it out, or rebuild the index with --replace."
            )
        if settings.vector_index != stored.vector_index:
            store.change_vector_index(replace_fields(stored, vector_index=settings.vector_index))
    columns = store.columns()
    for name, kind in rows.types.items():
        if columns.get(name, kind) != kind:
            raise ValueError(f"The column {name!r} of {store.location} is of type {columns[name]}, not {kind}.")
    store.set_columns({**columns, **rows.types})
    return settings


def _fill(
    store: Store,
    rows: SourceRows,
    rejected: Rejects,
    encoder: Encoder,
    settings: IndexSettings,
    options: EncodingOptions,
    *,
    replace: bool,
    prune: bool,
) -> IndexSummary:
    """Start the index or go on with it, encode what is new, and say what was done."""
    settings = _start(store, settings, rows, options, replace=replace)
    rejected.begin(store.rejects_path(), rows)
    cutter = Cutter(encoder, settings)
    plan = IndexPlan(rows.rules, store, rejected, cutter, options.shard)
    progress = IndexProgress(rows.size, shown=options.progress)
    with contextlib.closing(plan.seen), contextlib.closing(rejected):
        with progress:
            busy = _encode(plan, rows, encoder, settings, store, progress, options)
        encoding = time.perf_counter() - progress.began
        invalid = store.delete(plan.seen.invalid())
        if not progress.documents and not progress.updated and not plan.unchanged and not invalid:
            raise ValueError(f"There are no documents in {str(rows)!r}: {rejected}.")
        pruned = _prune(store, plan) if prune else 0
        if replace:  # of an unfinished run before this one
            store.prune(plan.seen)
    store.finish()
    return replace_fields(
        IndexSummary.of(store.location, store.count(), progress, plan.unchanged, rejected, encoder),
        encoding_seconds=encoding,
        device_seconds=busy or None,
        updated=progress.updated,
        invalid=invalid,
        pruned=pruned,
    )


def _prune(store: Store, plan: IndexPlan) -> int:
    """Remove documents that are gone from the source, if it was read to the end, and every row of it."""
    if plan.unread:
        warnings.warn(
            f"No documents were removed: {counted(plan.unread, 'row')} could not be read and may be indexed documents.",
            stacklevel=2,
        )
        return 0
    return store.prune(plan.seen)


def _encode(
    plan: IndexPlan,
    rows: SourceRows,
    encoder: Encoder,
    settings: IndexSettings,
    store: Store,
    progress: IndexProgress,
    options: EncodingOptions,
) -> float:
    """Everything that is new; returns for how many seconds the device was busy."""
    if options.engine == "ray":
        from evenspan.indexing.ray.engine import run_on_ray

        with prefetched(plan.shards(rows.rows)) as shards:
            return run_on_ray(shards, settings, store, progress, options)
    with prefetched(plan.portions(rows.rows)) as portions:
        _run_here(portions, encoder, store, progress, options)
    return encoder.busy_seconds


def _run_here(
    portions: Iterator[Portion], encoder: Encoder, store: Store, progress: IndexProgress, options: EncodingOptions
) -> None:
    """Encode, write and commit every shard, in order: the model computes while the last shard is written."""
    under_way: deque[Portion] = deque()
    made: list[NDArray[np.float32]] = []  # of the shard that is being encoded
    saving: deque[tuple[Shard, Future[None]]] = deque()
    turn = threading.Lock()  # on a GPU `texts` goes ahead in a thread of its own

    def save(shard: Shard, vectors: NDArray[np.float32] | None) -> None:
        with turn:
            settle()
            saving.append((shard, pool.submit(shard.save, store, vectors, options.keep_text)))

    def settle() -> None:
        while saving:
            shard, saved = saving.popleft()
            saved.result()
            progress.committed(shard, encoder.max_tokens)

    def texts() -> Iterator[list[str] | TokenizedTexts]:
        for portion in portions:
            if portion.shard.kept:
                save(portion.shard, None)
            else:
                under_way.append(portion)
                yield portion.texts

    with ThreadPoolExecutor(max_workers=1) as pool:
        for vectors in encoder.windows(texts()):
            portion = under_way.popleft()
            made.append(vectors)
            if portion.is_last:
                save(portion.shard, np.concatenate(made))
                made.clear()
        settle()


@contextlib.contextmanager
def _encoder(
    model: str | os.PathLike[str] | SentenceTransformer, wanted: Calibration | str | None, options: EncodingOptions
) -> Iterator[tuple[Encoder, IndexSettings]]:
    """The model with its calibration for the time of a run, and what identifies both."""
    if not isinstance(wanted, (Calibration, str, type(None))):
        raise TypeError(f"calibration must be a Calibration, its string or 'none', not {wanted!r}.")
    if isinstance(wanted, str) and wanted != NO_CALIBRATION:
        wanted = Calibration.parse(wanted)
    if isinstance(model, SentenceTransformer):
        if options.engine == "ray":
            raise ValueError("With engine='ray' every worker loads the model: pass its folder or its name.")
        name, loaded = str(getattr(model.config, "_name_or_path", "") or "unnamed"), model
    else:
        name = os.path.abspath(model) if os.path.isdir(model) else os.fspath(model)  # found again from anywhere
        # On a cluster the driver only tokenizes.
        device = options.device or ("cpu" if options.engine == "ray" else None)
        loaded = load(model, **({} if device is None else {"device": device}))
    calibration = None if isinstance(wanted, str) else wanted or calibration_of(loaded) or Calibration()
    with uncalibrated(loaded) if calibration is None else calibrated(loaded, calibration):
        prompts = (options.document_prompt, options.query_prompt)
        settings = IndexSettings.of(loaded, name, str(calibration or NO_CALIBRATION), prompts, options.keep_text)
        settings = options.layout.of(settings)
        if calibration is not None:
            options.layout.check_baskets(calibration)
        yield Encoder(loaded, prompt=options.document_prompt, batch_tokens=options.batch_tokens), settings
