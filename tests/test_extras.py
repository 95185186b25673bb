"""A missing extra is named with its pip command, before any work."""

from __future__ import annotations

import pytest
from helpers import copies
from sentence_transformers import SentenceTransformer

from evenspan import errors, sweeps
from evenspan.cli import main
from evenspan.demonstration import demonstrate
from evenspan.errors import MissingExtraError
from evenspan.evaluation import evaluate, load_benchmark
from evenspan.evaluation.benchmarks.texts import from_texts
from evenspan.indexing.layout import Layout
from evenspan.sweeps.reproducing import reproduce


@pytest.fixture
def benchmark(tmp_path):
    return load_benchmark(copies.directory(tmp_path / "mine", documents=3))


@pytest.fixture(autouse=True)
def no_work(monkeypatch) -> None:
    def encode(*_, **__):
        raise AssertionError("something was encoded")

    monkeypatch.setattr(SentenceTransformer, "forward", encode)


def without(monkeypatch, module: str) -> None:
    find_spec = errors.find_spec
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == module else find_spec(name))


@pytest.mark.parametrize("module", ["ir_measures", "scipy", "pandas"])
@pytest.mark.parametrize("work", [evaluate, sweeps.sweep, sweeps.tune])
def test_scores_need_the_extra_for_evaluation(work, module, cls_model, benchmark, monkeypatch) -> None:
    without(monkeypatch, module)
    with pytest.raises(MissingExtraError, match=rf"needs {module}: pip install 'evenspan\[eval\]'"):
        work(cls_model, benchmark, progress=False)


@pytest.mark.parametrize(("name", "module"), [("bm25", "bm25s"), ("segment-average", "chonkie")])
def test_baselines_name_what_they_need(name, module, cls_model, benchmark, monkeypatch) -> None:
    without(monkeypatch, module)
    with pytest.raises(MissingExtraError, match=rf"{name} needs {module}: pip install 'evenspan\[eval\]'"):
        evaluate(cls_model, benchmark, method=name, progress=False)


def test_sentences_name_what_finds_them(monkeypatch) -> None:
    without(monkeypatch, "sentencex")
    with pytest.raises(
        MissingExtraError, match=r"A benchmark of texts needs sentencex: pip install 'evenspan\[eval\]'"
    ):
        from_texts(["One. Two."])
    with pytest.raises(MissingExtraError, match=r"needs sentencex: pip install 'evenspan\[index\]'"):
        Layout(chunk_tokens=64)


@pytest.mark.parametrize("module", ["chonkie", "datasets", "pyarrow", "ir_measures"])
def test_the_papers_tables_need_more(module, cls_model, monkeypatch) -> None:
    without(monkeypatch, module)
    with pytest.raises(MissingExtraError, match=rf"needs {module}: pip install 'evenspan\[eval\]'"):
        reproduce("fineweb-posq", cls_model, paper_model="bge-m3-dense")


def test_the_demo_names_its_own_extra(monkeypatch) -> None:
    without(monkeypatch, "ir_measures")
    with pytest.raises(MissingExtraError, match=r"The demo needs ir_measures: pip install 'evenspan\[demo\]'"):
        demonstrate(progress=False)


@pytest.mark.parametrize("module", ["fastapi", "uvicorn", "orjson", "prometheus_client"])
def test_a_server_names_its_extra(module, monkeypatch, capsys) -> None:
    without(monkeypatch, module)
    assert main(["serve", "nowhere"]) == 2
    assert f"A server needs {module}: pip install 'evenspan[serve]'" in capsys.readouterr().err
