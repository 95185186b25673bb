"""What is resampled, and what intervals and tests make of it."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers.paths import ROOT
from scipy import stats

from evenspan.evaluation import EvaluationResult, compare, load_benchmark
from evenspan.evaluation.benchmark import Benchmark, Collection, Query
from evenspan.evaluation.measures import harmonic_mean, position_sensitivity
from evenspan.evaluation.sampling import Sample
from evenspan.evaluation.scores import QueryScore
from evenspan.evaluation.scoring import Resampling, overall_mean, summarise
from evenspan.evaluation.statistics import Bootstrap, holm, paired_p_value, shuffled_sensitivity
from evenspan.evaluation.units import document_units

POSITIONS = ("beginning", "middle", "end")
_PLACE = importlib.util.spec_from_file_location("coverage_benchmark", ROOT / "benchmarks" / "coverage.py")
coverage = importlib.util.module_from_spec(_PLACE)
sys.modules[_PLACE.name] = coverage
_PLACE.loader.exec_module(coverage)


def scores(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 2))


def test_one_query_for_each_document_is_the_bootstrap_of_scipy() -> None:
    groups = [scores(40, seed)[:, 0] for seed in range(3)]
    sample = Sample.of(groups, [[(part, row) for row in range(40)] for part in range(3)])
    options = {"n_resamples": 300, "method": "percentile", "batch": 100, "vectorized": True}
    for statistic in (harmonic_mean, overall_mean):
        then = stats.bootstrap(
            groups,
            lambda *samples, axis, of=statistic: of(np.stack([values.mean(axis=axis) for values in samples])),
            rng=np.random.default_rng(7),
            **options,
        ).confidence_interval
        now = Bootstrap.of(sample, 300, 7).interval(statistic)
        assert now == pytest.approx((then.low, then.high), abs=1e-12)


def test_one_query_for_each_document_is_the_paired_t_test() -> None:
    values = scores(50)
    assert paired_p_value(Sample.of([values], [range(50)])) == pytest.approx(stats.ttest_rel(*values.T).pvalue)
    assert paired_p_value(Sample.of([values * 0 + 0.5], [range(50)])) == 1.0
    assert paired_p_value(Sample.of([values * 0 + [0.5, 0.25]], [range(50)])) is None


def test_many_queries_on_a_document_are_one_observation() -> None:
    values = scores(20)
    alone = Sample.of([values], [range(20)])
    often = Sample.of([np.repeat(values, 9, axis=0)], [np.repeat(np.arange(20), 9).tolist()])
    assert paired_p_value(often) == pytest.approx(paired_p_value(alone))
    low, high = Bootstrap.of(alone, 2000, 1).interval(harmonic_mean)
    wide = Bootstrap.of(often, 2000, 1).interval(harmonic_mean)
    assert wide[1] - wide[0] > high - low, "as wide as of 20 observations, and a little wider as they are few"
    assert wide[1] - wide[0] < 1.2 * (high - low)


def test_documents_of_a_benchmark() -> None:
    queries = tuple(Query(f"q{number}", "?") for number in range(4))
    relevance = {"q0": {"a": 1}, "q1": {"a": 1, "b": 1}, "q2": {"b": 1}, "q3": {"c": 1}}
    collection = Collection("x", dict.fromkeys("abc", "text"), queries, relevance)
    units = document_units(Benchmark("x", (collection,)))
    assert units["x", "q0"] == units["x", "q1"] == units["x", "q2"] != units["x", "q3"], "q1 joins two documents"
    both = document_units(Benchmark("x", (collection, replace(collection, name="y"))))
    assert both["x", "q3"] != both["y", "q3"], "the same id in two collections is a coincidence"
    generated = load_benchmark("generated", documents=5, tokens=512)
    of_documents = document_units(generated)
    assert len(set(of_documents.values())) == 5, "three placements of a document are one unit"
    # 50 queries that all share a document would be one unit: as one set of several they count one by one.
    crowd = Collection(
        "z", {"d": "t"}, tuple(Query(f"q{n}", "?") for n in range(50)), {f"q{n}": {"d": 1} for n in range(50)}
    )
    average = Benchmark("nanobeir", (crowd,), scoring="average")
    assert len(set(document_units(average).values())) == 50
    rows = [
        QueryScore(
            "z",
            f"q{n}",
            (),
            None,
            None,
            dict.fromkeys(("ndcg@10", "recall@10"), 1.0),
            document_units(average)["z", f"q{n}"],
        )
        for n in range(50)
    ]
    assert any("resampled one by one" in note for note in summarise(average, rows, Resampling(0, 0))["notes"])


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_labels_are_shuffled_by_document() -> None:
    """All queries on a document have one label and one score: shuffled query by query, PSI would come out far too low."""
    generator = np.random.default_rng(3)
    units = np.repeat(np.arange(30), 20)
    of_documents = generator.random(30)
    labels = [(POSITIONS[unit % 3],) for unit in units]
    whole = shuffled_sensitivity(of_documents[units], labels, units.tolist(), 100, 0).mean()
    alone = shuffled_sensitivity(of_documents[units], labels, range(600), 100, 0).mean()
    assert whole > 3 * alone
    # Where every document has all labels they change places within it, and what documents differ in cancels out.
    mixed = [(POSITIONS[row % 3],) for row in range(600)]
    assert shuffled_sensitivity(of_documents[units], mixed, units.tolist(), 100, 0).mean() < alone
    biased = np.array([1.0, 0.5, 0.25])[np.arange(600) % 3]
    assert shuffled_sensitivity(biased, mixed, units.tolist(), 100, 0).max() < 0.3


def results(count: int, effect: float, settings: int) -> list[EvaluationResult]:
    """A plain result and some settings of which the last has an effect."""
    base = scores(count)[:, 0] * 0.5
    found = []
    for setting in range(settings + 1):
        noise = np.random.default_rng(setting).normal(0, 0.1, count) * (setting > 0)
        values = base + noise + effect * (setting == settings)
        rows = tuple(
            QueryScore(
                "x",
                f"q{row}",
                (POSITIONS[row % 3],),
                None,
                None,
                {"ndcg@10": value, "recall@10": value},
                f"d{row // 3}",
            )
            for row, value in enumerate(values.tolist())
        )
        collection = Collection(
            "x",
            {f"d{row // 3}": "t" for row in range(count)},
            tuple(Query(row.query, "?", row.groups) for row in rows),
            {row.query: {row.unit: 1} for row in rows},
        )
        benchmark = Benchmark("x", (collection,), POSITIONS)
        fields = summarise(benchmark, rows, Resampling(200, 0))
        found.append(
            EvaluationResult(
                "x",
                method=f"m{setting}",
                vectors_per_document=1.0,
                per_query=rows,
                setting={"resamples": 200, "seed": 0},
                **fields,
            )
        )
    return found


def test_stars_of_many_settings_are_corrected() -> None:
    many = results(180, 0.1, settings=40)
    alone, together = compare(many), compare(many, corrected=True)
    for name in ("nDCG@10", "HM"):
        stars, corrected = (
            [row.differences[name].significant for row in table.rows[1:]] for table in (alone, together)
        )
        assert sum(stars) > 1, "of 40 settings without an effect some look as if they had one"
        assert corrected == [False] * 39 + [True], "the one that has an effect stays"
    assert "corrected after Holm for the 40 settings" in str(together)
    assert "not corrected for the 40 methods" in str(alone)
    assert together.rows[1].differences["HM"].corrected_p_value == 1.0


def test_results_of_earlier_versions_are_resampled_by_query() -> None:
    first, second = (
        replace(result, per_query=tuple(replace(row, unit=None) for row in result.per_query))
        for result in results(90, 0.05, 1)
    )
    table = compare([first, second])
    assert "t-test over queries" in str(table)
    assert "which of them are on the same document" in str(table)
    values = np.array([[row.scores["ndcg@10"] for row in result.per_query] for result in (second, first)])
    assert table.rows[1].differences["nDCG@10"].p_value == pytest.approx(stats.ttest_rel(*values).pvalue)


def test_psi_by_chance_is_said_to_be_chance() -> None:
    (result, _) = results(180, 0.0, 1)
    assert result.psi > 0.02
    assert result.intervals["psi"][0] == 0.0, "its interval holds what there is: no bias at all"
    assert result.intervals["psi"][1] > result.psi
    assert 0.5 * result.psi < result.more["psi_floor"] < 5 * result.psi
    assert any("not significantly above chance" in note for note in result.notes)
    assert "PSI floor" in str(compare([result]))
    floorless = replace(result, more={}, method="soft")  # as an earlier version wrote it
    assert compare([result, floorless]).rows[1].figures["PSI floor"] is None


@pytest.mark.parametrize("groups", [3, 20])
def test_psi_lies_in_its_interval(groups) -> None:
    generator = np.random.default_rng(5)
    for lowest in (0.0, 0.5, 1.0):
        parts = [np.clip(generator.normal(0.5, 0.3, 12), 0, 1) for _ in range(groups)]
        parts[0] = parts[0] * lowest
        sample = Sample.of(parts, [[(part, row) for row in range(12)] for part in range(groups)])
        low, high = Bootstrap.of(sample, 200, 0).sensitivity_interval()
        assert 0 <= low <= position_sensitivity(sample.means)[0] <= high <= 1


def test_intervals_agree_with_a_slow_bootstrap_over_documents() -> None:
    """Documents drawn one by one, with all their queries, which lie in several groups."""
    generator = np.random.default_rng(0)
    documents = np.repeat(np.arange(40), 5)
    group = generator.integers(0, 3, len(documents))
    values = generator.random(40)[documents] + 0.2 * generator.random(len(documents))
    sample = Sample.of(
        [values[group == place] for place in range(3)], [documents[group == place] for place in range(3)]
    )
    slow = []
    for _ in range(2000):
        rows = np.concatenate([np.flatnonzero(documents == one) for one in generator.integers(0, 40, 40)])
        slow.append(harmonic_mean(np.array([values[rows][group[rows] == place].mean() for place in range(3)])))
    fast = Bootstrap.of(sample, 2000, 0)
    assert harmonic_mean(fast.means)[0].std() == pytest.approx(np.std(slow), rel=0.1)
    low, high = fast.interval(harmonic_mean)
    width = np.subtract(*np.quantile(slow, (0.975, 0.025)))
    assert width < high - low < 1.2 * width, "a little wider, as documents are few"


def test_the_committed_simulation_holds_what_the_documentation_says() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "coverage.json").read_text(encoding="utf-8"))
    assert found["repetitions"] >= 1000
    cells = [coverage.Cell(**cell) for cell in found["cells"]]
    kinds = {(cell.queries, cell.groups, cell.kind) for cell in cells}
    assert kinds == {(*sizes, kind) for sizes in coverage.DOCUMENTS for kind in coverage.KINDS}
    for cell in cells:
        for name in ("ndcg", "harmonic_mean", "ndcg_difference", "harmonic_mean_difference"):
            assert 0.93 <= cell.covered[name] <= 0.97, (cell, name)
        assert min(cell.covered["psi"], cell.covered["psi_difference"]) >= 0.93
        assert max(cell.starred.values(), default=0) <= 0.06
        assert cell.used <= 0.06


@pytest.mark.parametrize("queries", [1, 5])
def test_coverage_in_small(queries) -> None:
    """The simulation of benchmarks/coverage.py, with few repetitions: bounds that chance alone does not leave."""
    cell = coverage.simulate(
        coverage.Cell(queries, 60 if queries > 1 else 200, 3, "same"), repetitions=60, resamples=200
    )
    for name in ("ndcg", "harmonic_mean", "psi", "ndcg_difference", "harmonic_mean_difference", "psi_difference"):
        assert cell.covered[name] >= 0.83, name
    assert max(cell.starred.values()) <= 0.2
    assert cell.used <= 0.15


def test_even_methods_of_other_levels_are_not_found_to_differ_in_psi() -> None:
    cell = coverage.simulate(coverage.Cell(1, 200, 3, "level"), repetitions=60, resamples=200)
    assert cell.starred["psi"] <= 0.1
    assert cell.covered["psi_difference"] >= 0.9


def test_a_method_that_evens_positions_is_covered() -> None:
    cell = coverage.simulate(coverage.Cell(5, 60, 3, "evened"), repetitions=60, resamples=200)
    assert cell.covered["psi_difference"] >= 0.83


def test_a_group_that_finds_nothing_leaves_psi_open() -> None:
    """Ten queries of a group find nothing by chance where one in ten finds its document: PSI may be small."""
    found = np.array([[1.0] * 3 + [0.0] * 7, [0.0] * 10, [1.0] * 2 + [0.0] * 8])
    sample = Sample.of(list(found), [[(part, row) for row in range(10)] for part in range(3)])
    low, high = Bootstrap.of(sample, 500, 1).sensitivity_interval()
    assert low < 0.1
    assert high == 1.0


def test_position_labels_change_places_between_documents_with_as_many_queries() -> None:
    """Two queries on each document, at the beginning and the middle or at the middle and the end: half of the labels."""
    pick = np.random.default_rng(3)
    labels = [(name,) for number in range(200) for name in (("b", "m") if number % 2 else ("m", "e"))]
    scores_of = np.array([0.9 if label == ("b",) else 0.3 if label == ("e",) else 0.6 for label in labels])
    scores_of = scores_of + 0.05 * pick.standard_normal(len(labels))
    drawn = shuffled_sensitivity(scores_of, labels, np.repeat(np.arange(200), 2).tolist(), 100, 1)
    assert drawn.mean() < 0.15
