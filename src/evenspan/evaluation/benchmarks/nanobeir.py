"""NanoBEIR: 13 small sets on short and long documents, to see that overall quality holds."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

from evenspan.evaluation.benchmark import Benchmark, Collection, Query
from evenspan.evaluation.benchmarks.hub import check_known, named, read_split

REPOSITORY = "sentence-transformers/NanoBEIR-en"
SETS = (
    "ArguAna", "ClimateFEVER", "DBPedia", "FEVER", "FiQA2018", "HotpotQA", "MSMARCO",
    "NFCorpus", "NQ", "QuoraRetrieval", "SCIDOCS", "SciFact", "Touche2020",
)  # fmt: skip
# Named in results: the paper does not say which splitter it used.
SPLITTER = "evenspan-regex-1"
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[.!?…][\"'”’)\]])\s+|(?<=[。！？])")


def load_nanobeir(
    sets: Sequence[str] | str | None = None, shuffled: bool = False, seed: int = 42, path: str | Path | None = None
) -> Benchmark:
    """The 13 sets, plain or with the sentences of each document in random order.

    Args:
        sets: names of sets, a list or separated by commas; by default all 13.
        shuffled: whether each document's sentences are shuffled.
        seed: of the shuffle; a document's order depends on it and on the document's id alone.
        path: a local copy of the data set in the hub's own layout.
    """
    chosen = named(sets) or list(SETS)
    check_known(chosen, SETS, "NanoBEIR has no set")
    collections = tuple(_collection(name, shuffled, seed, path) for name in chosen)
    options = {"source": REPOSITORY, "sets": chosen, "shuffled": shuffled}
    if shuffled:
        options |= {"shuffle_seed": seed, "sentence_splitter": SPLITTER}
    return Benchmark("nanobeir-shuffled" if shuffled else "nanobeir", collections, scoring="average", options=options)


def shuffle_sentences(text: str, key: str, seed: int) -> str:
    """The sentences of a text in an order that depends on `key` and `seed` alone."""
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if sentence]
    random.Random(f"{seed}/{key}").shuffle(sentences)  # noqa: S311 - a shuffle, not a secret
    return " ".join(sentences)


def _collection(name: str, shuffled: bool, seed: int, path: str | Path | None) -> Collection:
    def read(config: str, *columns: str) -> list[dict[str, str]]:
        return read_split(REPOSITORY, f"Nano{name}", columns, config=config, path=path)

    corpus = {row["_id"]: row["text"] for row in read("corpus", "_id", "text")}
    if shuffled:
        corpus = {key: shuffle_sentences(text, f"{name}/{key}", seed) for key, text in corpus.items()}
    relevance: dict[str, dict[str, int]] = {}
    for row in read("qrels", "query-id", "corpus-id"):
        documents = [row["corpus-id"]] if isinstance(row["corpus-id"], str) else row["corpus-id"]
        relevance.setdefault(row["query-id"], {}).update(dict.fromkeys(documents, 1))
    queries = tuple(Query(row["_id"], row["text"]) for row in read("queries", "_id", "text") if row["_id"] in relevance)
    return Collection(name, corpus, queries, relevance)
