"""A folder in BEIR layout, with optional positions of the evidence in its queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evenspan.evaluation.benchmark import POSITIONS, Benchmark, Collection, Query, thirds
from evenspan.evaluation.benchmarks.files import BenchmarkError, read_jsonl, read_qrels, read_tags, require


def load_directory(path: Path, title: bool = False) -> Benchmark:
    """Read `corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv` (or `qrels.tsv` beside them).

    Queries may have `pos_char_span` ([start, end) in the relevant document) or `span_class` (`beginning`, `middle`,
    `end`, one or a list); where only the span is given, the thirds of the document that it lies in are the groups.
    Queries without a relevant document are left out, as in BEIR.

    Args:
        path: the folder.
        title: whether a document's title is put in front of its text. Positions stay those in the text.
    """
    corpus: dict[str, str] = {}
    titles: dict[str, str] = {}
    for number, entry in read_jsonl(path / "corpus.jsonl", "_id", "text"):
        if entry["_id"] in corpus:
            raise BenchmarkError(path / "corpus.jsonl", number, f"document id {entry['_id']!r} appears a second time")
        corpus[entry["_id"]] = entry["text"]
        titles[entry["_id"]] = entry.get("title") or ""
    relevance, lines = _relevance(path, corpus)
    queries: list[Query] = []
    seen: set[str] = set()
    for number, entry in read_jsonl(path / "queries.jsonl", "_id", "text"):
        if entry["_id"] in seen:
            raise BenchmarkError(path / "queries.jsonl", number, f"query id {entry['_id']!r} appears a second time")
        seen.add(entry["_id"])
        if entry["_id"] in relevance:
            lengths = [len(corpus[document]) for document in relevance[entry["_id"]]]
            queries.append(_query(path / "queries.jsonl", number, entry, lengths))
    unknown = next((query for query in relevance if query not in seen), None)
    if unknown is not None:
        raise BenchmarkError(lines[0], lines[1][unknown], f"query {unknown!r} is not in queries.jsonl")
    if not queries:
        raise BenchmarkError(path / "queries.jsonl", None, "no query has a relevant document in the qrels")
    groups = POSITIONS if any(query.groups for query in queries) else ()
    if title:
        corpus = {name: f"{titles[name]} {text}".strip() for name, text in corpus.items()}
    name = path.resolve().name
    collection = Collection(name, corpus, tuple(queries), relevance)
    return Benchmark(name, (collection,), groups, options={"source": "directory", "path": str(path), "title": title})


def _relevance(path: Path, corpus: dict[str, str]) -> tuple[dict[str, dict[str, int]], tuple[Path, dict[str, int]]]:
    file = path / "qrels" / "test.tsv"
    if not file.is_file():
        file = require(path / "qrels.tsv")
    relevance: dict[str, dict[str, int]] = {}
    lines: dict[str, int] = {}
    for number, query, document, score in read_qrels(file):
        if document not in corpus:
            raise BenchmarkError(file, number, f"document {document!r} is not in corpus.jsonl")
        if score > 0:
            relevance.setdefault(query, {})[document] = score
            lines.setdefault(query, number)
    return relevance, (file, lines)


def _query(path: Path, number: int, entry: dict[str, Any], lengths: list[int]) -> Query:
    """A query with its position; `lengths` are those of its relevant documents, one of which the span is in."""
    span, tags = entry.get("pos_char_span"), entry.get("span_class")
    position = None
    groups: tuple[str, ...] = ()
    if span is not None:
        if not (isinstance(span, list) and len(span) == 2 and all(isinstance(place, int) for place in span)):
            raise BenchmarkError(path, number, f"pos_char_span must be [start, end], not {span!r}")
        start, end = span
        length = _length(path, number, entry, lengths)
        if not 0 <= start <= end <= length:
            raise BenchmarkError(
                path, number, f"span [{start}, {end}) lies outside its document of {length} characters"
            )
        position = (start + end) / 2 / max(length, 1)
        groups = thirds(start, end, length)
    if tags:
        named = read_tags(tags)
        if named is None:
            raise BenchmarkError(path, number, f"span_class {tags!r} is none of {', '.join(POSITIONS)}")
        groups = named
    return Query(entry["_id"], entry["text"], groups, position, entry.get("pos_token_length"))


def _length(path: Path, number: int, entry: dict[str, Any], lengths: list[int]) -> int:
    """Characters of the document that a span is in."""
    declared = entry.get("pos_char_length")
    if declared is not None and declared not in lengths:
        raise BenchmarkError(
            path, number, f"pos_char_length is {declared}, but its documents have {lengths} characters"
        )
    if declared is None and len(set(lengths)) > 1:
        raise BenchmarkError(
            path, number, "several relevant documents: pos_char_length must say which one the span is in"
        )
    return int(declared if declared is not None else lengths[0])
