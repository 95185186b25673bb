"""Index a corpus: read, encode, write, commit, shard after shard; the same call goes on where the last one ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.corpus.documents import RowRules
from evenspan.corpus.sources import Source
from evenspan.encoding import BATCH_TOKENS, Encoder
from evenspan.indexing.columns import parse_metadata
from evenspan.indexing.local import run_local
from evenspan.indexing.plan import Plan, Prefetched, ShardSize
from evenspan.indexing.progress import Progress
from evenspan.indexing.rejects import Rejects
from evenspan.indexing.settings import NO_CALIBRATION, IndexSettings
from evenspan.indexing.stores import open_store
from evenspan.indexing.stores.base import Store
from evenspan.indexing.summary import IndexSummary
from evenspan.models.calibrating import calibrated, calibration_of, uncalibrated
from evenspan.models.loading import load

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class IndexOptions:
    """How to read, encode and write; see `index`."""

    field: str = "text"
    id_field: str = "id"
    metadata: Sequence[str] | None = None
    source_format: str | None = None
    batch_tokens: int = BATCH_TOKENS
    document_prompt: str | None = None
    query_prompt: str | None = None
    keep_text: bool = True
    replace: bool = False
    table: str | None = None
    rejects: str | os.PathLike[str] | None = None
    max_rejects: float = 0.1
    max_chars: int = 10_000_000
    shard: ShardSize = ShardSize()
    engine: str = "local"
    address: str | None = None
    workers: int | None = None
    device: str | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {self.engine!r}.")
        if self.engine == "local" and (self.address is not None or self.workers is not None):
            raise ValueError("address and workers are for engine='ray'.")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be at least 1, not {self.workers}.")


def index(
    model: str | os.PathLike[str] | SentenceTransformer,
    source: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    store: str | os.PathLike[str],
    calibration: Calibration | str | None = None,
    **options: Any,
) -> IndexSummary:
    """Encode the documents of a source, calibrated, into a store; nothing is lost and nothing doubled.

    After a crash the same call goes on from the last committed shard. Called again later, it adds new documents and
    replaces changed ones; documents are told apart by their ids.

    Args:
        model: a folder, a name on the hub, `miniature:cls`, or a model; a model is left as it was.
        source: a file (JSONL, CSV, TSV, Parquet, text; also .gz and .zst), a folder, a glob, `-` for standard input,
            `hf:OWNER/NAME[:CONFIG[:SPLIT]]`, or rows as mappings.
        store: a folder (LanceDB), `parquet:FOLDER`, or `postgresql://…`.
        calibration: by default the one that the model was saved with, or else `Calibration()`; `"none"` for the plain model.
        **options: the fields of `IndexOptions`:
            `field`, `id_field` — where the text and the id are (`id_field="@line"`: file and line);
            `metadata` — the fields to keep, `["lang", "year:int"]` (default: all);
            `source_format` — jsonl, csv, tsv, parquet or text, where the name does not say;
            `batch_tokens` — tokens in a batch, padding included;
            `document_prompt`, `query_prompt` — in place of the model's own;
            `keep_text` — whether the store holds the texts; `replace` — start the index over;
            `table` — in PostgreSQL; `rejects`, `max_rejects`, `max_chars` — what is skipped, and where it is written;
            `shard` — `ShardSize(documents, tokens)`; `engine`, `address`, `workers` — `"ray"` for more than one machine;
            `device`, `progress`.

    Raises:
        ValueError: if the index was made with another model or calibration, with both side by side.

    Example:
        >>> index("BAAI/bge-m3", "corpus.jsonl.gz", "my-index")  # doctest: +SKIP
    """
    chosen = IndexOptions(**options)
    rules_metadata, types = (None, {}) if chosen.metadata is None else parse_metadata(chosen.metadata)
    rules = RowRules(chosen.field, chosen.id_field, rules_metadata, chosen.max_chars)
    reader = Source(source, chosen.source_format, chosen.field, chosen.id_field, chosen.max_chars)
    size = reader.size()  # a source that is not there is refused before a model is loaded
    name, loaded = _model(model, chosen)
    setting = _calibration(loaded, calibration)
    with contextlib.ExitStack() as stack:
        stack.enter_context(uncalibrated(loaded) if setting is None else calibrated(loaded, setting))
        encoder = Encoder(loaded, prompt=chosen.document_prompt, batch_tokens=chosen.batch_tokens)
        settings = IndexSettings.of(
            loaded,
            name,
            NO_CALIBRATION if setting is None else str(setting),
            document_prefix=chosen.document_prompt,
            query_prefix=chosen.query_prompt,
            keep_text=chosen.keep_text,
        )
        opened: Store = stack.enter_context(open_store(store, write=True, replace=chosen.replace, table=chosen.table))
        _start(opened, settings, types, asks=chosen.query_prompt is not None)
        path = Path(chosen.rejects) if chosen.rejects is not None else opened.rejects_path()
        if reader.reads(path):
            raise ValueError(f"{path} is a file of the source: write the rejects to another one.")
        rejects = stack.enter_context(Rejects(path, chosen.max_rejects))
        plan = Plan(rules, opened, rejects, encoder, chosen.shard)
        shards = Prefetched(plan.shards(reader.read()))
        stack.callback(shards.close)
        progress = stack.enter_context(Progress(size, shown=chosen.progress))
        began = time.perf_counter()
        if chosen.engine == "ray":
            from evenspan.indexing.ray.engine import run_on_ray

            run_on_ray(shards, settings, opened, progress, chosen)
        else:
            run_local(shards, encoder, opened, progress, keep_text=chosen.keep_text)
        encoding = time.perf_counter() - began
        opened.finish()
        return _summary(opened, plan, progress, rejects, encoding, time.perf_counter() - began)


def _summary(
    store: Store, plan: Plan, progress: Progress, rejects: Rejects, encoding: float, seconds: float
) -> IndexSummary:
    return IndexSummary(
        store=store.location,
        total=store.count(),
        added=progress.documents - progress.replaced,
        replaced=progress.replaced,
        unchanged=plan.unchanged,
        tokens=progress.tokens,
        truncated=progress.truncated,
        rejected=dict(rejects.reasons),
        rejects=str(rejects.path) if rejects.reasons else None,
        encoding_seconds=encoding,
        seconds=seconds,
    )


def _model(
    model: str | os.PathLike[str] | SentenceTransformer, options: IndexOptions
) -> tuple[str, SentenceTransformer]:
    if isinstance(model, SentenceTransformer):
        if options.engine == "ray":
            raise ValueError("With engine='ray' every worker loads the model: pass its folder or its name.")
        return str(getattr(model.config, "_name_or_path", "") or "unnamed"), model
    # On a cluster the driver only counts tokens.
    device = "cpu" if options.engine == "ray" and options.device is None else options.device
    name = os.path.abspath(model) if os.path.isdir(model) else os.fspath(model)  # found again from anywhere
    return name, load(model, **({} if device is None else {"device": device}))


def _calibration(model: SentenceTransformer, wanted: Calibration | str | None) -> Calibration | None:
    if wanted == NO_CALIBRATION:
        return None
    if isinstance(wanted, str):
        return Calibration.parse(wanted)
    return wanted or calibration_of(model) or Calibration()


def _start(store: Store, settings: IndexSettings, types: Mapping[str, str], *, asks: bool) -> None:
    """Make a new index, or make sure that the one that is there fits."""
    stored = store.settings()
    if stored is None:
        store.start(settings)
    else:
        settings.check_same(stored, store.location)
        if asks and settings.query_prompt != stored.query_prompt:
            raise ValueError(
                f"{store.location} asks with the query prompt {stored.query_prompt!r}, not {settings.query_prompt!r}: leave "
                "it out, or start over with --replace."
            )
    columns = store.columns()
    for name, kind in types.items():
        if columns.get(name, kind) != kind:
            raise ValueError(f"The column {name!r} of {store.location} is of type {columns[name]}, not {kind}.")
    store.set_columns({**columns, **types})
