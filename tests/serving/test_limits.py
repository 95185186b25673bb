"""Who may ask, how much and how slowly: every refusal has its status, and the server goes on."""

from __future__ import annotations

import json
import random

import pytest
from helpers.server import JSON_HEAD, LONG

GOOD = {"model": "tiny-model:query", "input": "w1 w2"}


@pytest.mark.parametrize(
    ("body", "status", "param", "part"),
    [
        ({**GOOD, "input": []}, 400, "input", "not empty"),
        ({**GOOD, "input": [1.5]}, 400, "input", "list of texts"),
        ({**GOOD, "input": ["a", None]}, 400, "input", "list of texts"),
        ({**GOOD, "input": {"text": "a"}}, 400, "input", "list of texts"),
        ({**GOOD, "input": ["a"] * 101}, 413, "input", "the limit is 100"),
        ({**GOOD, "input": "\ud800"}, 400, "input", ""),
        ({**GOOD, "input": "w1 " * 100_000}, 413, None, "larger than 200,000 bytes"),
        ({**GOOD, "model": "other"}, 404, "model", "Unknown model 'other'"),
        ({**GOOD, "model": 5}, 400, "model", "string"),
        ({**GOOD, "model": "tiny-model"}, 400, "input_type", "tiny-model:query or tiny-model:document"),
        ({**GOOD, "input_type": "document"}, 400, "input_type", "model and input_type contradict"),
        ({**GOOD, "input_type": "classification"}, 400, "input_type", "must be one of"),
        ({**GOOD, "task": "text-matching"}, 400, "task", "must be one of"),
        ({**GOOD, "encoding_format": "int8"}, 400, "encoding_format", "float"),
        ({**GOOD, "dimensions": 0}, 400, "dimensions", "greater"),
        ({**GOOD, "dimensions": "8"}, 400, "dimensions", "integer"),
        (
            {**GOOD, "dimensions": 8, "output_dimension": 4},
            400,
            "dimensions",
            "dimensions and output_dimension contradict",
        ),
        ({**GOOD, "encoding_format": "float", "embedding_type": "base64"}, 400, "encoding_format", "contradict"),
        ({**GOOD, "truncate": "START"}, 400, "truncate", "NONE or END"),
        ({**GOOD, "late_chunking": True}, 400, "late_chunking", ""),
        ({**GOOD, "input_typ": "query"}, 400, None, "unknown field 'input_typ'"),
        ({"input": "a"}, 400, "model", "required"),
        ([GOOD], 400, None, "JSON object"),
        (b'{"model": "tiny-mod', 400, None, "JSON object"),
        (b"\xff\xfe", 400, None, "JSON object"),
        (b"[" * 100_000, 400, None, "JSON object"),
        (b"", 400, None, ""),
    ],
)
def test_wrong_requests(server, body, status, param, part) -> None:
    found, answer = server.ask("/v1/embeddings", body)
    assert (found, answer["error"]["param"]) == (status, param)
    assert part in answer["error"]["message"]
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert len(answer["error"]["message"]) < 1000


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/nothing", None, 404),
        ("/v1/embeddings", None, 405),
        ("/v1/models/other", None, 404),
        ("/v2/embed", {"model": "tiny-model", "input_type": "search_query"}, 400),
        ("/v2/embed", {"model": "tiny-model", "texts": [[1]], "input_type": "search_query"}, 400),
        (
            "/v2/embed",
            {"model": "tiny-model", "texts": ["a"], "input_type": "search_query", "embedding_types": ["int8"]},
            400,
        ),
        ("/v2/embed", {"model": "tiny-model", "texts": ["a"], "input_type": "search_query", "max_tokens": 5}, 400),
        ("/v1/parts", {"input": "w1 w2"}, 400),
        ("/v1/parts", {"input": LONG, "calibration": "softer"}, 400),
        ("/v1/parts", {"input": LONG, "segments": 1}, 400),
    ],
)
def test_wrong_requests_elsewhere(server, path, body, status) -> None:
    found, answer = server.ask(path, body)
    assert found == status
    assert answer["error"]["message"]


def test_another_host_and_another_content_type(server) -> None:
    assert server.ask("/v1/embeddings", GOOD)[0] == 200
    assert server.ask("/v1/embeddings", GOOD, Host="evil.example.com")[0] == 403
    assert server.ask("/v1/models", Host="localhost:1234")[0] == 200
    headers = {"Content-Type": "text/plain"}  # what a page elsewhere could send without asking
    assert server.ask("/v1/embeddings", GOOD, **headers)[0] == 400


def test_a_body_that_is_too_long_is_refused_while_it_is_sent(server) -> None:
    chunk = "10000\r\n" + "x" * 0x10000 + "\r\n"
    head = JSON_HEAD
    answer = server.speak(f"{head}Transfer-Encoding: chunked\r\n\r\n{chunk * 8}0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")
    assert server.speak(f"{head}Content-Length: 99999999999999999999999\r\n\r\nx").startswith(
        (b"HTTP/1.1 413", b"HTTP/1.1 400")
    )
    assert server.ask("/health")[0] == 200


@pytest.mark.parametrize("what", ["NONSENSE\r\n\r\n", f"{JSON_HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n"])
def test_what_is_no_http_is_refused_in_the_same_form(server, what) -> None:
    head, _, body = server.speak(what).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_malformed_requests_leave_nothing_behind(server) -> None:
    rng = random.Random(3)
    good = {"model": "tiny-model", "input": ["w1 w2"], "input_type": "document"}
    odd = [None, True, -1, 1e300, "", [], {}, [[]], [None], [1, "a"], "x" * 999, 10**30, {"a": [1]}, [[1], ["b"]], "\0"]

    def fuzz(number: int) -> set[int]:
        statuses = set()
        for _ in range(number):
            path = rng.choice(["/v1/embeddings", "/v2/embed", "/v1/parts"])
            name, value = rng.choice([*good, "dimensions", "texts", "segments", "truncate"]), rng.choice(odd)
            whole = json.dumps({**good, name: value}).encode()
            body = rng.choice(
                [whole, whole[: rng.randrange(len(whole))], rng.randbytes(50), b"{" * rng.randrange(9000)]
            )
            statuses.add(server.ask_all(path, body)[0])
        return statuses

    fuzz(100)  # what is allocated once
    before = server.memory()
    assert fuzz(400) <= {200, 400, 404, 413}
    assert server.memory() < before + 30
    assert server.ask("/v1/embeddings", good)[0] == 200
    assert server.log[1:] == [], "nothing was logged"
