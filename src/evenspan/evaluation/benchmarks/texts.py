"""A benchmark out of texts alone: sentences of the documents stand in for questions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from evenspan.corpus.duplicates import near_duplicates
from evenspan.corpus.sentences import sentence_rules
from evenspan.corpus.texts import Texts, read_texts, storable
from evenspan.errors import require_extra
from evenspan.evaluation.benchmark import POSITIONS, Benchmark, Collection, Query
from evenspan.evaluation.benchmarks.stand_ins import StandIn, draw

SAMPLE = 300
SOURCE = "texts"


class TooShortError(ValueError):
    """No text is long enough to take stand-ins from; `texts` are those that were looked at."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__(
            f"None of the {len(texts):,} texts has a usable sentence at its beginning, middle and end: stand-in queries need "
            "longer texts."
        )
        self.texts = texts


def load_texts(
    location: str,
    sample: int = SAMPLE,
    seed: int = 42,
    field: str | None = None,
    format: str | None = None,  # noqa: A002 - as the command line calls it
    sentences: int = 9,
    left_out: float = 0.5,
) -> Benchmark:
    """Documents from any source, with sentences of them as queries.

    Args:
        location: a file, a folder, a glob, `-` or a dataset on the hub.
        sample: how many documents are searched, drawn at random.
        seed: of all that is drawn.
        field: the field of the text (default: `text`, or the only one).
        format: the file format, if the extension does not show it.
        sentences: at most so many of a document, the same number from its beginning, middle and end.
        left_out: the share of the words of a sentence (in scripts without spaces: of its characters) that is left out.
    """
    drawn = read_texts(location, field, _at_least_one("sample", sample), seed, format)
    return of_texts(drawn, location, sample, seed, field, sentences, left_out)


def of_texts(
    drawn: Texts, location: str, sample: int, seed: int, field: str | None, sentences: int = 9, left_out: float = 0.5
) -> Benchmark:
    """The same out of texts that were read already: standard input is there only once."""
    options = {"location": str(location), "field": field, "sample": sample, "found": drawn.available}
    name = Path(location).name.partition(".")[0].strip("*?-") or "texts"  # not of a pattern or of standard input
    return _benchmark(drawn, name, seed, sentences, left_out, options)


def from_texts(
    texts: Sequence[str],
    *,
    sample: int | None = SAMPLE,
    seed: int = 42,
    sentences: int = 9,
    left_out: float = 0.5,
) -> Benchmark:
    """The same out of texts in memory."""
    if isinstance(texts, (str, Mapping)):
        one = "one string" if isinstance(texts, str) else "a mapping"
        raise TypeError(f"texts must be a list of documents, not {one}.")
    texts = list(texts)  # a column of a table has labels, not places
    usable = [number for number, text in enumerate(texts) if isinstance(text, str) and text.strip()]
    if not usable:
        raise ValueError("texts must contain at least one document that is not empty.")
    if sample is not None and _at_least_one("sample", sample) < len(usable):
        usable = sorted(random.Random(seed).sample(usable, sample))  # noqa: S311 - a sample, not a secret
    chosen = [storable(texts[number]) for number in usable]
    kept = Texts([str(number) for number in usable], chosen, [""] * len(chosen), len(texts))
    return _benchmark(kept, "texts", seed, sentences, left_out, {"sample": sample, "found": len(texts)})


def is_made_of_texts(options: Mapping[str, object]) -> bool:
    """Whether the queries of a benchmark with these options are stand-ins."""
    return options.get("source") == SOURCE


def documents_of(benchmark: Benchmark) -> list[str]:
    """The different texts of a benchmark."""
    return list(dict.fromkeys(text for collection in benchmark.collections for text in collection.corpus.values()))


def _benchmark(
    texts: Texts, name: str, seed: int, sentences: int, left_out: float, options: Mapping[str, object]
) -> Benchmark:
    if not 0 <= left_out < 1:
        raise ValueError(f"left_out must be at least 0 and less than 1, not {left_out}.")
    require_extra("eval", "A benchmark of texts", "sentencex")
    if sentences < len(POSITIONS):
        raise ValueError(f"sentences must be at least {len(POSITIONS)}, one for each position, not {sentences}.")
    apart = near_duplicates(texts.texts)
    kept = texts.only(set(range(len(texts.texts))) - apart).with_own_names()
    drawn = draw(kept, sentences // len(POSITIONS), left_out, seed)
    if not drawn:
        raise TooShortError(kept.texts)
    corpus = dict(zip(kept.names, kept.texts, strict=True))
    queries = [_query(stand_in, corpus) for stand_in in drawn]
    relevance = {query.id: {stand_in.document: 1} for query, stand_in in zip(queries, drawn, strict=True)}
    of = len({stand_in.document for stand_in in drawn})
    made = {"seed": seed, "sentences": sentences, "left_out": left_out, "sentence_splitter": sentence_rules()}
    known = {"source": SOURCE, **options, **made}
    notes = [_remark(len(drawn), of, len(corpus), left_out)]
    if apart:
        many = f" (more than a third of {len(texts.texts):,}: the others may not represent all)"
        notes.append(
            f"near-duplicates left out, so that each query has one right document: {len(apart):,}"
            + many * (len(apart) > len(texts.texts) / 3)
        )
    notes += [texts.in_words()[:-1]] * bool(texts.left_out)
    title = f"{name} (stand-in queries)"
    return Benchmark(
        title, (Collection(title, corpus, tuple(queries), relevance),), POSITIONS, options=known, notes=tuple(notes)
    )


def _query(stand_in: StandIn, corpus: dict[str, str]) -> Query:
    length = len(corpus[stand_in.document])
    middle = (stand_in.start + stand_in.end) / 2 / length
    return Query(f"{stand_in.document}#{stand_in.start}", stand_in.text, (stand_in.group,), middle)


def _remark(queries: int, answered: int, documents: int, left_out: float) -> str:
    how = "as they are" if left_out == 0 else f"with {100 * left_out:.0f} % of their words left out"
    of = f"{queries:,} sentences of {answered:,} of the {documents:,} documents, {how}"
    return f"stand-in queries, not real questions: {of}; use them to compare settings, not as absolute scores"


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}.")
    return value
