"""Features are those of sentence-transformers' own preprocessing, one by one; what is not standard is left to it."""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sentence_transformers
import torch
from helpers import tiny
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import DataCollatorWithFlattening

import evenspan
from evenspan.encoding import Encoder
from evenspan.models.standard import NotStandardError, text_features

stumbles = pytest.mark.skipif(
    tuple(map(int, sentence_transformers.__version__.split(".")[:2])) < (6, 2),
    reason="output_value=None of sentence-transformers before 6.2 fails at features that are text, plain models' too",
)
TEXTS = [*tiny.TEXTS, tiny.text(400), "w1", "words that nobody knows"]


def assert_same_features(model: SentenceTransformer, prompt: str = "", task: str = "document") -> None:
    features = text_features(model, task, prompt)
    for texts in (TEXTS, TEXTS[:1], TEXTS[-2:]):
        expected = dict(model.preprocess(texts, prompt=prompt or None, task=task))
        tokenized = features.tokenize(texts)
        made = features.batch(tokenized.ids, features.layout)
        assert made.keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert made[name].dtype == value.dtype, name
                assert torch.equal(made[name], value), name
            else:
                assert made[name] == value, name


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES, ids=str)
def test_features_of_every_architecture(architecture, tmp_path) -> None:
    model = tiny.sentence_transformer(architecture, tmp_path)
    assert_same_features(model)
    assert_same_features(model, "w1 w2 w3: ")
    model.max_seq_length = 17
    for padding in ("left", "right"):
        for truncation in ("left", "right"):
            model.tokenizer.padding_side, model.tokenizer.truncation_side = padding, truncation
            assert_same_features(model, "w7 ")
            assert_same_features(model, task="query")
    model.set_pooling_include_prompt(False)
    assert_same_features(model, "w7 w8 ")


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES, ids=str)
def test_batches_without_padding_for_flash_attention(architecture, tmp_path) -> None:
    model = tiny.sentence_transformer(architecture, tmp_path)
    module = model[0]
    module.can_flatten_inputs, module._flatten_position_offset = True, module._infer_flatten_position_offset()
    module.data_collator = DataCollatorWithFlattening(
        return_seq_idx=True, return_flash_attn_kwargs=True, return_position_ids=True
    )
    assert_same_features(model)
    assert_same_features(model, "w1 w2 ")
    model.max_seq_length = 17
    assert_same_features(model, "w7 ")


def test_token_types_and_tokenizers_that_change(tmp_path) -> None:
    model = tiny.sentence_transformer("bert-cls", tmp_path)
    model.tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    special = [("<s>", 0), ("</s>", 2)]
    backend = model.tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing(single="<s>:2 $A:1 </s>:3", special_tokens=special)
    model.tokenizer._pad_token_type_id = 5
    assert_same_features(model, "w1 ")
    backend.post_processor = TemplateProcessing(single="<s> <s> $A", special_tokens=special)
    assert_same_features(model, "w1 ")
    model.tokenizer.add_tokens(["nobody"])
    assert_same_features(model)
    model.tokenizer.add_special_tokens({"additional_special_tokens": ["w1"]})  # a word until now
    assert_same_features(model)


def test_another_tokenizer_of_the_same_size(cls_model) -> None:
    before = cls_model.encode_document(TEXTS)
    Encoder(cls_model).encode(TEXTS)
    other = json.loads(cls_model.tokenizer.backend_tokenizer.to_str())
    words = other["model"]["vocab"]
    words["w1"], words["w2"] = words["w2"], words["w1"]
    cls_model.tokenizer._tokenizer = Tokenizer.from_str(json.dumps(other))
    assert_same_features(cls_model)
    after = Encoder(cls_model).encode(TEXTS)
    np.testing.assert_allclose(after, cls_model.encode_document(TEXTS), atol=2e-6)
    assert not np.allclose(after, before, atol=1e-4)


def test_threads_that_use_a_model_for_the_first_time(cls_model, monkeypatch) -> None:
    inside, most = [], []
    preprocess = SentenceTransformer.preprocess

    def slow(*args, **options):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.05)
        try:
            return preprocess(*args, **options)
        finally:
            inside.pop()

    monkeypatch.setattr(SentenceTransformer, "preprocess", slow)
    with ThreadPoolExecutor(4) as pool:
        encoders = [Encoder(cls_model, prompt=f"w{number} ") for number in range(4)]
        vectors = list(pool.map(lambda encoder: encoder.encode(TEXTS), encoders))
    assert len(vectors) == len(most) == 4
    assert max(most) == 1, "tokenizers change their state: one call sets the padding of another"


def test_a_model_with_routes(cls_model, last_model) -> None:
    router = Router(
        {"query": [cls_model[0], Pooling(32, "cls")], "document": [last_model[0], Pooling(32, "lasttoken")]}
    )
    model = SentenceTransformer(modules=[router], device="cpu")
    assert_same_features(model)
    assert_same_features(model, "w1 ", task="query")
    for role in ("document", "query"):
        expected = (model.encode_document if role == "document" else model.encode_query)(
            TEXTS, normalize_embeddings=True
        )
        np.testing.assert_allclose(Encoder(model, role=role).encode(TEXTS), expected, atol=2e-6)


