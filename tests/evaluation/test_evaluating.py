"""Evaluating a model: figures by position, intervals, comparison, baselines, cache and interruption."""

from __future__ import annotations

import dataclasses
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import calls, copies, tiny
from helpers.held import HeldCommand
from sentence_transformers import SentenceTransformer

import evenspan
from evenspan import Calibration
from evenspan.cli import main
from evenspan.evaluation import EvaluationResult, compare, evaluate, load_benchmark
from evenspan.evaluation.cache import VectorCache
from evenspan.evaluation.measures import measure

SETTING = Calibration(strength=1.0, layers="all", basket_size=16)
QUICK = {"progress": False, "resamples": 200}


@pytest.fixture
def folder(tmp_path):
    return copies.directory(tmp_path / "mine", documents=15)


@pytest.fixture
def benchmark(folder):
    return load_benchmark(folder)


def test_figures_are_those_of_a_brute_force_search(cls_model, benchmark) -> None:
    result = evaluate(cls_model, benchmark, SETTING, cuts=(3,), **QUICK)
    with evenspan.calibrated(cls_model, SETTING):
        documents = cls_model.encode_document(list(benchmark.corpus.values()))
    queries = cls_model.encode_query([query.text for query in benchmark.queries])
    order = np.argsort(-(queries @ documents.T), axis=1)
    ids = list(benchmark.corpus)
    rankings = {query.id: [ids[place] for place in row] for query, row in zip(benchmark.queries, order, strict=True)}
    expected = measure(rankings, benchmark.relevance, cuts=(3, 10))
    assert {row.query: row.scores for row in result.per_query} == expected
    assert result.ndcg == pytest.approx(np.mean([scores["ndcg@10"] for scores in expected.values()]))
    assert result.more["recall@3"] == pytest.approx(np.mean([scores["recall@3"] for scores in expected.values()]))
    groups = [result.groups[name].ndcg for name in ("beginning", "middle", "end")]
    assert result.psi == pytest.approx(1 - min(groups) / max(groups))
    assert result.harmonic_mean == pytest.approx(3 / sum(1 / value for value in groups))
    low, high = result.intervals["ndcg"]
    assert low < result.ndcg < high
    assert evenspan.calibration_of(cls_model) is None, "the model is left as it was"


def test_search_is_by_cosine_unless_the_model_says_otherwise(tmp_path, benchmark) -> None:
    import torch

    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "model")
    expected = evaluate(model, benchmark, **QUICK)
    bare = SentenceTransformer(modules=list(model)[:2], device="cpu")
    with torch.no_grad():  # vectors of very different lengths
        bare[0].auto_model.encoder.layer[3].output.LayerNorm.weight.mul_(torch.linspace(0.1, 4, 32))
    normalised = SentenceTransformer(modules=list(model), device="cpu")
    assert evaluate(bare, benchmark, **QUICK).per_query == evaluate(normalised, benchmark, **QUICK).per_query
    assert evaluate(bare, benchmark, **QUICK).per_query != expected.per_query
    bare.similarity_fn_name = "dot"
    assert evaluate(bare, benchmark, **QUICK).setting["similarity"] == "dot"
    bare.similarity_fn_name = "euclidean"
    with pytest.raises(ValueError, match="cosine and dot"):
        evaluate(bare, benchmark, **QUICK)


def test_two_tags_count_in_both_groups(cls_model, folder) -> None:
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    rows[0]["span_class"] = ["beginning", "end"]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = evaluate(cls_model, load_benchmark(folder), **QUICK)
    assert [group.count for group in result.groups.values()] == [15, 15, 16]


def test_a_calibrated_model_is_evaluated_as_it_is(cls_model, benchmark) -> None:
    plain = evaluate(cls_model, benchmark, **QUICK)
    assert plain.method == "none"
    expected = evaluate(cls_model, benchmark, SETTING, **QUICK)
    evenspan.calibrate(cls_model, SETTING, default_task="document")
    result = evaluate(cls_model, benchmark, **QUICK)
    assert result.to_json() == expected.to_json()
    assert evaluate(cls_model, benchmark, method="none", **QUICK).per_query == plain.per_query
    assert evenspan.calibration_of(cls_model) == SETTING
    assert cls_model[0].default_task == "document"


