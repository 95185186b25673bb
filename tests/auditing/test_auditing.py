"""The audit: what is never read, where the pooling token looks, how positions show in the vector."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from helpers import calls, tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import evenspan
from evenspan import Audit, Calibration
from evenspan.cli import main

TEXTS = [tiny.text(words, seed) for seed, words in enumerate((200, 150, 97, 130, 180, 120, 99, 160, 110, 140, 3, 15))]
SETTING = Calibration(strength=0.7, basket_size=16)


def eager_masses(model, text: str, setting: Calibration | None) -> list[tuple[float, list[float]]]:
    """The pooling token's own mass and that of each basket, by layer, from a full matrix of attention."""
    inner = model[0].auto_model
    before = inner.config._attn_implementation
    inner.set_attn_implementation("eager")
    try:
        features = model.preprocess([text])
        inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
        if setting is None:
            found = inner(**inputs, output_attentions=True).attentions
        else:
            pooling = {"lasttoken": "last"}.get(model[1].pooling_mode, model[1].pooling_mode)
            closing = True if pooling == "mean" else None
            with evenspan.calibrated(inner, setting, pooling=pooling, closing_token=closing):
                found = inner(**inputs, output_attentions=True).attentions
    finally:
        inner.set_attn_implementation(before)
    masses = []
    for weights in found:
        if model[1].pooling_mode == "mean":  # the mean over all rows, and what the ends get
            mean = weights[0].mean(dim=(0, 1))
            masses.append((float(mean[0] + mean[-1]), [float(part.sum()) for part in mean[1:-1].split(16)]))
            continue
        last = model[1].pooling_mode == "lasttoken"
        row = weights[0, :, -1 if last else 0].mean(dim=0)
        content = row[1:-1] if last else row[1:]
        masses.append((float(row[-1 if last else 0]), [float(part.sum()) for part in content.split(16)]))
    return masses


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES, ids=str)
@torch.no_grad()
def test_attention_agrees_with_an_eager_pass(architecture, tmp_path) -> None:
    model = tiny.sentence_transformer(architecture, tmp_path)
    text = TEXTS[0]
    plain = model.encode_document(text)
    found = evenspan.audit(model, [text], SETTING, progress=False)
    for view, setting in ((found.plain, None), (found.calibrated, SETTING)):
        expected = eager_masses(model, text, setting)
        attention = view.attention
        assert [one.layer for one in attention.layers] == list(architecture.full)
        for one in attention.layers:
            own, baskets = expected[one.layer]
            assert one.mean_self_mass == pytest.approx(own, abs=1e-5)
            np.testing.assert_allclose(one.baskets, baskets, atol=1e-5)
    assert any(one.calibrated for one in found.calibrated.attention.layers)
    np.testing.assert_array_equal(model.encode_document(text), plain)


@torch.no_grad()
def test_attention_in_intact_documents(cls_model, tmp_path) -> None:
    audit = evenspan.audit(cls_model, TEXTS[:12], SETTING, intact=True, progress=False)
    alone = evenspan.audit(cls_model, TEXTS[:1], "none", intact=True, progress=False)
    for layer in alone.intact.layers:
        own, _ = eager_masses(cls_model, TEXTS[0], None)[layer.layer]
        assert layer.mean_self_mass == pytest.approx(own, abs=1e-5)
    assert audit.intact != audit.plain.attention, "segments stood in another order there"
    assert not any(layer.calibrated for layer in audit.intact.layers)
    audit.write(tmp_path / "audit.json")
    assert evenspan.Audit.read(tmp_path / "audit.json") == audit
    values = json.loads((tmp_path / "audit.json").read_text())
    del values["intact"]
    assert evenspan.Audit.from_dict(values).intact is None, "earlier versions did not write it"


def test_audit_of_a_model_and_its_file(cls_model, tmp_path) -> None:
    found = evenspan.audit(cls_model, TEXTS, SETTING, progress=False)
    assert found.plain.representation.documents == found.calibrated.representation.documents == 10
    assert found.truncation.cut == 0
    assert any("2 documents too short" in note for note in found.notes)
    assert found.slope_change.value == pytest.approx(
        found.calibrated.representation.slope.value - found.plain.representation.slope.value
    )
    low, high = found.plain.representation.slope.interval
    assert low < found.plain.representation.slope.value < high
    for one in found.plain.attention.layers:
        assert sorted(one.self_mass) == list(one.self_mass)
    found.write(tmp_path / "audit.json")
    assert Audit.read(tmp_path / "audit.json") == found
    again = evenspan.audit(cls_model, TEXTS, SETTING, progress=False, batch_size=3)
    assert again.plain.representation.slope.value == pytest.approx(found.plain.representation.slope.value, abs=1e-5)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="is not an audit"):
        Audit.read(tmp_path / "other.json")


