"""What `tune` goes by: results are made up, so that what each setting gains and costs is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pytest
from helpers import tiny

from evenspan import Calibration, sweeps
from evenspan.evaluation.benchmark import POSITIONS, Benchmark, Collection, Query
from evenspan.evaluation.scores import EvaluationResult, QueryScore
from evenspan.evaluation.scoring import Resampling, summarise
from evenspan.sweeps import SweepResult, tuning

ONE, TWO = Calibration(), Calibration(strength=1.0)
DOCUMENTS = 160
# Most answers stand at the beginning: what HM gains by the end, the mean of all queries loses at the beginning.
QUERIES = tuple(
    Query(f"q{number}", "?", (POSITIONS[(0, 0, 0, 0, 1, 2)[number % 6]],)) for number in range(6 * DOCUMENTS)
)
RELEVANCE = {query.id: {f"d{number // 6}": 1} for number, query in enumerate(QUERIES)}
CORPUS = {f"d{number}": "text" for number in range(DOCUMENTS)}
BENCHMARK = Benchmark("made up", (Collection("made up", CORPUS, QUERIES, RELEVANCE),), POSITIONS)
BALANCE = {"beginning": -0.02, "end": 0.1}  # HM +1.9 points, overall +0.3: acceptable
DEAR = {"beginning": -0.12, "end": 0.3}  # overall -3 points
SLIGHT = {"end": 0.02}


def result(method: str, moves: Mapping[str, float]) -> EvaluationResult:
    """Positions are found with 0.8, 0.6 and 0.3, moved by so much, the same for each query but for a little noise."""
    noise = np.random.default_rng(len(method)).normal(0, 0.02, len(QUERIES))
    levels = dict(zip(POSITIONS, (0.8, 0.6, 0.3), strict=True))
    rows = []
    for number, query in enumerate(QUERIES):
        score = levels[query.groups[0]] + moves.get(query.groups[0], 0.0) + noise[number]
        scores = {"ndcg@10": score, "recall@10": score}
        rows.append(QueryScore("made up", query.id, query.groups, None, None, scores, f"d{number // 6}"))
    fields = summarise(BENCHMARK, rows, Resampling(0, 0))
    return EvaluationResult(
        "made up",
        method=method,
        vectors_per_document=1.0,
        setting={"benchmark_options": {}, "documents": DOCUMENTS},
        per_query=tuple(rows),
        **fields,
    )


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> Iterator[Callable[..., sweeps.Tuning]]:
    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path_factory.mktemp("model"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield partial(_tuned, monkeypatch, model)


def _tuned(monkeypatch: pytest.MonkeyPatch, model, objective: str, *moves: Mapping[str, float]) -> sweeps.Tuning:
    results = {key: result(str(key), by) for key, by in zip((ONE, TWO), moves, strict=False)}
    monkeypatch.setattr(tuning, "sweep", lambda *_, **__: SweepResult(result("none", {}), results, {}))
    return sweeps.tune(model, BENCHMARK, objective=objective, resamples=200)


def test_what_gains_more_than_it_costs_is_used(tuned) -> None:
    found = tuned("balanced", BALANCE)
    assert found.calibration == ONE
    assert found.losses == ()
    assert "Beyond noise, overall nDCG@10 does not fall and no position loses more than another gains." in str(found)


def test_what_makes_the_whole_worse_is_used_only_when_asked_for(tuned) -> None:
    found = tuned("balanced", DEAR)
    assert found.confirmation.rows[1].differences["HM"].significant
    assert (found.calibration, found.chosen) == (None, True)
    assert found.losses[0].startswith("overall nDCG@10 falls by 3.")
    assert str(found).startswith("Leave it off")
    assert "its losses are not acceptable: overall nDCG@10 falls by" in str(found)
    assert "--objective hm" in str(found)
    asked = tuned("hm", DEAR)
    assert asked.calibration == ONE
    assert "Losses: overall nDCG@10 falls by" in str(asked), "it says so all the same"


def test_a_setting_that_costs_less_is_preferred(tuned) -> None:
    found = tuned("balanced", DEAR, BALANCE)
    assert found.calibration == TWO
    assert f"Not chosen, though better by HM: {ONE}, where overall nDCG@10 falls by" in str(found)
    assert "among the acceptable of" in str(found)
    assert tuned("hm", DEAR, BALANCE).calibration == ONE


def test_a_position_may_not_lose_more_than_another_gains(tuned) -> None:
    found = tuned("balanced", {"beginning": 0.06, "middle": -0.08, "end": 0.04})
    assert found.confirmation.rows[1].differences["nDCG@10"].value > 0
    assert found.confirmation.rows[1].differences["HM"].value > 0
    assert found.calibration is None
    assert found.losses[0].startswith("'middle' loses 8.")
    assert "no position gains more than 5." in found.losses[0]


def test_a_loss_that_is_larger_than_a_gain_by_chance_alone_is_none(tuned) -> None:
    """The middle loses a little more than the end gains, which documents drawn anew may turn round."""
    found = tuned("balanced", {"beginning": 0.02, "middle": -0.062, "end": 0.06})
    by = found.confirmation.rows[1].differences
    assert by["nDCG@10 middle"].significant
    assert -by["nDCG@10 middle"].value > by["nDCG@10 end"].value
    assert (found.calibration, found.losses) == (ONE, ())


@pytest.mark.parametrize(
    ("objective", "better", "worse", "figure"),
    [
        ("ndcg", {"beginning": 0.03}, SLIGHT, "nDCG@10"),
        ("worst", DEAR, {"beginning": 0.1}, "the worst position's nDCG@10"),
    ],
)
def test_other_objectives(objective, better, worse, figure, tuned) -> None:
    found = tuned(objective, worse, better)
    assert (found.calibration, found.aim.figure) == (TWO, figure)
    assert f"on the others {figure} +" in str(found)
    assert found.gain.interval[0] > 0


def test_no_gain_is_no_gain_by_any_objective(tuned) -> None:
    for objective in ("balanced", "hm", "ndcg", "worst"):
        found = tuned(objective, {}, {"beginning": -0.05})
        assert found.calibration is None
        assert str(found).startswith("Leave it off")
    with pytest.raises(ValueError, match="objective must be one of balanced, hm, ndcg, worst, not 'best'"):
        tuned("best", {})
