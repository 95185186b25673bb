"""The thread that has the model: takes batches of many clients, encodes them, and hands each request its own vectors."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding import Encoder, ReadyText, StandingEncoder
from evenspan.models.budget import usual_tokens
from evenspan.models.calibrating import calibrate, calibration_of, restore
from evenspan.models.loading import load
from evenspan.serving.batcher import ROLES, Batcher, Role, Work
from evenspan.serving.logs import report
from evenspan.serving.messages import NotFiniteError, Ran, State
from evenspan.serving.settings import ServerSettings

# Batches of queries while documents wait. A GPU would be idle while several are launched one after the other; where a batch of
# documents takes a second, queries must not wait for every second one.
_QUERIES_IN_A_ROW = {"cpu": 4, "gpu": 1}
_MOST_AHEAD = 3  # batches that a GPU has at a time
_SMALL = 4  # a batch of less than this part of the most tokens does not last while another is launched
# Seconds after which a step counts as hanging. On a GPU the largest batch of the largest model takes some. Two cores take a
# minute for a batch of a model with 600 million weights, and many for a long document by its parts: a server that works must
# not be started again for that, and a CPU hardly ever hangs.
_LONGEST_STEP = {"cpu": 900.0, "gpu": 60.0}


@dataclass(frozen=True, eq=False)
class UnderWay:
    """A batch that the device has, or the error of handing it over."""

    work: Work
    launched: Any
    began: float


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
    """A model, a queue, and the thread that calls `load` and then `run`.

    Args:
        settings: of the server.
        ran: is told of every batch.
    """

    def __init__(self, settings: ServerSettings, ran: Callable[[Ran], None]) -> None:
        self.settings, self._ran = settings, ran
        self.encoders: dict[Role, StandingEncoder] = {}
        self._failures, self._finished = 0, 0.0
        self._step_began: float | None = None  # None while there is nothing to do
        self._stack = contextlib.ExitStack()

    def load(self) -> None:
        """Load the model, and see that it encodes."""
        self.model = serving_model(self.settings)
        self.calibration = calibration_of(self.model)
        self.on_gpu = self.model.device.type == "cuda"
        self._most = self.settings.batch_tokens or usual_tokens(self.model, self.model.device)
        self.batcher = Batcher(self._plan, self.settings.queue_tokens, _QUERIES_IN_A_ROW[self._kind])
        for role in ROLES:
            encoder = Encoder(self.model, role=role, batch_tokens=self._most, unit=False, check_finite=False)
            standing = StandingEncoder(encoder)
            self._stack.callback(standing.close)
            standing.fetch(standing.launch(standing.read(["a few words to begin with"])))
            self.encoders[role] = standing

    @property
    def _kind(self) -> str:
        return "gpu" if self.on_gpu else "cpu"

    def state(self) -> State:
        """How it is going; may be called from any thread."""
        began = self._step_began
        seconds = 0.0 if began is None else time.monotonic() - began
        return State(self.batcher.waiting_tokens, seconds, seconds > _LONGEST_STEP[self._kind])

    def run(self) -> None:
        """Encode until the queue is closed and empty. On a GPU batches are launched before one is waited for."""
        under_way: list[UnderWay] = []
        while True:
            if under_way and self._is_next(under_way):
                self._finish(under_way.pop(0))
                continue
            self._step_began = None
            work = self.batcher.take(wait=not under_way)
            if work is None and not under_way:
                self._stack.close()
                return
            if work is None:
                self._finish(under_way.pop(0))
            elif work.job is None:
                under_way.append(self._launch(work))
            else:
                while under_way:
                    self._finish(under_way.pop(0))
                self._step_began = time.monotonic()
                work.job()

    def _is_next(self, under_way: Sequence[UnderWay]) -> bool:
        """Whether the oldest batch is to be fetched now; else another one is launched, if any waits."""
        if not self.on_gpu or self._is_done(under_way[0]):
            return True
        if len(under_way) == 1:
            return False
        first, second = (one.work.tokens * _SMALL < self._most for one in under_way[:2])
        # Behind a large batch one of queries is done too soon for the next to be launched meanwhile.
        return len(under_way) == _MOST_AHEAD or first or not second

    def _is_done(self, one: UnderWay) -> bool:
        return isinstance(one.launched, Exception) or self._encoder(one.work).is_done(one.launched)

    def _encoder(self, work: Work) -> StandingEncoder:
        assert work.role is not None  # noqa: S101
        return self.encoders[work.role]

    def _plan(self, role: Role, lengths: Sequence[int]) -> Iterator[list[int]]:
        return self.encoders[role].plan(lengths)

    def _attempt(self, step: Callable[[Any], Any], argument: Any) -> Any:
        """What a step returns, or its error."""
        self._step_began = time.monotonic()
        try:
            return step(argument)
        except Exception as error:
            return error

    def _launch(self, work: Work) -> UnderWay:
        began = time.perf_counter()
        texts = [entry.text for entry in work.entries]
        return UnderWay(work, self._attempt(self._encoder(work).launch, texts), began)

    def _finish(self, one: UnderWay) -> None:
        work, encoder = one.work, self._encoder(one.work)
        assert work.role is not None  # noqa: S101
        results, asked = one.launched, time.perf_counter()
        if not isinstance(results, Exception):
            results = self._attempt(encoder.fetch, results)
        waited = time.perf_counter() - asked
        if isinstance(results, Exception):  # one text must not cost others their vectors
            error, few = results, len(work.entries) == 1
            results = [error] if few else [self._alone(encoder, entry.text) for entry in work.entries]
            errors = [each for each in results if isinstance(each, Exception)]
            for one_of_its_kind in {type(each): each for each in (*errors, error)}.values():
                report("A batch failed", one_of_its_kind)
            self._failures = self._failures + 1 if len(errors) == len(results) else 0
        else:
            self._failures = 0
        now = time.perf_counter()
        seconds, self._finished = now - max(one.began, self._finished), now
        self._ran(Ran(work.role, len(work.entries), work.tokens, seconds, waited, self._failures))
        self.batcher.finished(work, _checked(results), seconds)

    def _alone(self, encoder: StandingEncoder, text: ReadyText) -> Any:
        vectors = self._attempt(lambda batch: encoder.fetch(encoder.launch(batch)), [text])
        return vectors if isinstance(vectors, Exception) else vectors[0]


def _checked(results: Any) -> Sequence[Any]:
    """Vectors or errors, with errors for vectors that are none."""
    if isinstance(results, np.ndarray) and np.isfinite(results).all():
        return list(results)
    return [
        each if isinstance(each, Exception) or np.isfinite(each).all() else NotFiniteError("not finite")
        for each in results
    ]
