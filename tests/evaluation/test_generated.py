"""The generated benchmark: paired, varied, and about position alone."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from helpers.paths import SHARED

import evenspan
from evenspan import Calibration
from evenspan.evaluation import compare, evaluate, load_benchmark
from evenspan.evaluation.benchmarks.generated import PHRASES, load_generated

NEWWIKI = SHARED / "data" / "newwiki-long-en"
QUICK = {"progress": False, "resamples": 0}


@pytest.fixture(scope="module", params=["cls", "last"])
def model(request):
    return evenspan.miniature(request.param, device="cpu")


def test_generated_is_paired() -> None:
    """Three collections of the same documents, rotated; the same questions in all."""
    benchmark = load_benchmark("generated", documents=20, tokens=700, seed=5)
    first, second, third = benchmark.collections
    assert [collection.name for collection in benchmark.collections] == ["beginning", "middle", "end"]
    for document, text in first.corpus.items():
        paragraphs = text.split("\n\n")
        for other in (second, third):
            rotated = other.corpus[document].split("\n\n")
            shift = rotated.index(paragraphs[0])
            assert rotated[shift:] + rotated[:shift] == paragraphs
    for queries in zip(*(collection.queries for collection in benchmark.collections), strict=True):
        assert len({query.text for query in queries}) == 1
        assert [query.groups for query in queries] == [("beginning",), ("middle",), ("end",)]
        assert queries[0].position < 0.25 < queries[1].position < 0.75 < queries[2].position
    assert first.relevance == second.relevance == third.relevance


def test_generated_is_deterministic_and_of_any_length(model) -> None:
    assert load_generated(8, 512, 1) == load_generated(8, 512, 1)
    assert load_generated(8, 512, 1).digest() != load_generated(8, 512, 2).digest()
    for tokens in (512, 1024, 8192):
        texts = load_generated(4, tokens).collections[0].corpus.values()
        lengths = [len(model.tokenizer(text, verbose=False).input_ids) for text in texts]
        assert 0.94 * tokens < np.mean(lengths) < 1.06 * tokens
    single = load_benchmark("generated", documents=30, tokens=512, mode="single")
    assert len(single.collections) == 1
    assert single.group_counts() == {"beginning": 20, "middle": 20, "end": 20}


def test_generated_sentences_are_varied() -> None:
    benchmark = load_generated(300, 1024)
    sentences = [set(re.split(r"(?<=[.?!])\s+", text)) for text in benchmark.collections[0].corpus.values()]
    counted = Counter(sentence for document in sentences for sentence in document)
    for document in sentences:
        assert sum(counted[sentence] > 1 for sentence in document) <= 0.05 * len(document)
    assert all(len(set(fact["phrasings"])) >= 10 for fact in PHRASES["facts"].values())
    assert all(sentence[0].isupper() or sentence[0].isdigit() for document in sentences for sentence in document)
    assert not any("{" in text for text in benchmark.collections[0].corpus.values())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"documents": 2}, "at least 3"),
        ({"tokens": 100}, "between 512 and 8,192"),
        ({"mode": "double"}, "'paired' or 'single'"),
        ({"documents": 10**6}, "not enough names"),
    ],
)
def test_generated_refuses_what_it_cannot_make(options, says) -> None:
    with pytest.raises(ValueError, match=says):
        load_benchmark("generated", **options)


def test_the_generated_benchmark_shows_position_and_nothing_else(model) -> None:
    benchmark = load_benchmark("generated", documents=24, tokens=600)
    control = evaluate(model, benchmark, method="bm25", **QUICK)
    scores = [group.ndcg for group in control.groups.values()]
    assert scores[0] == scores[1] == scores[2], "the words are the same wherever they stand"
    assert 0.4 < control.ndcg < 0.95
    plain = evaluate(model, benchmark, **QUICK)
    assert 0.4 < plain.ndcg < 0.95
    assert plain.psi > 0.2
    assert plain.groups["beginning"].ndcg == max(group.ndcg for group in plain.groups.values())
    calibrated = evaluate(model, benchmark, Calibration(), **QUICK)
    assert calibrated.psi < plain.psi
    assert calibrated.harmonic_mean > plain.harmonic_mean


@pytest.mark.real
@pytest.mark.parametrize(("documents", "tokens"), [(60, 600), (40, 2000), (100, 1024)])
def test_the_generated_benchmark_is_neither_too_easy_nor_too_hard(model, documents, tokens, report) -> None:
    last = model[1].pooling_mode == "lasttoken"
    lowest = 0.35 if last and documents == 100 else 0.4  # more documents are harder, and this model is the weaker one
    benchmark = load_benchmark("generated", documents=documents, tokens=tokens)
    for method in ("none", "bm25"):
        score = evaluate(model, benchmark, method=method, **QUICK).ndcg
        report(f"generated, {documents} × {tokens}, {method}: nDCG@10 {100 * score:.1f}")
        assert lowest < score < 0.95


@pytest.mark.real
@pytest.mark.skipif(not NEWWIKI.is_dir(), reason="needs newwiki-long-en beside the project")
@pytest.mark.parametrize(("pooling", "floor"), [("cls", 0.61), ("last", 0.59)])
def test_floors_on_real_data(pooling, floor, report) -> None:
    model, benchmark = evenspan.miniature(pooling, device="cpu"), load_benchmark(NEWWIKI)
    plain, calibrated = (evaluate(model, benchmark, setting, progress=False) for setting in (None, Calibration()))
    for result in (plain, calibrated):
        for name, group in result.groups.items():
            report(f"newwiki-long-en {pooling} {result.method}, nDCG@10 {name}: {100 * group.ndcg:.2f}")
        report(f"newwiki-long-en {pooling} {result.method}, HM: {100 * result.harmonic_mean:.2f}")
        report(f"newwiki-long-en {pooling} {result.method}, PSI: {result.psi:.4f}")
    assert plain.harmonic_mean >= floor
    assert plain.psi >= 0.2
    assert calibrated.psi <= 0.7 * plain.psi
    assert calibrated.harmonic_mean >= plain.harmonic_mean + 0.015
    assert compare([plain, calibrated]).rows[1].differences["HM"].significant
