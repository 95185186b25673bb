"""No hollow shells: a model that looks calibrated is calibrated, or says that it is not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.tiny import text
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Pooling

import evenspan
from evenspan import Calibration
from evenspan.models import CalibratedSentenceTransformer

SETTING = Calibration(strength=1.0, layers="all", basket_size=16)
LONG = [text(words, seed=1) for words in (200, 60, 120)]
SAYS = r"This model was calibrated, but .* evenspan\.calibrate\(model\) .* evenspan\.restore\(model\)"


class Wrapper(torch.nn.Module):
    """Takes a module's place, and hands nothing on but features."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def preprocess(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.preprocess(*args, **kwargs)

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        return self.inner(features)


def refuses(model: SentenceTransformer) -> None:
    for encode in (model.encode_document, model.encode, model.encode_query):
        with pytest.raises(RuntimeError, match=SAYS):
            encode(LONG)
    with pytest.raises(RuntimeError, match=SAYS):
        model({})


def test_a_wrapped_first_module(cls_model) -> None:
    plain = cls_model.encode_document(LONG)
    evenspan.calibrate(cls_model, SETTING)
    cls_model[0] = Wrapper(cls_model[0])
    refuses(cls_model)
    cls_model[0] = cls_model[0].inner
    assert np.abs(cls_model.encode_document(LONG) - plain).max() > 1e-3


def test_a_replaced_first_module(cls_model, tmp_path) -> None:
    other = tiny.sentence_transformer("bert-cls", tmp_path / "other")
    plain = other.encode_document(LONG)
    evenspan.calibrate(cls_model, SETTING)
    cls_model[0] = other[0]
    refuses(cls_model)
    evenspan.calibrate(cls_model, SETTING)
    assert np.abs(cls_model.encode_document(LONG) - plain).max() > 1e-3
    np.testing.assert_array_equal(evenspan.restore(cls_model).encode_document(LONG), plain)
    assert type(cls_model) is SentenceTransformer


def test_a_shallow_copy_of_a_model_that_is_restored(cls_model) -> None:
    plain = cls_model.encode_document(LONG)
    evenspan.calibrate(cls_model, SETTING)
    documents = cls_model.encode_document(LONG)
    twin = copy.copy(cls_model)
    np.testing.assert_array_equal(twin.encode_document(LONG), documents)
    evenspan.restore(cls_model)
    np.testing.assert_array_equal(cls_model.encode_document(LONG), plain)
    refuses(twin)
    np.testing.assert_array_equal(evenspan.restore(twin).encode_document(LONG), plain)


def test_a_model_built_around_a_calibrated_module(cls_model) -> None:
    """It gets the class that tells queries from documents."""
    query = cls_model.encode_query(LONG)
    evenspan.calibrate(cls_model, SETTING, default_task="document")
    documents = cls_model.encode_document(LONG)
    built = SentenceTransformer(modules=list(cls_model), prompts=cls_model.prompts, device="cpu")
    assert type(built) is CalibratedSentenceTransformer
    assert evenspan.calibration_of(built) == SETTING
    np.testing.assert_array_equal(built.encode(LONG), documents)
    np.testing.assert_array_equal(built.encode(LONG, prompt_name="query"), query)
    evenspan.restore(built)
    refuses(cls_model)


def test_a_calibrated_module_in_a_model_that_knows_nothing_of_it(cls_model) -> None:
    """It protects queries by itself: behind a prompt, or with a task, they are plain."""

    class Mine(SentenceTransformer):
        pass

    query = cls_model.encode_query(LONG)
    evenspan.calibrate(cls_model, SETTING, default_task="document")
    documents = cls_model.encode_document(LONG)
    mine = Mine(modules=list(cls_model), prompts=cls_model.prompts, device="cpu")
    assert type(mine) is Mine
    np.testing.assert_allclose(mine.encode_document(LONG), documents, atol=2e-6)
    np.testing.assert_allclose(mine.encode(LONG), documents, atol=2e-6)
    np.testing.assert_allclose(evenspan.encode_documents(mine, LONG), documents, atol=2e-6)
    np.testing.assert_array_equal(mine.encode_query(LONG), query)
    np.testing.assert_array_equal(mine.encode(LONG, prompt_name="query"), query)
    np.testing.assert_array_equal(mine.encode(LONG, prompt=cls_model.prompts["query"]), query)


def test_two_models_with_one_transformer_that_is_calibrated_later(cls_model) -> None:
    other = SentenceTransformer(modules=list(cls_model), device="cpu")
    evenspan.calibrate(cls_model, SETTING)
    documents = cls_model.encode_document(LONG)
    assert evenspan.calibration_of(other) == SETTING
    np.testing.assert_allclose(other.encode_document(LONG), documents, atol=2e-6)
    np.testing.assert_allclose(evenspan.encode_documents(other, LONG), documents, atol=2e-6)


def test_a_calibrated_model_that_is_a_module_of_another(cls_model) -> None:
    query, plain = cls_model.encode_query(LONG), cls_model.encode_document(LONG)
    evenspan.calibrate(cls_model, SETTING)
    documents = cls_model.encode_document(LONG)
    outer = SentenceTransformer(modules=[cls_model], prompts=cls_model.prompts, device="cpu")
    np.testing.assert_allclose(outer.encode_document(LONG), documents, atol=2e-6)
    np.testing.assert_allclose(evenspan.encode_documents(outer, LONG), documents, atol=2e-6)
    np.testing.assert_array_equal(outer.encode_query(LONG), query)
    np.testing.assert_array_equal(outer.encode(LONG), plain)
    evenspan.restore(outer)
    np.testing.assert_array_equal(outer.encode_document(LONG), plain)
    np.testing.assert_array_equal(cls_model.encode_document(LONG), plain)
    assert type(cls_model) is SentenceTransformer


def test_a_calibrated_module_is_not_pooled_otherwise_by_another_kind_of_model(cls_model) -> None:
    class Mine(SentenceTransformer):
        pass

    evenspan.calibrate(cls_model, SETTING)
    with pytest.raises(RuntimeError, match=r"evenspan\.restore\(model\) before its modules"):
        Mine(modules=[cls_model[0], Pooling(32, "mean")], device="cpu")


def test_a_router_of_two_calibrated_models_is_restored_wholly(cls_model, tmp_path) -> None:
    other = tiny.sentence_transformer("bert-cls", tmp_path / "other")
    plain = cls_model.encode_document(LONG)
    evenspan.calibrate(other, Calibration(basket_size=8))
    evenspan.calibrate(cls_model, SETTING)
    model = SentenceTransformer(modules=[Router.for_query_document(list(other), list(cls_model))], device="cpu")
    assert evenspan.calibration_of(model) == SETTING, "that of its documents"
    evenspan.restore(model)
    assert evenspan.calibration_of(model) is None
    np.testing.assert_array_equal(model.encode_document(LONG), plain)
    assert type(model) is SentenceTransformer


def test_a_replaced_pooling_module(cls_model) -> None:
    evenspan.calibrate(cls_model, SETTING)
    features = dict(cls_model.preprocess(LONG))
    cls_model[1] = Pooling(32, "cls")
    for call in (
        lambda: cls_model.encode_document(LONG),
        lambda: cls_model(features, task="document"),
        lambda: cls_model.forward(features, task="document"),
    ):
        with pytest.raises(RuntimeError, match="pooling module was replaced"):
            call()
    evenspan.calibrate(cls_model, SETTING)
    assert cls_model.forward(features, task="document")["sentence_embedding"].shape == (3, 32)
