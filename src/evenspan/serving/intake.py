"""What comes to the encoder process and goes out of it: requests are read, refused or put into the queue, and answered once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import numpy as np

from evenspan.auditing.parts import parts
from evenspan.serving.batcher import ClosedError, QueueFullError, Ticket
from evenspan.serving.engine import Engine
from evenspan.serving.logs import report
from evenspan.serving.messages import (
    AskState,
    BrokenError,
    Encode,
    Encoded,
    Leave,
    NoRoomError,
    NotFiniteError,
    Parts,
    RefusedError,
    Request,
    Stop,
    TooLongError,
)

# What is tokenized at once, rather than in a thread beside: what comes next, be it the question how it is going, waits for it.
_SHORT = 4000  # characters
_OF_A_TEXT = 50  # characters that any text counts for besides its own
_SAID = (QueueFullError, ClosedError, RefusedError, TooLongError, NoRoomError, NotFiniteError)


class Intake:
    """Serves requests by an engine.

    Args:
        engine: whose model is loaded.
        answer: is told the number of a request and its answer, from any thread.
    """

    def __init__(self, engine: Engine, answer: Callable[[int, Any], None]) -> None:
        self._engine, self._answer = engine, answer
        self._readers = ThreadPoolExecutor(2, "evenspan-tokenizing")
        self._open: dict[int, Ticket | Encode | Parts] = {}  # what is not answered; what is read is a ticket
        self._taking = threading.Lock()

    def ask(self, number: int, request: Request) -> None:
        """Take in a request; it is answered later, or at once if it is refused."""
        match request:
            case Encode():
                self._open[number] = request
                if sum(len(text) + _OF_A_TEXT for text in request.texts) < _SHORT:
                    self._attempt(number, self._take_in)
                else:
                    self._readers.submit(self._attempt, number, self._take_in)
            case Parts():
                self._open[number] = request
                self._attempt(number, lambda _: self._engine.batcher.put_job(lambda: self._attempt(number, self._look)))
            case AskState():
                self._answer(number, self._engine.state())
            case Leave():
                with self._taking:
                    left = self._open.pop(number, None)  # and with it its texts, if they wait to be read
                    if isinstance(left, Ticket):
                        self._engine.batcher.cancel(left)
            case Stop():
                self._engine.batcher.close()

    def _attempt(self, number: int, step: Callable[[int], None]) -> None:
        """Do something for a request, or answer why not."""
        try:
            step(number)
        except Exception as error:
            if not isinstance(error, _SAID):
                report("A request failed", error)
            self._settle(number, error)

    def _take_in(self, number: int) -> None:
        request = self._open.get(number)
        if not isinstance(request, Encode):  # the client has left
            return
        encoder = self._engine.encoders[request.role]
        try:
            ready = (encoder.read_ids if request.are_ids else encoder.read)(request.texts)
        except ValueError as error:
            raise RefusedError(str(error)) from None
        cut = [place for place, text in enumerate(ready) if text.cut]
        if cut and request.refuse_long:
            raise TooLongError(len(cut), len(ready), cut[:10])
        lengths = [text.tokens for text in ready]
        tokens = sum(lengths)
        if tokens > self._engine.settings.queue_tokens:
            raise NoRoomError(tokens, self._engine.settings.queue_tokens)

        def done(results: list[Any] | None, error: BaseException | None) -> None:
            self._settle(number, error if results is None else Encoded(np.stack(results), tokens, len(cut)))

        ticket = Ticket(request.role, ready, lengths, done)
        with self._taking:
            if number in self._open:  # the client is still there
                self._open[number] = ticket
                self._engine.batcher.put(ticket)

    def _look(self, number: int) -> None:
        request = self._open.get(number)
        if not isinstance(request, Parts):
            return
        text, calibration, segments, question = request
        try:
            found = parts(self._engine.model, text, calibration, segments=segments, question=question)
        except (TypeError, ValueError) as error:
            raise RefusedError(str(error)) from None
        self._settle(number, asdict(found))

    def _settle(self, number: int, answer: Any) -> None:
        """Answer a request, unless its client has left."""
        if self._open.pop(number, self) is not self:
            is_unknown = isinstance(answer, BaseException) and not isinstance(answer, _SAID)
            self._answer(number, BrokenError(type(answer).__name__) if is_unknown else answer)
