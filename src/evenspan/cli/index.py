"""`evenspan index`: encode a corpus into a vector store, resumably."""

import re
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from evenspan.cli import options, parsing
from evenspan.cli.loading import ready
from evenspan.cli.output import Display
from evenspan.cli.parsing import argument, choice, number, option, share

EPILOG = """Examples:

\b
evenspan index BAAI/bge-m3 corpus.jsonl.gz my-index
zcat dump.gz | evenspan index BAAI/bge-m3 - parquet:shards --field body
evenspan index BAAI/bge-m3 'part-*.parquet' postgresql://localhost/mine --metadata lang,year:int
evenspan index BAAI/bge-m3 corpus.jsonl my-chunks --chunk-tokens 512 --overlap 64 --full-text --dry-run"""

_ADDRESS = "Address of a Ray cluster, or auto for the one on this machine (default: start one)."
_ID = "Field with the id, or @line for file and line (default: id, or else _id)."
_REJECTS = "File for skipped rows and the reasons (default: beside the index)."
_REPLACE = "Rebuild the index. The old one stays in use until the new one is complete."
_PRUNE = "After reading the whole source, remove documents that are missing from it."
_METADATA = "Other fields to keep, such as lang,year:int; types are bool, int, float and str (default: all)."
_CHUNKS = "Split documents between sentences into chunks of at most N tokens, with one vector each."
_FULL_TEXT = "Build the store's full-text index, for search --hybrid (LanceDB and PostgreSQL)."
_STORE_OPTIONS = (
    "How vectors are kept and indexed, such as 'hnsw,m=24,ef_construction=128,ef_search=200', 'ivf-pq,lists=256,probes=40' "
    "or 'auto,vectors=float16'."
)
_DRY_RUN = "Write nothing: count documents, tokens, truncation and bytes, and estimate the time from a sample."


def _fields(words: str) -> list[str]:
    return [name for name in parsing.text(words).split(",") if name]


@dataclass(frozen=True)
class IndexOptions:
    """What `evenspan.index` takes under the same names."""

    calibration: options.CalibrationOrNone = None
    field: Annotated[str, option("Field with the text.")] = "text"
    id_field: Annotated[str | None, option(_ID, "NAME", parsing.text, "--id")] = None
    metadata: Annotated[Any, option(_METADATA, "FIELD[:TYPE],…", _fields)] = None
    source_format: options.SourceFormat = None
    rejects: Annotated[Path | None, option(_REJECTS, "FILE", parsing.new_file)] = None
    max_rejects: Annotated[float, share("Stop if a larger share of the rows is rejected.", with_ends=True)] = 0.1
    max_chars: Annotated[int, number("Skip texts with more than N characters.")] = 10_000_000
    document_prompt: options.DocumentPrompt = None
    query_prompt: options.QueryPrompt = None
    replace: Annotated[bool, typer.Option("--replace", help=_REPLACE)] = False
    prune: Annotated[bool, typer.Option("--prune", help=_PRUNE)] = False
    table: options.Table = None
    batch_tokens: Annotated[
        int | None,
        number("Maximum tokens per batch, with padding (default: 4,096; on a GPU 32,768, more for small models)."),
    ] = None
    engine: Annotated[str, choice("Run in this process, or on Ray for more GPUs or machines.", "local|ray")] = "local"
    address: Annotated[str | None, option(_ADDRESS, "ADDRESS")] = None
    workers: Annotated[int | None, number("Ray workers (default: one per GPU, or per 2 CPUs).", 1, 100_000)] = None
    device: options.Device = None
    chunk_tokens: Annotated[int | None, number(_CHUNKS, 16)] = None
    overlap: Annotated[int, number("Maximum tokens that a chunk shares with the previous one.", 0)] = 0
    full_text: Annotated[bool, typer.Option("--full-text", help=_FULL_TEXT)] = False
    store_options: Annotated[str | None, option(_STORE_OPTIONS, "STRING", parsing.text)] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help=_DRY_RUN)] = False


def index(
    *,
    model: options.Model,
    source: Annotated[str, argument(options.SOURCE, "SOURCE", parsing.given)],
    store: options.Store,
    chosen: IndexOptions,
    no_text: Annotated[bool, typer.Option("--no-text", help="Store ids and vectors only, no texts.")] = False,
    shard_documents: Annotated[int, number("Maximum documents per commit.")] = 4096,
    shard_tokens: Annotated[int, number("Maximum tokens per commit.")] = 2_000_000,
    display: Display,
) -> None:
    """Encode a corpus into LanceDB, PostgreSQL or Parquet files.

    Documents are calibrated. If interrupted, the same command resumes after the last committed shard. Run again later, it adds
    new documents and replaces changed ones. If a row becomes invalid, its document is removed from the index.
    """
    if not re.match("postgres|.*(://|=)", store):  # what may hold a password is looked at later, and not repeated
        parsing.writable(Path(re.sub("^(parquet|lance):", "", store)).expanduser(), "Cannot write to")
    ready(None if chosen.engine == "ray" else chosen.device)  # a cluster has devices of its own
    from evenspan.indexing import index as run
    from evenspan.indexing.plan import ShardSize

    size = ShardSize(shard_documents, shard_tokens)
    with redirect_stdout(sys.stderr):  # Ray prints its news of lost workers where the summary goes
        summary = run(
            model, source, store, keep_text=not no_text, shard=size, progress=not display.quiet, **vars(chosen)
        )
    display.show(summary, summary.to_json())
