"""The miniatures, the generated benchmark and the demo: what someone sees in the first two minutes."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from helpers.paths import ROOT, SHARED
from nbclient import NotebookClient
from safetensors.torch import load_file

import evenspan
from evenspan import Calibration
from evenspan.cli import main
from evenspan.demonstration import demonstrate
from evenspan.evaluation import compare, evaluate, load_benchmark
from evenspan.evaluation.benchmarks.generated import PHRASES, load_generated
from evenspan.models import miniatures

NEWWIKI = SHARED / "data" / "newwiki-long-en"
NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"
RECIPES = ROOT / "recipes" / "miniature"
QUICK = {"progress": False, "resamples": 0}


@pytest.fixture(scope="module", params=["cls", "last"])
def model(request):
    return evenspan.miniature(request.param, device="cpu")


def test_miniatures_are_small_and_long() -> None:
    for pooling in ("cls", "last"):
        file = Path(miniatures.__file__).parent / f"{pooling}.safetensors"
        assert file.stat().st_size < 3_000_000


def test_a_miniature(model) -> None:
    found = evenspan.inspect_model(model)
    assert found.calibratable
    assert found.max_tokens == 2048
    assert found.layers == 6
    assert found.causal == (found.pooling == "last")
    question = model.encode_query("What is the capital of France?")
    near, far = model.encode_document(["Paris is the capital of France.", "Bananas are yellow."])
    assert question @ near > question @ far + 0.3
    assert model[0].auto_model.config._name_or_path == f"miniature:{found.pooling}"


def test_the_command_line_knows_them_by_name(capsys) -> None:
    assert main(["inspect", "miniature:last"]) == 0
    assert "the last token (causal attention)" in capsys.readouterr().out
    assert main(["inspect", "miniature:first"]) == 2
    assert "two miniatures, 'cls' and 'last'" in capsys.readouterr().err


def test_another_base_is_refused(tmp_path, monkeypatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not all-MiniLM-L6-v2: its SHA-256 is"):
        evenspan.miniature("cls", base=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no model\.safetensors"):
        evenspan.miniature("cls", base=tmp_path.parent)
    with pytest.raises(FileNotFoundError, match="no folder '/no/such/folder'"):
        evenspan.miniature("cls", base="/no/such/folder")
    monkeypatch.setattr(miniatures, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'evenspan\[demo\]'"):
        evenspan.miniature("cls")


def test_a_base_folder_gives_the_same_model() -> None:
    base = miniatures.base_folder(None)
    one, other = evenspan.miniature("cls", device="cpu"), evenspan.miniature("cls", base=base, device="cpu")
    np.testing.assert_array_equal(one.encode("hello there"), other.encode("hello there"))


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


def test_demo(tmp_path, capsys) -> None:
    plot = tmp_path / "demo.png"
    assert main(["demo", "--documents", "12", "--tokens", "512", "--plot", str(plot), "--pooling", "last"]) == 0
    printed = capsys.readouterr().out
    for words in ("beginning", "PSI", "encoding time, calibrated / plain", "rank of the document", "evidence: "):
        assert words in printed
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_demo_refuses_before_it_works(tmp_path, capsys) -> None:
    assert main(["demo", "--plot", str(tmp_path / "nowhere" / "plot.png")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["demo", "--tokens", "100"]) == 2
    assert "between 512 and 8,192" in capsys.readouterr().err


def test_the_trainer_resumes_where_it_stopped(tmp_path, monkeypatch) -> None:
    """Interrupted after a checkpoint and started again, it ends with the same adapter, bit for bit."""
    spec = importlib.util.spec_from_file_location("train", RECIPES / "train.py")
    train = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "train", train)
    spec.loader.exec_module(train)
    monkeypatch.setattr(train, "BATCH", 4)
    monkeypatch.setattr(train, "DOCUMENT_TOKENS", (48,))
    monkeypatch.setattr(train, "CHECKPOINT_EVERY", 2)
    pairs = tmp_path / "pairs.jsonl"
    rows = [
        {"text": f"Sentence {n} is here. Another one follows it.", "pairs": [[f"number {n}", 0.1]]} for n in range(6)
    ]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")

    def options(name: str, **changes: object) -> argparse.Namespace:
        given = {"pooling": "last", "pairs": pairs, "base": None, "output": tmp_path / name, "steps": 4, "rate": 1e-3}
        return argparse.Namespace(**{**given, "seed": 1, "device": "cpu", **changes})

    train.train(options("whole"))
    embed, calls = train.embed, []

    def interrupted(*args):
        calls.append(1)
        if len(calls) > 6:  # in the fourth step
            raise KeyboardInterrupt
        return embed(*args)

    monkeypatch.setattr(train, "embed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train.train(options("broken"))
    monkeypatch.setattr(train, "embed", embed)
    with pytest.raises(ValueError, match="checkpoint of another run"):
        train.train(options("broken", seed=2))
    train.train(options("broken"))
    whole, broken = (load_file(tmp_path / name / "adapter.safetensors") for name in ("whole", "broken"))
    assert whole.keys() == broken.keys()
    assert all(torch.equal(tensor, broken[name]) for name, tensor in whole.items())


def test_the_example_of_the_demo_is_true() -> None:
    found = demonstrate(documents=12, tokens=512, progress=False)
    place = re.search(r"[A-Z]\w+(?= \w)", found.example.question.partition(" ")[2])[0]
    assert place in found.example.evidence
    assert found.example.rank_after <= found.example.rank_before
    assert found.comparison.rows[0].method == "none"


def test_notebook(tmp_path) -> None:
    """Runs from top to bottom, and is committed with its output."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert any(cell.get("outputs") for cell in notebook.cells if cell.cell_type == "code")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()


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
