"""A benchmark: what is searched, what is asked, and where in its document the answer stands."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

POSITIONS = ("beginning", "middle", "end")

Scoring = Literal["groups", "posir", "average"]


@dataclass(frozen=True)
class Query:
    """A question, with what is known of its evidence.

    Attributes:
        id: unique within its collection.
        text: what is asked.
        groups: the position groups it counts in; two where the evidence lies in both.
        position: midpoint of the evidence relative to the document, in [0, 1].
        length: tokens of the document that holds the evidence.
    """

    id: str
    text: str
    groups: tuple[str, ...] = ()
    position: float | None = None
    length: int | None = None


@dataclass(frozen=True)
class Collection:
    """One corpus and the queries that are searched in it."""

    name: str
    corpus: Mapping[str, str]
    queries: tuple[Query, ...]
    relevance: Mapping[str, Mapping[str, int]]

    def __post_init__(self) -> None:
        for part, kind in ((self.corpus, "documents"), (self.queries, "queries")):
            if not part:
                raise ValueError(f"The collection {self.name!r} has no {kind}.")
        if len({query.id for query in self.queries}) != len(self.queries):
            raise ValueError(f"The collection {self.name!r} has queries with the same id.")
        for query in self.queries:
            relevant = self.relevance.get(query.id)
            if not relevant:
                raise ValueError(f"Query {query.id!r} of {self.name!r} has no relevant document.")
            missing = next((document for document in relevant if document not in self.corpus), None)
            if missing is not None:
                raise ValueError(f"Query {query.id!r} of {self.name!r} names document {missing!r}, which is not there.")

    def limited(self, documents: int, seed: int) -> Collection:
        """A seeded sample of documents with the queries that are answered by them alone."""
        if documents >= len(self.corpus):
            return self
        answers = sorted({document for relevant in self.relevance.values() for document in relevant})
        others = sorted(set(self.corpus) - set(answers))
        pick = random.Random(seed)  # noqa: S311 - a sample, not a secret
        kept = pick.sample(answers, min(documents, len(answers)))
        kept += pick.sample(others, min(documents - len(kept), len(others)))
        chosen = set(kept)
        queries = tuple(query for query in self.queries if set(self.relevance[query.id]) <= chosen)
        if not queries:
            raise ValueError(f"A limit of {documents} documents leaves no query of {self.name!r}: choose a larger one.")
        corpus = {document: text for document, text in self.corpus.items() if document in chosen}
        return replace(self, corpus=corpus, queries=queries)


@dataclass(frozen=True)
class Benchmark:
    """Collections that are searched one by one and scored together.

    Attributes:
        name: what it is called in results.
        collections: usually one; PosIR has one per domain, NanoBEIR one per set.
        groups: names of the position groups, in order; empty if positions are not known.
        scoring: `"groups"` by position group, `"posir"` by 20 bins and length buckets, `"average"` over collections.
        depth: how many documents a search returns; a relevant one beyond scores 0.
        options: what it was loaded with, to repeat it.
        paired: whether documents of the same id in several collections are versions of one document.
        notes: what to know before trusting figures on it.
    """

    name: str
    collections: tuple[Collection, ...]
    groups: tuple[str, ...] = ()
    scoring: Scoring = "groups"
    depth: int = 100
    options: Mapping[str, Any] = field(default_factory=dict)
    paired: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for query in self.queries:
            unknown = sorted(set(query.groups) - set(self.groups))
            if unknown:
                raise ValueError(f"Query {query.id!r} is in unknown groups {unknown}; known: {self.groups}.")
        counts = self.group_counts()
        empty = [name for name, count in counts.items() if count == 0]
        if empty and self.scoring == "groups":
            raise ValueError(
                f"No query of {self.name!r} has its evidence in {', '.join(empty)}: position sensitivity needs queries "
                f"in every group, and there are {counts}."
            )

    @property
    def corpus(self) -> Mapping[str, str]:
        """The documents of a benchmark with one collection."""
        return self._only().corpus

    @property
    def queries(self) -> tuple[Query, ...]:
        """All queries, collection by collection."""
        return tuple(query for collection in self.collections for query in collection.queries)

    @property
    def relevance(self) -> Mapping[str, Mapping[str, int]]:
        """Relevant documents by query, of a benchmark with one collection."""
        return self._only().relevance

    def group_counts(self) -> dict[str, int]:
        """How many queries are in each group."""
        counts = Counter(name for query in self.queries for name in query.groups)
        return {name: counts[name] for name in self.groups}

    def limited(self, documents: int | None, seed: int = 42) -> Benchmark:
        """A quick look: at most that many documents in each collection. Scores come out higher than on all of them."""
        if documents is None:
            return self
        if documents < 1:
            raise ValueError(f"limit must be at least 1, not {documents}.")
        collections = tuple(collection.limited(documents, seed) for collection in self.collections)
        if collections == self.collections:
            return self
        return replace(self, collections=collections, options={**self.options, "limit": documents, "limit_seed": seed})

    def digest(self) -> str:
        """A digest of all documents, queries and judgements: the same data, the same digest."""
        digest = hashlib.sha256()
        for collection in self.collections:
            queries = [asdict(query) for query in collection.queries]
            content = [collection.name, sorted(collection.corpus.items()), queries]
            judged = sorted((query, sorted(documents.items())) for query, documents in collection.relevance.items())
            digest.update(json.dumps([content, judged], ensure_ascii=False).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def _only(self) -> Collection:
        if len(self.collections) != 1:
            raise ValueError(f"{self.name!r} has {len(self.collections)} collections: see `collections`.")
        return self.collections[0]


def thirds(start: int, end: int, length: int) -> tuple[str, ...]:
    """The thirds of a document of `length` characters that the span [start, end) lies in."""
    last = max(start, end - 1)
    first_third, last_third = (min(2, 3 * place // max(length, 1)) for place in (start, last))
    return POSITIONS[first_third : last_third + 1]
