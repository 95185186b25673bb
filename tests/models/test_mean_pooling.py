"""Mean-pooled models: calibrated, restored, saved, read from plain transformers, or refused with the reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers.processors import TemplateProcessing

import evenspan
from evenspan import Calibration
from evenspan.evaluation import evaluate
from evenspan.evaluation.benchmark import Benchmark, Collection, Query
from evenspan.models.pipeline import Pipeline

SETTING = Calibration(strength=1.0, basket_size=16)
LONG, SHORT = tiny.text(120), tiny.text(9)


@pytest.fixture
def model(tmp_path):
    return tiny.sentence_transformer("xlm-roberta-mean", tmp_path / "mean", prompts={"query": "w1 w2 w3 "})


def test_documents_are_calibrated_and_queries_are_not(model) -> None:
    plain, query = model.encode_document(tiny.TEXTS), model.encode_query(tiny.TEXTS)
    evenspan.calibrate(model, SETTING)
    vectors = model.encode_document(tiny.TEXTS)
    changed = np.abs(vectors - plain).max(axis=1) > 1e-4
    assert changed.tolist() == [len(text.split()) >= 16 for text in tiny.TEXTS]
    np.testing.assert_array_equal(model.encode_query(tiny.TEXTS), query)
    np.testing.assert_allclose(model.encode_document(tiny.TEXTS, batch_size=1), vectors, atol=2e-6)
    with evenspan.calibrated(model, Calibration(strength=0.0)):
        np.testing.assert_array_equal(model.encode_document(tiny.TEXTS), plain)
    np.testing.assert_array_equal(model.encode_document(tiny.TEXTS), vectors)
    evenspan.restore(model)
    np.testing.assert_array_equal(model.encode_document(tiny.TEXTS), plain)


def test_padding_on_the_left(model) -> None:
    evenspan.calibrate(model, SETTING)
    expected = model.encode_document(tiny.TEXTS)
    model.tokenizer.padding_side = "left"
    position = model[0].auto_model.embeddings.create_position_ids_from_input_ids
    assert position is not None  # which counts tokens, wherever padding is
    np.testing.assert_allclose(model.encode_document(tiny.TEXTS), expected, atol=2e-6)


@pytest.mark.parametrize("mode", ["mean", "mean_sqrt_len_tokens", "weightedmean"])
@pytest.mark.parametrize("include_prompt", [True, False])
def test_every_mean_is_one_of_calibrated_tokens(mode, include_prompt, tmp_path) -> None:
    """Rows of a prompt that pooling leaves out are calibrated as well: the others attend to them."""
    model = tiny.sentence_transformer("bert-mean", tmp_path, pooling=mode, prompts={"document": "w7 w8 w9 "})
    model = SentenceTransformer(modules=list(model)[:2], prompts=model.prompts, device="cpu")  # not normalised
    model[1].include_prompt = include_prompt
    evenspan.calibrate(model, SETTING)
    vector = model.encode_document([LONG])[0]
    features = model.preprocess([f"w7 w8 w9 {LONG}"])
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    inner = SentenceTransformer(modules=[model[0]], device="cpu")[0].auto_model
    evenspan.restore(model)
    with torch.no_grad(), evenspan.calibrated(inner, SETTING, pooling="mean", closing_token=True):
        tokens = inner(**inputs).last_hidden_state[0].numpy()
    kept = tokens if include_prompt else tokens[4:]  # the first token and three of the prompt
    weights = np.ones(len(kept))
    if mode == "weightedmean":
        weights = np.arange(1, len(tokens) + 1)[-len(kept) :]
    divisor = len(kept) ** 0.5 if mode == "mean_sqrt_len_tokens" else weights.sum()
    np.testing.assert_allclose(vector, weights @ kept / divisor, atol=1e-5)


def test_the_closing_token_is_found_by_tokenizing(model) -> None:
    assert Pipeline.of(model).closing_token is True
    evenspan.calibrate(model, SETTING)
    assert model[0].setting.calls.closing_token is True
    evenspan.restore(model)
    backend = model.tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    assert Pipeline.of(model).closing_token is False
    evenspan.calibrate(model, SETTING)
    vectors = model.encode_document([LONG])
    features = model.preprocess([LONG])
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    inner = evenspan.restore(model)[0].auto_model
    found = {}
    for closing in (True, False):
        with torch.no_grad(), evenspan.calibrated(inner, SETTING, pooling="mean", closing_token=closing):
            mean = inner(**inputs).last_hidden_state[0].mean(dim=0)
        found[closing] = torch.nn.functional.normalize(mean, dim=0).numpy()
    np.testing.assert_allclose(vectors[0], found[False], atol=2e-6)
    assert np.abs(vectors[0] - found[True]).max() > 1e-5


def test_saved_and_loaded(model, tmp_path) -> None:
    setting = Calibration(strength=0.8, basket_size=16, partition="even")
    evenspan.calibrate(model, setting)
    vectors = model.encode_document(tiny.TEXTS)
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = evenspan.load(tmp_path / "saved", device="cpu")
    assert evenspan.calibration_of(loaded) == setting
    loaded[0].processor = model[0].processor
    np.testing.assert_allclose(loaded.encode_document(tiny.TEXTS), vectors, atol=1e-6)


def test_inspect_says_what_is_pooled(model) -> None:
    found = evenspan.inspect_model(model, SETTING)
    assert found.calibratable
    assert found.pooling == "mean"
    assert "the mean of all tokens (bidirectional attention)" in str(found)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (Calibration("uniform", basket_size=16), "variant='uniform' is not for mean pooling.*Use variant='soft'"),
        (Calibration("hard", basket_size=16), "variant='hard' is not for mean pooling"),
        (Calibration(basket_size=16, first_token="equal"), "first_token=equal is not for mean pooling"),
    ],
)
def test_what_is_for_one_token_is_refused(model, setting, says) -> None:
    before = model.encode_document([LONG])
    with pytest.raises(ValueError, match=says):
        evenspan.calibrate(model, setting)
    found = evenspan.inspect_model(model, setting)
    assert not found.calibratable
    np.testing.assert_array_equal(model.encode_document([LONG]), before)
    with pytest.raises(ValueError, match=says):
        with evenspan.calibrated(model[0].auto_model, setting, pooling="mean", closing_token=True):
            pass


def test_plain_transformers_users_say_whether_texts_are_closed(model) -> None:
    inner = model[0].auto_model
    with pytest.raises(ValueError, match="closing_token=True or False is for pooling='mean', and needed there"):
        with evenspan.calibrated(inner, SETTING, pooling="mean"):
            pass
    with pytest.raises(ValueError, match="It is True with pooling='cls'"):
        with evenspan.calibrated(inner, SETTING, pooling="cls", closing_token=True):
            pass
    with pytest.raises(ValueError, match="leave `pooling` and `closing_token` out"):
        with evenspan.calibrated(model, SETTING, closing_token=True):
            pass


def test_an_attention_that_is_not_known_is_refused(model, monkeypatch) -> None:
    """The rows of the model's own attention are compared with ours when it is calibrated."""
    attention = model[0].auto_model.encoder.layer[3].attention.self
    forward = attention.value.forward
    monkeypatch.setattr(attention, "scaling", attention.scaling * 1.5)
    evenspan.calibrate(model, SETTING)  # which the model passes on: still known
    evenspan.restore(model)
    monkeypatch.setattr(attention.value, "forward", lambda states: forward(states).roll(1, dims=1))
    evenspan.calibrate(model, SETTING)  # as are other values
    evenspan.restore(model)
    from transformers.models.xlm_roberta import modeling_xlm_roberta as modeling

    plain = modeling.ALL_ATTENTION_FUNCTIONS["sdpa"]

    def biased(module, query, key, value, mask, **kwargs):
        return plain(module, query, key + torch.arange(key.shape[2]).view(-1, 1) / 4, value, mask, **kwargs)

    monkeypatch.setitem(modeling.ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", biased)
    other = tiny.sentence_transformer("xlm-roberta-mean", model[0].auto_model.config._name_or_path + "x")
    with pytest.raises(evenspan.UnsupportedModelError, match="in a way that evenspan does not know"):
        evenspan.calibrate(other, SETTING)


def test_evaluate_and_index(model, tmp_path) -> None:
    corpus = {str(number): tiny.text(60 + number) for number in range(12)}
    queries = tuple(Query(name, " ".join(text.split()[-9:])) for name, text in corpus.items())
    benchmark = Benchmark("b", (Collection("c", corpus, queries, {name: {name: 1} for name in corpus}),))
    plain = evaluate(model, benchmark, method="none", resamples=0, progress=False)
    found = evaluate(model, benchmark, SETTING, resamples=0, progress=False)
    assert found.method == str(SETTING)
    assert len(found.per_query) == len(plain.per_query) == 12
    rows = [{"id": name, "text": text} for name, text in corpus.items()]
    evenspan.index(model, rows, f"parquet:{tmp_path / 'index'}", SETTING, progress=False)
    with evenspan.calibrated(model, SETTING):
        vectors = model.encode_document(list(corpus.values()))
    with evenspan.open_index(f"parquet:{tmp_path / 'index'}", model=model) as index:
        for query in queries:
            best = index.search(query.text, k=1)[0]
            similarities = vectors @ model.encode_query(query.text)
            assert best.score == pytest.approx(similarities.max(), abs=1e-4)


def test_a_mode_that_is_changed_to_another_mean_stays_calibrated(model) -> None:
    evenspan.calibrate(model, SETTING)
    model[1].pooling_mode = "mean_sqrt_len_tokens"
    assert model.encode_document([LONG]).shape == (1, 32)
    model[1] = Pooling(32, "mean")
    with pytest.raises(RuntimeError, match="pooling module was replaced"):
        model.encode_document([LONG])
