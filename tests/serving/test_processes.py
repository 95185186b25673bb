"""The two processes of a server: what becomes of the one when something happens to the other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import tiny
from helpers.server import Server, children, commands, serving

import evenspan
from evenspan import UnsupportedModelError
from evenspan.cli.messages import is_expected
from evenspan.errors import ElsewhereError
from evenspan.serving.batcher import ClosedError
from evenspan.serving.child import _sendable
from evenspan.serving.engine import serving_model
from evenspan.serving.metrics import Metrics
from evenspan.serving.process import EncoderProcess
from evenspan.serving.settings import ServerSettings

MANY = {"model": "tiny-model:document", "input": [tiny.text(190)] * 100}
FEW = {"model": "tiny-model:query", "input": "w1 w2"}


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def ask_for_much(server: Server, clients: int) -> tuple[list[tuple[int, bytes, dict[str, str]]], Callable[[], None]]:
    """What clients get who began to wait just now, and what waits for them."""
    answers: list[tuple[int, bytes, dict[str, str]]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(server.ask_all("/v1/embeddings", MANY))) for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    until(lambda: server.metric("evenspan_waiting_tokens") > 30_000)

    def wait() -> None:
        for thread in threads:
            thread.join(60)

    return answers, wait


def test_an_encoder_process_that_is_killed(folder) -> None:
    with serving(folder, "--batch-tokens", "200", "--debug", status=2) as server:
        assert server.ask("/v1/embeddings", FEW)[0] == 200
        encoder = server.encoder
        answers, wait = ask_for_much(server, 3)
        os.kill(encoder, signal.SIGKILL)
        wait()
        for status, content, headers in answers:
            assert status == 503
            assert int(headers["retry-after"]) >= 1
            assert f"(pid {encoder}) died" in json.loads(content)["error"]["message"]
        assert len(answers) == 3
        server.process.wait(30)
    log = "".join(server.log)
    assert f"evenspan: The encoder process (pid {encoder}) died (exit code -9)." in log
    assert "Batches are padded" in log, "what the encoder process logs is seen, too"
    assert tiny.text(190)[:40] not in log


def test_an_encoder_process_that_hangs(folder) -> None:
    with serving(folder) as server:
        encoder = server.encoder
        os.kill(encoder, signal.SIGSTOP)
        try:
            status, answer = server.ask("/health")
            assert (status, "does not answer" in answer["error"]["message"]) == (503, True)
            assert server.ask_all("/metrics")[0] == 200
        finally:
            os.kill(encoder, signal.SIGCONT)
        assert server.ask("/health")[0] == 200


def test_a_server_that_is_told_to_end_does_not_wait_for_an_encoder_that_hangs(folder) -> None:
    with serving(folder, "--batch-tokens", "200") as server:
        answers, wait = ask_for_much(server, 3)
        os.kill(server.encoder, signal.SIGSTOP)
        server.process.terminate()
        wait()
        assert [status for status, _, _ in answers] == [503] * 3
    assert "does not answer" in "".join(server.log)


@pytest.mark.parametrize("is_ready", [True, False], ids=["serving", "loading"])
def test_a_server_that_is_killed_leaves_nothing_behind(folder, is_ready) -> None:
    command = [sys.executable, "-m", "evenspan", "serve", folder, "--device", "cpu", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    if is_ready:
        assert process.stderr is not None
        assert "Serving" in process.stderr.readline()
    until(lambda: any("spawn_main" in commands(own) for own in children(process.pid)))
    started = children(process.pid)
    process.kill()
    process.communicate()
    until(lambda: not any(map(commands, started)))


def test_signals_to_the_whole_group_are_the_servers(folder) -> None:
    with serving(folder, "--batch-tokens", "200") as server:
        answers, wait = ask_for_much(server, 3)
        for own in (signal.SIGINT, signal.SIGTERM):
            os.kill(server.encoder, own)
        server.process.terminate()
        wait()
        assert [status for status, _, _ in answers] == [200] * 3
    assert len(server.log) == 1, "nothing was said"


@pytest.mark.parametrize("kind", ["nowhere", "broken", "unsupported", "device"])
def test_a_model_that_cannot_be_loaded(kind, tmp_path) -> None:
    name, device = str(tmp_path / "model"), "cpu"
    if kind == "broken":
        Path(name).mkdir()
        (Path(name) / "modules.json").write_text("[")
    elif kind == "unsupported":
        tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "base", pooling="max").save_pretrained(name)
    elif kind == "device":
        name, device = "miniature:cls", "cuda:99"
    settings = ServerSettings(name, device=device)
    with pytest.raises(Exception, match=r".") as here:
        serving_model(settings)
    process = EncoderProcess(settings, Metrics())
    with pytest.raises(type(here.value)) as there:
        process.start()
    process.stop()
    assert type(there.value) is type(here.value)
    assert str(there.value) == str(here.value)
    assert process.died is None
    assert "in load" in str(there.value.__cause__), "its traceback came along"


def test_errors_that_cannot_be_sent_as_they_are() -> None:
    class OfAFunctionError(ValueError):
        pass

    class WithKeywordsError(OSError):
        def __init__(self, message: str, *, response: object) -> None:
            super().__init__(message)

    for error in (ValueError("a"), UnsupportedModelError("b"), FileNotFoundError(2, "No such file", "c")):
        assert _sendable(error) is error
    for error, kind in ((OfAFunctionError("d"), ValueError), (WithKeywordsError("e", response=1), OSError)):
        sent = _sendable(error)
        assert (type(sent), str(sent)) == (kind, str(error))


def test_mistakes_of_the_program_are_told_from_bad_input_across_processes() -> None:
    for line, expected in (("raise TypeError(name)", True), ("size + name", False)):
        error = TypeError("a")
        error.__cause__ = ElsewhereError("a traceback", evenspan.__file__, line)
        assert is_expected(error) is expected


def test_a_server_that_is_stopped_while_its_model_is_loaded(folder) -> None:
    process = EncoderProcess(ServerSettings(folder, device="cpu"), Metrics())

    def start() -> None:
        with pytest.raises(RuntimeError, match="stopped while"):
            process.start()

    starting = threading.Thread(target=start)
    starting.start()
    until(lambda: process._process is not None and process._process.pid)
    process.kill()
    starting.join(30)
    assert not starting.is_alive()
    assert process.died is None
    with pytest.raises(ClosedError, match="shutting down"):
        asyncio.run(process.check())


def test_the_process_that_speaks_http_does_without_torch() -> None:
    code = "import sys, evenspan.serving.run; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
