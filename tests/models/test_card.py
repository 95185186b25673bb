"""The card of a saved calibrated model: its title, its snippets, its calibration, and the plain model's card kept."""

from __future__ import annotations

import re

import pytest
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

import evenspan
from evenspan import Calibration

SETTING = Calibration("uniform", strength=0.8, layers=(1, 3), basket_size=16)
PLAIN = (
    "---\nlicense: mit\nlanguage: [en, de]\nmodel-index: []\ntags: [mteb]\n---\n\n# The original\n\nWritten by hand.\n"
)


@pytest.mark.parametrize("default_task", [None, "document"])
def test_the_snippets_work_where_the_model_is(cls_model, default_task, tmp_path, monkeypatch, capsys) -> None:
    model = evenspan.calibrate(cls_model, SETTING, default_task=default_task)
    model.save_pretrained(str(tmp_path / "fair"))
    card = (tmp_path / "fair" / "README.md").read_text()
    monkeypatch.chdir(tmp_path / "fair")
    snippets = re.findall(r"^```python\n(.*?)^```", card, re.DOTALL | re.MULTILINE)
    assert len(snippets) == 2
    for snippet in snippets:
        names: dict[str, object] = {}
        exec(compile(snippet, "README.md", "exec"), names)
        assert evenspan.calibration_of(names["model"]) == SETTING
    assert capsys.readouterr().out.startswith("tensor([[")
    assert ("A bare `encode()` is plain" in card) == (default_task is None)


def test_it_says_what_the_model_is(cls_model, tmp_path) -> None:
    cls_model[0].model.config._name_or_path = "BAAI/bge-m3"
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path / "fair"))
    card = ModelCard.load(tmp_path / "fair" / "README.md")
    assert "\n# fair: position-fair embeddings\n" in card.content
    assert f"`{SETTING}`" in card.text
    assert "[BAAI/bge-m3](https://huggingface.co/BAAI/bge-m3)" in card.text
    assert "arXiv:2606.02737" in card.text
    assert {"evenspan", "position-fair", "sentence-transformers"} <= set(card.data.tags)
    assert (card.data.base_model, card.data.library_name) == ("BAAI/bge-m3", "sentence-transformers")
    assert "trust_remote_code=True" in card.text


def test_the_card_of_the_plain_model_is_kept(cls_model, tmp_path) -> None:
    cls_model.save_pretrained(str(tmp_path / "plain"))
    (tmp_path / "plain" / "README.md").write_text(PLAIN)
    model = evenspan.calibrate(SentenceTransformer(str(tmp_path / "plain"), device="cpu"), SETTING)
    fair = tmp_path / "fair"
    model.save_pretrained(str(fair))
    assert (fair / "README_plain_model.md").read_text() == PLAIN
    data = ModelCard.load(fair / "README.md").data
    assert (data.license, data.language) == ("mit", ["en", "de"])
    assert "mteb" not in data.tags, "those are the plain model's scores"
    first = (fair / "README.md").read_text()
    assert str(tmp_path) not in first
    # Saved over itself and again, whoever loaded it: the same two cards; restored, the plain one alone.
    for load in (evenspan.load, SentenceTransformer):
        loaded = load(str(fair), device="cpu", trust_remote_code=True)
        loaded.save_pretrained(str(fair))
        assert (fair / "README.md").read_text() == first.replace("`plain`", "`fair`")
        assert (fair / "README_plain_model.md").read_text() == PLAIN
        evenspan.restore(loaded).save_pretrained(str(tmp_path / "restored"))
        assert (tmp_path / "restored" / "README.md").read_text() == PLAIN
        assert not list((tmp_path / "restored").glob("*evenspan*"))


@pytest.mark.parametrize("plain", ["no metadata", "---\n: [\n---\n# Damaged", ""])
def test_cards_without_metadata(plain, cls_model, tmp_path) -> None:
    cls_model._model_card_text = plain or None
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path / "fair"))
    assert "evenspan" in ModelCard.load(tmp_path / "fair" / "README.md").data.tags


def test_no_card_is_made_where_none_is_wanted(cls_model, tmp_path) -> None:
    evenspan.calibrate(cls_model, SETTING).save_pretrained(str(tmp_path / "fair"), create_model_card=False)
    assert not list((tmp_path / "fair").glob("README*"))
    assert evenspan.calibration_of(evenspan.load(tmp_path / "fair", device="cpu")) == SETTING
