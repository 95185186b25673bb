"""mteb keeps plain and calibrated results apart, and scores our benchmarks as we do."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset
from helpers import copies, tiny
from helpers.paths import DOCS
from torch.utils.data import DataLoader

import evenspan
from evenspan.errors import MissingExtraError
from evenspan.evaluation import evaluate, load_benchmark

mteb = pytest.importorskip("mteb", reason="mteb is not installed: pip install 'evenspan[mteb]'")

from mteb.models import CachedEmbeddingWrapper, SentenceTransformerEncoderWrapper  # noqa: E402
from mteb.types import PromptType  # noqa: E402

from evenspan.integrations.mteb import CalibratedEncoder, as_task  # noqa: E402

STRONG = evenspan.Calibration("uniform", strength=1.0, layers="all", basket_size=8)
MILD = evenspan.Calibration(strength=0.5, layers="all", basket_size=8)
TEXTS = [tiny.text(90, seed) for seed in range(4)]

# mteb says in warnings that a model lacks prompts and that a cache is new.
pytestmark = pytest.mark.filterwarnings("ignore:::mteb")


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    return load_benchmark(copies.directory(tmp_path_factory.mktemp("data") / "small"))


@pytest.fixture(scope="module")
def task(benchmark):
    return as_task(benchmark)


@pytest.fixture
def cache(tmp_path):
    return mteb.ResultCache(tmp_path / "results")


def run(model, task, cache=None, **options):
    (result,) = mteb.evaluate(model, task, cache=cache, show_progress_bar=False, **options).task_results
    return result


def vectors(encoder, task, prompt_type=PromptType.document):
    loader = DataLoader(Dataset.from_dict({"id": list("abcd"), "text": TEXTS}), batch_size=3)
    place = {"task_metadata": task.metadata, "hf_split": "test", "hf_subset": "default"}
    return encoder.encode(loader, prompt_type=prompt_type, **place)


def test_a_bare_model_gets_its_plain_scores_when_it_is_calibrated(cls_model, task, cache) -> None:
    plain = run(cls_model, task, cache).get_score()
    evenspan.calibrate(cls_model, MILD)
    assert run(cls_model, task, cache).get_score() == pytest.approx(plain, abs=1e-6)
    # And once it is scored anew, the plain model gets the calibrated scores.
    calibrated = run(cls_model, task, cache, overwrite_strategy="always").get_score()
    assert abs(calibrated - plain) > 1e-3
    assert run(evenspan.restore(cls_model), task, cache).get_score() == pytest.approx(calibrated, abs=1e-6)


def test_results_are_stored_by_calibration(cls_model, task, cache) -> None:
    bare = run(cls_model, task, cache).get_score()
    encoders = [CalibratedEncoder(cls_model, setting) for setting in (None, MILD, STRONG)]
    scores = [run(encoder, task, cache).get_score() for encoder in encoders]
    assert scores[0] == pytest.approx(bare, abs=1e-6)
    assert len(set(scores)) == 3
    assert [run(encoder, task, cache).get_score() for encoder in encoders] == pytest.approx(scores, abs=1e-6)
    stored = {path.parent.name for path in cache.cache_path.rglob("experiments/*/model_meta.json")}
    assert stored == {"calibration_none", f"calibration_{MILD}", f"calibration_{STRONG}"}
    for encoder, score in zip(encoders, scores, strict=True):
        table = cache.load_results(models=[encoder.mteb_model_meta]).to_dataframe()
        assert table["local/cls"].tolist() == pytest.approx([score], abs=1e-6)
    assert run(cls_model, task, cache, overwrite_strategy="only-cache").get_score() == pytest.approx(bare, abs=1e-6)


def test_documents_are_calibrated_and_all_else_is_plain(cls_model, task) -> None:
    plain = {
        PromptType.document: cls_model.encode_document(TEXTS),
        PromptType.query: cls_model.encode_query(TEXTS),
        None: cls_model.encode(TEXTS),
    }
    assert np.abs(plain[PromptType.query] - plain[None]).max() > 1e-3  # the query prompt
    with evenspan.calibrated(cls_model, STRONG):
        documents = cls_model.encode_document(TEXTS)
    for state in (None, MILD):
        if state is not None:
            evenspan.calibrate(cls_model, state, default_task="document")
        unsure, sure = CalibratedEncoder(cls_model, "none"), CalibratedEncoder(cls_model, str(STRONG))
        for prompt_type, expected in plain.items():
            np.testing.assert_array_equal(vectors(unsure, task, prompt_type), expected)
            calibrated = documents if prompt_type == PromptType.document else expected
            np.testing.assert_array_equal(vectors(sure, task, prompt_type), calibrated)
        assert evenspan.calibration_of(cls_model) == state


def test_an_encoder_keeps_its_calibration(cls_model, task) -> None:
    encoder = CalibratedEncoder(evenspan.calibrate(cls_model, MILD))
    assert encoder.mteb_model_meta.experiment_kwargs == {"calibration": str(MILD)}
    expected = cls_model.encode_document(TEXTS)
    for change in (evenspan.restore, lambda model: evenspan.calibrate(model, STRONG)):
        change(cls_model)
        np.testing.assert_array_equal(vectors(encoder, task), expected)


def test_prompts_named_for_mteb_are_used_as_mteb_uses_them(tmp_path, task) -> None:
    prompts = {"Retrieval-query": "w5 w6 ", "STS": "w7 ", "query": "w8 ", "document": "w9 ", "other": "w1 "}
    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path, prompts=prompts)
    bare, encoder = SentenceTransformerEncoderWrapper(model), CalibratedEncoder(model)
    score = run(encoder, task).get_score()
    assert score == pytest.approx(run(bare, task).get_score(), abs=1e-6)
    np.testing.assert_array_equal(
        vectors(encoder, task, PromptType.query), model.encode_query(TEXTS, prompt_name="Retrieval-query")
    )
    np.testing.assert_array_equal(vectors(encoder, task), model.encode_document(TEXTS))


def test_folders_and_names(cls_model, tmp_path) -> None:
    cls_model.save_pretrained(str(tmp_path / "plain model"))
    evenspan.calibrate(cls_model, MILD).save_pretrained(str(tmp_path / "calibrated"))
    plain, calibrated = (
        CalibratedEncoder(tmp_path / name, device="cpu").mteb_model_meta for name in ("plain model", "calibrated")
    )
    assert (plain.name, calibrated.name) == ("local/plain model", "local/calibrated")
    assert plain.revision == calibrated.revision
    assert re.fullmatch("[0-9a-f]{64}", plain.revision)
    assert (plain.experiment_name, calibrated.experiment_name) == ("calibration_none", f"calibration_{MILD}")
    assert (plain.embed_dim, plain.max_tokens) == (32, cls_model.max_seq_length)
    named = CalibratedEncoder(tmp_path / "calibrated", "none", name="me/mine", revision="2").mteb_model_meta
    assert (named.name, named.revision, named.experiment_name) == ("me/mine", "2", "calibration_none")
    cls_model.config._name_or_path, cls_model.config._commit_hash = "BAAI/bge-m3", "5617a9f"
    hub = CalibratedEncoder(cls_model).mteb_model_meta
    assert (hub.name, hub.revision) == ("BAAI/bge-m3", "5617a9f")
    cls_model.config._name_or_path = "miniature:cls"
    assert CalibratedEncoder(cls_model).mteb_model_meta.name == "evenspan/miniature-cls"


def test_what_cannot_be_is_refused_at_once(cls_model, tmp_path) -> None:
    with pytest.raises(ValueError, match="'organisation/model', not 'mine'"):
        CalibratedEncoder(cls_model, name="mine")
    with pytest.raises(TypeError, match="device: options for loading"):
        CalibratedEncoder(cls_model, device="cpu")
    with pytest.raises(ValueError, match="not 'gently'"):
        CalibratedEncoder(cls_model, "gently")
    with pytest.raises(TypeError, match="must be a Calibration, not float"):
        CalibratedEncoder(cls_model, 0.5)
    with pytest.raises(ValueError, match="layers=9"):
        CalibratedEncoder(cls_model, "soft,layers=9")


def test_a_bare_model_shares_cached_vectors_and_encoders_do_not(cls_model, task, tmp_path) -> None:
    plain, calibrated = (vectors(CalibratedEncoder(cls_model, setting), task) for setting in ("none", MILD))

    def check(wrapper, expected):
        np.testing.assert_allclose(vectors(wrapper, task), expected, atol=1e-6)

    bare = SentenceTransformerEncoderWrapper(cls_model)
    check(CachedEmbeddingWrapper(bare, tmp_path / "bare"), plain)
    evenspan.calibrate(cls_model, MILD)
    check(CachedEmbeddingWrapper(bare, tmp_path / "bare"), plain)
    for expected, setting in ((plain, "none"), (calibrated, MILD), (plain, "none")):
        encoder = CalibratedEncoder(cls_model, setting)
        check(CachedEmbeddingWrapper(encoder, tmp_path / "one"), expected)
        check(encoder.cached(tmp_path / "many"), expected)
    # mteb does not keep models apart; `cached` does.
    other = tiny.sentence_transformer("bert-cls", tmp_path / "cls")
    encoder = CalibratedEncoder(other, "none")
    assert encoder.mteb_model_meta.name == "local/cls"  # as the first one
    check(CachedEmbeddingWrapper(encoder, tmp_path / "one"), plain)
    check(encoder.cached(tmp_path / "many"), other.encode_document(TEXTS))


def by_third(benchmark):
    """A collection for each position, as the paired benchmark has them, of different sizes."""
    (whole,) = benchmark.collections
    parts = []
    for size, name in zip((12, 10, 8), benchmark.groups, strict=True):
        queries = tuple(query for query in whole.queries if query.groups == (name,))[:size]
        parts.append(replace(whole, name=name, queries=queries))
    return replace(benchmark, collections=tuple(parts))


@pytest.mark.parametrize("kind", ["directory", "by third", "posir", "nanobeir"])
def test_scores_are_those_of_evaluate(kind, benchmark, cls_model, cache, tmp_path) -> None:
    benchmark = {
        "directory": lambda: benchmark,
        "by third": lambda: by_third(benchmark),
        "posir": lambda: load_benchmark("posir", language="deu-Latn", path=copies.posir(tmp_path / "posir")),
        "nanobeir": lambda: load_benchmark(
            "nanobeir", sets="ArguAna,NFCorpus", path=copies.nanobeir(tmp_path / "beir")
        ),
    }[kind]()
    task = as_task(benchmark)
    assert task.languages == (["deu"] if kind == "posir" else ["und"])
    ours = evaluate(cls_model, benchmark, MILD, progress=False, resamples=0)
    fresh, stored = (run(CalibratedEncoder(cls_model, MILD), task, cache) for _ in range(2))
    for result in (fresh, stored):
        scores = task.position_scores(result)
        assert scores.ndcg == pytest.approx(ours.ndcg, abs=1e-6)
        assert (scores.harmonic_mean is None, scores.psi is None) == (ours.harmonic_mean is None, ours.psi is None)
        if ours.psi is not None:
            assert scores.groups == pytest.approx({name: group.ndcg for name, group in ours.groups.items()}, abs=1e-6)
            assert (scores.harmonic_mean, scores.psi) == pytest.approx((ours.harmonic_mean, ours.psi), abs=3e-6)
    assert [row["hf_subset"] for row in fresh.scores["test"]] == task.hf_subsets
    if kind == "directory":
        (row,) = fresh.scores["test"]
        assert row["main_score"] == pytest.approx(ours.ndcg, abs=1e-6)
        assert row["ndcg_at_10_end"] == pytest.approx(ours.groups["end"].ndcg, abs=1e-6)
        assert (row["psi"], row["queries"], row["queries_end"]) == (pytest.approx(ours.psi, abs=3e-6), 36, 12)
        assert "recall_at_10" in row
    if kind == "by third":
        assert all("psi" not in row for row in fresh.scores["test"])


def test_tasks_of_other_data_have_other_names(benchmark, task, cls_model) -> None:
    smaller = as_task(benchmark.limited(6), languages=["deu-Latn"])
    assert smaller.languages == ["deu"]
    assert re.fullmatch("small-[0-9a-f]{12}", task.metadata.name)
    assert smaller.metadata.name != task.metadata.name
    result = run(CalibratedEncoder(cls_model), smaller)
    with pytest.raises(ValueError, match=f"none of '{task.metadata.name}'"):
        task.position_scores(result)
    parts = as_task(by_third(benchmark))
    parts.hf_subsets = ["end"]
    with pytest.raises(ValueError, match="lacks beginning, middle"):
        parts.position_scores(run(CalibratedEncoder(cls_model), parts))
    (whole,) = benchmark.collections
    with pytest.raises(ValueError, match="the same name: small, small"):
        as_task(replace(benchmark, collections=(whole, whole)))


def test_without_mteb_the_extra_is_named(monkeypatch) -> None:
    for name in [name for name in sys.modules if name.startswith("evenspan.integrations")]:
        monkeypatch.delitem(sys.modules, name)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "mteb", None)
        with pytest.raises(MissingExtraError, match=r"needs mteb: pip install 'evenspan\[mteb\]'"):
            importlib.import_module("evenspan.integrations.mteb")
    monkeypatch.setattr(mteb, "__version__", "2.9.1")
    with pytest.raises(MissingExtraError, match=r"2\.26 or newer, not 2\.9\.1"):
        importlib.import_module("evenspan.integrations.mteb")


def test_the_page_runs(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    copies.directory(tmp_path / "my-data")
    tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "base").save_pretrained(str(tmp_path / "bge-m3"))
    code = "".join(
        re.findall(r"^```python\n(.*?)^```", (DOCS / "mteb.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )
    exec(compile(code.replace("BAAI/bge-m3", str(tmp_path / "bge-m3")), "mteb.md", "exec"), {})
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown[:2]] == ["calibration_none", f"calibration_{evenspan.Calibration()}"]
    assert "'beginning': " in shown[2]
