"""PosIR: 10 languages, 31 domains, evidence at every position of long documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenspan.evaluation.benchmark import Benchmark, Collection, Query
from evenspan.evaluation.benchmarks.hub import check_known, how_to_provide, named, read_parquet

REPOSITORY = "infgrad/PosIR-Benchmark-v1"
LANGUAGES = (
    "ara-Arab", "cmn-Hans", "deu-Latn", "eng-Latn", "fra-Latn",
    "ita-Latn", "kor-Kore", "por-Latn", "rus-Cyrl", "spa-Latn",
)  # fmt: skip
BINS = 20
BIN_NAMES = tuple(f"{place / BINS:.2f}-{(place + 1) / BINS:.2f}" for place in range(BINS))


def load_posir(
    language: str = "eng-Latn",
    corpus_language: str | None = None,
    domains: Sequence[str] | str | None = None,
    path: str | Path | None = None,
) -> Benchmark:
    """The queries of one language over all domains, each domain searched by itself.

    Args:
        language: of the queries, e.g. `"deu-Latn"`.
        corpus_language: of the documents; by default that of the queries. The paper's x→en has `"eng-Latn"`.
        domains: names of domains, a list or separated by commas; by default all there are.
        path: a local copy of the data set in the hub's own layout.
    """
    corpus_language = corpus_language or language
    check_known((language, corpus_language), LANGUAGES, "PosIR has no language")
    chosen = named(domains)
    if not chosen or path is not None:  # named domains of the hub need no listing, which the cache does not have
        there = _domains(language, path)
        check_known(chosen, there, "PosIR has no domain", f" in {language}")
        chosen = chosen or there
    collections = tuple(_collection(domain, language, corpus_language, path) for domain in chosen)
    name = f"posir-{language}" if language == corpus_language else f"posir-{language}-to-{corpus_language}"
    options = {"source": REPOSITORY, "language": language, "corpus_language": corpus_language, "domains": chosen}
    return Benchmark(name, collections, BIN_NAMES, scoring="posir", depth=1000, options=options)


def bin_of(position: float) -> int:
    """The bin of a relative position: 20 of equal width, closed on the right, the first on both sides."""
    return next((place for place in range(BINS) if position <= (place + 1) / BINS), BINS - 1)


def _domains(language: str, path: str | Path | None) -> list[str]:
    if path is not None:
        folder = Path(path, language)
        if not folder.is_dir():
            raise FileNotFoundError(f"The copy of {REPOSITORY} at {path} has no folder {language}.")
        return sorted(entry.name for entry in folder.iterdir() if (entry / "queries.parquet").is_file())
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        files = HfApi().list_repo_files(REPOSITORY, repo_type="dataset")
    except (HfHubHTTPError, OSError) as error:
        raise OSError(how_to_provide(REPOSITORY, path)) from error
    return sorted({file.split("/")[1] for file in files if file.startswith(f"{language}/") and file.count("/") > 1})


def _collection(domain: str, language: str, corpus_language: str, path: str | Path | None) -> Collection:
    def read(file: str, *columns: str) -> list[dict[str, Any]]:
        return read_parquet(REPOSITORY, file, columns, path)

    evidence = ("pos_char_span", "pos_char_length", "pos_token_length")
    queries = read(f"{language}/{domain}/queries.parquet", "_id", "text", *evidence)
    corpus = read(f"{corpus_language}/{domain}/corpus.parquet", "_id", "text")
    relevance: dict[str, dict[str, int]] = {}
    for row in read(f"{language}/{domain}/qrels/test.parquet", "query-id", "corpus-id", "score"):
        if row["score"] > 0:
            relevance.setdefault(str(row["query-id"]), {})[str(row["corpus-id"])] = int(row["score"])
    answered = tuple(_query(row) for row in queries if str(row["_id"]) in relevance)
    return Collection(domain, {str(row["_id"]): row["text"] for row in corpus}, answered, relevance)


def _query(row: dict[str, Any]) -> Query:
    start, end = row["pos_char_span"]
    position = min(1.0, max(0.0, (start + end) / 2 / max(1, row["pos_char_length"])))
    return Query(str(row["_id"]), row["text"], (BIN_NAMES[bin_of(position)],), position, int(row["pos_token_length"]))