def test_a_calibrated_model_is_audited_with_its_own_calibration_and_left_as_it_was(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    before = cls_model.encode_document(TEXTS)
    found = evenspan.audit(cls_model, TEXTS, progress=False)
    assert found.calibration == str(SETTING)
    np.testing.assert_array_equal(cls_model.encode_document(TEXTS), before)
    with evenspan.calibrated(cls_model, Calibration(strength=0.0)):
        plain = evenspan.audit(cls_model, TEXTS, Calibration(strength=0.0, basket_size=16), progress=False)
    assert plain.plain.representation == found.plain.representation


def test_truncation_is_counted_and_said_first(cls_model) -> None:
    cls_model.max_seq_length = 102
    found = evenspan.audit(cls_model, TEXTS, progress=False)
    counts = [200, 150, 97, 130, 180, 120, 99, 160, 110, 140, 3, 15]
    assert found.truncation.room == 100
    assert found.truncation.tokens == sum(counts)
    assert found.truncation.cut == sum(count > 100 for count in counts)
    assert found.truncation.unread == sum(max(0, count - 100) for count in counts)
    assert [one.name for one in found.truncation.worst][:2] == ["0", "4"]
    assert str(found).splitlines()[2].startswith("28 % of the text is never read.")


def test_any_sentence_transformer_can_be_audited(cls_model) -> None:
    highest = SentenceTransformer(modules=[cls_model[0], Pooling(32, "max")])
    found = evenspan.audit(highest, TEXTS, progress=False)
    assert found.plain.attention is None
    assert any("Attention was not measured" in note and "max" in note for note in found.notes)
    assert found.plain.representation is not None
    with pytest.raises(ValueError, match="pools by 'max'"):
        evenspan.audit(highest, TEXTS, SETTING, progress=False)


def test_short_texts_have_no_positions(cls_model) -> None:
    found = evenspan.audit(cls_model, [tiny.text(20, seed) for seed in range(30)], SETTING, progress=False)
    assert found.plain.representation is None
    assert found.slope_change is None
    assert any("Position bias not measured" in note for note in found.notes)
    assert found.plain.attention is not None


def test_bad_input_is_refused(cls_model) -> None:
    with pytest.raises(TypeError, match="not one string"):
        evenspan.audit(cls_model, "one text")
    with pytest.raises(ValueError, match="at least one document that is not empty"):
        evenspan.audit(cls_model, ["", "  "])
    for option, says in (
        ({"segments": 1}, "segments must be at least 2, not 1"),
        ({"versions": 0}, "versions must be at least 1, not 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"sample": 0}, "sample must be at least 1, or None"),
    ):
        with pytest.raises(ValueError, match=says):
            evenspan.audit(cls_model, TEXTS, **option)
    with pytest.raises(ValueError, match="2 names for 12 texts"):
        evenspan.audit(cls_model, TEXTS, names=["a", "b"])


def test_vectors_that_are_not_finite_are_left_out_and_said(cls_model, monkeypatch) -> None:
    forward = SentenceTransformer.forward

    def overflowing(self, features, **options):
        chosen = [sorted(ids) == sorted(bad + [1] * (len(ids) - len(bad))) for ids in features["input_ids"].tolist()]
        made = forward(self, features, **options)
        made["sentence_embedding"][chosen] = torch.nan
        return made

    long = [tiny.text(100 + seed, seed) for seed in range(12)]
    bad = cls_model.tokenizer(long[3])["input_ids"]  # its words in any order, and padding
    monkeypatch.setattr(SentenceTransformer, "forward", overflowing)
    found = evenspan.audit(cls_model, long, SETTING, progress=False)
    assert found.plain.representation.documents == 11
    assert any("vectors that are not finite: 1 of 12 documents" in note for note in found.notes)
    assert "NaN" not in found.to_json()


def test_static_embeddings_read_everything() -> None:
    vocabulary = Tokenizer(WordLevel({f"w{number}": number for number in range(100)} | {"?": 100}, unk_token="?"))
    vocabulary.pre_tokenizer = Whitespace()
    model = SentenceTransformer(modules=[StaticEmbedding(vocabulary, embedding_dim=16)], device="cpu")
    found = evenspan.audit(model, TEXTS, progress=False)
    assert found.truncation.cut == 0
    assert found.truncation.tokens == sum((200, 150, 97, 130, 180, 120, 99, 160, 110, 140, 3, 15))
    assert found.plain.representation.verdict == "none found"  # a mean over tokens, whatever their order
    assert "documents of any length" in str(found)


def test_the_document_route_of_a_router_is_measured(tmp_path) -> None:
    query, document = (tiny.sentence_transformer("xlm-roberta-cls", tmp_path / name) for name in ("query", "document"))
    query.max_seq_length, document.max_seq_length = 256, 102
    router = Router.for_query_document(query_modules=list(query), document_modules=list(document))
    found = evenspan.audit(SentenceTransformer(modules=[router], device="cpu"), TEXTS, progress=False)
    assert found.truncation.room == 100
    assert "document" in found.model


def test_none_is_no_calibration(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    assert evenspan.audit(cls_model, TEXTS, "none", progress=False).calibrated is None
    with pytest.raises(TypeError, match="must be a Calibration"):
        evenspan.audit(cls_model, TEXTS, "soft", progress=False)


def test_names_and_texts_that_no_file_can_hold(cls_model, tmp_path) -> None:
    cls_model.max_seq_length = 102
    found = evenspan.audit(cls_model, [*TEXTS, "\ud800 " + TEXTS[0]], names=["x\udce9"] * 13, progress=False)
    found.write(tmp_path / "audit.json")
    assert Audit.read(tmp_path / "audit.json").truncation.worst[0].name == "x?"
    assert any("1 of 13 texts" in note for note in found.notes)
    assert [path.name for path in tmp_path.glob("audit*")] == ["audit.json"]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("plain", "representation", "primacy"), None),
        (("plain", "representation", "degree"), "huge"),
        (("plain", "attention", "layers", 0, "self_mass"), [0.1]),
        (("truncation", "cut"), 1000),
        (("setting",), -1),
        (("notes",), "a note"),
        (("slope_change", "value"), float("nan")),
    ],
)
def test_damaged_audits_are_refused(place, value, cls_model) -> None:
    values = json.loads(evenspan.audit(cls_model, TEXTS, SETTING, progress=False).to_json())
    inner = values
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    with pytest.raises(ValueError, match="audit is incomplete or damaged"):
        Audit.from_dict(values)


