"""A folder in BEIR layout, with optional positions of the evidence in its queries."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from evenspan.evaluation.benchmark import POSITIONS, Benchmark, Collection, Query, thirds
from evenspan.evaluation.benchmarks.files import BenchmarkError, find, read_entries, read_relevance, read_tags


def load_directory(path: Path, title: bool = False) -> Benchmark:
    """Read `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv` (or `qrels.tsv` beside them), each also with .gz or .zst.

    Queries may have `pos_char_span` ([start, end) in the relevant document) or `span_class` (`beginning`, `middle`,
    `end`, one or a list); where only the span is given, the thirds of the document that it lies in are the groups.
    Queries without a relevant document are left out, as in BEIR.

    Args:
        path: the folder.
        title: whether a document's title is put in front of its text. Positions stay those in the text.
    """
    corpus: dict[str, str] = {}
    titled: dict[str, str] = {}
    for _, document in read_entries(find(path / "corpus.jsonl"), "document"):
        corpus[document["_id"]] = document["text"]
        if title:
            titled[document["_id"]] = f"{document.get('title') or ''} {document['text']}".strip()
    file = find(path / "queries.jsonl")
    asked = {entry["_id"]: (number, entry) for number, entry in read_entries(file, "query")}
    relevance = read_relevance(find(path / "qrels" / "test.tsv", path / "qrels.tsv"), corpus, asked)
    queries = tuple(
        _query(file, number, entry, [len(corpus[document]) for document in relevance[query]])
        for query, (number, entry) in asked.items()
        if query in relevance
    )
    if not queries:
        raise BenchmarkError(file, None, "no query has a relevant document in the qrels")
    groups = POSITIONS if any(query.groups for query in queries) else ()
    name = path.resolve().name
    collection = Collection(name, titled or corpus, queries, relevance)
    return Benchmark(name, (collection,), groups, options={"source": "directory", "path": str(path), "title": title})


def _query(path: Path, number: int, entry: dict[str, Any], lengths: list[int]) -> Query:
    """A query with its position; `lengths` are those of its relevant documents, one of which the span is in."""
    span, tags, declared = (entry.get(name) for name in ("pos_char_span", "span_class", "pos_char_length"))
    wrong = partial(BenchmarkError, path, number)
    position = None
    groups: tuple[str, ...] = ()
    if span is not None:
        if not (isinstance(span, list) and len(span) == 2 and all(isinstance(place, int) for place in span)):
            raise wrong(f"pos_char_span must be [start, end], not {span!r}")
        if declared is not None and declared not in lengths:
            raise wrong(f"pos_char_length is {declared}, but its documents have {lengths} characters")
        if declared is None and len(set(lengths)) > 1:
            raise wrong("several relevant documents: pos_char_length must say which one the span is in")
        (start, end), length = span, int(lengths[0] if declared is None else declared)
        if not 0 <= start <= end <= length:
            raise wrong(f"span [{start}, {end}) lies outside its document of {length} characters")
        position = (start + end) / 2 / max(length, 1)
        groups = thirds(start, end, length)
    if tags:
        groups = read_tags(path, number, tags)
    return Query(entry["_id"], entry["text"], groups, position, entry.get("pos_token_length"))
