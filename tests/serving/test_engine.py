"""What the encoder process does: what breaks for one client does not break for others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from helpers import tiny

from evenspan.models.features import TextFeatures
from evenspan.serving.batcher import ClosedError, Work
from evenspan.serving.engine import _LONGEST_STEP, Engine, UnderWay
from evenspan.serving.intake import Intake
from evenspan.serving.messages import AskState, BrokenError, Encode, Leave, NotFiniteError, Parts, Ran, Stop
from evenspan.serving.settings import ServerSettings, access

TEXTS = [tiny.text(words) for words in (20, 30, 40)]


class Desk:
    """An engine with its thread, in this process."""

    def __init__(self, folder: str) -> None:
        self.answers: list[Future[Any]] = []
        self.ran: list[Ran] = []
        self.engine = Engine(ServerSettings(folder, device="cpu"), self.ran.append)
        self.engine.load()
        self.intake = Intake(self.engine, lambda number, answer: self.answers[number].set_result(answer))
        self.thread = threading.Thread(target=self.engine.run)

    def ask(self, *requests: Any) -> list[Any]:
        """The answers to requests that come at once."""
        futures = [Future() for _ in requests]
        self.answers += futures
        for number, request in enumerate(requests, len(self.answers) - len(requests)):
            self.intake.ask(number, request)
        return [future.result(20) for future in futures]


@pytest.fixture
def desk(folder) -> Iterator[Desk]:
    started = Desk(folder)
    started.thread.start()
    yield started
    started.intake.ask(-1, Stop())
    started.thread.join(20)
    assert not started.thread.is_alive()


def documents(texts: list[str]) -> Encode:
    return Encode("document", texts)


def waiting(desk: Desk) -> int:
    (state,) = desk.ask(AskState())
    return state.waiting_tokens


def test_a_text_that_breaks_its_batch(desk, model, monkeypatch, caplog) -> None:
    encoder = desk.engine.encoders["document"]
    (bad,), launch = encoder.read(TEXTS[:1]), encoder.launch

    def breaks(batch):
        if any(np.array_equal(text.content, bad.content) for text in batch):
            raise RuntimeError("out of everything")
        return launch(batch)

    monkeypatch.setattr(encoder, "launch", breaks)
    for _ in range(3):
        failed, good = desk.ask(documents(TEXTS), documents(TEXTS[1:]))
        assert isinstance(failed, BrokenError)
        assert str(failed) == "RuntimeError"
        np.testing.assert_allclose(good.vectors, model.encode_document(TEXTS[1:]), atol=2e-6)
    assert "A batch failed: RuntimeError" in caplog.text
    assert ", in breaks" in caplog.text, "where it failed"
    assert "out of everything" not in caplog.messages[0].partition("raise")[0]
    for _ in range(3):
        desk.ask(documents(TEXTS[:1]))
    assert desk.ran[-1].failures == 3, "nothing goes through any more"
    desk.ask(documents(TEXTS[1:]))
    assert desk.ran[-1].failures == 0


def test_a_vector_that_is_none(desk, monkeypatch) -> None:
    encoder = desk.engine.encoders["document"]
    fetch = encoder.fetch
    monkeypatch.setattr(encoder, "fetch", lambda launched: fetch(launched) * np.float32("nan"))
    assert isinstance(desk.ask(documents(TEXTS))[0], NotFiniteError)


def test_jobs_run_between_batches(desk) -> None:
    calibration = desk.engine.calibration
    encoded, parts = desk.ask(Encode("query", TEXTS), Parts(tiny.text(200), calibration, 4, None))
    assert (encoded.vectors.shape[0], encoded.vectors.dtype, len(parts["parts"])) == (3, np.float32, 4)


def test_who_leaves_is_not_answered(folder) -> None:
    desk = Desk(folder)  # whose thread has not begun
    desk.answers += [Future(), Future()]
    desk.intake.ask(0, documents(TEXTS))
    desk.intake.ask(1, documents(TEXTS[:1]))
    before = waiting(desk)
    desk.intake.ask(0, Leave())
    behind = waiting(desk)
    assert 0 < behind < before / 3
    desk.intake.ask(-1, Stop())
    desk.engine.run()
    assert not desk.answers[0].done()
    assert len(desk.answers[1].result(0).vectors) == 1
    assert isinstance(desk.ask(documents(TEXTS))[0], ClosedError)


def test_what_is_not_read_yet_is_never_read_for_who_leaves(desk, monkeypatch) -> None:
    encoder = desk.engine.encoders["document"]
    reading, go_on, read = [], threading.Event(), encoder.read

    def slowly(texts):
        reading.append(texts[0])
        assert go_on.wait(20)
        return read(texts)

    monkeypatch.setattr(encoder, "read", slowly)
    desk.answers += [Future() for _ in range(5)]
    for number in range(5):  # each is long enough to be read beside
        desk.intake.ask(number, documents([f"{number} {tiny.text(2000)}"]))
    for number in range(2, 5):
        desk.intake.ask(number, Leave())
    go_on.set()
    desk.ask(documents([f"5 {tiny.text(2000)}"]))
    assert sorted(text[0] for text in reading) == ["0", "1", "5"]


@pytest.mark.parametrize(("step", "waits"), [("launch", False), ("fetch", True)])
def test_waiting_for_the_device_is_told_from_launching(desk, monkeypatch, step, waits) -> None:
    encoder = desk.engine.encoders["document"]
    then = getattr(encoder, step)
    monkeypatch.setattr(encoder, step, lambda argument: time.sleep(0.5) or then(argument))
    desk.ask(documents(TEXTS))
    (ran,) = desk.ran
    assert (ran.waited >= 0.5) is waits
    assert ran.seconds >= 0.5


@pytest.mark.parametrize("step", ["launch", "fetch", "job"])
def test_how_long_a_step_takes_is_known(desk, monkeypatch, step) -> None:
    encoder, begun, go_on = desk.engine.encoders["document"], threading.Event(), threading.Event()

    def hangs(argument: Any = None, then: Any = getattr(encoder, step, lambda _: None)) -> Any:
        begun.set()
        assert go_on.wait(20)
        return then(argument)

    if step == "job":
        desk.engine.batcher.put_job(hangs)
    else:
        monkeypatch.setattr(encoder, step, hangs)
        desk.answers.append(Future())
        desk.intake.ask(0, documents(TEXTS))
    assert begun.wait(20)
    (before,), (after,) = desk.ask(AskState()), desk.ask(AskState())
    assert 0 < before.step_seconds < after.step_seconds
    assert not after.hangs
    monkeypatch.setitem(_LONGEST_STEP, "cpu", 0.0)
    assert desk.ask(AskState())[0].hangs
    monkeypatch.undo()
    go_on.set()
    desk.ask(documents(TEXTS))
    while (state := desk.ask(AskState())[0]).step_seconds:  # its thread has yet to come back
        pass
    assert not state.hangs


@pytest.mark.parametrize(
    ("request_", "is_short"),
    [
        (Encode("query", ["w"] * 20), True),
        (Encode("query", ["w"] * 100), False),
        (Encode("query", [[5]] * 20, are_ids=True), True),
        (Encode("query", [[5]] * 100, are_ids=True), False),
        (Encode("query", [tiny.text(2000)]), False),
    ],
)
def test_long_requests_and_many_texts_are_read_beside(desk, monkeypatch, request_, is_short) -> None:
    encoder, readers = desk.engine.encoders["query"], []
    for name in ("read", "read_ids"):
        read = getattr(encoder, name)

        def watched(texts, read=read):
            readers.append(threading.current_thread())
            return read(texts)

        monkeypatch.setattr(encoder, name, watched)
    (encoded,) = desk.ask(request_)
    assert len(encoded.vectors) == len(request_.texts)
    assert [reader is threading.current_thread() for reader in readers] == [is_short]


def test_what_goes_around_ids_is_made_once(desk, monkeypatch) -> None:
    encoder, tokenized = desk.engine.encoders["query"], []
    tokenize = TextFeatures.tokenize

    def watched(features, texts):
        tokenized.append(texts)
        return tokenize(features, texts)

    monkeypatch.setattr(TextFeatures, "tokenize", watched)
    together = encoder.read_ids([[5], [6, 7]])
    assert len(tokenized) == 1
    for ready, ids in zip(together, ([5], [6, 7]), strict=True):
        (alone,) = encoder.read_ids([ids])
        np.testing.assert_array_equal(ready.content, alone.content)


@pytest.mark.parametrize(
    ("tokens", "is_done", "expected"),
    [
        ([4000], False, False),
        ([4000], True, True),
        ([4000, 4000], False, True),  # as much as is needed
        ([4000, 50], False, False),  # too little to launch another one meanwhile
        ([4000, 50, 50], False, True),
        ([50, 50], False, True),  # its answer must not wait for more launches
    ],
)
def test_how_much_a_gpu_is_given(desk, monkeypatch, tokens, is_done, expected) -> None:
    encoder = desk.engine.encoders["document"]
    monkeypatch.setattr(desk.engine, "on_gpu", True)
    monkeypatch.setattr(encoder, "is_done", lambda launched: is_done)
    assert desk.engine._is_next([UnderWay(Work("document", (), own), None, 0.0) for own in tokens]) is expected


def test_vectors_are_right_with_several_batches_under_way(desk, model, monkeypatch) -> None:
    monkeypatch.setattr(desk.engine, "on_gpu", True)
    for encoder in desk.engine.encoders.values():
        monkeypatch.setattr(encoder, "is_done", lambda launched: False)
    requests = [Encode(role, TEXTS[number % 3 :]) for number in range(20) for role in ("document", "query")]
    for number, encoded in enumerate(desk.ask(*requests)):
        encode = model.encode_query if number % 2 else model.encode_document
        np.testing.assert_allclose(encoded.vectors, encode(TEXTS[number // 2 % 3 :]), atol=2e-6)


@pytest.mark.parametrize(
    ("host", "no_auth", "key", "expected"),
    [
        ("127.0.0.1", False, "", (False, False)),
        ("localhost", True, "", (False, True)),
        ("0.0.0.0", False, "secret", (True, True)),
        ("0.0.0.0", True, "", (False, True)),
        ("0.0.0.0", False, "", "set EVENSPAN_API_KEY"),
        ("127.0.0.1", True, "secret", "cannot be combined"),
        ("127.0.0.1", False, " secret\n", "must be printable"),
        ("127.0.0.1", False, "sécret", "must be printable"),
    ],
)
def test_who_may_ask(host, no_auth, key, expected) -> None:
    environment = {"EVENSPAN_API_KEY": key}
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            access(host, no_auth=no_auth, environment=environment)
    else:
        digest, any_host = access(host, no_auth=no_auth, environment=environment)
        assert (digest is not None, any_host) == expected
