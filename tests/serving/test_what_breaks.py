"""What a server says and does when its model hangs or fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from evenspan.serving import guard, process
from evenspan.serving.app import create_app
from evenspan.serving.batcher import ClosedError
from evenspan.serving.child import Surroundings
from evenspan.serving.messages import BrokenError, State
from evenspan.serving.ray import Replica
from evenspan.serving.settings import ServerSettings

FEW = {"model": "tiny-model:query", "input": "w1 w2"}
ELSEWHERE = "https://example.com"


@contextmanager
def hanging() -> Iterator[None]:
    """Around an encoder process: its model hangs once it is loaded, and other threads go on."""
    from evenspan.encoding.standing import StandingEncoder
    from evenspan.serving import engine

    engine._LONGEST_STEP["cpu"] = 0.2
    fetch, left = StandingEncoder.fetch, [None, None]  # what loading takes: a batch of each role

    def hangs(self: StandingEncoder, launched: Any) -> Any:
        return fetch(self, launched) if left and left.pop() is None else threading.Event().wait()

    StandingEncoder.fetch = hangs  # type: ignore[method-assign]
    yield


def client_of(folder: str, *surroundings: Surroundings) -> TestClient:
    settings = ServerSettings(folder, device="cpu", cors_origins=(ELSEWHERE,))
    return TestClient(create_app(settings, *surroundings), "http://localhost", headers={"Origin": ELSEWHERE})


def test_an_encoder_that_hangs_is_seen_and_can_be_ended(folder, monkeypatch) -> None:
    answers: list[Any] = []
    with client_of(folder, hanging) as client:
        replica = Replica()
        replica.app = SimpleNamespace(engine=client.app.engine)
        assert client.get("/health").status_code == 200
        client.portal.call(replica.check_health)
        asking = threading.Thread(target=lambda: answers.append(client.post("/v1/embeddings", json=FEW)))
        asking.start()
        end = time.monotonic() + 60
        while (health := client.get("/health")).status_code == 200:
            assert time.monotonic() < end, "it was not seen"
            time.sleep(0.01)
        assert health.status_code == 503
        assert "hangs" in health.json()["error"]["message"]
        with pytest.raises(ClosedError, match="hangs"):
            client.portal.call(replica.check_health)
        monkeypatch.setattr(process, "_PATIENCE", 0.1)
        client.app.engine.stop()  # as at the end of the block, where this client would read no answer any more
        asking.join(20)
    assert [answer.status_code for answer in answers] == [503], "told when the process was killed"


@pytest.mark.parametrize(
    ("error", "message", "logged"),
    [
        (BrokenError("MemoryError"), "The model failed with MemoryError", ""),  # the other process has logged it
        (LookupError("w1 w2"), "Internal server error", "A request failed: LookupError"),
    ],
)
def test_errors_that_nobody_expected_have_the_form_of_others(
    folder, monkeypatch, caplog, error, message, logged
) -> None:
    client = client_of(folder)

    async def fails(_: object) -> None:
        raise error

    monkeypatch.setattr(client.app.engine, "encode", fails)
    answer = client.post("/v1/embeddings", json=FEW)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert message in answer.json()["error"]["message"]
    assert answer.headers["access-control-allow-origin"] == ELSEWHERE
    assert bool(caplog.records) is bool(logged)
    assert logged in caplog.text
    assert "w1 w2" not in caplog.text


def test_too_many_open_requests_are_refused_and_the_server_is_watched_on(folder, monkeypatch) -> None:
    client = client_of(folder)
    engine, while_open = client.app.engine, []

    async def fails(_: object) -> None:
        while_open.append(client.app.open)
        raise BrokenError("MemoryError")

    async def is_well() -> State:
        return State(0, 0.0, hangs=False)

    for name, step in (("encode", fails), ("state", is_well)):
        monkeypatch.setattr(engine, name, step)
    monkeypatch.setattr(guard, "_MOST_REQUESTS", 1)
    assert [client.post("/v1/embeddings", json=FEW).status_code for _ in range(2)] == [500, 500]
    assert (while_open, client.app.open) == ([1, 1], 0)
    monkeypatch.setattr(guard, "_MOST_REQUESTS", 0)
    refused = client.post("/v1/embeddings", json=FEW)
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "server_error")
    assert (int(refused.headers["retry-after"]), refused.headers["access-control-allow-origin"]) == (1, ELSEWHERE)
    assert [client.get(path).status_code for path in ("/health", "/metrics")] == [200, 200]
