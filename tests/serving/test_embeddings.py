"""The vectors of a real server are those of the model in process: documents calibrated, queries plain, whoever asks and how."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor

import cohere
import httpx
import numpy as np
import openai
import pytest
from helpers import tiny
from helpers.server import LONG, SHORT

import evenspan
from evenspan.auditing.parts import parts

TEXTS = [LONG, SHORT, tiny.text(130)]
SPELLINGS = [
    ({"input_type": "query"}, {"input_type": "document"}),  # Voyage
    ({"input_type": "search_query"}, {"input_type": "search_document"}),  # Cohere
    ({"task": "retrieval.query"}, {"task": "retrieval.passage"}),  # Jina
    ({"model": "tiny-model:query"}, {"model": "tiny-model:document"}),
]


@pytest.fixture(scope="module")
def expected(model) -> dict[str, np.ndarray]:
    vectors = {"query": model.encode_query(TEXTS), "document": model.encode_document(TEXTS)}
    plain = evenspan.restore(model).encode_document(TEXTS)
    evenspan.calibrate(model, evenspan.Calibration(basket_size=16))
    assert np.abs(plain - vectors["document"]).max() > 1e-3, "documents are calibrated"
    assert np.abs(vectors["query"] - vectors["document"]).max() > 1e-3
    return vectors


def close(found, expected) -> None:
    found = [np.frombuffer(base64.b64decode(one), dtype="<f4") if isinstance(one, str) else one for one in found]
    np.testing.assert_allclose(np.array(found, dtype=np.float32), expected, atol=2e-6)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=["Voyage", "Cohere", "Jina", "name"])
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_every_spelling(server, expected, spelling, encoding) -> None:
    for role, said in zip(("query", "document"), spelling, strict=True):
        body = {"model": "tiny-model", "input": TEXTS, "encoding_format": encoding, **said}
        status, answer = server.ask("/v1/embeddings", body)
        assert status == 200
        close([one["embedding"] for one in answer["data"]], expected[role])
        assert [one["index"] for one in answer["data"]] == [0, 1, 2]
        assert answer["model"] == body["model"]
        assert answer["usage"]["total_tokens"] > 300


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_the_openai_package(server, expected, encoding) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        options = {} if encoding is None else {"encoding_format": encoding}
        for role in ("query", "document"):
            answer = client.embeddings.create(model=f"tiny-model:{role}", input=TEXTS, **options)
            close([one.embedding for one in answer.data], expected[role])
            more = client.embeddings.create(model="tiny-model", input=LONG, extra_body={"input_type": role}, **options)
            close([more.data[0].embedding], expected[role][:1])
        assert next(model.id for model in client.models.list()) == "tiny-model"
        with pytest.raises(openai.BadRequestError, match="input_type is missing"):
            client.embeddings.create(model="tiny-model", input=LONG)
        with pytest.raises(openai.NotFoundError, match="Unknown model"):
            client.embeddings.create(model="text-embedding-3-small", input=LONG)


def test_the_cohere_package(server, expected) -> None:
    with httpx.Client() as connection:
        client = cohere.ClientV2(api_key="none", base_url=server.url, httpx_client=connection)
        for role in ("query", "document"):
            answer = client.embed(
                model="tiny-model", texts=TEXTS, input_type=f"search_{role}", embedding_types=["float", "base64"]
            )
            close(answer.embeddings.float_, expected[role])
            close(answer.embeddings.base64, expected[role])
            assert answer.texts == TEXTS
            assert answer.meta.billed_units.input_tokens > 300
        with pytest.raises(cohere.BadRequestError):
            client.embed(model="tiny-model", texts=TEXTS, input_type="clustering", embedding_types=["float"])


def test_many_clients_at_once_get_their_own(server, model) -> None:
    texts = [[tiny.text(5 + 11 * client + 3 * place, seed=client) for place in range(3)] for client in range(12)]
    roles = ["query" if client % 3 == 0 else "document" for client in range(12)]

    def ask(client: int) -> list:
        body = {"model": f"tiny-model:{roles[client]}", "input": texts[client]}
        return [one["embedding"] for one in server.ask("/v1/embeddings", body)[1]["data"]]

    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(ask, range(12)))
    for role, own, vectors in zip(roles, texts, found, strict=True):
        close(vectors, model.encode_query(own) if role == "query" else model.encode_document(own))


def test_fewer_dimensions_keep_the_length(server, expected) -> None:
    for body in ({"dimensions": 8}, {"output_dimension": 8}):
        answer = server.ask("/v1/embeddings", {"model": "tiny-model:document", "input": LONG, **body})[1]
        whole = expected["document"][0][:8]
        close([answer["data"][0]["embedding"]], [whole / np.linalg.norm(whole)])
    status, answer = server.ask("/v1/embeddings", {"model": "tiny-model:document", "input": LONG, "dimensions": 10**6})
    assert (status, answer["error"]["param"]) == (400, "dimensions")


def test_what_is_cut_is_counted_or_refused(server) -> None:
    long = tiny.text(3000)
    before = server.metric('evenspan_truncated_texts_total{input_type="document"}')
    body = {"model": "tiny-model:document", "input": [SHORT, long]}
    assert server.ask("/v1/embeddings", body)[1]["usage"]["truncated"] == 1
    assert server.metric('evenspan_truncated_texts_total{input_type="document"}') == before + 1
    for refusal in ({"truncate": "none"}, {"truncation": False}, {"truncate": False}):
        status, answer = server.ask("/v1/embeddings", {**body, **refusal})
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        assert "1 of 2 texts" in answer["error"]["message"]
    cohere_body = {"model": "tiny-model", "texts": [SHORT, long], "input_type": "search_document"}
    assert server.ask("/v2/embed", cohere_body)[1]["meta"]["warnings"] == ["1 of 2 texts were truncated"]
    assert server.ask("/v2/embed", {**cohere_body, "truncate": "NONE"})[0] == 400


def test_token_ids_are_refused(server) -> None:
    status, answer = server.ask("/v1/embeddings", {"model": "tiny-model:document", "input": [[1, 2], [3]]})
    assert status == 400
    assert "check_embedding_ctx_length=False" in answer["error"]["message"]


def test_parts_of_a_document(server, model) -> None:
    body = {"input": LONG, "segments": 4, "calibration": "soft,strength=1.0,basket_size=16", "question": SHORT}
    status, answer = server.ask("/v1/parts", body)
    expected = parts(model, LONG, evenspan.Calibration.parse(body["calibration"]), segments=4, question=SHORT)
    assert status == 200
    assert [part["text"] for part in answer["parts"]] == [part.text for part in expected.parts]
    for side in ("plain", "calibrated"):
        shares = [getattr(part, side).share for part in expected.parts]
        np.testing.assert_allclose([part[side]["share"] for part in answer["parts"]], shares, atol=1e-5)
    np.testing.assert_allclose(answer["question"], expected.question, atol=1e-5)
