"""Which model this is: digests and keys stay what they are, so that caches, results and indexes are found again."""

from __future__ import annotations

import json

import pytest
from helpers import copies, tiny
from helpers.paths import ORACLE
from sentence_transformers import SentenceTransformer
from tokenizers.pre_tokenizers import PreTokenizer

import evenspan
from evenspan.evaluation import evaluate, load_benchmark
from evenspan.identity import (
    ModelIdentity,
    encoding_setting,
    tokenizer_digest,
    vectors_digest,
    versions,
    weights_digest,
)
from evenspan.indexing.settings import IndexSettings

# What 0.1.0 wrote for this model before there was one place for it.
WEIGHTS = "d75cabd36f69ff269f23357ae2f485575a818126ec2fd2e540e97c72345f5827"
TOKENIZER = "05981497729677f74ff53ffe9cb79b5070569bdfb6113cf4d8c2570aa3474e9e"
VECTORS = "bda1db1b1e83bbb8fc75ff1bfee2dafce404f8c76e665a40909762710fd3cd28"


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    return SentenceTransformer(str(ORACLE / "qwen3"), device="cpu")


def test_digests_are_those_of_existing_caches_and_indexes(model) -> None:
    assert weights_digest(model) == WEIGHTS
    assert tokenizer_digest(model.tokenizer) == TOKENIZER
    assert vectors_digest(model) == vectors_digest(model, WEIGHTS) == VECTORS
    model.encode("w1 " * 600)  # leaves its truncation and padding behind in the tokenizer
    with evenspan.calibrated(model):
        assert (weights_digest(model), vectors_digest(model)) == (WEIGHTS, VECTORS)
    assert tokenizer_digest(model.tokenizer) == TOKENIZER


def test_a_tokenizer_that_is_partly_written_in_python_has_a_digest(cls_model, last_model) -> None:
    digests = set()
    for own in (cls_model, cls_model, last_model):
        own.tokenizer.backend_tokenizer.pre_tokenizer = PreTokenizer.custom(object())
        digests.add((tokenizer_digest(own.tokenizer), vectors_digest(own)))
    assert len(digests) == 2


def test_the_key_of_cached_vectors_is_that_of_existing_caches(model) -> None:
    config = model.config.to_dict()
    expected = {
        "weights": WEIGHTS,
        "config": {name: config[name] for name in config if name not in ("_name_or_path", "transformers_version")},
        "modules": [
            ["Transformer", repr(model[0].get_config_dict())],
            ["Pooling", "{'embedding_dimension': 64, 'pooling_mode': 'lasttoken', 'include_prompt': True}"],
            ["Normalize", repr(model[2].get_config_dict())],
        ],
        "tokenizer": TOKENIZER,
        "sides": ["left", "right"],
        "max_tokens": 512,
        "prompt": [{"query": "", "document": ""}, None],
        "truncate_dim": None,
        "dtype": "torch.float32",
        "attention": "sdpa",
        "device": "cpu",
        "versions": list(versions("evenspan", "transformers", "sentence-transformers").values()),
    }
    assert encoding_setting(model, WEIGHTS, None) == expected
    with evenspan.calibrated(model):
        assert encoding_setting(model, WEIGHTS, "w1 ") == {**expected, "prompt": "w1 "}


def test_cached_vectors_say_their_method_and_role(model, tmp_path) -> None:
    benchmark = load_benchmark(copies.directory(tmp_path / "mine", documents=3))
    evaluate(model, benchmark, cache=tmp_path / "cache", resamples=0, progress=False)
    settings = [json.loads(file.read_text()) for file in (tmp_path / "cache").glob("*/setting.json")]
    own = {key: value for key, value in encoding_setting(model, WEIGHTS, None).items() if key != "config"}
    for setting in settings:
        assert {key: setting[key] for key in own} == own
        assert (setting["method"], setting["chunker"]) == ("none", None)
    assert {setting["role"] for setting in settings} == {"document", "query"}


def test_an_index_takes_its_settings_from_here(model) -> None:
    assert IndexSettings.of(model, "x", "none").to_dict() == {
        "model": "x",
        "revision": None,
        "weights": VECTORS,
        "calibration": "none",
        "document_prompt": "",
        "query_prompt": "",
        "max_tokens": 512,
        "dimensions": 64,
        "similarity": "cosine",
        "dtype": "float32",
        "text": True,
    }


def test_results_and_audits_say_the_same_of_a_model(model, tmp_path) -> None:
    benchmark = load_benchmark(copies.directory(tmp_path / "mine", documents=3))
    result = evaluate(model, benchmark, resamples=0, progress=False)
    audit = evenspan.audit(model, [tiny.text(20, seed) for seed in range(3)], progress=False)
    identity = {
        "model": str(ORACLE / "qwen3"),
        "revision": None,
        "weights_sha256": WEIGHTS,
        "max_tokens": 512,
        "dtype": "float32",
        "device": "cpu",
        "attention": "sdpa",
    }
    assert ModelIdentity.of(model).to_setting() == identity
    for setting in (result.setting, audit.setting):
        assert {name: setting[name] for name in identity} == identity
    assert set(result.setting) == {
        *identity, "similarity", "truncate_dim", "prompts", "default_prompt_name", "query_prompt", "document_prompt",
        "batch_size", "benchmark_options", "data_sha256", "documents", "queries", "cuts", "seed", "resamples", "tie_rule",
        "versions",
    }  # fmt: skip
    assert set(audit.setting) == {
        *identity, "document_prompt", "documents", "segments", "versions", "batch_size", "seed", "packages",
    }  # fmt: skip


def test_versions() -> None:
    found = versions("evenspan", "no-such-package", "python")
    assert found["evenspan"] == evenspan.__version__
    assert found["no-such-package"] is None
    assert found["python"].startswith("3.")
