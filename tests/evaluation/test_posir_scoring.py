"""PosIR's and NanoBEIR's own scoring, against examples worked by hand."""

from __future__ import annotations

import json

import pytest
from helpers import copies

from evenspan.cli import main
from evenspan.evaluation import load_benchmark
from evenspan.evaluation.benchmark import Benchmark, Collection, Query
from evenspan.evaluation.benchmarks.posir import BIN_NAMES, bin_of
from evenspan.evaluation.scores import QueryScore
from evenspan.evaluation.scoring import Resampling, summarise


def benchmark_of(rows: list[tuple[str, float, int, float]]) -> tuple[Benchmark, list[QueryScore]]:
    """Domain, position, tokens and nDCG@10 of each query."""
    scores, collections = [], {}
    for number, (domain, position, tokens, ndcg) in enumerate(rows):
        groups = (BIN_NAMES[bin_of(position)],)
        collections.setdefault(domain, []).append(Query(f"q{number}", "?", groups, position, tokens))
        values = {"ndcg@10": ndcg, "recall@10": ndcg}
        scores.append(QueryScore(domain, f"q{number}", groups, position, tokens, values))
    made = tuple(
        Collection(domain, {"d": "text"}, tuple(queries), {query.id: {"d": 1} for query in queries})
        for domain, queries in collections.items()
    )
    return Benchmark("posir", made, BIN_NAMES, scoring="posir"), scores


def test_worked_by_hand() -> None:
    rows = [
        ("law", 0.02, 512, 1.0),  # bin 1, Q1
        ("law", 0.02, 400, 0.8),  # bin 1, Q1
        ("medicine", 0.04, 600, 0.6),  # bin 1, Q2
        ("law", 0.50, 300, 0.5),  # bin 10, Q1
        ("medicine", 0.98, 500, 0.3),  # bin 20, Q1
        ("medicine", 0.99, 2000, 0.1),  # bin 20, Q4
    ]
    figures = summarise(*benchmark_of(rows), Resampling(0, 0))
    # All queries of all domains are pooled: the mean over queries.
    assert figures["ndcg"] == pytest.approx(3.3 / 6)
    # PSI over the bin means of all: bin 1 (1.0 + 0.8 + 0.6) / 3 = 0.8, bin 10 0.5, bin 20 (0.3 + 0.1) / 2 = 0.2.
    assert figures["psi"] == pytest.approx(1 - 0.2 / 0.8)
    # In Q1: bin 1 (1.0 + 0.8) / 2 = 0.9, bin 10 0.5, bin 20 0.3; nDCG is the mean of these, not of the four queries.
    more = figures["more"]
    assert more["psi_Q1"] == pytest.approx(1 - 0.3 / 0.9)
    assert more["ndcg_Q1"] == pytest.approx((0.9 + 0.5 + 0.3) / 3)
    assert (more["psi_Q2"], more["ndcg_Q2"]) == (0.0, pytest.approx(0.6))
    assert "psi_Q3" not in more
    assert more["ndcg_Q4"] == pytest.approx(0.1)
    assert more["empty_bins"] == 17
    assert (more["empty_bins_Q1"], more["empty_bins_Q3"]) == (17, 20)
    assert any("17 of 20 position bins are empty" in note for note in figures["notes"])


def test_length_buckets_are_closed_on_the_right(tmp_path) -> None:
    benchmark = load_benchmark("posir", path=copies.posir(tmp_path))
    rows = [
        QueryScore("law", query.id, query.groups, query.position, query.length, {"ndcg@10": 0.5, "recall@10": 0.5})
        for query in benchmark.collections[0].queries
    ]
    more = summarise(benchmark, rows, Resampling(0, 0))["more"]
    assert {name for name in more if name.startswith("psi")} == {"psi_Q1", "psi_Q2", "psi_Q3", "psi_Q4"}


def test_nanobeir_is_the_mean_over_sets_not_over_queries(tmp_path) -> None:
    collections = tuple(
        Collection(name, {"d": "t"}, tuple(Query(f"q{number}", "?") for number in range(count)),
                   {f"q{number}": {"d": 1} for number in range(count)})
        for name, count in (("A", 1), ("B", 3))
    )  # fmt: skip
    benchmark = Benchmark("nanobeir", collections, scoring="average")
    rows = [
        QueryScore(collection.name, query.id, (), None, None, {"ndcg@10": score, "recall@10": score})
        for collection, score in zip(collections, (1.0, 0.2), strict=True)
        for query in collection.queries
    ]
    figures = summarise(benchmark, rows, Resampling(0, 0))
    assert figures["ndcg"] == pytest.approx(0.6)
    assert figures["groups"]["B"].ndcg == pytest.approx(0.2)
    assert figures["psi"] is None


def test_macro_averages_over_languages(cls_model, tmp_path, capsys) -> None:
    path = copies.posir(tmp_path / "copy")
    cls_model.save_pretrained(str(tmp_path / "model"))
    command = [
        "evaluate",
        str(tmp_path / "model"),
        "--benchmark",
        "posir",
        "--option",
        f"path={path}",
        "--no-cache",
        "--json",
    ]
    command += ["--option", "language=deu-Latn,eng-Latn", "--resamples", "50", "--output", str(tmp_path / "out")]
    assert main(command) == 0
    printed = json.loads(capsys.readouterr().out)
    plain = {result["benchmark"]: result for result in printed["results"] if result["method"] == "none"}
    german, english, average = plain.values()
    assert "posir-deu-Latn, posir-eng-Latn" in average["benchmark"]
    assert average["ndcg"] == pytest.approx((german["ndcg"] + english["ndcg"]) / 2)
    for name in ("psi_Q1", "psi_Q2", "ndcg_Q1"):
        assert average["more"][name] == pytest.approx((german["more"][name] + english["more"][name]) / 2)
    assert {"PSI(Q1)", "PSI(Q4)"} <= set(printed["comparison"]["columns"])
    assert (tmp_path / "out" / "posir-deu-Latn" / "none.json").exists()
    assert "macro-average" in (tmp_path / "out" / "comparison.json").read_text()
