"""A server with little room and little patience: in this order, as the last test ends it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from helpers import tiny
from helpers.server import JSON_HEAD, Server, serving

DOCUMENT = tiny.text(190)
GOOD = {"model": "tiny-model:query", "input": "w1 w2"}


@pytest.fixture(scope="module")
def server(folder) -> Iterator[Server]:
    with serving(folder, "--batch-tokens", "200", "--queue-tokens", "30000", "--patience", "1") as started:
        yield started


def documents(number: int) -> dict[str, object]:
    return {"model": "tiny-model:document", "input": [DOCUMENT] * number}


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def test_slow_clients_are_hung_up_on(server) -> None:
    assert server.speak(JSON_HEAD + "Content-Length: 500\r\n\r\n{").startswith(b"HTTP/1.1 408")
    assert server.speak("POST /v1/embeddings HTTP/1.1\r\nHost:") == b""  # not even a head
    assert server.speak("") == b""
    assert server.ask("/v1/embeddings", GOOD)[0] == 200


def test_a_client_that_does_not_read_its_answer_is_hung_up_on(server) -> None:
    text = "x" * 10_000_000  # which is in the answer of Cohere's API: more than the system takes off the server's hands
    body = json.dumps({"model": "tiny-model", "input_type": "search_query", "texts": [text]})
    head = JSON_HEAD.replace("/v1/embeddings", "/v2/embed")
    answered = 'evenspan_requests_total{path="/v2/embed",status="200"}'
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", server.port))
        line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        until(lambda: server.metric(answered) == 1)
        until(lambda: not server.holds(line))
        assert server.ask("/v1/embeddings", GOOD)[0] == 200


def test_a_client_that_leaves_frees_its_place(server) -> None:
    texts = 'evenspan_texts_total{input_type="document"}'
    before, body = server.metric(texts), json.dumps(documents(25))
    lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    for line in lines:
        line.sendall(f"{JSON_HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    until(lambda: server.metric("evenspan_waiting_tokens") > 10_000)
    for line in lines:
        line.close()
    until(lambda: server.metric("evenspan_clients_left_total") >= 3)
    until(lambda: server.metric("evenspan_waiting_tokens") == 0)
    requests = 'evenspan_requests_total{path="/v1/embeddings",status="%d"}'
    assert server.metric(requests % 499) == server.metric("evenspan_clients_left_total")
    assert server.metric(requests % 500) == 0
    assert server.metric(texts) - before < 125
    assert server.ask("/v1/embeddings", GOOD)[0] == 200


def test_a_full_queue_answers_429(server) -> None:
    answers: list[tuple[int, bytes, dict[str, str]]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(server.ask_all("/v1/embeddings", documents(100))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _, _ in answers} == {200, 429}
    refused = next(answer for answer in answers if answer[0] == 429)
    assert json.loads(refused[1])["error"]["type"] == "rate_limit_error"
    assert int(refused[2]["retry-after"]) >= 1
    status, answer = server.ask("/v1/embeddings", documents(200))
    assert (status, "the limit is" in answer["error"]["message"]) == (413, True)


def test_what_is_running_is_finished(server) -> None:
    answers: list[tuple[int, object]] = []
    asking = threading.Thread(target=lambda: answers.append(server.ask("/v1/embeddings", documents(100))))
    asking.start()
    until(lambda: server.metric("evenspan_waiting_tokens") > 0)
    server.process.terminate()
    asking.join(60)
    assert answers[0][0] == 200
    assert server.process.wait(30) == 0
