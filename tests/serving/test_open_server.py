"""A server that other machines reach: with a key, for pages elsewhere, and with everything else that can be asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from helpers.server import LONG, SHORT, Server, serving

import evenspan

KEY = "a-key-that-nobody-guesses"
OPTIONS = ["--host", "0.0.0.0", "--cors-origin", "https://example.com", "--accept-token-ids"]
OPTIONS += ["--default-input-type", "document", "--calibration", "none"]
GOOD = {"model": "tiny-model", "input": SHORT}


@pytest.fixture(scope="module")
def server(folder) -> Iterator[Server]:
    with serving(folder, *OPTIONS, EVENSPAN_API_KEY=KEY) as started:
        yield started
    log = "".join(started.log)
    assert KEY not in log
    assert SHORT not in log


def test_the_key(server) -> None:
    assert server.ask("/v1/embeddings", GOOD, KEY)[0] == 200
    for wrong in (None, "", KEY[:-1], KEY + "x", "\xe4"):
        status, answer = server.ask("/v1/embeddings", GOOD, wrong)
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
    for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/nothing"):
        assert server.ask_all(path)[0] == 401
        assert server.ask_all(path, key=KEY)[0] in (200, 404)
    assert server.ask("/health")[0] == 200
    assert server.ask_all("/")[0] == 200
    assert server.ask("/v1/models", key=KEY, Host="a.name.of.mine")[0] == 200
    assert server.ask("/v1/parts", {"input": 5}, KEY)[0] == 400


@pytest.mark.parametrize(("origin", "allowed"), [("https://example.com", True), ("https://evil.example.com", False)])
def test_only_pages_that_were_named(server, origin, allowed) -> None:
    for key, expected in ((KEY, 200), ("wrong", 401)):  # a page reads why it was refused, too
        status, _, headers = server.ask_all("/v1/models", key=key, Origin=origin)
        assert status == expected
        assert (headers.get("access-control-allow-origin") == origin) is allowed


def test_token_ids_a_default_and_no_calibration(server, model) -> None:
    texts = [LONG, SHORT]
    ids = model.tokenizer(texts, add_special_tokens=False)["input_ids"]
    documents = server.ask("/v1/embeddings", {"model": "tiny-model", "input": ids}, KEY)[1]["data"]
    query = server.ask("/v1/embeddings", {"model": "tiny-model:query", "input": ids[0]}, KEY)[1]["data"]
    with evenspan.calibrated(model, evenspan.Calibration(strength=0.0)):
        expected = model.encode_document(texts)
    np.testing.assert_allclose([one["embedding"] for one in documents], expected, atol=2e-6)
    np.testing.assert_allclose(query[0]["embedding"], model.encode_query(LONG), atol=2e-6)
    assert server.ask("/v1/models", key=KEY)[1]["data"][0]["calibration"] == "none"
    for wrong in ([[10**6]], [[-1]], [[2**70]]):
        assert server.ask("/v1/embeddings", {"model": "tiny-model", "input": wrong}, KEY)[0] == 400
