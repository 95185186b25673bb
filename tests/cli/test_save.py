"""`evenspan save`: a folder that carries its calibration, and a card that tells the truth."""

from __future__ import annotations

import json

import numpy as np
import pytest
import transformers
from helpers import indexes, tiny
from sentence_transformers import SentenceTransformer

import evenspan
from evenspan import Calibration
from evenspan.cli import main

SETTING = "soft,strength=0.9,layers=half,basket_size=16"
LONG = [tiny.text(150), tiny.text(90, seed=2)]


@pytest.fixture
def model(tmp_path) -> str:
    return indexes.saved_model(tmp_path)


def by_class(folder) -> SentenceTransformer:
    return SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")


def test_a_folder_for_every_framework(model, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["save", model, "fair", "--calibration", SETTING]) == 0
    assert f"to fair, calibrated with {SETTING}. Load it with evenspan.load('fair')." in capsys.readouterr().out
    plain = SentenceTransformer(model, device="cpu")
    expected = evenspan.calibrate(evenspan.load(model, device="cpu"), Calibration.parse(SETTING)).encode_document(LONG)
    for loaded in (by_class("fair"), evenspan.load("fair", device="cpu")):
        np.testing.assert_array_equal(loaded.encode_document(LONG), expected)
        np.testing.assert_array_equal(loaded.encode_query(LONG), plain.encode_query(LONG))
    with pytest.raises(ValueError, match="calibrated_load_with_evenspan"):
        transformers.AutoModel.from_pretrained("fair")


def test_what_is_not_said_stays_as_the_model_has_it(model, tmp_path, capsys) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert main(["save", model, first, "--json", "--quiet", "--default-task", "document"]) == 0
    assert json.loads(capsys.readouterr().out) == {"folder": first, "model": model, "calibration": str(Calibration())}
    assert main(["save", first, second, "--calibration", SETTING, "--quiet"]) == 0
    loaded = evenspan.load(second, device="cpu")
    assert (evenspan.calibration_of(loaded), loaded[0].default_task) == (Calibration.parse(SETTING), "document")
    # Over itself, with its calibration but without its default task.
    assert main(["save", second, second, "--overwrite", "--default-task", "none", "--quiet"]) == 0
    loaded = evenspan.load(second, device="cpu")
    assert (evenspan.calibration_of(loaded), loaded[0].default_task) == (Calibration.parse(SETTING), None)


def test_none_saves_the_plain_model(model, tmp_path, capsys) -> None:
    fair, plain = str(tmp_path / "fair"), str(tmp_path / "plain")
    assert main(["save", model, fair]) == 0
    assert main(["save", fair, plain, "--calibration", "none"]) == 0
    assert f"to {plain}, plain." in capsys.readouterr().out
    vectors = SentenceTransformer(model, device="cpu").encode(LONG)
    np.testing.assert_array_equal(SentenceTransformer(plain, device="cpu").encode(LONG), vectors)
    assert main(["save", fair, plain, "--calibration", "none", "--audit", "audit.json", "--overwrite"]) == 2
    assert main(["save", plain, fair, "--calibration", "none", "--overwrite"]) == 0
    assert {path.name for path in (tmp_path / "fair").iterdir()} == {
        path.name for path in (tmp_path / "plain").iterdir()
    }


def test_the_figures_of_an_audit_are_in_the_card(model, tmp_path, capsys) -> None:
    corpus, audit, fair = tmp_path / "corpus.jsonl", tmp_path / "audit" / "audit.json", tmp_path / "fair"
    indexes.write_jsonl(corpus, [{"id": str(seed), "text": tiny.text(120, seed=seed)} for seed in range(12)])
    options = ["--texts", str(corpus), "--calibration", SETTING, "--output", str(audit.parent), "--quiet"]
    assert main(["audit", model, *options]) == 0
    slope = evenspan.Audit.read(audit).plain.representation.slope.value
    capsys.readouterr()
    # Figures of another setting, or of other weights, are not this model's.
    assert main(["save", model, str(fair), "--audit", str(audit)]) == 2
    assert f"it measured '{SETTING}', and the model is saved with '{Calibration()}'" in capsys.readouterr().err
    tiny.sentence_transformer("bert-cls", tmp_path / "base").save_pretrained(str(tmp_path / "other"))
    assert main(["save", str(tmp_path / "other"), str(fair), "--calibration", SETTING, "--audit", str(audit)]) == 2
    assert "it measured other weights" in capsys.readouterr().err
    assert not fair.exists()
    assert main(["save", model, str(fair), "--calibration", SETTING, "--audit", str(audit)]) == 0
    card = (fair / "README.md").read_text()
    section = card.partition("## Audit\n")[2].partition("## Citation")[0]
    assert f"{slope:+.3f}" in section
    assert "\ncalibrated " in section
    assert str(tmp_path) not in card, "where it was made is nobody's business"
    assert main(["save", model, str(fair), "--calibration", SETTING, "--overwrite"]) == 0
    assert "## Audit" not in (fair / "README.md").read_text()
