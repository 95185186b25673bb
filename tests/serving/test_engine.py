"""The thread with the model: what breaks for one client does not break for others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from helpers import tiny

from evenspan.serving.engine import Engine, NotFiniteError
from evenspan.serving.metrics import Metrics
from evenspan.serving.settings import ServerSettings, access

TEXTS = [tiny.text(words) for words in (20, 30, 40)]


@pytest.fixture
def engine(folder) -> Iterator[Engine]:
    started = Engine(ServerSettings(folder, device="cpu"), Metrics())
    started.start()
    yield started
    started.stop()


def ask(engine: Engine, *requests: list[str]) -> list[object]:
    """The vectors of requests that come at once, or their errors."""

    async def one(texts: list[str]) -> object:
        return await engine.encode("document", await engine.read("document", texts, are_ids=False))

    async def all_of_them() -> list[object]:
        return await asyncio.gather(*map(one, requests), return_exceptions=True)

    return asyncio.run(all_of_them())


def test_a_text_that_breaks_its_batch(engine, model, monkeypatch) -> None:
    encoder = engine._encoders["document"]
    (bad,), launch = encoder.read(TEXTS[:1]), encoder.launch

    def breaks(batch):
        if any(np.array_equal(text.content, bad.content) for text in batch):
            raise RuntimeError("out of everything")
        return launch(batch)

    monkeypatch.setattr(encoder, "launch", breaks)
    for _ in range(3):
        failed, good = ask(engine, TEXTS, TEXTS[1:])
        assert isinstance(failed, RuntimeError)
        np.testing.assert_allclose(good, model.encode_document(TEXTS[1:]), atol=2e-6)
    assert engine.healthy
    for _ in range(3):
        ask(engine, TEXTS[:1])
    assert not engine.healthy, "nothing goes through any more"
    ask(engine, TEXTS[1:])
    assert engine.healthy


def test_a_vector_that_is_none(engine, monkeypatch) -> None:
    encoder = engine._encoders["document"]
    fetch = encoder.fetch
    monkeypatch.setattr(encoder, "fetch", lambda launched: fetch(launched) * np.float32("nan"))
    assert isinstance(ask(engine, TEXTS)[0], NotFiniteError)


def test_jobs_run_between_batches(engine) -> None:
    async def both() -> tuple[object, object]:
        texts = await engine.read("query", TEXTS, are_ids=False)
        return await asyncio.gather(
            engine.encode("query", texts), engine.between_batches(lambda model: model.device.type)
        )

    vectors, device = asyncio.run(both())
    assert (len(vectors), device) == (3, "cpu")


@pytest.mark.parametrize(
    ("host", "no_auth", "key", "expected"),
    [
        ("127.0.0.1", False, "", (False, False)),
        ("localhost", True, "", (False, True)),
        ("0.0.0.0", False, "secret", (True, True)),
        ("0.0.0.0", True, "", (False, True)),
        ("0.0.0.0", False, "", "set EVENSPAN_API_KEY"),
        ("127.0.0.1", True, "secret", "exclude each other"),
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