def test_a_prompt_that_is_left_out_of_pooling(cls_model) -> None:
    cls_model.set_pooling_include_prompt(False)
    expected = cls_model.encode_document(TEXTS, prompt="w1 w2 ")
    np.testing.assert_allclose(Encoder(cls_model, prompt="w1 w2 ").encode(TEXTS), expected, atol=2e-6)


class OwnWay(SentenceTransformer):
    """Preprocesses in a way of its own."""


def custom_class(model: SentenceTransformer) -> SentenceTransformer:
    return OwnWay(modules=list(model), device="cpu")


def replaced_preprocess(model: SentenceTransformer) -> SentenceTransformer:
    preprocess = model.preprocess
    model.preprocess = lambda texts, **options: preprocess([text.lower() for text in texts], **options)
    return model


def slow_tokenizer(model: SentenceTransformer) -> SentenceTransformer:
    class Slow(type(model.tokenizer)):
        def _encode_plus(self, *args, **kwargs):
            return super()._encode_plus(*args, **kwargs)

    model.tokenizer.__class__ = Slow
    return model


def written_in_python(model: SentenceTransformer) -> SentenceTransformer:
    class Words:  # as RoFormer's tokenizer has
        def pre_tokenize(self, text):
            text.split(lambda _, part: part.split(" ", "removed"))

    model.tokenizer.backend_tokenizer.pre_tokenizer = PreTokenizer.custom(Words())
    return model


def processor_options(model: SentenceTransformer) -> SentenceTransformer:
    model[0].processing_kwargs = {"text": {"max_length": 9}}
    return model


def messages(model: SentenceTransformer) -> SentenceTransformer:
    model[0].modality_config = {**model[0].modality_config, "image": {"method": "forward", "method_output_name": None}}
    return model


def static(_: SentenceTransformer) -> SentenceTransformer:
    return SentenceTransformer(
        modules=[StaticEmbedding(tiny.tokenizer(first_token=True).backend_tokenizer, embedding_dim=8)], device="cpu"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (custom_class, "OwnWay has code of its own"),
        (replaced_preprocess, "its preprocessing was replaced"),
        (slow_tokenizer, "its tokenizer is a Slow"),
        (written_in_python, "its tokenizer cannot be copied"),
        (processor_options, "it has options for its processor"),
        (messages, "it reads more than text"),
        (static, "its first module is a StaticEmbedding"),
    ],
)
def test_what_is_not_standard_is_left_to_sentence_transformers(change, reason, cls_model, caplog) -> None:
    model = change(cls_model)
    with pytest.raises(NotStandardError, match=reason):
        text_features(model, "document", "")
    with caplog.at_level(logging.DEBUG, logger="evenspan"):
        vectors = Encoder(model).encode(TEXTS)
    assert reason in caplog.text
    np.testing.assert_allclose(vectors, model.encode_document(TEXTS, normalize_embeddings=True), atol=2e-6)
    if type(model) is SentenceTransformer and change is not static:
        assert evenspan.calibrate(model).encode_document(TEXTS).shape == vectors.shape


def test_counts_are_those_before_anything_is_cut_off(cls_model) -> None:
    cls_model.max_seq_length = 20
    tokenized = text_features(cls_model, "document", "").tokenize([tiny.text(30), "w1", ""])
    assert (tokenized.counts, [len(ids) for ids in tokenized.ids]) == ([32, 3, 2], [20, 3, 2])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"convert_to_tensor": True},
        {"convert_to_numpy": False},
        {"normalize_embeddings": True, "truncate_dim": 8},
        {"prompt": "w1 w2 ", "batch_size": 3},
        {"prompt_name": "query"},
        {"show_progress_bar": True},
        {"precision": "int8"},
        {"output_value": "token_embeddings"},
        pytest.param({"output_value": None}, marks=stumbles),
    ],
    ids=str,
)
def test_a_calibrated_model_encodes_lists_with_all_options(options, cls_model, caplog) -> None:
    evenspan.calibrate(cls_model, evenspan.Calibration(strength=1.0, basket_size=16))
    with caplog.at_level(logging.DEBUG, logger="evenspan"):
        vectors = cls_model.encode_document(TEXTS, **options)
    is_usual = options.get("precision") is None and options.get("output_value", "") == ""
    assert ("by sentence-transformers" in caplog.text) != is_usual
    half = [cls_model.encode_document(part, **options) for part in (TEXTS[:5], TEXTS[5:])]  # too few
    assert type(vectors) is type(half[0])
    if options.get("precision") is None and options.get("output_value", "") is not None:
        for row, expected in zip(vectors, [row for part in half for row in part], strict=True):
            np.testing.assert_allclose(row, expected, atol=3e-6)


def test_bfloat16_comes_back_as_sentence_transformers_has_it(cls_model) -> None:
    plain = cls_model.to(torch.bfloat16)
    expected = {key: plain.encode_document(TEXTS, convert_to_tensor=key) for key in (True, False)}
    evenspan.calibrate(plain, evenspan.Calibration(strength=0.0))
    for key, before in expected.items():
        vectors = plain.encode_document(TEXTS, convert_to_tensor=key)
        assert vectors.dtype == before.dtype
        np.testing.assert_allclose(torch.as_tensor(vectors).float(), torch.as_tensor(before).float(), atol=0.02)
