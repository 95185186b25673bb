"""A server on Ray: the same vectors, and a replica that is killed loses nothing that its client does not see fail.

Needs Ray Serve, which `make test-frameworks` installs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny
from helpers.server import Server, serving

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("aiohttp_cors") is None, reason="Ray Serve is not installed"),
]


def replicas() -> list[int]:
    """The processes of replicas."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{name}/cmdline").read_text().startswith("ray::ServeReplica:evenspan"):
                found.append(int(name))
    return found


def test_a_killed_replica(folder, model) -> None:
    texts = [tiny.text(40 + number, seed=number) for number in range(30)]
    expected = model.encode_document(texts)
    answers: dict[int, list[tuple[int, object]]] = {number: [] for number in range(len(texts))}
    ended = threading.Event()

    def ask(server: Server, own: list[int]) -> None:
        while not ended.is_set():
            for number in own:
                body = {"model": "tiny-model:document", "input": texts[number]}
                status, content, _ = server.ask_all("/v1/embeddings", body)
                answers[number].append((status, content))

    with serving(folder, "--engine", "ray", "--replicas", "2", "--port", "8123") as server:
        before = replicas()
        assert len(before) == 2
        clients = [threading.Thread(target=ask, args=(server, list(range(start, 30, 6)))) for start in range(6)]
        for client in clients:
            client.start()
        time.sleep(3)
        os.kill(before[0], signal.SIGKILL)
        end = time.monotonic() + 120
        while len(set(replicas()) - {before[0]}) < 2:
            assert time.monotonic() < end, "no new replica was started"
            time.sleep(0.5)
        killed_at = {number: len(own) for number, own in answers.items()}
        until = time.monotonic() + 60
        while any(len(own) < killed_at[number] + 3 for number, own in answers.items()) and time.monotonic() < until:
            time.sleep(0.2)
        ended.set()
        for client in clients:
            client.join(120)
            assert not client.is_alive(), "a request was lost: its client still waits"
        status, content, _ = server.ask_all("/v1/models")
        assert status == 200, content
        assert server.ask("/v1/embeddings", {"model": "tiny-model", "input": "w1"})[0] == 400
    every = [(number, status, content) for number, own in answers.items() for status, content in own]
    failed = [status for _, status, _ in every if status != 200]
    assert set(failed) <= {500, 503}
    assert len(failed) <= len(clients), "each client had one request under way"
    for number, status, content in every:
        if status == 200:
            found = json.loads(content)["data"][0]["embedding"]
            np.testing.assert_allclose(found, expected[number], atol=1e-5)
    assert all(own[-1][0] == 200 for own in answers.values())
