"""`evenspan index`: a corpus into a vector store, resumably."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from evenspan.cli import parsing
from evenspan.cli.loading import check_device, quiet_libraries
from evenspan.cli.options import (
    SOURCE,
    CalibrationOrNone,
    Device,
    DocumentPrompt,
    Model,
    QueryPrompt,
    SourceFormat,
    Store,
    Table,
)
from evenspan.cli.output import Display
from evenspan.cli.parsing import choice, number, parameter, share

EPILOG = """Examples:

\b
evenspan index BAAI/bge-m3 corpus.jsonl.gz my-index
zcat dump.gz | evenspan index BAAI/bge-m3 - parquet:shards --field body
evenspan index BAAI/bge-m3 'part-*.parquet' postgresql://localhost/mine --metadata lang,year:int"""

_ADDRESS = "Of a Ray cluster, or auto for the one on this machine (default: a Ray of its own)."
_ENGINE = "Where it runs: in this process, or on Ray, for more than one GPU or machine."
_ID = "The field that holds the id, or @line for file and line (default: id, or _id where there is no id)."
_METADATA = (
    "The other fields to keep, each with its type (bool, int, float, str) where the first 1,000 rows do not show it (default: "
    "all fields)."
)
_MAX_REJECTS = "Stop if a larger share of the rows is skipped."
_REJECTS = "Where to write down the rows that are skipped, and why (default: beside the index)."
_WORKERS = "Of Ray (default: one for each GPU, or for 2 CPUs)."


@dataclass(frozen=True)
class IndexOptions:
    """What `evenspan.index` takes under the same names."""

    calibration: CalibrationOrNone = None
    field: Annotated[str, parameter("--field", "The field that holds the text.", "NAME", parsing.text)] = "text"
    id_field: Annotated[str | None, parameter("--id", _ID, "NAME", parsing.text)] = None
    metadata: Annotated[
        Any,
        parameter("--metadata", _METADATA, "FIELD[:TYPE],…", lambda words: parsing.text(words).strip(",").split(",")),
    ] = None
    source_format: SourceFormat = None
    rejects: Annotated[
        Path | None,
        parameter("--rejects", _REJECTS, "FILE", lambda words: parsing.new_file(words, "rejects.jsonl")),
    ] = None
    max_rejects: Annotated[float, share("--max-rejects", _MAX_REJECTS, with_ends=True)] = 0.1
    max_chars: Annotated[int, number("--max-chars", "Skip longer texts.")] = 10_000_000
    document_prompt: DocumentPrompt = None
    query_prompt: QueryPrompt = None
    replace: Annotated[bool, typer.Option("--replace", help="Start the index over.")] = False
    table: Table = None
    batch_tokens: Annotated[int, number("--batch-tokens", "Most tokens in a batch, padding included.")] = 16_384
    engine: Annotated[str, choice("--engine", _ENGINE, "local", "ray")] = "local"
    address: Annotated[str | None, parameter("--address", _ADDRESS, "ADDRESS", parsing.text)] = None
    workers: Annotated[int | None, number("--workers", _WORKERS, 1, 100_000)] = None
    device: Device = None


def index(
    *,
    model: Model,
    source: Annotated[str, parameter("SOURCE", SOURCE, "SOURCE", parsing.given)],
    store: Store,
    options: IndexOptions,
    no_text: Annotated[bool, typer.Option("--no-text", help="Keep ids and vectors only, no texts.")] = False,
    shard_documents: Annotated[int, number("--shard-documents", "Most documents committed together.")] = 4096,
    shard_tokens: Annotated[int, number("--shard-tokens", "Most tokens committed together.")] = 2_000_000,
    display: Display,
) -> None:
    """Encode a corpus into LanceDB, PostgreSQL or Parquet files.

    Encodes the documents of a source, calibrated, into a store. If it is interrupted, the same command goes on from the last
    committed shard. Run again later, it adds new documents and replaces changed ones.
    """
    if "://" not in store:
        parsing.writable(Path(store.removeprefix("parquet:").removeprefix("lance:")), "Cannot write to")
    if options.engine != "ray":  # a cluster has devices of its own
        check_device(options.device)
    from evenspan.indexing import index as run
    from evenspan.indexing.plan import ShardSize

    quiet_libraries()
    size = ShardSize(shard_documents, shard_tokens)
    summary = run(model, source, store, keep_text=not no_text, shard=size, progress=display.progress, **vars(options))
    display.show(summary, summary.to_json())
