"""The process that has the model, as the one that speaks HTTP sees it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import resource_tracker, util
from typing import Any

from evenspan.calibration import Calibration
from evenspan.errors import ElsewhereError
from evenspan.serving import child
from evenspan.serving.batcher import ClosedError
from evenspan.serving.channel import Outbox
from evenspan.serving.messages import (
    AskState,
    Encode,
    Encoded,
    Leave,
    Loaded,
    NotLoaded,
    Parts,
    Ran,
    Request,
    State,
    Stop,
)
from evenspan.serving.metrics import Metrics
from evenspan.serving.settings import ServerSettings

_FAILURES = 3  # batches in a row that fail: the device is lost
# Seconds for a process that said its last word or is told to stop to end, or for one that is asked how it is.
_PATIENCE = 5
_logger = logging.getLogger(__name__)


class EncoderProcess:
    """Starts the process, asks it, and knows whether it is well.

    Args:
        settings: of the server.
        metrics: are told what the process does.
        surroundings: makes a context that the process is in all the time; it must be importable there.
    """

    def __init__(
        self, settings: ServerSettings, metrics: Metrics, surroundings: child.Surroundings = nullcontext
    ) -> None:
        self.settings, self.metrics = settings, metrics
        self.calibration: Calibration | None = None
        self.died: str | None = None  # what to say of it if it did
        self.on_death: Callable[[str], object] = _logger.error
        self._surroundings = surroundings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._process: multiprocessing.process.BaseProcess | None = None
        self._error: BaseException | None = None
        self._failures, self._is_ending, self._is_over = 0, False, False
        self._ready = threading.Event()

    def start(self) -> None:
        """Start it, unless that was done; returns when its model can be used, or raises why it cannot."""
        if self._process is None:
            self._launch()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End it, once all requests are answered: what it still does then, if it hangs for instance, is for nobody."""
        if self._process is not None:
            self._is_ending = True
            self._outbox.put(None, Stop())
            self._process.join(_PATIENCE)
            self.kill()
            self._receiver.join()
            self._outbox.close()

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process is not None:
            self._is_ending = True
            self._process.kill()
            self._process.join()

    async def kill_if_it_hangs(self) -> None:
        """Watch until it is told to end: clients that wait for a process that hangs are told so, and do not wait on."""
        while not self._is_ending:
            try:
                await self.check()
            except ClosedError as error:
                if not self._is_ending:
                    _logger.error("%s It is stopped.", error)
                    await asyncio.to_thread(self.kill)
            await asyncio.sleep(1)

    async def check(self) -> None:
        """See that batches go through.

        Raises:
            ClosedError: if they do not, saying why.
        """
        state = await self.state()
        if state.hangs:
            raise ClosedError(f"The encoder process hangs: one step has taken {state.step_seconds:.0f} seconds.")
        if self._failures >= _FAILURES:
            raise ClosedError("Batches fail.")

    async def encode(self, request: Encode) -> Encoded:
        """The vectors of a request; if the task is cancelled, its place in the queue is free again."""
        encoded: Encoded = await self._ask(request)
        return encoded

    async def parts(self, request: Parts) -> dict[str, Any]:
        """A document by its parts, looked at between two batches."""
        of_document: dict[str, Any] = await self._ask(request)
        return of_document

    async def state(self) -> State:
        """How it is going.

        Raises:
            ClosedError: if the process cannot say it.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                state: State = await self._ask(AskState())
        except TimeoutError:
            raise ClosedError("The encoder process does not answer.") from None
        return state

    async def _ask(self, request: Request) -> Any:
        self._loop = asyncio.get_running_loop()  # first: whoever sees the end tells the loop after `_is_over` is set
        if self._is_over:
            raise ClosedError(self.died or "The server is shutting down.")
        number = next(self._numbers)
        future = self._waiting[number] = self._loop.create_future()
        self._outbox.put(number, request)
        try:
            return await future
        except asyncio.CancelledError:
            self._outbox.put(number, Leave())
            raise
        finally:
            del self._waiting[number]

    def _launch(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, its = context.Pipe()
        settings = replace(self.settings, key_digest=None)
        self._process = context.Process(
            target=child.main, args=(its, settings, self._surroundings), name="evenspan-encoder", daemon=True
        )
        with _signals_held():
            self._process.start()
        its.close()  # so that its end is seen here
        util.Finalize(self, self._process.kill, exitpriority=1)  # else Python would wait for it as long as it likes
        self._outbox = Outbox(self._pipe)
        self._receiver = threading.Thread(target=self._receive, name="evenspan-receiving", daemon=True)
        self._receiver.start()

    def _receive(self) -> None:
        """Hand out what comes, until nothing more can."""
        try:
            while True:
                messages = self._pipe.recv()
                for about_itself in [message for number, message in messages if number is None]:
                    self._note(about_itself)
                if answers := [message for message in messages if message[0] is not None]:
                    self._in_loop(self._settle, answers)
        except (EOFError, OSError):
            pass
        finally:
            self._see_end()

    def _note(self, said: Loaded | NotLoaded | Ran) -> None:
        match said:
            case Loaded(calibration):
                self.calibration = calibration
                self._ready.set()
            case NotLoaded(error, file, line, trace):
                error.__cause__ = ElsewhereError(trace, file, line)
                self._error, self._is_ending = error, True
            case Ran(role, texts, tokens, seconds, waited, failures):
                self._failures = failures
                self.metrics.texts.labels(role).inc(texts)
                self.metrics.tokens.labels(role).inc(tokens)
                self.metrics.batches.labels(role).observe(tokens)
                self.metrics.busy.inc(seconds)
                self.metrics.waited.inc(waited)

    def _settle(self, answers: list[tuple[int, Any]]) -> None:
        for number, answer in answers:
            future = self._waiting.get(number)
            if future is None or future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _see_end(self) -> None:
        """The process is gone, or about to be."""
        assert self._process is not None  # noqa: S101
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        self._process.kill()
        if not self._is_ending:
            self.died = f"The encoder process (pid {self._process.pid}) died (exit code {code})."
        self._is_over = True
        closed = ClosedError(self.died or "The server is shutting down.")
        self._in_loop(lambda: self._settle([(number, closed) for number in self._waiting]))
        if not self._ready.is_set():
            self._error = self._error or RuntimeError(self.died or "The server was stopped while starting.")
            self._ready.set()
        elif self.died is not None:
            self.on_death(self.died)

    def _in_loop(self, step: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            if self._loop is not None:
                self._loop.call_soon_threadsafe(step, *arguments)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """A process that is started here does not get signals to its group before it ignores them by itself."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would let them through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, child.SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