def test_memory_that_runs_out_halves_the_batch(cls_model, monkeypatch) -> None:
    expected = evenspan.audit(cls_model, TEXTS, SETTING, progress=False)
    batches = calls.watch(monkeypatch, most=4)
    found = evenspan.audit(cls_model, TEXTS, SETTING, progress=False)
    sizes = calls.sizes(batches)
    assert max(sizes) == 32, "the batch size is the most texts in a batch"
    assert max(sizes[-3:]) <= 4
    assert found.plain.attention.basket_documents == expected.plain.attention.basket_documents
    for one, other in zip(found.plain.attention.layers, expected.plain.attention.layers, strict=True):
        assert one.mean_self_mass == pytest.approx(other.mean_self_mass, abs=1e-6)


@pytest.mark.parametrize("setting", [Calibration(strength=0.0, basket_size=16), Calibration(basket_size=256)], ids=str)
def test_an_audit_in_which_nothing_changed_says_so(setting, cls_model) -> None:
    """At strength 0, and where no document fills a basket."""
    found = evenspan.audit(cls_model, TEXTS, setting, progress=False)
    assert found.calibrated.representation == found.plain.representation
    assert (found.slope_change.value, found.slope_change.interval) == (0.0, (0.0, 0.0))
    words = str(found)
    assert "Calibration changes nothing here." in words
    for claim in ("reduces the slope", "less even", "reverses the slope", "beyond noise", "the verdict is now"):
        assert claim not in words


def test_command_line(cls_model, tmp_path, capsys) -> None:
    cls_model.save_pretrained(str(tmp_path / "model"))
    rows = [json.dumps({"id": f"d{number}", "body": text}) for number, text in enumerate(TEXTS)] + ["{}", "oops"]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    command = ["audit", str(tmp_path / "model"), "--texts", str(tmp_path / "texts.jsonl"), "-o", str(tmp_path / "out")]
    assert main(command) == 2
    assert "Choose one with --field: 'id', 'body'" in capsys.readouterr().err
    assert main([*command, "--field", "body", "--calibration", str(SETTING)]) == 0
    printed = capsys.readouterr()
    assert "2 of 14 rows were left out" in printed.err
    assert "Nothing is cut off" in printed.out
    assert "2 of 14 rows" in printed.out
    found = Audit.read(tmp_path / "out" / "audit.json")
    assert found.calibration == str(SETTING)
    assert (tmp_path / "out" / "run.json").exists()
    assert main([*command, "--field", "body", "--calibration", "none", "--sample", "11"]) == 0
    assert Audit.read(tmp_path / "out" / "audit.json").calibrated is None
