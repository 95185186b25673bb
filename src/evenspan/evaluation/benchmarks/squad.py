"""SQuAD: the positions of its answers as they are (SQuAD-PosQ), or its paragraphs joined to long documents."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from evenspan.corpus.terms import words as words_of
from evenspan.evaluation.benchmark import POSITIONS, Benchmark, Collection, Query, thirds
from evenspan.evaluation.benchmarks.files import BenchmarkError
from evenspan.evaluation.benchmarks.hub import read_split

REPOSITORY = "rajpurkar/squad_v2"
# Inclusive at both ends, so an answer at 100 counts in two groups.
_EDGES = (0, 100, 200, 300, 400, 500, 3120)
BINS = {f"{low}-{high}": range(low, high + 1) for low, high in itertools.pairwise(_EDGES)}


def load_squad_posq(path: str | Path | None = None) -> Benchmark:
    """Answerable questions of SQuAD 2.0, grouped by the character at which the first answer starts."""
    columns = ("id", "context", "question", "answers")
    rows = [row for split in ("train", "validation") for row in read_split(REPOSITORY, split, columns, path=path)]
    contexts = sorted({row["context"] for row in rows})
    number = {context: f"d{index}" for index, context in enumerate(contexts)}
    queries, relevance = [], {}
    for row in rows:
        starts = row["answers"]["answer_start"]
        if starts:
            groups = tuple(name for name, places in BINS.items() if starts[0] in places)
            position = min(1.0, starts[0] / max(1, len(row["context"])))
            queries.append(Query(row["id"], row["question"], groups, position))
            relevance[row["id"]] = {number[row["context"]]: 1}
    collection = Collection("squad-posq", dict(zip(number.values(), contexts, strict=True)), tuple(queries), relevance)
    return Benchmark("squad-posq", (collection,), tuple(BINS), options={"source": REPOSITORY})


def load_squad_files(path: Path, words: int = 750) -> Benchmark:
    """Files in SQuAD format: an article's paragraphs joined in order to documents of about `words` words.

    The evidence keeps its place in the joined document; groups are the thirds that it lies in.

    Args:
        path: a `.json` file, or a folder of them.
        words: paragraphs are added to a document until it has at least this many words.
    """
    if words < 1:
        raise ValueError(f"words must be at least 1, not {words}.")
    files = [path] if path.is_file() else sorted(path.glob("*.json"))
    corpus: dict[str, str] = {}
    queries: list[Query] = []
    relevance: dict[str, dict[str, int]] = {}
    for file in files:
        for document, questions in _documents(file, words):
            name = f"d{len(corpus)}"
            corpus[name] = document
            for identifier, question, start, end in questions:
                if identifier in relevance:
                    raise BenchmarkError(file, None, f"question id {identifier!r} appears a second time")
                groups = thirds(start, end, len(document))
                queries.append(Query(identifier, question, groups, (start + end) / 2 / len(document)))
                relevance[identifier] = {name: 1}
    if not queries:
        raise BenchmarkError(path, None, "no question with an answer in any article")
    collection = Collection(path.stem, corpus, tuple(queries), relevance)
    options = {"source": "squad-files", "path": str(path), "words": words}
    return Benchmark(path.stem, (collection,), POSITIONS, options=options)


Question = tuple[str, str, int, int]
Value = TypeVar("Value", list[Any], str, int)


def _documents(file: Path, words: int) -> Iterator[tuple[str, list[Question]]]:
    """Joined documents of a file, each with its questions and the span of their first answer."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise BenchmarkError(file, None, "not in SQuAD format: no JSON in UTF-8") from None
    for number, article in enumerate(_get(file, content, "data", list, "the file"), start=1):
        text = ""
        questions: list[Question] = []
        for paragraph in _get(file, article, "paragraphs", list, f"article {number}"):
            text += "\n\n" if text else ""
            context = _get(file, paragraph, "context", str, f"a paragraph of article {number}")
            entries = _get(file, paragraph, "qas", list, f"a paragraph of article {number}")
            questions += _questions(file, entries, context, len(text))
            text += context
            if len(words_of(text)) >= words:
                yield text, questions
                text, questions = "", []
        if text:
            yield text, questions


def _questions(file: Path, entries: list[Any], context: str, before: int) -> Iterator[Question]:
    """Questions with an answer and its span in the document, of which `before` characters precede this paragraph."""
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            entry["id"] = str(entry["id"])
        name = _get(file, entry, "id", str, f"question {number} of a paragraph")
        if entry.get("is_impossible") or not entry.get("answers"):
            continue
        where = f"question {name!r}"
        answer = _get(file, entry, "answers", list, where)[0]
        start = _get(file, answer, "answer_start", int, where)
        end = start + len(_get(file, answer, "text", str, where))
        if not 0 <= start <= end <= len(context):
            problem = f"{where}: span [{start}, {end}) lies outside its context of {len(context)}"
            raise BenchmarkError(file, None, problem)
        yield name, _get(file, entry, "question", str, where), before + start, before + end


def _get(file: Path, entry: Any, name: str, kind: type[Value], where: str) -> Value:
    """A field of an entry; one that is not there or not of this type is an error."""
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind):
        wanted = {list: "list of ", str: "text ", int: "number "}[kind]
        raise BenchmarkError(file, None, f"not in SQuAD format: {where} has no {wanted}{name!r}")
    return value
