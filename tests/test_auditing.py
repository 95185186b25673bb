"""The audit: what is never read, where the pooling token looks, how positions show in the vector."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
import tiny
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

import evenspan
from evenspan import Audit, Calibration
from evenspan.auditing.positions import effects, orders, representation
from evenspan.auditing.reading import read_texts
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
            pooling = "cls" if model[1].pooling_mode == "cls" else "last"
            with evenspan.calibrated(inner, setting, pooling=pooling):
                found = inner(**inputs, output_attentions=True).attentions
    finally:
        inner.set_attn_implementation(before)
    masses = []
    for weights in found:
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


def test_audit_of_a_model_and_its_file(cls_model, tmp_path) -> None:
    found = evenspan.audit(cls_model, TEXTS, SETTING, progress=False)
    assert found.plain.representation.documents == found.calibrated.representation.documents == 10
    assert found.truncation.cut == 0
    assert any("2 documents are too short" in note for note in found.notes)
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
    with pytest.raises(ValueError, match="is no audit"):
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
    mean = SentenceTransformer(modules=[cls_model[0], Pooling(32, "mean")])
    found = evenspan.audit(mean, TEXTS, progress=False)
    assert found.plain.attention is None
    assert any("Attention was not looked at" in note and "mean" in note for note in found.notes)
    assert found.plain.representation is not None
    with pytest.raises(ValueError, match="pools by 'mean'"):
        evenspan.audit(mean, TEXTS, SETTING, progress=False)


def test_short_texts_have_no_positions(cls_model) -> None:
    found = evenspan.audit(cls_model, [tiny.text(20, seed) for seed in range(30)], SETTING, progress=False)
    assert found.plain.representation is None
    assert found.slope_change is None
    assert any("too few" in note for note in found.notes)
    assert found.plain.attention is not None


def test_bad_input_is_refused(cls_model) -> None:
    with pytest.raises(TypeError, match="not one string"):
        evenspan.audit(cls_model, "one text")
    with pytest.raises(ValueError, match="no text to look at"):
        evenspan.audit(cls_model, ["", "  "])
    with pytest.raises(ValueError, match="at least 2"):
        evenspan.audit(cls_model, TEXTS, segments=1)
    with pytest.raises(ValueError, match="2 names for 12 texts"):
        evenspan.audit(cls_model, TEXTS, names=["a", "b"])


@pytest.mark.parametrize(("at", "bias"), [(0, "primacy"), (4, "recency"), (None, "none found")])
def test_positions_are_told_from_content(at, bias) -> None:
    """Content is three times as strong as position, and stands in an order of its own: the lead is what matters most."""
    random = np.random.default_rng(0)
    documents = 400
    order = orders(documents, 5, 1, seed=1)
    content = random.normal(0.5, 0.1, (documents, 5)) + np.array([0.3, 0.1, 0.0, 0.0, 0.0])
    position = np.zeros(5)
    if at is not None:
        position[at] = 0.1
    similarities = np.take_along_axis(content[:, None], order, axis=2) + position
    similarities += random.normal(0.0, 0.02, similarities.shape)
    alike = content * 2 + random.normal(0.0, 0.05, content.shape)
    found = representation(effects(similarities, order, alike, seed=0))
    blind = representation(effects(similarities, order, np.zeros_like(alike), seed=0))
    assert np.ptp(found.slope.interval) < 0.7 * np.ptp(blind.slope.interval)  # what a segment is like takes chance out
    assert found.bias == bias
    estimated = np.array([one.value for one in found.positions])
    np.testing.assert_allclose(estimated - estimated.mean(), position - position.mean(), atol=0.01)
    covered = [one.interval[0] <= one.value <= one.interval[1] for one in found.positions]
    assert all(covered)


@pytest.mark.parametrize(
    ("positions", "verdict"),
    [
        ([0.7, 0.5, 0.5, 0.5, 0.7], "strong both ends"),
        ([0.7, 0.5, 0.5, 0.5, 0.68], "strong both ends"),
        ([0.5, 0.7, 0.7, 0.7, 0.5], "strong middle"),
        ([0.7, 0.5, 0.5, 0.5, 0.5], "strong primacy"),
    ],
)
def test_shapes(positions, verdict) -> None:
    order = orders(200, 5, 2, seed=1)
    random = np.random.default_rng(0)
    content = random.normal(0.0, 0.1, (200, 5))
    noise = random.normal(0.0, 0.02, (200, 2, 5))
    similarities = np.take_along_axis(np.repeat(content[:, None], 2, axis=1), order, 2) + positions + noise
    found = representation(effects(similarities, order, content, seed=0))
    assert found.verdict == verdict


def test_intervals_hold_what_they_promise() -> None:
    """Where there is no bias, one is found as rarely as 95 % says, with few documents too."""
    random, found = np.random.default_rng(0), 0
    for trial in range(300):
        order = orders(12, 5, 1, seed=trial)
        low, high = representation(
            effects(random.normal(0.5, 0.1, order.shape), order, random.normal(size=(12, 5)), seed=trial)
        ).slope.interval
        found += not low <= 0 <= high
    assert found < 300 * 0.09


def test_rounding_is_no_bias() -> None:
    order = orders(50, 5, 2, seed=1)
    same = np.full((50, 2, 5), 0.9) + 1e-7 * np.arange(5)
    assert representation(effects(same, order, np.zeros((50, 5)), seed=0)).verdict == "none found"


def test_vectors_that_are_not_finite_are_left_out_and_said(cls_model, monkeypatch) -> None:
    encode = type(cls_model).encode_document

    def overflowing(self, texts, **options):
        vectors = encode(self, texts, **options).clone()
        vectors[[sorted(text.split()) == sorted(long[3].split()) for text in texts]] = torch.nan
        return vectors

    long = [tiny.text(100 + seed, seed) for seed in range(12)]
    monkeypatch.setattr(SentenceTransformer, "encode_document", overflowing)
    found = evenspan.audit(cls_model, long, SETTING, progress=False)
    assert found.plain.representation.documents == 11
    assert any("1 of 12 documents have vectors that are not finite" in note for note in found.notes)
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
    with pytest.raises(ValueError, match="no whole audit"):
        Audit.from_dict(values)


def test_every_segment_stands_everywhere() -> None:
    order = orders(400, 4, 3, seed=0)
    assert (np.sort(order, axis=2) == np.arange(4)).all()
    assert (order[:, 0] != order[:, 1]).all()
    assert (order[:, 1] != order[:, 2]).all()
    for position in range(4):
        assert (np.bincount(order[:, 0, position]) > 70).all()


def test_memory_that_runs_out_halves_the_batch(cls_model, monkeypatch) -> None:
    expected = evenspan.audit(cls_model, TEXTS, SETTING, progress=False)
    encode = type(cls_model).encode_document
    sizes = []

    def small(self, texts, **options):
        sizes.append(options["batch_size"])
        vectors = encode(self, texts, **options)
        if options["batch_size"] > 4:
            raise torch.OutOfMemoryError("too large")
        return vectors

    monkeypatch.setattr(SentenceTransformer, "encode_document", small)
    found = evenspan.audit(cls_model, TEXTS, SETTING, progress=False)
    assert set(sizes) == {32, 16, 8, 4}
    assert found.plain.attention.basket_documents == expected.plain.attention.basket_documents
    for one, other in zip(found.plain.attention.layers, expected.plain.attention.layers, strict=True):
        assert one.mean_self_mass == pytest.approx(other.mean_self_mass, abs=1e-6)


def test_reading_texts(tmp_path) -> None:
    rows = [
        b'{"_id": "a", "text": "first"}',
        b'{"_id": "b", "text": ""}',
        b'{"_id": "c", "text": 3}',
        b'{"_id": "d"}',
        b'{"text": "\xff"}',
        b"no json",
        b"[1]",
        b"",
        b'{"text": "last"}',
    ]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(rows))
    found = read_texts(tmp_path / "rows.jsonl")
    assert found.names == ["rows.jsonl:a", "rows.jsonl:9"]
    assert found.texts == ["first", "last"]
    assert found.left_out == {
        "empty text": 1, "field 'text' is not text": 1, "missing field 'text'": 1, "invalid UTF-8": 1, "no valid JSON": 1,
        "not a JSON object": 1,
    }  # fmt: skip
    assert found.in_words().startswith("6 of 8 rows were left out")


def test_reading_other_files(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    (folder / "README.md").write_text("about the texts", encoding="utf-8")  # no document
    (folder / "sub" / "b.csv").write_bytes(b'id,text\n1,"two\nlines"\n2,\n3,\xff\n')
    pandas.DataFrame({"text": ["x", None, "y"]}).to_parquet(folder / "c.parquet")
    (folder / "ignored.pdf").write_bytes(b"%PDF")
    found = read_texts(folder)
    assert dict(zip(found.names, found.texts, strict=True)) == {
        "c.parquet:1": "x", "c.parquet:3": "y", "sub/b.csv:1": "two\nlines",
    }  # fmt: skip
    assert found.left_out == {"invalid UTF-8": 1, "missing field 'text'": 2}
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.txt").write_text("a text", encoding="utf-8")
    (tmp_path / "plain" / "bad.txt").write_bytes(b"\xff\xfe\x00")
    found = read_texts(tmp_path / "plain")
    assert (found.names, found.texts, found.left_out) == (["a.txt"], ["a text"], {"invalid UTF-8": 1})
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}'))
    assert read_texts(tmp_path / "packed.jsonl.gz").names == ["packed.jsonl.gz:1"]
    (tmp_path / "fields.csv").write_text("body,title\nx,y\n")
    with pytest.raises(ValueError, match="no field 'text': choose with --field, the fields are 'body', 'title'"):
        read_texts(tmp_path / "fields.csv")
    assert read_texts(tmp_path / "fields.csv", "body").texts == ["x"]
    with pytest.raises(FileNotFoundError):
        read_texts(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="does not say what it holds"):
        read_texts(folder / "ignored.pdf")


def test_reading_what_others_trip_over(tmp_path) -> None:
    (tmp_path / "semicolons.csv").write_bytes(b"id;text\n\xe9;hello\n2;world, again\n3;a;b\n")
    found = read_texts(tmp_path / "semicolons.csv")
    assert found.texts == ["hello", "world, again"]
    assert found.names == ["semicolons.csv:?", "semicolons.csv:2"]
    assert found.left_out == {"more cells than the header has": 1}
    (tmp_path / "quotes.csv").write_text('text\nfine\n"never closed\nnot lost\n')
    found = read_texts(tmp_path / "quotes.csv")
    assert (found.texts, found.left_out) == (["fine", "not lost"], {"no valid CSV": 1})
    (tmp_path / "ids.jsonl").write_text('{"_id": "1"}\n{"_id": "2", "text": "x"}\n{"text": "\\ud800"}\n')
    found = read_texts(tmp_path / "ids.jsonl")
    assert (found.texts, found.left_out) == (["x"], {"missing field 'text'": 1, "invalid UTF-8": 1})
    folder = tmp_path / "folder"
    (folder / "sub.txt").mkdir(parents=True)
    (folder / "good.jsonl").write_text('["no object"]\n{"text": "good"}')
    (folder / "broken.parquet").write_text("x")
    (folder / "empty.csv").write_text("")
    (folder / "dead.jsonl").symlink_to(folder / "nowhere.jsonl")
    (folder / "broken.csv.gz").write_bytes(b"no archive")
    (folder / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "lost"}' * 99)[:-20])
    found = read_texts(folder)
    assert (found.texts, found.left_out) == (["good"], {"in files that cannot be read": 3, "not a JSON object": 1})
    with pytest.raises(ValueError, match=r"broken\.parquet"):
        read_texts(folder / "broken.parquet")
    with pytest.raises(OSError, match=r"broken\.csv\.gz, after line 0: cannot read on"):
        read_texts(folder / "broken.csv.gz")
    (folder / "note.txt").write_text("which are the documents?")
    with pytest.raises(ValueError, match=r"both tables \(.*\) and plain texts \(note\.txt"):
        read_texts(folder)
    assert read_texts(folder, source_format="text").texts == ["which are the documents?"]


def test_the_field_of_the_text(tmp_path) -> None:
    """By default `text`, or the only one there is."""
    (tmp_path / "title.csv").write_text("title\nhello you\n")
    assert read_texts(tmp_path / "title.csv").texts == ["hello you"]
    (tmp_path / "strings.jsonl").write_text('"a"\n"b"\n')
    assert read_texts(tmp_path / "strings.jsonl").texts == ["a", "b"]
    (tmp_path / "urls.jsonl").write_text('{"url": "http://x"}\n{"text": "y", "id": 0}\n{"text": "z", "id": 1}\n')
    found = read_texts(tmp_path / "urls.jsonl")
    assert (found.names, found.texts) == (["urls.jsonl:0", "urls.jsonl:1"], ["y", "z"])
    assert found.left_out == {"missing field 'text'": 1}


def test_parquet_in_another_encoding(tmp_path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    bad = pyarrow.array([b"fine", b"\xff", None]).cast(pyarrow.binary())
    column = pyarrow.StringArray.from_buffers(3, bad.buffers()[1], bad.buffers()[2], bad.buffers()[0], bad.null_count)
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "bad.parquet")
    found = read_texts(tmp_path / "bad.parquet")
    assert (found.texts, found.left_out) == (["fine"], {"invalid UTF-8": 1, "missing field 'text'": 1})
    dates = pyarrow.array([10**15, 1], pyarrow.timestamp("ms"))  # of which the first is none that Python has
    table = pyarrow.table({"text": [b"a", b"b"], "when": dates, "many": [[0.0] * 9] * 2})
    parquet.write_table(table, tmp_path / "dates.parquet")
    assert read_texts(tmp_path / "dates.parquet").texts == ["a", "b"]
    dictionary = pyarrow.table({"text": pyarrow.array(["a", "b", "a"]).dictionary_encode()})
    parquet.write_table(dictionary, tmp_path / "dictionary.parquet")
    assert read_texts(tmp_path / "dictionary.parquet").texts == ["a", "b", "a"]


def test_a_sample_is_drawn_while_reading(tmp_path) -> None:
    (tmp_path / "many.jsonl").write_text("\n".join(json.dumps({"text": f"t{number}"}) for number in range(500)))
    found = read_texts(tmp_path / "many.jsonl", sample=50)
    places = [int(text[1:]) for text in found.texts]
    assert found.found == 500
    assert places == sorted(set(places))
    assert len(places) == 50
    assert places != list(range(50))
    assert 150 < sum(places) / 50 < 350


def test_command_line(cls_model, tmp_path, capsys) -> None:
    cls_model.save_pretrained(str(tmp_path / "model"))
    rows = [json.dumps({"id": f"d{number}", "body": text}) for number, text in enumerate(TEXTS)] + ["{}", "oops"]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    command = ["audit", str(tmp_path / "model"), "--texts", str(tmp_path / "texts.jsonl"), "-o", str(tmp_path / "out")]
    assert main(command) == 2
    assert "the fields are 'id', 'body'" in capsys.readouterr().err
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
