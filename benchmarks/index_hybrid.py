"""What hybrid search and chunks are worth: nDCG@10 and time of a query, in LanceDB and PostgreSQL.

    python benchmarks/index_hybrid.py miniature:cls DATA [--queries 500] [--chunk-tokens 128] [--output FILE]

DATA is a folder in BEIR layout. PostgreSQL runs in a folder of its own. Each index is made once with whole documents and once
with chunks; queries are asked by vectors, and by vectors and words.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

import evenspan
from evenspan.evaluation import load_benchmark

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))


def ndcg(found: list[str], relevance: dict[str, int]) -> float:
    gains = [relevance.get(name, 0) / math.log2(rank + 1) for rank, name in enumerate(found, 1)]
    best = sorted(relevance.values(), reverse=True)[:10]
    return sum(gains) / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, 1))


def asked(index: Any, queries: list[Any], relevance: Any, *, hybrid: bool) -> dict[str, float]:
    index.search(queries[0].text, hybrid=hybrid)
    scores, times = [], []
    for query in queries:
        began = time.perf_counter()
        results = index.search(query.text, hybrid=hybrid)
        times.append(time.perf_counter() - began)
        scores.append(ndcg([result.id for result in results], dict(relevance[query.id])))
    return {"ndcg@10": round(mean(scores), 4), "milliseconds": round(1000 * median(times), 1)}


def main() -> None:
    from helpers import indexes

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--chunk-tokens", type=int, default=128)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    (collection,) = load_benchmark(options.data).collections
    documents = [{"id": name, "text": text} for name, text in collection.corpus.items()]
    queries = random.Random(42).sample(list(collection.queries), min(options.queries, len(collection.queries)))
    model, rows = evenspan.load(options.model), []
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(indexes.postgres_server())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for chunk_tokens in (None, options.chunk_tokens):
            for store in (f"{folder}/{chunk_tokens}", server.get_uri()):
                setting = "soft" if chunk_tokens is None else f"soft,basket_size={chunk_tokens // 4},partition=even"
                table = f"chunks_{chunk_tokens}" if "://" in store else None
                more = {"table": table, "chunk_tokens": chunk_tokens, "overlap": (chunk_tokens or 0) // 8}
                evenspan.index(model, documents, store, setting, full_text=True, progress=False, **more)
                with evenspan.open_index(store, model, table=table) as index:
                    for hybrid in (False, True):
                        row = {
                            "store": "PostgreSQL" if table else "LanceDB",
                            "chunk_tokens": chunk_tokens,
                            "hybrid": hybrid,
                        }
                        row |= asked(index, queries, collection.relevance, hybrid=hybrid)
                        rows.append(row)
                        print(row, flush=True)
    result = {
        "model": options.model,
        "data": Path(options.data).name,
        "documents": len(documents),
        "queries": len(queries),
    }
    if options.output is not None:
        options.output.write_text(json.dumps({**result, "rows": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
