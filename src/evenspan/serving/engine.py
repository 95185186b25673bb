"""The thread that has the model: takes batches of many clients, encodes them, and hands each client its own vectors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding import Encoder, ReadyText, StandingEncoder
from evenspan.models.budget import usual_tokens
from evenspan.models.calibrating import calibrate, calibration_of, restore
from evenspan.models.loading import load
from evenspan.serving.batcher import ROLES, Batcher, Role, Ticket, Work
from evenspan.serving.metrics import Metrics
from evenspan.serving.settings import ServerSettings

Vector = NDArray[np.float32]
Result = TypeVar("Result")
# On a CPU larger ones are no faster, and queries wait for them. On a GPU two of the usual ones are one, because the thread that
# launches them shares the interpreter with those that speak HTTP.
CPU_BATCH_TOKENS = 4096
_SHORT = 4000  # characters that are tokenized at once, rather than in a thread beside
_FAILURES = 3  # batches in a row that fail: the device is lost
_logger = logging.getLogger(__name__)


class NotFiniteError(RuntimeError):
    """The model made a vector of a text that is none."""


def serving_model(settings: ServerSettings) -> SentenceTransformer:
    """The model of a server, calibrated as it was told."""
    model = load(settings.model, **({} if settings.device is None else {"device": settings.device}))
    wanted = settings.calibration
    if wanted == "none":
        return restore(model)
    if isinstance(wanted, str):
        wanted = Calibration.parse(wanted)
    if wanted is not None or calibration_of(model) is None:
        calibrate(model, wanted or Calibration())
    return model


class Engine:
    """A model, a queue and a thread."""

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.batcher = Batcher(self._plan, settings.queue_tokens)
        self._readers = ThreadPoolExecutor(2, "evenspan-tokenizing")
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._failures, self._finished = 0, 0.0
        self._encoders: dict[Role, StandingEncoder] = {}
        self._thread = threading.Thread(target=self._run, name="evenspan-encoding", daemon=True)
        metrics.waiting.set_function(lambda: self.batcher.waiting_tokens)

    def start(self) -> None:
        """Load the model, unless that was done; returns when it can be used."""
        if self._thread.ident is None:
            self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Finish what waits, and end."""
        self.batcher.close()
        self._thread.join()
        self._readers.shutdown()

    @property
    def healthy(self) -> bool:
        """Whether batches go through."""
        return self._thread.is_alive() and self._failures < _FAILURES

    async def read(self, role: Role, texts: Sequence[Any], *, are_ids: bool) -> list[ReadyText]:
        """Tokenize the texts of a request."""
        encoder = self._encoders[role]
        read: Callable[[Sequence[Any]], list[ReadyText]] = encoder.read_ids if are_ids else encoder.read
        if sum(map(len, texts)) < _SHORT:
            return read(texts)
        return await asyncio.get_running_loop().run_in_executor(self._readers, read, texts)

    async def encode(self, role: Role, texts: Sequence[ReadyText]) -> list[Vector]:
        """The vectors of a request; if the task is cancelled, its place in the queue is free again."""
        future, done = _future()
        ticket = Ticket(role, texts, [text.tokens for text in texts], done)
        self.batcher.put(ticket)
        try:
            vectors: list[Vector] = await future
        except asyncio.CancelledError:
            self.batcher.cancel(ticket)
            raise
        return vectors

    async def between_batches(self, job: Callable[[SentenceTransformer], Result]) -> Result:
        """What a function makes of the model, between two batches."""
        future, done = _future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                done(job(self.model), None)
            except Exception as error:
                done(None, error)

        self.batcher.put_job(run)
        result: Result = await future
        return result

    def _plan(self, role: Role, lengths: Sequence[int]) -> list[list[int]]:
        return self._encoders[role].plan(lengths)

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            try:
                self._open(stack)
            except BaseException as error:
                self._error = error
                return
            finally:
                self._ready.set()
            self._work()

    def _open(self, stack: contextlib.ExitStack) -> None:
        self.model = serving_model(self.settings)
        self.calibration = calibration_of(self.model)
        self.on_gpu = self.model.device.type == "cuda"
        usual = 2 * usual_tokens(self.model, self.model.device) if self.on_gpu else CPU_BATCH_TOKENS
        tokens = self.settings.batch_tokens or usual
        for role in ROLES:
            encoder = Encoder(self.model, role=role, batch_tokens=tokens, unit=False, check_finite=False)
            standing = StandingEncoder(encoder)
            stack.callback(standing.close)
            standing.fetch(standing.launch(standing.read(["a few words to begin with"])))
            self._encoders[role] = standing

    def _work(self) -> None:
        """Encode until the end. On a GPU the next batch is launched before the vectors of one are waited for."""
        under_way: tuple[Work, Any, float] | None = None
        while True:
            work = self.batcher.take(wait=under_way is None)
            if work is None and under_way is None:
                return
            began, launched = time.perf_counter(), None
            if work is not None and work.role is not None:
                launched = self._attempt(self._encoders[work.role].launch, [entry.text for entry in work.entries])
            if under_way is not None:
                self._finish(*under_way)
            under_way = None if work is None or work.role is None else (work, launched, began)
            if work is not None and work.job is not None:
                work.job()
            if under_way is not None and not self.on_gpu:
                self._finish(*under_way)
                under_way = None

    def _attempt(self, step: Callable[[Any], Any], argument: Any) -> Any:
        """What a step returns, or its error; texts are kept out of the log."""
        try:
            return step(argument)
        except Exception as error:
            _logger.warning("A batch failed: %s", type(error).__name__)
            return error

    def _finish(self, work: Work, launched: Any, began: float) -> None:
        role = work.role
        assert role is not None  # noqa: S101
        encoder = self._encoders[role]
        results = launched if isinstance(launched, Exception) else self._attempt(encoder.fetch, launched)
        if isinstance(results, Exception):  # one text must not cost others their vectors
            results = (
                [results] if len(work.entries) == 1 else [self._alone(encoder, entry.text) for entry in work.entries]
            )
        self._failures = self._failures + 1 if all(isinstance(result, Exception) for result in results) else 0
        now = time.perf_counter()
        seconds, self._finished = now - max(began, self._finished), now
        checked = [
            result if isinstance(result, Exception) or np.isfinite(result).all() else NotFiniteError("not finite")
            for result in results
        ]
        self.metrics.texts.labels(role).inc(len(work.entries))
        self.metrics.tokens.labels(role).inc(work.tokens)
        self.metrics.batches.labels(role).observe(work.tokens)
        self.metrics.busy.inc(seconds)
        self.batcher.finished(work, checked, seconds)

    def _alone(self, encoder: StandingEncoder, text: ReadyText) -> Any:
        vectors = self._attempt(lambda batch: encoder.fetch(encoder.launch(batch)), [text])
        return vectors if isinstance(vectors, Exception) else vectors[0]


def _future() -> tuple[asyncio.Future[Any], Callable[[Any, BaseException | None], None]]:
    """A future of this event loop, and what settles it from another thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def done(result: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(settle, result, error)

    return future, done
