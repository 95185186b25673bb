"""`evenspan index`: a corpus into a vector store, resumably."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from evenspan.calibration import Calibration
from evenspan.cli.options import MODEL_HELP, calibration, quiet_transformers
from evenspan.corpus.formats import FORMATS


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "index",
        help="encode a corpus into LanceDB, PostgreSQL or Parquet files",
        description="Encode the documents of a source, calibrated, into a store. Interrupted, however it was, the same "
        "command goes on from the last committed shard. Run again later, it adds new documents and replaces changed ones.",
        epilog="examples: evenspan index BAAI/bge-m3 corpus.jsonl.gz my-index; "
        "zcat dump.gz | evenspan index BAAI/bge-m3 - parquet:shards --field body; "
        "evenspan index BAAI/bge-m3 'part-*.parquet' postgresql://localhost/mine --metadata lang,year:int",
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a file (.jsonl, .csv, .tsv, .parquet, .txt, .md; also .gz and .zst), a folder of such files, a glob in quotes, "
        "- for standard input, or hf:OWNER/NAME[:CONFIG[:SPLIT]] for a dataset on the hub",
    )
    parser.add_argument(
        "store", metavar="STORE", help="a folder (LanceDB), parquet:FOLDER, or postgresql://… (needs pgvector)"
    )
    parser.add_argument(
        "--calibration",
        type=_calibration,
        metavar="STRING",
        help=f"such as 'soft,strength=1.0', or 'none' (default: the model's own, or '{Calibration()}')",
    )
    parser.add_argument("--field", default="text", help="the field with the text (default: %(default)s)")
    parser.add_argument(
        "--id", help="the field with the id, or @line for file and line (default: id, or _id where there is no id)"
    )
    parser.add_argument(
        "--metadata",
        metavar="FIELD[:TYPE],…",
        help="the other fields to keep, each with its type (bool, int, float, str) where the first 1,000 rows do not show it "
        "(default: all fields)",
    )
    parser.add_argument("--format", choices=FORMATS, help="of the source, where its name does not say")
    parser.add_argument(
        "--batch-tokens", type=int, default=16_384, metavar="N", help="in a batch, with padding (default: %(default)s)"
    )
    parser.add_argument("--shard-documents", type=int, default=4096, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--shard-tokens", type=int, default=2_000_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--document-prompt", metavar="TEXT", help="in front of documents (default: the model's own)")
    parser.add_argument("--query-prompt", metavar="TEXT", help="in front of queries (default: the model's own)")
    parser.add_argument("--no-text", action="store_true", help="keep ids and vectors only, no texts")
    parser.add_argument("--replace", action="store_true", help="start the index over")
    parser.add_argument("--table", help="in PostgreSQL (default: evenspan)")
    parser.add_argument(
        "--rejects", type=Path, metavar="FILE", help="rows that were skipped, and why (default: beside the index)"
    )
    parser.add_argument(
        "--max-rejects", type=float, default=0.1, metavar="SHARE", help="more stop the run (default: %(default)s)"
    )
    parser.add_argument(
        "--max-chars", type=int, default=10_000_000, metavar="N", help="longer texts are skipped (default: %(default)s)"
    )
    parser.add_argument("--engine", choices=["local", "ray"], default="local", help="(default: %(default)s)")
    parser.add_argument(
        "--address", help="of a Ray cluster, or `auto` for the one on this machine (default: a Ray of its own)"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="of Ray (default: one for each GPU, or for 2 CPUs)")
    parser.add_argument("--device", help="cpu, cuda, … (default: the best there is)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Index and print the summary."""
    from evenspan.indexing import index
    from evenspan.indexing.plan import ShardSize

    quiet_transformers()
    summary = index(
        options.model,
        options.source,
        options.store,
        options.calibration,
        field=options.field,
        id_field=options.id,
        metadata=None if options.metadata is None else [name for name in options.metadata.split(",") if name],
        source_format=options.format,
        batch_tokens=options.batch_tokens,
        shard=ShardSize(options.shard_documents, options.shard_tokens),
        document_prompt=options.document_prompt,
        query_prompt=options.query_prompt,
        keep_text=not options.no_text,
        replace=options.replace,
        table=options.table,
        rejects=options.rejects,
        max_rejects=options.max_rejects,
        max_chars=options.max_chars,
        engine=options.engine,
        address=options.address,
        workers=options.workers,
        device=options.device,
        progress=not options.quiet,
    )
    sys.stderr.flush()
    print(summary.to_json() if options.json else summary)
    return 0


def _calibration(text: str) -> Calibration | str:
    return text if text == "none" else calibration(text)
