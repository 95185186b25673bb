"""Several devices of one machine: a process for each, fed by one reader.

A process that dies is reported by its name, and the others do its work.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import multiprocessing
import pickle
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.encoding.encoder import Encoder
from evenspan.models.devices import check_device
from evenspan.models.features import TokenizedTexts
from evenspan.prefetching import prefetched

_AT_HAND = 2  # windows that a process has, one of which it encodes
_AHEAD = 8  # windows for each process that may be ready before an earlier one is
_DEATHS = 2  # of processes over one window
_logger = logging.getLogger(__name__)

Vectors = NDArray[np.float32]


@dataclass
class Worker:
    """A process, and what it was given and has not returned."""

    name: str
    process: Any
    pipe: Connection
    windows: dict[int, list[str]] = field(default_factory=dict)
    is_ready: bool = False

    @classmethod
    def start(cls, number: int, device: str, model: SentenceTransformer, options: Mapping[str, Any]) -> Worker:
        """Start a process that encodes with a copy of the model."""
        context = multiprocessing.get_context("spawn")
        own, its = context.Pipe()
        process = context.Process(target=_work, args=(model, device, dict(options), its), daemon=True)
        try:
            process.start()
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise _not_copied(error) from error
        its.close()  # so that its end is seen here
        return cls(f"Process {number} (pid {process.pid}) on {device}", process, own)

    def give(self, number: int, texts: list[str]) -> None:
        """Hand over a window; one that it cannot take is found among its windows when it is seen to be dead."""
        self.windows[number] = texts
        try:
            self.pipe.send((number, texts))
        except OSError:
            self.is_ready = False

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.pipe.close()
        self.process.join(timeout=0.5)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join()


class ProcessPool:
    """Encodes windows of texts in several processes, in order."""

    def __init__(
        self,
        model: SentenceTransformer,
        devices: Sequence[str],
        options: Mapping[str, Any],
        counted: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        if not devices:
            raise ValueError("devices must name at least one device.")
        for device in devices:
            check_device(device)
        on_cpu = _copied_to_cpu(model)
        self._workers = [Worker.start(number, device, on_cpu, options) for number, device in enumerate(devices, 1)]
        self._alive = list(self._workers)
        self._counted = counted  # is told how many tokens texts have before anything is cut off
        self._waiting: deque[tuple[int, list[str]]] = deque()  # windows of processes that died
        self._deaths = Counter[int]()
        self._done: dict[int, Vectors] = {}

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.stop()

    def encode(self, windows: Iterable[list[str]]) -> Iterator[Vectors]:
        """The vectors of every window, in order."""
        numbered = enumerate(windows)
        expected, is_over = 0, False
        while True:
            while expected in self._done:
                yield self._done.pop(expected)
                expected += 1
            is_over = self._feed(numbered) or is_over
            if is_over and not self._waiting and not any(worker.windows for worker in self._alive) and not self._done:
                return
            self._receive()

    def _feed(self, windows: Iterator[tuple[int, list[str]]]) -> bool:
        """Give every process what it can take; returns whether there is nothing left."""
        for worker in self._alive:
            while worker.is_ready and len(worker.windows) < _AT_HAND:
                if not self._waiting and len(self._done) >= _AHEAD * len(self._alive):
                    break  # all of them are later than one that is still being encoded
                item = self._waiting.popleft() if self._waiting else next(windows, None)
                if item is None:
                    return True
                worker.give(*item)
        return False

    def _receive(self) -> None:
        """Wait until a process says something, or nothing any more."""
        pipes = {worker.pipe: worker for worker in self._alive}
        for pipe in wait(list(pipes)):
            worker = pipes[pipe]  # type: ignore[index]
            try:
                number, encoded, error = worker.pipe.recv()
            except (EOFError, OSError):
                self._bury(worker)
                continue
            if error is not None:
                raise RuntimeError(f"{worker.name}: {error}")
            worker.is_ready = True
            if number is not None:
                del worker.windows[number]
                self._done[number], counts = encoded
                if self._counted is not None:
                    self._counted(counts)

    def _bury(self, worker: Worker) -> None:
        """Take over what a process leaves behind."""
        worker.process.join(timeout=5)
        says = f"{worker.name} died (exit code {worker.process.exitcode})"
        self._alive.remove(worker)
        self._deaths.update(list(worker.windows)[:1])  # the one that it was at
        if not self._alive or any(count >= _DEATHS for count in self._deaths.values()):
            few = "no other is left" if not self._alive else "another one did over the same texts"
            raise RuntimeError(f"{says}, and {few}. What has been returned is complete: continue after it.")
        _logger.error("%s: the others encode its texts.", says)
        self._waiting.extend(worker.windows.items())
        worker.windows = {}


def _copied_to_cpu(model: SentenceTransformer) -> SentenceTransformer:
    """A copy in main memory; the model itself stays where it is, and its device holds no second one, not even for a moment."""
    there = {
        id(weight): torch.nn.Parameter(weight.detach().to("cpu", copy=True), weight.requires_grad)
        for weight in model.parameters()
        if type(weight) is torch.nn.Parameter
    }
    try:
        return copy.deepcopy(model, there).to("cpu")
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, TypeError, RuntimeError, pickle.PicklingError) as error:
        raise _not_copied(error) from error


def _not_copied(error: Exception) -> TypeError:
    return TypeError(
        f"This model cannot be copied to another process: {error}. Remove hooks and other things that were added to it, or "
        "leave `devices` out."
    )


def _work(model: SentenceTransformer, device: str, options: dict[str, Any], pipe: Connection) -> None:
    """What a process does: encode windows until there are no more."""

    def tokenized() -> Generator[tuple[int, list[str], TokenizedTexts | None], None, None]:
        """The next window is tokenized while one is encoded; the first comes when it is known that there is an encoder."""
        while True:
            try:
                number, texts = pipe.recv()
            except (EOFError, OSError):
                return
            yield number, texts, encoder.tokenize(texts)

    with contextlib.suppress(OSError), prefetched(tokenized()) as items:  # if whoever asked is gone
        try:
            counts: list[int] = []
            encoder = Encoder(model.to(device), counted=counts.extend, **options)
            pipe.send((None, None, None))
            for number, texts, ready in items:
                counts.clear()
                vectors = encoder.encode(texts) if ready is None else encoder.encode_tokenized(ready)
                pipe.send((number, (vectors, counts), None))
        except OSError:
            raise
        except Exception as error:
            pipe.send((None, None, f"{type(error).__name__}: {error}"))
            pipe.close()  # which ends the reader, too
