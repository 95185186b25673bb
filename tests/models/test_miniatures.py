"""The miniatures: small, long, biased, and built on the right base."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.paths import ROOT
from safetensors.torch import load_file

import evenspan
from evenspan.cli import main
from evenspan.models import miniatures

RECIPES = ROOT / "recipes" / "miniature"


@pytest.fixture(scope="module", params=["cls", "last", "mean"])
def model(request):
    return evenspan.miniature(request.param, device="cpu")


def test_miniatures_are_small_and_long() -> None:
    for pooling in ("cls", "last", "mean"):
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
    assert "Available: 'cls', 'last', 'mean'" in capsys.readouterr().err


def test_another_base_is_refused(tmp_path, monkeypatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not all-MiniLM-L6-v2: its SHA-256 is"):
        evenspan.miniature("cls", base=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no model\.safetensors"):
        evenspan.miniature("cls", base=tmp_path.parent)
    with pytest.raises(FileNotFoundError, match="'/no/such/folder' is neither a folder"):
        evenspan.miniature("cls", base="/no/such/folder")
    monkeypatch.setattr(miniatures, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'evenspan\[demo\]'"):
        evenspan.miniature("cls")


def test_a_base_folder_gives_the_same_model() -> None:
    base = miniatures.base_folder(None)
    one, other = evenspan.miniature("cls", device="cpu"), evenspan.miniature("cls", base=base, device="cpu")
    np.testing.assert_array_equal(one.encode("hello there"), other.encode("hello there"))


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
