"""Sweeps: exact, resumable, and honest about what they find."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import calls, tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

import evenspan
from evenspan import Calibration, sweeps
from evenspan.cli import main
from evenspan.evaluation import evaluate, load_benchmark
from evenspan.sweeps import sweeping
from evenspan.sweeps.figures import pareto_front
from evenspan.sweeps.splitting import split

UNKNOWN = {"distilbert", "modernbert", "nomic_bert", "gemma2", "gemma3", "exaone4"}
MIXED = [
    Calibration(variant, strength, layers, size)
    for variant in ("soft", "uniform", "hard")
    for strength, layers, size in ((0.5, "half", 16), (1.0, "last", 32), (0.7, "all", 8))
]


def separately(model, calibration, texts=tiny.TEXTS, **options) -> np.ndarray:
    with evenspan.calibrated(model, calibration):
        return model.encode_document(texts, **options)


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES, ids=str)
def test_exact_for_every_architecture(architecture, tmp_path) -> None:
    model = tiny.sentence_transformer(architecture, tmp_path)
    plain = model.encode_document(tiny.TEXTS)
    even = Calibration(strength=1.0, basket_size=16, partition="even")
    settings = [*MIXED, Calibration(layers=(1, 3), basket_size=16), even, Calibration(strength=0.0)]
    settings = [setting for setting in settings if architecture.takes(setting)]
    vectors = sweeps.encode(model, tiny.TEXTS, settings)
    assert vectors.shared == (architecture.name not in UNKNOWN)
    assert list(vectors) == settings
    np.testing.assert_array_equal(vectors.plain, plain)
    for setting in settings:
        expected = separately(model, setting)
        np.testing.assert_allclose(vectors[setting], expected, atol=1e-5, rtol=0, err_msg=str(setting))
        if setting.strength:
            assert np.abs(vectors[setting] - plain).max() > 1e-3
    np.testing.assert_array_equal(model.encode_document(tiny.TEXTS), plain)
    assert evenspan.calibration_of(model) is None


def test_detached_is_exact_where_nothing_else_is_changed(tmp_path) -> None:
    causal = tiny.sentence_transformer("qwen3-lasttoken", tmp_path / "causal")
    for setting, vectors in sweeps.encode(causal, tiny.TEXTS, MIXED, detached=True).items():
        np.testing.assert_allclose(vectors, separately(causal, setting), atol=1e-5, rtol=0)
    first = tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "first")
    vectors = sweeps.encode(first, tiny.TEXTS, MIXED, detached=True)
    assert vectors.detached
    for setting in MIXED:
        off = np.abs(vectors[setting] - separately(first, setting)).max()
        # Half of four layers are two, and between them no other row has seen the pooled one.
        assert 1e-5 < off < 1.0 if setting.layers == "all" else off < 1e-5
    mean = tiny.sentence_transformer("bert-mean", tmp_path / "mean")  # of which all rows are changed
    vectors = sweeps.encode(mean, tiny.TEXTS, MIXED[:1], detached=True)
    assert not vectors.detached
    np.testing.assert_allclose(vectors[MIXED[0]], separately(mean, MIXED[0]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["xlm-roberta-cls", "xlm-roberta-mean"])
def test_prompts_truncation_and_a_calibrated_model(name, tmp_path) -> None:
    model = tiny.sentence_transformer(name, tmp_path, prompts={"document": "w1 w2 ", "query": "w3 "})
    model[1].include_prompt = False
    evenspan.calibrate(model, Calibration(basket_size=8))
    setting = Calibration(strength=1.0, basket_size=16)
    np.testing.assert_allclose(
        sweeps.encode(model, tiny.TEXTS, [setting])[setting], separately(model, setting), atol=1e-5
    )
    assert evenspan.calibration_of(model) == Calibration(basket_size=8)
    model.truncate_dim = 8
    assert sweeps.encode(model, tiny.TEXTS, [setting])[setting].shape == (len(tiny.TEXTS), 8)
    np.testing.assert_allclose(
        sweeps.encode(model, tiny.TEXTS, [setting])[setting], separately(model, setting), atol=1e-5
    )
    assert model.truncate_dim == 8
    assert sweeps.encode(model, [], [setting])[setting].shape[0] == 0


def test_modules_behind_the_pooling(cls_model) -> None:
    transformer, pooling, normalize = cls_model
    dense = SentenceTransformer(modules=[transformer, pooling, Dense(32, 8), normalize], device="cpu")
    setting = Calibration(strength=1.0, basket_size=16)
    vectors = sweeps.encode(dense, tiny.TEXTS, [setting])
    assert vectors.shared
    np.testing.assert_allclose(vectors[setting], separately(dense, setting), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "layers", "detached", "passes"),
    # Four layers in a plain pass. Calibrated from the first on, a first-token model runs the two between the first and the
    # last again for each of three settings. A mean-pooled model runs those that are calibrated again, once more to see that
    # this can be done.
    [
        ("qwen3-lasttoken", "all", False, 4),
        ("xlm-roberta-cls", "all", False, 4 + 3 * 2),
        ("xlm-roberta-cls", "all", True, 4),
        ("xlm-roberta-mean", "half", False, 4 + 3 * 2 + 2),
    ],
)
def test_layers_are_run_no_more_than_needed(name, layers, detached, passes, tmp_path, monkeypatch) -> None:
    model = tiny.sentence_transformer(name, tmp_path)
    seen = []
    (kind,) = {type(m) for path, m in model[0].auto_model.named_modules() if path.endswith((".mlp", ".intermediate"))}
    forward = kind.forward

    def counting(module, states):  # of the class: a hook on a module would have every layer run as a whole
        seen.append(states.numel() // 32)
        return forward(module, states)

    monkeypatch.setattr(kind, "forward", counting)
    settings = [Calibration("soft", value, layers, 16) for value in (0.2, 0.4, 0.6)]
    sweeps.encode(model, [tiny.text(100)], settings, detached=detached)
    assert sum(tokens > 100 for tokens in seen) == passes


def test_memory_that_runs_out_halves_the_batch(cls_model, monkeypatch) -> None:
    setting = Calibration(basket_size=16)
    expected = separately(cls_model, setting, batch_size=2)
    batches = calls.watch(monkeypatch, most=2)
    vectors = sweeps.encode(cls_model, tiny.TEXTS, [setting], batch_size=8)
    sizes = calls.sizes(batches)
    assert sizes[:3] == [7, 3, 1]
    assert max(sizes[-2:]) <= 2
    np.testing.assert_allclose(vectors[setting], expected, atol=1e-5)


def test_grids(tmp_path) -> None:
    assert len(set(sweeps.paper_grid())) == 24
    assert len(set(sweeps.ablation_grid())) == 40
    assert sweeps.read_grid("even") == sweeps.even_grid()
    assert {(one.partition, one.variant) for one in sweeps.even_grid()} == {("even", "soft")}
    assert len(set(sweeps.even_grid())) == 16
    assert {one.strength for one in sweeps.ablation_grid()} == {round(0.05 * step, 2) for step in range(1, 21)}
    file = tmp_path / "grid.txt"
    file.write_text("# mine\nsoft,strength=0.3\n\nhard\n", encoding="utf-8")
    assert sweeps.read_grid(file) == [Calibration(strength=0.3), Calibration("hard")]
    file.write_text(json.dumps(["soft", Calibration("uniform").to_dict()]), encoding="utf-8")
    assert sweeps.read_grid(file) == [Calibration(), Calibration("uniform")]
    with pytest.raises(ValueError, match="'paper', 'ablation', 'even', or a file"):
        sweeps.read_grid("papre")
    with pytest.raises(TypeError, match="must hold Calibrations"):
        sweeps.encode(None, [], ["soft"])


def test_pareto_front() -> None:
    assert pareto_front([(0.3, 60.0), (0.1, 58.0), (0.2, 57.0), (0.1, 50.0), (0.4, 59.0)]) == [(0.1, 58.0), (0.3, 60.0)]


@pytest.fixture(scope="module")
def miniature() -> SentenceTransformer:
    return evenspan.miniature("cls", device="cpu")


@pytest.fixture(scope="module")
def benchmark():
    return load_benchmark("generated", documents=16, tokens=512)


def test_options_of_encode_document(tmp_path) -> None:
    model = tiny.sentence_transformer("qwen3-lasttoken", tmp_path, prompts={"query": "w1 w2 ", "document": "w3 "})
    setting = Calibration(strength=1.0, basket_size=16)
    for options in (
        {"normalize_embeddings": True},
        {"normalize_embeddings": True, "truncate_dim": 7},
        {"prompt": "w9 "},
        {"prompt": "w1 w2 "},  # the query prompt: nothing is calibrated then, by either
    ):
        vectors = sweeps.encode(model, tiny.TEXTS, [setting], **options)
        np.testing.assert_allclose(
            vectors[setting], separately(model, setting, **options), atol=1e-5, err_msg=str(options)
        )
    with pytest.raises(TypeError, match="unexpected keyword argument 'precision'"):
        sweeps.encode(model, tiny.TEXTS, [setting], precision="int8")
    with pytest.raises(TypeError, match="not one string"):
        sweeps.encode(model, "a text", [setting])


def test_what_cannot_be_shared_is_encoded_one_by_one(cls_model, tmp_path) -> None:
    setting = Calibration(strength=1.0, basket_size=16)
    layer = cls_model[0].auto_model.encoder.layer[3]
    hook = layer.attention.self.register_forward_hook(lambda _, __, output: (output[0] * 1.0005, *output[1:]))
    vectors = sweeps.encode(cls_model, tiny.TEXTS, [setting])
    assert not vectors.shared
    np.testing.assert_allclose(vectors[setting], separately(cls_model, setting), atol=1e-5)
    hook.remove()
    kept = layer.forward
    layer.forward = kept
    sweeps.encode(cls_model, tiny.TEXTS, [setting])
    assert layer.__dict__["forward"] == kept, "what someone has put there is still there"
    windows = tiny.row(
        "qwen3", "Qwen3Config", "lasttoken", layer_types=tiny.MIXED, use_sliding_window=True, sliding_window=16,
        max_window_layers=0, padding="left", **tiny.DECODER,
    )  # fmt: skip
    model = tiny.sentence_transformer(windows, tmp_path / "windows")
    for setting in (
        Calibration(strength=1.0, layers="all", basket_size=16),
        Calibration(layers="last", basket_size=16),
    ):
        vectors = sweeps.encode(model, tiny.TEXTS, [setting])
        np.testing.assert_allclose(vectors[setting], separately(model, setting), atol=1e-5)


@pytest.mark.parametrize("name", ["xlm-roberta-cls", "xlm-roberta-mean"])
def test_rows_that_do_not_arrive_are_noticed(name, tmp_path, monkeypatch) -> None:
    model = tiny.sentence_transformer(name, tmp_path)
    monkeypatch.setattr("evenspan.sweeps.shared.tolerance", lambda _: -1.0)
    setting = Calibration(strength=1.0, basket_size=16)
    with pytest.warns(UserWarning, match="off by .* from its own. The settings are encoded one by one"):
        vectors = sweeps.encode(model, tiny.TEXTS, [setting])
    np.testing.assert_allclose(vectors[setting], separately(model, setting), atol=1e-5)


GRID = sweeps.strengths([0.5, 1.0], ["last", "half"], basket_size=64)


def test_sweep_agrees_with_evaluating_one_by_one(miniature, benchmark, tmp_path) -> None:
    broken = Calibration(layers=(40,))
    found = sweeps.sweep(miniature, benchmark, [*GRID, broken], cache=tmp_path / "cache", resamples=50, progress=False)
    assert list(found.results) == GRID
    assert "Layer 40 does not exist" in found.failures[broken]
    assert "not evaluated" in str(found)
    alone = evaluate(miniature, benchmark, GRID[-1], resamples=50, progress=False)
    assert found.results[GRID[-1]].harmonic_mean == pytest.approx(alone.harmonic_mean, abs=1e-9)
    assert found.plain.psi > found.results[Calibration(strength=1.0, basket_size=64)].psi
    frame = found.to_frame()
    assert len(frame) == 5
    assert {"beginning", "middle", "end", "harmonic_mean", "psi", "strength", "layers"} <= set(frame)
    found.write(tmp_path / "out")
    for name in (
        "strengths.png",
        "strengths.svg",
        "trade_off.png",
        "trade_off.svg",
        "sweep.csv",
        "sweep.md",
        "none.json",
    ):
        assert (tmp_path / "out" / name).stat().st_size > 0


def test_a_sweep_that_is_interrupted_goes_on(miniature, benchmark, tmp_path, monkeypatch) -> None:
    encoded = []
    shared = sweeping.encode_settings

    def counting(encoder, texts, *args, **options):
        if len(encoded) == 1:
            encoded.append("stopped")
            raise KeyboardInterrupt
        encoded.append(len(texts))
        return shared(encoder, texts, *args, **options)

    monkeypatch.setattr(sweeping, "encode_settings", counting)
    options = {"cache": tmp_path, "resamples": 0, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        sweeps.sweep(miniature, benchmark, GRID, **options)
    again = sweeps.sweep(miniature, benchmark, GRID, **options)
    assert encoded == [16, "stopped", 16, 16], "the first collection is not encoded again"
    sweeps.sweep(miniature, benchmark, GRID, **options)
    assert len(encoded) == 4, "nothing is encoded that is in the cache"
    assert len(again.results) == 4


def test_detached_sweeps_say_so_and_recheck_their_winner(miniature, benchmark) -> None:
    found = sweeps.sweep(miniature, benchmark, GRID, detached=True, resamples=0, progress=False)
    assert found.detached
    assert all(result.method.endswith("(detached)") for result in found.results.values())
    exact = evaluate(miniature, benchmark, found.best, resamples=0, progress=False)
    assert found.rechecked.harmonic_mean == pytest.approx(exact.harmonic_mean, abs=1e-9)
    assert "Detached: approximate" in str(found)
    assert found.results[found.best].harmonic_mean == pytest.approx(exact.harmonic_mean, abs=0.02)


def test_a_sweep_of_a_mean_pooled_model_is_never_approximate(benchmark, tmp_path) -> None:
    model = tiny.sentence_transformer("bert-mean", tmp_path)
    found = sweeps.sweep(model, benchmark, [Calibration(basket_size=16)], detached=True, resamples=0, progress=False)
    assert not found.detached
    assert [result.method for result in found.results.values()] == [str(Calibration(basket_size=16))]


def test_tune_recommends_what_helps_and_leaves_off_what_does_not(miniature) -> None:
    benchmark = load_benchmark("generated", documents=40, tokens=512)
    options = {"progress": False, "cache": None}
    helps = sweeps.tune(miniature, benchmark, [Calibration(basket_size=64)], **options)
    assert helps.calibration == Calibration(basket_size=64)
    assert str(helps).startswith("Use soft,strength=0.5")
    assert helps.gain.significant
    # Baskets that no document fills: calibrated and plain are the same, and nothing can be gained.
    useless = sweeps.tune(miniature, benchmark, [Calibration(basket_size=4096)], **options)
    assert useless.calibration is None
    assert str(useless).startswith("Leave it off")
    assert "soft,strength=0.5,layers=half,basket_size=4096" in str(useless)
    assert "HM +0.00" in str(useless), "in words, with the numbers"


def test_tune_needs_enough_queries(miniature) -> None:
    small = load_benchmark("generated", documents=4, tokens=512)
    with pytest.raises(ValueError, match="at least 10 are needed"):
        sweeps.tune(miniature, small, GRID, progress=False)
    with pytest.raises(ValueError, match="between 0 and 1"):
        sweeps.tune(miniature, small, GRID, development=1.5)


def test_both_sides_of_the_split_share_no_document(benchmark) -> None:
    chosen = split(benchmark, 0.5, seed=1)
    sides = [set(), set()]
    for collection in benchmark.collections:
        for query in collection.queries:
            sides[(collection.name, query.id) in chosen].update(collection.relevance[query.id])
    assert not sides[0] & sides[1]
    assert len(sides[0]) == len(sides[1]) == 8


def test_command_line(tmp_path, capsys) -> None:
    grid = tmp_path / "grid.txt"
    grid.write_text("soft,basket_size=64\nsoft,strength=1.0,basket_size=64\n", encoding="utf-8")
    common = ["--benchmark", "generated", "--option", "documents=24", "--option", "tokens=512", "--no-cache"]
    output = tmp_path / "out"
    assert main(["sweep", "miniature:cls", *common, "--grid", str(grid), "--output", str(output)]) == 0
    assert "soft,strength=1.0,layers=half,basket_size=64" in capsys.readouterr().out
    assert (output / "trade_off.png").exists()
    saved = tmp_path / "tuned"
    assert main(["tune", "miniature:cls", *common, "--grid", str(grid), "--save", str(saved)]) == 0
    printed = capsys.readouterr().out
    if printed.startswith("Use"):
        assert evenspan.calibration_of(evenspan.load(str(saved))) is not None
    else:
        assert not saved.exists()
    assert main(["sweep", "miniature:cls", *common, "--grid", "nowhere"]) == 2
    assert "Unknown grid 'nowhere'" in capsys.readouterr().err


def test_results_can_be_taken_apart(miniature, benchmark) -> None:
    found = sweeps.sweep(miniature, benchmark, GRID[:1], resamples=0, progress=False)
    assert replace(found, failures={}).best == GRID[0]