def test_models_that_cannot_be_calibrated_can_be_evaluated(tmp_path, benchmark) -> None:
    model = tiny.sentence_transformer("bert-cls", tmp_path / "max", pooling="max")
    assert evaluate(model, benchmark, **QUICK).method == "none"
    with pytest.raises(ValueError, match="cannot be calibrated"):
        evaluate(model, benchmark, SETTING, **QUICK)


def test_results_round_trip_and_say_how_to_repeat_them(cls_model, benchmark, tmp_path) -> None:
    result = evaluate(cls_model, benchmark, SETTING, **QUICK)
    result.write(tmp_path / "result.json")
    assert EvaluationResult.read(tmp_path / "result.json") == result
    frame = result.to_frame()
    assert len(frame) == 45
    assert {"query", "groups", "position", "ndcg@10", "recall@10"} <= set(frame.columns)
    setting = result.setting
    assert {"model", "revision", "weights_sha256", "seed", "versions", "tie_rule", "prompts"} <= set(setting)
    assert setting["versions"]["evenspan"] == evenspan.__version__
    assert result.method == str(SETTING)


def test_prompts_reach_queries_and_documents(cls_model, benchmark) -> None:
    plain = evaluate(cls_model, benchmark, **QUICK)
    for option in ("query_prompt", "document_prompt"):
        prompted = evaluate(cls_model, benchmark, **{option: "w1 w2 w3 w4 w5 w6 "}, **QUICK)
        assert prompted.per_query != plain.per_query
        assert prompted.setting[option] == "w1 w2 w3 w4 w5 w6 "


def test_groups_that_are_too_small_are_reported(cls_model, benchmark) -> None:
    small = evaluate(cls_model, benchmark.limited(3), **QUICK)
    assert "too few queries in group 'end' for reliable figures: 3" in small.notes
    assert any("limited to 3 documents" in note for note in small.notes)
    assert not evaluate(cls_model, benchmark, **QUICK).notes
    one = evaluate(cls_model, benchmark.limited(1), **QUICK)
    assert one.groups["end"].ndcg_interval is None, "one query has no interval"


def test_nan_vectors_are_an_error(cls_model, benchmark) -> None:
    import torch

    with torch.no_grad():
        cls_model[0].auto_model.embeddings.LayerNorm.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN or infinite vectors for 15 documents, first 'd0'"):
        evaluate(cls_model, benchmark, **QUICK)


def from_file(result: EvaluationResult) -> EvaluationResult:
    return EvaluationResult.from_dict(json.loads(result.to_json()))


def test_comparison(cls_model, benchmark) -> None:
    plain, calibrated = evaluate(cls_model, benchmark, **QUICK), evaluate(cls_model, benchmark, SETTING, **QUICK)
    found = compare([plain, calibrated])
    difference = found.rows[1].differences["nDCG@10"]
    assert difference.value == pytest.approx(calibrated.ndcg - plain.ndcg)
    low, high = difference.interval
    assert low <= difference.value <= high
    from scipy import stats

    # Three queries for each document, in order: the test is over the means of documents.
    scores = [
        np.reshape([row.scores["ndcg@10"] for row in result.per_query], (-1, 3)) for result in (calibrated, plain)
    ]
    assert difference.p_value == pytest.approx(stats.ttest_rel(*(score.mean(axis=1) for score in scores)).pvalue)
    psi = found.rows[1].differences["PSI"]
    assert psi.value == pytest.approx(calibrated.psi - plain.psi)
    assert psi.significant == (not psi.interval[0] <= 0 <= psi.interval[1])
    for text in (str(found), found.to_markdown(), found.to_latex()):
        assert f"{100 * calibrated.ndcg:.1f}" in text
        assert "PSI" in text
    assert r"\toprule" in found.to_latex()
    assert json.loads(found.to_json())["rows"][1]["method"] == str(SETTING)
    assert set(found.to_frame()["method"]) == {"none", str(SETTING)}
    again = compare([from_file(plain), from_file(calibrated)])
    assert (again, again.to_json()) == (found, found.to_json()), "from files as in memory"
    assert list(from_file(plain).groups) == ["beginning", "middle", "end"]
    same = compare([plain, evaluate(cls_model, benchmark, method="none", **QUICK)])
    assert same.rows[1].differences["nDCG@10"].p_value == 1.0
    assert not same.rows[1].differences["HM"].significant
    with pytest.raises(ValueError, match="different queries"):
        compare([plain, evaluate(cls_model, benchmark.limited(5), **QUICK)])


