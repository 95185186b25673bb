"""Measures and search: trec's figures, and an order that depends on scores and ids alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
import pytrec_eval
from sklearn.metrics import ndcg_score

from evenspan.evaluation.measures import harmonic_mean, measure, position_sensitivity
from evenspan.evaluation.search import DocumentVectors, check_vectors, search


def rankings_and_relevance(seed: int, graded: bool):
    pick = random.Random(seed)
    documents = [f"d{number}" for number in range(60)]
    rankings, relevance = {}, {}
    for number in range(20):
        rankings[f"q{number}"] = pick.sample(documents, pick.randint(1, 60))
        relevant = pick.sample(documents, pick.randint(1, 15))
        relevance[f"q{number}"] = {document: pick.randint(1, 3 if graded else 1) for document in relevant}
    return rankings, relevance


@pytest.mark.parametrize("graded", [False, True])
def test_agrees_with_trec(graded) -> None:
    rankings, relevance = rankings_and_relevance(1, graded)
    ours = measure(rankings, relevance, cuts=(5, 10, 100))
    run = {
        query: {document: 1.0 / (rank + 1) for rank, document in enumerate(ranked)}
        for query, ranked in rankings.items()
    }
    trec = pytrec_eval.RelevanceEvaluator(relevance, {"ndcg_cut.5,10,100", "recall.5,10,100"}).evaluate(run)
    for query, scores in ours.items():
        for cut in (5, 10, 100):
            assert abs(scores[f"ndcg@{cut}"] - trec[query][f"ndcg_cut_{cut}"]) < 1e-9
            assert abs(scores[f"recall@{cut}"] - trec[query][f"recall_{cut}"]) < 1e-9


def test_agrees_with_sklearn_without_ties() -> None:
    generator = np.random.default_rng(0)
    scores = generator.permutation(np.linspace(0, 1, 50 * 40)).reshape(50, 40)
    gains = (generator.random((50, 40)) < 0.1).astype(int)
    gains[:, 0] |= gains.sum(axis=1) == 0
    rankings = {f"q{row}": [f"d{column}" for column in np.argsort(-scores[row])] for row in range(50)}
    relevance = {f"q{row}": {f"d{column}": 1 for column in np.flatnonzero(gains[row])} for row in range(50)}
    ours = measure(rankings, relevance)
    for row in range(50):
        expected = ndcg_score(gains[row : row + 1], scores[row : row + 1], k=10)
        assert abs(ours[f"q{row}"]["ndcg@10"] - expected) < 1e-9


def test_a_query_that_finds_nothing_scores_zero() -> None:
    assert measure({"q": ["x"]}, {"q": {"d": 1}}) == {"q": {"ndcg@10": 0.0, "recall@10": 0.0}}
    assert measure({"q": []}, {"q": {"d": 1}}) == {"q": {"ndcg@10": 0.0, "recall@10": 0.0}}


def test_position_figures_by_hand() -> None:
    scores = np.array([0.8, 0.6, 0.4])
    assert position_sensitivity(scores) == pytest.approx(0.5)
    assert harmonic_mean(scores) == pytest.approx(3 / (1 / 0.8 + 1 / 0.6 + 1 / 0.4))
    assert harmonic_mean(np.array([0.5, 0.0])) == 0
    assert position_sensitivity(np.zeros(3)) == 0


def vectors(count: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, 16)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_search_is_exact() -> None:
    queries, documents = vectors(700, 1), vectors(300, 2)
    ids = [f"d{number:03}" for number in range(300)]
    found = list(search(queries, DocumentVectors(ids, documents, np.ones(300, dtype=int)), 20))
    exact = queries.astype(np.float64) @ documents.T.astype(np.float64)
    for row, ranking in enumerate(found):
        assert ranking == [ids[place] for place in np.argsort(-exact[row])[:20]]


def test_ties_depend_neither_on_corpus_order_nor_on_batches() -> None:
    """Copies of the same document rank by id, wherever they stand and whatever they are searched with."""
    base = vectors(20, 3)
    documents = np.repeat(base, 5, axis=0)
    ids = [f"d{number:03}" for number in random.Random(0).sample(range(1000), 100)]
    queries = vectors(600, 4)
    expected = list(search(queries, DocumentVectors(ids, documents, np.ones(100, dtype=int)), 30))
    for ranking in expected:
        places = [ids.index(name) // 5 for name in ranking]
        for start in range(0, 30, 5):
            assert len(set(places[start : start + 5])) == 1
            assert ranking[start : start + 5] == sorted(ranking[start : start + 5])
    order = random.Random(1).sample(range(100), 100)
    shuffled = DocumentVectors([ids[place] for place in order], documents[order], np.ones(100, dtype=int))
    assert list(search(queries, shuffled, 30)) == expected
    assert [next(iter(search(queries[row : row + 1], shuffled, 30))) for row in range(0, 600, 37)] == expected[::37]


def test_ties_beyond_the_depth_are_ordered_by_id_too() -> None:
    """300 copies of one document: the first by id are found, not those that a top-k happens to choose."""
    documents = np.repeat(vectors(1, 7), 300, axis=0)
    ids = [f"d{number:03}" for number in random.Random(2).sample(range(1000), 300)]
    for counts in (np.ones(300, dtype=int), np.array([1] * 299 + [2])):
        several = np.concatenate([documents, documents[: counts.sum() - 300]])
        for ranking in search(vectors(3, 8), DocumentVectors(ids, several, counts), 100):
            assert ranking == sorted(ids)[:100]


def test_a_document_scores_as_its_best_vector() -> None:
    counts = np.array([1, 3, 2, 4])
    documents, queries = vectors(10, 5), vectors(30, 6)
    found = list(search(queries, DocumentVectors(["c", "a", "d", "b"], documents, counts), 4))
    owner = np.repeat(["c", "a", "d", "b"], counts)
    for row, ranking in enumerate(found):
        best = {name: (documents[owner == name] @ queries[row]).max() for name in "abcd"}
        assert ranking == sorted(best, key=best.get, reverse=True)


def test_nan_vectors_name_the_document() -> None:
    broken = vectors(3)
    broken[1, 2] = np.nan
    with pytest.raises(ValueError, match="1 documents, first 'b'"):
        check_vectors(["a", "b", "c"], broken, "documents")
