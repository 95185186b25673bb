"""Queries stay queries: what is not clearly a document is not calibrated, however it is encoded."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import tiny
from helpers.tiny import text
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

import evenspan
from evenspan import Calibration

SETTING = Calibration(strength=1.0, layers="all", basket_size=16)
LONG = [text(words, seed=1) for words in (200, 60, 120)]
QUERY = "w1 w2 w3 "
PROMPTS = {
    "query": QUERY,
    "document": "w4 ",
    "passage": "w5 w6 ",
    "web_search_query": "w7 ",
    "s2p_query": "w8 w9 ",
    "text": "w3 w4 ",
    "alias": QUERY,
    "empty": "",
}


@pytest.fixture
def model(tmp_path) -> SentenceTransformer:
    return tiny.sentence_transformer("xlm-roberta-cls", tmp_path, prompts=dict(PROMPTS))


CALLS = [
    # what is said, and whether it is clearly a document under default_task="document"
    ({}, True),
    ({"prompt_name": "document"}, True),
    ({"prompt_name": "passage"}, True),
    ({"prompt_name": "text"}, True),  # LlamaIndex calls documents so
    ({"prompt": ""}, True),
    ({"prompt": PROMPTS["document"]}, True),
    ({"prompt_name": "query"}, False),
    ({"prompt_name": "web_search_query"}, False),
    ({"prompt_name": "s2p_query"}, False),
    ({"prompt_name": "alias"}, False),
    ({"prompt_name": "empty"}, False),
    ({"prompt": QUERY}, False),
    ({"prompt": PROMPTS["s2p_query"]}, False),
    ({"prompt": "w1 w1 w1 "}, False),  # a one-off instruction
    ({"prompt": PROMPTS["document"], "prompt_name": "query"}, True),  # the name is ignored then
    ({"task": "query"}, False),
    ({"task": "clustering"}, False),
    ({"task": "query", "prompt_name": "document"}, False),
    ({"task": "document"}, True),
    ({"task": "document", "prompt_name": "query"}, True),  # who says so decides
    ({"task": "document", "prompt": "w1 w1 w1 "}, True),
]


@pytest.mark.parametrize(("options", "are_documents"), CALLS, ids=lambda value: str(value))
def test_bare_encode(model, options, are_documents) -> None:
    plain = model.encode(LONG, **options)
    evenspan.calibrate(model, SETTING, default_task="document")
    changed = np.abs(model.encode(LONG, **options) - plain).max() > 1e-3
    assert changed == are_documents
    evenspan.calibrate(model, SETTING)  # without a default task nothing but the task says so
    assert (np.abs(model.encode(LONG, **options) - plain).max() > 1e-3) == (options.get("task") == "document")


def test_the_default_prompt_counts(model) -> None:
    model.default_prompt_name = "web_search_query"
    plain, query = model.encode(LONG), model.encode_query(LONG)
    evenspan.calibrate(model, SETTING, default_task="document")
    np.testing.assert_array_equal(model.encode(LONG), plain)
    np.testing.assert_array_equal(model.encode(LONG, task=None), plain)
    np.testing.assert_array_equal(model.encode_query(LONG), query)
    model.default_prompt_name = "document"
    assert np.abs(model.encode(LONG) - plain).max() > 1e-3


def test_a_document_prompt_that_is_the_query_prompt_too_says_nothing(model) -> None:
    model.prompts["document"] = QUERY
    plain = model.encode(LONG, prompt=QUERY)
    evenspan.calibrate(model, SETTING, default_task="document")
    np.testing.assert_array_equal(model.encode(LONG, prompt=QUERY), plain)
    assert np.abs(model.encode(LONG, prompt_name="document") - plain).max() > 1e-3


def test_a_query_prompt_that_is_empty_is_known_by_its_name(last_model) -> None:
    assert last_model.prompts == {"query": "", "document": ""}
    plain = last_model.encode(LONG)
    with pytest.warns(UserWarning, match=r"has no query prompt.*calibrates both"):
        evenspan.calibrate(last_model, SETTING, default_task="document")
    np.testing.assert_array_equal(last_model.encode(LONG, prompt_name="query"), plain)
    np.testing.assert_array_equal(last_model.encode_query(LONG), plain)
    assert np.abs(last_model.encode(LONG, prompt_name="document") - plain).max() > 1e-3


def test_a_batch_by_itself_behind_a_prompt_may_be_queries(model) -> None:
    evenspan.calibrate(model, SETTING, default_task="document")
    query = model.encode_query(LONG, batch_size=3)
    features = model.preprocess(LONG, prompt=QUERY)
    output = model(features)["sentence_embedding"].detach().numpy()
    np.testing.assert_allclose(output, query, atol=2e-6)
    output = model(model.preprocess(LONG))["sentence_embedding"].detach().numpy()
    np.testing.assert_allclose(output, model.encode(LONG), atol=2e-6)


@pytest.mark.parametrize("default_route", ["query", None])
def test_a_router_whose_bare_encode_is_for_queries(default_route, tmp_path) -> None:
    document, query = (tiny.sentence_transformer("bert-cls", tmp_path / side) for side in ("document", "query"))
    router = Router.for_query_document(list(query), list(document), default_route)  # None: the first, which is "query"
    model = SentenceTransformer(modules=[router], device="cpu", prompts={"query": QUERY})
    with pytest.raises(ValueError, match=r"takes its 'query' route.*default_route='document'"):
        evenspan.calibrate(model, SETTING, default_task="document")
    assert type(model) is SentenceTransformer
    plain = model.encode_document(LONG)
    evenspan.calibrate(model, SETTING)
    assert np.abs(model.encode_document(LONG) - plain).max() > 1e-3


def test_a_router_whose_bare_encode_becomes_one_for_queries(model) -> None:
    """The routes may share a transformer, which cannot know by itself."""
    plain = model.encode(LONG)
    router = Router.for_query_document(list(model), list(model), "document")
    routed = SentenceTransformer(modules=[router], device="cpu", prompts={"query": QUERY})
    evenspan.calibrate(routed, SETTING, default_task="document")
    documents = routed.encode_document(LONG)
    np.testing.assert_array_equal(routed.encode(LONG), documents)
    router.default_route = "query"
    np.testing.assert_array_equal(routed.encode(LONG), plain)
    output = routed(routed.preprocess(LONG))["sentence_embedding"].detach().numpy()
    np.testing.assert_allclose(output, plain, atol=2e-6)
    np.testing.assert_array_equal(routed.encode_document(LONG), documents)


def test_other_prompts_are_no_query_prompt(tmp_path) -> None:
    model = tiny.sentence_transformer("bert-cls", tmp_path, prompts={"clustering": "w1 ", "document": "w2 "})
    with pytest.warns(UserWarning, match="has no query prompt"):
        evenspan.calibrate(model, SETTING, default_task="document")


def test_tokenizers_keep_nothing_of_the_calibration(model) -> None:
    """They cache the length of a prompt by all they are told; nothing of ours may stay behind in a restored model."""
    evenspan.calibrate(model, SETTING)
    model.encode_document(LONG)
    evenspan.restore(model)
    assert set(model[0]._prompt_length_mapping) == {(PROMPTS["document"],)}