def test_comparison_of_averages_over_sets(cls_model, tmp_path) -> None:
    """Sets of different sizes: the difference is that of the figures, the mean over sets, not over queries."""
    benchmark = load_benchmark("nanobeir", sets=["NFCorpus", "ArguAna"], path=copies.nanobeir(tmp_path))
    few = dataclasses.replace(benchmark.collections[1], queries=benchmark.collections[1].queries[:1])
    uneven = dataclasses.replace(benchmark, collections=(benchmark.collections[0], few))
    results = [evaluate(cls_model, uneven, method=name, cuts=(3,), **QUICK) for name in ("none", "bm25")]
    for result in results:
        assert result.ndcg == pytest.approx(np.mean([group.ndcg for group in result.groups.values()]))
        assert result.more["ndcg@3"] == pytest.approx(
            np.mean([group.scores["ndcg@3"] for group in result.groups.values()])
        )
    difference = compare(results).rows[1].differences["nDCG@10"]
    assert difference.value == pytest.approx(results[1].ndcg - results[0].ndcg)
    assert difference.p_value is None
    assert compare([from_file(result) for result in results]).to_json() == compare(results).to_json()


def test_groups_are_told_from_collections_of_the_same_name(cls_model, tmp_path) -> None:
    benchmark = load_benchmark(copies.directory(tmp_path / "end", documents=15))
    results = [evaluate(cls_model, benchmark, method=name, **QUICK) for name in ("none", "bm25")]
    difference = compare(results).rows[1].differences["nDCG@10 end"]
    assert difference.value == pytest.approx(results[1].groups["end"].ndcg - results[0].groups["end"].ndcg)


def test_few_queries_are_never_significant(cls_model, benchmark) -> None:
    few = benchmark.limited(4)
    row = compare([evaluate(cls_model, few, method=name, **QUICK) for name in ("none", "bm25")]).rows[1]
    assert not any(difference.significant for name, difference in row.differences.items() if name in ("HM", "PSI"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"resamples": -1}, "resamples must be at least 0, not -1"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"cuts": (0, 5)}, "A cut must be at least 1, not 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
    ],
)
def test_bad_options_are_refused_before_anything_is_encoded(options, says, cls_model, benchmark, monkeypatch) -> None:
    counting = Counting(cls_model, monkeypatch)
    with pytest.raises(ValueError, match=says):
        evaluate(cls_model, benchmark, **{"progress": False, **options})
    assert counting.texts == 0


class Counting:
    """Counts the texts that a model encodes as documents."""

    def __init__(self, model: SentenceTransformer, monkeypatch) -> None:
        self._calls = calls.watch(monkeypatch)

    @property
    def texts(self) -> int:
        return sum(calls.rows(call) for call in self._calls if call["task"] == "document")


def test_vectors_are_encoded_once_per_setting(cls_model, benchmark, tmp_path, monkeypatch) -> None:
    counting = Counting(cls_model, monkeypatch)
    options = {**QUICK, "cache": tmp_path / "cache"}
    first = evaluate(cls_model, benchmark, **options)
    assert counting.texts == 15
    assert evaluate(cls_model, benchmark, **options).to_json() == first.to_json()
    assert counting.texts == 15
    evaluate(cls_model, benchmark, SETTING, **options)
    assert counting.texts == 30
    evaluate(cls_model, benchmark, document_prompt="w1 ", **options)
    assert counting.texts == 45
    cls_model.max_seq_length = 20
    evaluate(cls_model, benchmark, **options)
    assert counting.texts == 60
    import torch

    with torch.no_grad():
        cls_model[0].auto_model.embeddings.word_embeddings.weight[5] += 1  # the same name, other weights
    evaluate(cls_model, benchmark, **options)
    assert counting.texts == 75
    cls_model.tokenizer.truncation_side = "left"
    evaluate(cls_model, benchmark, **options)
    assert counting.texts == 90
    cls_model[0].auto_model.config.layer_norm_eps = 0.5  # not in the weights
    evaluate(cls_model, benchmark, **options)
    assert counting.texts == 105
    evenspan.calibrate(cls_model, SETTING)  # the plain vectors of a calibrated model are those of the plain one
    evaluate(cls_model, benchmark, method="none", **options)
    assert counting.texts == 105


def test_a_damaged_cache_file_is_computed_again(cls_model, benchmark, tmp_path) -> None:
    options = {**QUICK, "cache": tmp_path / "cache"}
    first = evaluate(cls_model, benchmark, **options)
    for file in (tmp_path / "cache").rglob("*.npz"):
        file.write_bytes(file.read_bytes()[:100])
    assert evaluate(cls_model, benchmark, **options).to_json() == first.to_json()


