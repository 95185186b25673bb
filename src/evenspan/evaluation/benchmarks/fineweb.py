"""FineWeb-PosQ: long web passages, questions tagged with the third that holds the answer."""

from __future__ import annotations

import random
from pathlib import Path

from evenspan.evaluation.benchmark import POSITIONS, Benchmark, Collection, Query
from evenspan.evaluation.benchmarks.files import read_tags
from evenspan.evaluation.benchmarks.hub import read_split

REPOSITORY = "NovaSearch/FineWeb-PosQ"
TINY_QUERIES = 1000
TINY_SEED = 42


def load_fineweb_posq(path: str | Path | None = None, tiny: bool = False) -> Benchmark:
    """The full set, or with `tiny` the first 1,000 queries of each tag after a shuffle with seed 42.

    The corpus is the same in both: all unique passages, sorted. Rows without a question are corpus only; a question
    that is asked twice keeps its last passage; a query with two tags counts in both groups.
    """
    rows = read_split(REPOSITORY, "train", ("question", "content", "span_class"), path=path)
    passages = sorted({row["content"] for row in rows})
    number = {passage: f"d{index}" for index, passage in enumerate(passages)}
    asked = {row["question"]: row for row in rows if row["question"]}  # the last one wins
    tagged = {question: read_tags(REPOSITORY, None, row["span_class"] or []) for question, row in asked.items()}
    if tiny:
        tagged = _tiny(tagged)
    queries, relevance = [], {}
    for index, (question, tags) in enumerate(tagged.items()):
        queries.append(Query(f"q{index}", question, tags))
        relevance[f"q{index}"] = {number[asked[question]["content"]]: 1}
    name = "fineweb-posq-tiny" if tiny else "fineweb-posq"
    collection = Collection(name, dict(zip(number.values(), passages, strict=True)), tuple(queries), relevance)
    return Benchmark(name, (collection,), POSITIONS, options={"source": REPOSITORY, "tiny": tiny})


def _tiny(tagged: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    questions = list(tagged)
    random.Random(TINY_SEED).shuffle(questions)  # noqa: S311 - a sample, not a secret
    chosen: set[str] = set()
    for name in POSITIONS:
        chosen.update([question for question in questions if name in tagged[question]][:TINY_QUERIES])
    return {question: tags for question, tags in tagged.items() if question in chosen}
