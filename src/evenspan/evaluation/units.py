"""What is one observation: a document with all queries on it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.scores import QueryScore

FEW = 10  # with fewer observations figures do not mean much
ALONE = "query "  # begins the name of a unit that is no document

QueryKey = tuple[str, str]  # collection and query


def document_units(benchmark: Benchmark) -> dict[QueryKey, str]:
    """For each query the document that it is about, or of documents that queries join one of their names.

    Where queries have so many documents in common that hardly any unit would be left of many documents, and in a set that is
    averaged with others of few, each query is one of its own.
    """
    units = _joined(benchmark)
    for collection in benchmark.collections:
        keys = [(collection.name, query.id) for query in collection.queries]
        documents = {next(iter(collection.relevance[query.id])) for query in collection.queries}
        enough = len(keys) if benchmark.scoring == "average" else FEW * (len(documents) >= FEW)
        if len({units[key] for key in keys}) < min(FEW, enough):
            units |= {key: f"{ALONE}{'/'.join(key)}" for key in keys}
    return units


def _joined(benchmark: Benchmark) -> dict[QueryKey, str]:
    """For each query the set of documents that it is connected to, by the name of one of them."""
    parent: dict[str, str] = {}

    def root(document: str) -> str:
        parent.setdefault(document, document)
        while parent[document] != document:
            parent[document] = parent[parent[document]]
            document = parent[document]
        return document

    apart = len(benchmark.collections) > 1 and not benchmark.paired  # the same id in two collections is a coincidence
    answers: dict[QueryKey, str] = {}
    for collection in benchmark.collections:
        prefix = f"{collection.name}/" if apart else ""
        for query in collection.queries:
            grades = collection.relevance[query.id]
            first, *others = sorted(document for document in grades if grades[document] > 0) or sorted(grades)
            answers[collection.name, query.id] = prefix + first
            for other in others:
                parent[root(prefix + other)] = root(prefix + first)
    return {key: root(document) for key, document in answers.items()}


def units_of(rows: Sequence[QueryScore]) -> list[Hashable]:
    """What to resample queries by: their documents, or each by itself where results of earlier versions do not name them."""
    if any(row.unit is None for row in rows):
        return [(row.collection, row.query) for row in rows]
    return [row.unit for row in rows]


def by_document(rows: Sequence[QueryScore]) -> bool:
    """Whether the documents of queries are known."""
    return all(row.unit is not None for row in rows)
