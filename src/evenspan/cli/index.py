"""`evenspan index`: a corpus into a vector store, resumably."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from evenspan.cli import extras
from evenspan.cli.display import Display, quiet_libraries
from evenspan.cli.files import check_file, check_folder
from evenspan.cli.loading import check_device
from evenspan.cli.options import (
    CalibrationOrNone,
    Device,
    DocumentPrompt,
    Model,
    QueryPrompt,
    SourceFormat,
    Store,
    Table,
)
from evenspan.cli.parsing import BadOptionError, choice, location, number, path, share, text
from evenspan.errors import require_extra

EPILOG = (
    "Examples: evenspan index BAAI/bge-m3 corpus.jsonl.gz my-index; "
    "zcat dump.gz | evenspan index BAAI/bge-m3 - parquet:shards --field body; "
    "evenspan index BAAI/bge-m3 'part-*.parquet' postgresql://localhost/mine --metadata lang,year:int"
)


_SOURCE = (
    "A file (.jsonl, .csv, .tsv, .parquet, .txt, .md; also .gz and .zst), a folder of such files, a glob in quotes, - for "
    "standard input, or hf:OWNER/NAME[:CONFIG[:SPLIT]] for a dataset on the hub."
)
_METADATA = (
    "The other fields to keep, each with its type (bool, int, float, str) where the first 1,000 rows do not show it (default: "
    "all fields)."
)
_ID = "The field with the id, or @line for file and line (default: id, or _id where there is no id)."
_ADDRESS = "Of a Ray cluster, or auto for the one on this machine (default: a Ray of its own)."
_REJECTS = "Where rows that are skipped are written down, and why (default: beside the index)."
_WORKERS = "Of Ray (default: one for each GPU, or for 2 CPUs)."

_Source = Annotated[str, location("SOURCE", "SOURCE", _SOURCE)]
_NoText = Annotated[bool, typer.Option("--no-text", help="Keep ids and vectors only, no texts.")]
_Replace = Annotated[bool, typer.Option("--replace", help="Start the index over.")]


@dataclass(frozen=True)
class Rows:
    """What of a source is indexed, and what is skipped."""

    field: Annotated[str, text("--field", "NAME", "The field with the text.")] = "text"
    id_field: Annotated[str | None, text("--id", "NAME", _ID)] = None
    metadata: Annotated[str | None, text("--metadata", "FIELD[:TYPE],…", _METADATA)] = None
    source_format: SourceFormat = None
    rejects: Annotated[Path | None, path("--rejects", "FILE", _REJECTS)] = None
    max_rejects: Annotated[float, share("--max-rejects", "A larger share of such rows stops it.", with_ends=True)] = 0.1
    max_chars: Annotated[int, number("--max-chars", "Longer texts are skipped.")] = 10_000_000

    def arguments(self) -> dict[str, Any]:
        """What `evenspan.index` takes."""
        check_file("--rejects", self.rejects, example="rejects.jsonl")
        names = None if self.metadata is None else [name for name in self.metadata.split(",") if name]
        return {**vars(self), "metadata": names}


@dataclass(frozen=True)
class Machines:
    """How much is done at a time, and where."""

    batch_tokens: Annotated[int, number("--batch-tokens", "In a batch, with padding.")] = 16_384
    shard_documents: Annotated[int, number("--shard-documents", "Documents committed together.")] = 4096
    shard_tokens: Annotated[int, number("--shard-tokens", "Tokens committed together.")] = 2_000_000
    engine: Annotated[str, choice("--engine", "Where it runs.", "local", "ray")] = "local"
    address: Annotated[str | None, text("--address", "ADDRESS", _ADDRESS)] = None
    workers: Annotated[int | None, number("--workers", _WORKERS, 1, 100_000)] = None
    device: Device = None

    def arguments(self) -> dict[str, Any]:
        """What `evenspan.index` takes."""
        if self.engine == "ray":  # a cluster has devices of its own
            require_extra("ray", "--engine ray", "ray")
        elif self.address is not None or self.workers is not None:
            raise BadOptionError("--address and --workers are for --engine ray: add it, or leave them out.")
        else:
            check_device(self.device)
        from evenspan.indexing.plan import ShardSize

        values = {name: value for name, value in vars(self).items() if not name.startswith("shard_")}
        return {**values, "shard": ShardSize(self.shard_documents, self.shard_tokens)}


def index(
    *,
    model: Model,
    source: _Source,
    store: Store,
    calibration: CalibrationOrNone = None,
    rows: Rows,
    document_prompt: DocumentPrompt = None,
    query_prompt: QueryPrompt = None,
    no_text: _NoText = False,
    replace: _Replace = False,
    table: Table = None,
    machines: Machines,
    display: Display,
) -> None:
    """Encode a corpus into LanceDB, PostgreSQL or Parquet files.

    Encodes the documents of a source, calibrated, into a store. Interrupted, however it was, the same command goes on from the
    last committed shard. Run again later, it adds new documents and replaces changed ones.
    """
    extras.for_model(model)
    extras.for_source(source, rows.source_format)
    extras.for_store("Indexing", store)
    check_table(store, table)
    if not extras.is_postgres(store) and "://" not in store:
        check_folder("STORE", Path(store.removeprefix("parquet:").removeprefix("lance:")))
    arguments = {**rows.arguments(), **machines.arguments()}
    from evenspan.indexing import index as run

    quiet_libraries()
    summary = run(
        model,
        source,
        store,
        calibration,
        document_prompt=document_prompt,
        query_prompt=query_prompt,
        keep_text=not no_text,
        replace=replace,
        table=table,
        progress=display.progress,
        **arguments,
    )
    display.show(summary, summary.to_json())


def check_table(store: str, table: str | None) -> None:
    """Refuse a table where there is none."""
    if table is not None and not extras.is_postgres(store):
        raise BadOptionError("--table is for PostgreSQL, whose address begins with postgresql://.")