def test_command_line(cls_model, folder, tmp_path, capsys) -> None:
    cls_model.save_pretrained(str(tmp_path / "model"))
    common = [
        str(tmp_path / "model"),
        "--benchmark",
        str(folder),
        "--cache",
        str(tmp_path / "cache"),
        "--resamples",
        "50",
    ]
    output = tmp_path / "results"
    arguments = ["--calibration", str(SETTING), "--calibration", "uniform,basket_size=16", "--baseline", "bm25"]
    assert main(["evaluate", *common, *arguments, "--output", str(output), "--limit", "12"]) == 0
    printed = capsys.readouterr().out
    for words_there in (
        "none",
        str(SETTING),
        "uniform,strength=0.5,layers=half,basket_size=16",
        "bm25",
        "PSI",
        "limited to 12",
    ):
        assert words_there in printed
    assert {file.name for file in output.iterdir()} >= {
        "none.json", "none.csv", f"{SETTING}.json", "comparison.md", "comparison.tex", "comparison.json", "run.json",
    }  # fmt: skip
    assert EvaluationResult.read(output / "none.json").method == "none"
    assert main(["evaluate", *common, "--json", "--title"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [result["method"] for result in found["results"]] == ["none", str(Calibration())]
    assert found["results"][0]["setting"]["benchmark_options"]["title"] is True
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path / "fair"))
    assert main(["evaluate", str(tmp_path / "fair"), *common[1:], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [result["method"] for result in found["results"]] == ["none", str(SETTING)], "its own calibration"
    assert main(["evaluate", *common, "--baseline", "window-average", "--window", "5000"]) == 2
    assert "window must be between 1 and" in capsys.readouterr().err
    assert main(["evaluate", *common[:1], "--benchmark", "nothing"]) == 2
    assert "Unknown benchmark 'nothing'" in capsys.readouterr().err
    assert main(["evaluate", *common, "--option", "tiny"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err


def test_what_another_run_is_writing_to_the_cache_stays(cls_model, benchmark, tmp_path) -> None:
    evaluate(cls_model, benchmark, cache=tmp_path / "cache", **QUICK)
    parts = {file.parent for file in (tmp_path / "cache").rglob("*.npz")}
    for part in parts:
        (part / "now.npz.1.tmp").write_bytes(b"half")
        (part / "then.npz.2.tmp").write_bytes(b"half")
        os.utime(part / "then.npz.2.tmp", (0, 0))
    evaluate(cls_model, benchmark, cache=tmp_path / "cache", **QUICK)
    assert sorted(path.name for path in (tmp_path / "cache").rglob("*.tmp")) == ["now.npz.1.tmp"] * len(parts)


def test_threads_that_share_a_cache_do_not_get_in_each_other_s_way(tmp_path) -> None:
    """Every run writes down the setting of its part of the cache."""
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(VectorCache, tmp_path, {"method": "none"}) for _ in range(400)]
    assert [one.exception() for one in made] == [None] * 400


def test_a_killed_run_goes_on_where_it_stopped(tmp_path) -> None:
    """A real SIGKILL, three times, and then the command gets through: the files are those of a run without any."""
    tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "base").save_pretrained(str(tmp_path / "model"))
    data = copies.directory(tmp_path / "data", documents=600, words=100)

    def start(name: str, shards: int = 1000) -> HeldCommand:
        arguments = [
            "evaluate", str(tmp_path / "model"), "--benchmark", str(data), "--calibration", str(SETTING),
            "--cache", str(tmp_path / f"cache-{name}"), "--output", str(tmp_path / name),
            "--resamples", "50", "--device", "cpu", "--batch-size", "8",
        ]  # fmt: skip
        return HeldCommand(arguments, tmp_path, "evenspan.evaluation.cache.VectorCache.add", shards)

    start("whole").finish()
    for kills in (1, 2, 3):  # each run gets one shard further, and is killed in the next
        killed = start("killed", shards=1)
        killed.wait()
        killed.kill()
        assert len(list((tmp_path / "cache-killed").rglob("*.npz"))) == kills
        assert not (tmp_path / "killed").exists(), "no empty folder is left"
    start("killed").finish()
    for name in ("none.json", f"{SETTING}.json", "comparison.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
