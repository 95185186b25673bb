"""Attaching and detaching: `calibrate`, `calibrated`, `restore`, `calibration_of` do the obvious thing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.tiny import text
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router, Transformer

import evenspan
from evenspan import Calibration
from evenspan.models.reading import document_prompt, query_prompt

ONE = Calibration(strength=1.0, layers="all", basket_size=16)
OTHER = Calibration("uniform", strength=0.5, layers="last", basket_size=32)
LONG = [text(words, seed=2) for words in (180, 70)]


@pytest.fixture(params=["cls", "last"])
def model(request) -> SentenceTransformer:
    return request.getfixturevalue(f"{request.param}_model")


def test_restore_is_bit_identical(model) -> None:
    plain = model.encode_document(LONG)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config = model[0].auto_model.config
    evenspan.calibrate(model, ONE)
    assert evenspan.restore(model) is model
    assert type(model) is SentenceTransformer
    assert type(model[0]) is Transformer
    assert evenspan.calibration_of(model) is None
    np.testing.assert_array_equal(model.encode_document(LONG), plain)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert all(getattr(module, "config", config) is config for module in model[0].auto_model.modules())
    leftovers = [name for module in model.modules() for name in vars(module) if "evenspan" in name]
    assert leftovers == []
    assert evenspan.restore(model) is model  # a plain model is left alone


def test_zero_strength_is_bit_identical(model) -> None:
    plain = model.encode_document(LONG)
    evenspan.calibrate(model, Calibration(strength=0.0, basket_size=16))
    np.testing.assert_array_equal(model.encode_document(LONG), plain)
    assert evenspan.calibration_of(model) == Calibration(strength=0, basket_size=16)


def test_calibrating_again_replaces(model) -> None:
    expected = {}
    for setting in (ONE, OTHER):
        with evenspan.calibrated(model, setting):
            expected[setting] = model.encode_document(LONG)
    assert np.abs(expected[ONE] - expected[OTHER]).max() > 1e-3
    for setting in (ONE, ONE, OTHER, ONE):
        evenspan.calibrate(model, setting)
        assert evenspan.calibration_of(model) == setting
        np.testing.assert_array_equal(model.encode_document(LONG), expected[setting])


def test_nesting(model) -> None:
    plain = model.encode_document(LONG)
    with evenspan.calibrated(model, ONE) as outer:
        assert outer is model
        one = model.encode_document(LONG)
        with evenspan.calibrated(model, OTHER):
            assert evenspan.calibration_of(model) == OTHER
            assert np.abs(model.encode_document(LONG) - one).max() > 1e-3
            evenspan.restore(model)
            np.testing.assert_array_equal(model.encode_document(LONG), plain)
        assert evenspan.calibration_of(model) == ONE
        np.testing.assert_array_equal(model.encode_document(LONG), one)
    np.testing.assert_array_equal(model.encode_document(LONG), plain)


def test_temporary_calibration_ends_with_an_exception_too(model) -> None:
    model.prompts["query"] = "w1 "
    evenspan.calibrate(model, OTHER, default_task="document")
    other = model.encode(LONG)

    def fail_inside() -> None:
        with evenspan.calibrated(model, ONE):
            assert np.abs(model.encode(LONG) - other).max() > 1e-3  # the default task stays in force
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert evenspan.calibration_of(model) == OTHER
    np.testing.assert_array_equal(model.encode(LONG), other)


def test_one_copy_of_the_weights(model) -> None:
    before = {parameter.data_ptr() for parameter in model.parameters()}
    evenspan.calibrate(model, ONE)
    assert {parameter.data_ptr() for parameter in model.parameters()} == before
    assert len(list(model.modules())) == len(list(evenspan.restore(model).modules()))


def test_the_calibration_can_be_seen(cls_model) -> None:
    evenspan.calibrate(cls_model, ONE)
    assert str(ONE) in repr(cls_model)


@pytest.mark.parametrize("name", ["xlm-roberta-cls", "modernbert-cls", "qwen3-lasttoken", "gemma2-lasttoken"])
def test_plain_transformers_models(name, tmp_path) -> None:
    """The same vectors from a transformers model by itself, whichever way it is called."""
    model = tiny.sentence_transformer(name, tmp_path)
    pooling = "cls" if name.endswith("cls") else "last"
    with evenspan.calibrated(model, ONE):
        expected = model.encode_document(LONG)
    features = model.preprocess(LONG)
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    auto_model = model[0].auto_model

    def vectors(output) -> np.ndarray:
        valid = features["attention_mask"]
        rows = valid.argmax(1) if pooling == "cls" else valid.shape[1] - 1 - valid.flip(1).argmax(1)
        states = output.last_hidden_state[range(len(LONG)), rows]
        return torch.nn.functional.normalize(states, dim=1).numpy()

    with torch.no_grad():
        plain = vectors(auto_model(**inputs))
        with evenspan.calibrated(auto_model, ONE, pooling=pooling) as inside:
            assert inside is auto_model
            np.testing.assert_allclose(vectors(auto_model(**inputs)), expected, atol=2e-6)
            np.testing.assert_allclose(vectors(auto_model.forward(*inputs.values())), expected, atol=2e-6)
            with evenspan.calibrated(auto_model, OTHER, pooling=pooling):
                assert np.abs(vectors(auto_model(**inputs)) - expected).max() > 1e-3
            np.testing.assert_allclose(vectors(auto_model(**inputs)), expected, atol=2e-6)
        np.testing.assert_array_equal(vectors(auto_model(**inputs)), plain)
        assert "forward" not in vars(auto_model)


def test_plain_transformers_model_without_padding_needs_no_mask(tmp_path) -> None:
    model = tiny.sentence_transformer("bert-cls", tmp_path)
    auto_model, ids = model[0].auto_model, model.preprocess(LONG[:1])["input_ids"]
    with torch.no_grad(), evenspan.calibrated(auto_model, ONE, pooling="cls"):
        with_mask = auto_model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        torch.testing.assert_close(auto_model(ids).last_hidden_state, with_mask)
        embedded = auto_model(inputs_embeds=auto_model.embeddings.word_embeddings(ids)).last_hidden_state
        torch.testing.assert_close(embedded, with_mask)


def test_eager_attention_weights_are_the_calibrated_ones(tmp_path) -> None:
    """output_attentions shows what was used: even baskets at full strength, rows that sum to 1."""
    model = tiny.sentence_transformer("bert-cls", tmp_path)
    auto_model = model[0].auto_model
    auto_model.set_attn_implementation("eager")
    inputs = model.preprocess([text(128)])
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad(), evenspan.calibrated(auto_model, Calibration("uniform", 1.0, "all", 43), pooling="cls"):
        attentions = auto_model(**inputs, output_attentions=True).attentions
    for weights in attentions:
        pooled = weights[0, :, 0]
        torch.testing.assert_close(pooled[:, 0], torch.full((4,), 0.25))
        torch.testing.assert_close(pooled[:, 1:].view(4, 3, 43).sum(-1), torch.full((4, 3), 0.25))
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))


def test_router_models(tmp_path) -> None:
    """The document route is calibrated, the query route is not, and the model saves and loads."""
    document, query = (tiny.sentence_transformer("bert-cls", tmp_path / side) for side in ("document", "query"))
    model = SentenceTransformer(modules=[Router.for_query_document(list(query), list(document))], device="cpu")
    plain, queries = model.encode_document(LONG), model.encode_query(LONG)
    evenspan.calibrate(model, ONE)
    evenspan.calibrate(document, ONE)
    calibrated = model.encode_document(LONG)
    np.testing.assert_array_equal(calibrated, document.encode_document(LONG))
    np.testing.assert_array_equal(model.encode_query(LONG), queries)
    assert np.abs(calibrated - plain).max() > 1e-3
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = evenspan.load(tmp_path / "saved", device="cpu")
    assert evenspan.calibration_of(loaded) == ONE
    np.testing.assert_array_equal(loaded.encode_document(LONG), calibrated)
    np.testing.assert_array_equal(evenspan.restore(model).encode_document(LONG), plain)


def test_router_without_a_document_route_is_refused(tmp_path) -> None:
    router = Router({"passage": list(tiny.sentence_transformer("bert-cls", tmp_path))}, default_route="passage")
    with pytest.raises(ValueError, match=r"routes are \['passage'\]"):
        evenspan.calibrate(SentenceTransformer(modules=[router], device="cpu"))


def test_peft_adapters(tmp_path) -> None:
    """An adapter that is added, before or after calibration, is part of the model; weights merged give the same."""
    peft = pytest.importorskip("peft")
    model = tiny.sentence_transformer("qwen3-lasttoken", tmp_path)
    without = model.encode_document(LONG)
    model.add_adapter(peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    plain = model.encode_document(LONG)
    assert np.abs(plain - without).max() > 1e-3
    evenspan.calibrate(model, ONE)
    calibrated = model.encode_document(LONG)
    assert np.abs(calibrated - plain).max() > 1e-3
    model.disable_adapters()
    with evenspan.calibrated(model, ONE):
        bare = model.encode_document(LONG)
    model.enable_adapters()
    assert np.abs(calibrated - bare).max() > 1e-3
    np.testing.assert_array_equal(evenspan.restore(model).encode_document(LONG), plain)


def test_wrapped_peft_models(tmp_path) -> None:
    peft = pytest.importorskip("peft")
    model = tiny.sentence_transformer("qwen3-lasttoken", tmp_path)
    lora = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False, task_type="FEATURE_EXTRACTION")
    torch.manual_seed(0)
    model[0].model = peft.get_peft_model(model[0].model, lora)
    evenspan.calibrate(model, ONE)
    wrapped = model.encode_document(LONG)
    model[0].model = model[0].model.merge_and_unload()
    evenspan.calibrate(model, ONE)
    np.testing.assert_allclose(model.encode_document(LONG), wrapped, atol=1e-5)


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"instruction": "w1 w2 "}, "instruction"),
        ({"query": "w1 ", "passage": "w2 w3 "}, None),
        ({"document": "w4 "}, None),
    ],
)
def test_prompts_are_those_that_sentence_transformers_uses(prompts, default, tmp_path) -> None:
    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path, prompts=prompts)
    model.default_prompt_name = default
    for words in ("w5 w6 w7", "w8 w9"):
        expected = model.encode_document(words), model.encode_query(words)
        named = document_prompt(model), query_prompt(model)
        np.testing.assert_allclose(model.encode_document(words, prompt=named[0]), expected[0], atol=1e-6)
        np.testing.assert_allclose(model.encode_query(words, prompt=named[1]), expected[1], atol=1e-6)
