"""`evenspan index`: a corpus into a vector store, resumably."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from evenspan.cli import extras, parsing
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
    Table,
)
from evenspan.cli.parsing import BadOptionError
from evenspan.errors import require_extra

EPILOG = (
    "Examples: evenspan index BAAI/bge-m3 corpus.jsonl.gz my-index; "
    "zcat dump.gz | evenspan index BAAI/bge-m3 - parquet:shards --field body; "
    "evenspan index BAAI/bge-m3 'part-*.parquet' postgresql://localhost/mine --metadata lang,year:int"
)


def _number(option: str, text: str, at_most: int = parsing.LARGEST) -> Any:
    return typer.Option(option, metavar="N", help=text, parser=parsing.whole(option, 1, at_most))


def _text(option: str, metavar: str, text: str) -> Any:
    return typer.Option(option, metavar=metavar, help=text, parser=parsing.text(option))


_Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A file (.jsonl, .csv, .tsv, .parquet, .txt, .md; also .gz and .zst), a folder of such files, a glob in quotes, "
        "- for standard input, or hf:OWNER/NAME[:CONFIG[:SPLIT]] for a dataset on the hub.",
        parser=parsing.location("SOURCE"),
    ),
]
_Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="A folder (LanceDB), parquet:FOLDER, or postgresql://… (needs pgvector).",
        parser=parsing.location("STORE"),
    ),
]
_Field = Annotated[str, _text("--field", "NAME", "The field with the text.")]
_Id = Annotated[str, _text("--id", "NAME", "The field with the id, or @line for file and line.")]
_Metadata = Annotated[
    str | None,
    _text(
        "--metadata",
        "FIELD[:TYPE],…",
        "The other fields to keep, each with its type (bool, int, float, str) where the first 1,000 rows do not show it "
        "(default: all fields).",
    ),
]
_BatchTokens = Annotated[int, _number("--batch-tokens", "In a batch, with padding.")]
_ShardDocuments = Annotated[int, _number("--shard-documents", "Documents that are committed together.")]
_ShardTokens = Annotated[int, _number("--shard-tokens", "Tokens that are committed together.")]
_MaxChars = Annotated[int, _number("--max-chars", "Longer texts are skipped.")]
_Workers = Annotated[int | None, _number("--workers", "Of Ray (default: one for each GPU, or for 2 CPUs).", 100_000)]
_NoText = Annotated[bool, typer.Option("--no-text", help="Keep ids and vectors only, no texts.")]
_Replace = Annotated[bool, typer.Option("--replace", help="Start the index over.")]
_Rejects = Annotated[
    Path | None,
    typer.Option(
        "--rejects",
        metavar="FILE",
        help="Rows that were skipped, and why (default: beside the index).",
        parser=parsing.path("--rejects"),
    ),
]
_MaxRejects = Annotated[
    float,
    typer.Option(
        "--max-rejects",
        metavar="SHARE",
        help="More rows that cannot be used stop the run.",
        parser=parsing.share("--max-rejects", with_ends=True),
    ),
]
_Engine = Annotated[
    str,
    typer.Option(
        "--engine", metavar="local|ray", help="Where it runs.", parser=parsing.choice("--engine", "local", "ray")
    ),
]
_Address = Annotated[
    str | None,
    _text("--address", "ADDRESS", "Of a Ray cluster, or auto for the one on this machine (default: a Ray of its own)."),
]


def index(
    *,
    model: Model,
    source: _Source,
    store: _Store,
    calibration: CalibrationOrNone = None,
    field: _Field = "text",
    id_field: _Id = "id",
    metadata: _Metadata = None,
    source_format: SourceFormat = None,
    batch_tokens: _BatchTokens = 16_384,
    shard_documents: _ShardDocuments = 4096,
    shard_tokens: _ShardTokens = 2_000_000,
    document_prompt: DocumentPrompt = None,
    query_prompt: QueryPrompt = None,
    no_text: _NoText = False,
    replace: _Replace = False,
    table: Table = None,
    rejects: _Rejects = None,
    max_rejects: _MaxRejects = 0.1,
    max_chars: _MaxChars = 10_000_000,
    engine: _Engine = "local",
    address: _Address = None,
    workers: _Workers = None,
    device: Device = None,
    display: Display,
) -> None:
    """Encode a corpus into LanceDB, PostgreSQL or Parquet files.

    Encodes the documents of a source, calibrated, into a store. Interrupted, however it was, the same command goes on from the
    last committed shard. Run again later, it adds new documents and replaces changed ones.
    """
    extras.for_model(model)
    extras.for_source(source, source_format)
    extras.for_store("Indexing", store)
    if engine == "ray":
        require_extra("ray", "--engine ray", "ray")
    elif address is not None or workers is not None:
        raise BadOptionError("--address and --workers are for --engine ray: add it, or leave them out.")
    check_store(store, table)
    check_file("--rejects", rejects, example="rejects.jsonl")
    from evenspan.indexing import index as run_index
    from evenspan.indexing.plan import ShardSize

    quiet_libraries()
    if engine == "local":  # a cluster has devices of its own
        check_device(device)
    summary = run_index(
        model,
        source,
        store,
        calibration,
        field=field,
        id_field=id_field,
        metadata=None if metadata is None else [name for name in metadata.split(",") if name],
        source_format=source_format,
        batch_tokens=batch_tokens,
        shard=ShardSize(shard_documents, shard_tokens),
        document_prompt=document_prompt,
        query_prompt=query_prompt,
        keep_text=not no_text,
        replace=replace,
        table=table,
        rejects=rejects,
        max_rejects=max_rejects,
        max_chars=max_chars,
        engine=engine,
        address=address,
        workers=workers,
        device=device,
        progress=display.progress,
    )
    display.show(summary, summary.to_json())


def check_store(store: str, table: str | None) -> None:
    """Refuse what is no store; nothing is made."""
    if extras.is_postgres(store):
        return
    if table is not None:
        raise BadOptionError("--table is for PostgreSQL, whose address begins with postgresql://.")
    if "://" not in store:
        check_folder("STORE", Path(store.removeprefix("parquet:").removeprefix("lance:")))
