"""Tokenized texts to vectors: batches by tokens, the longest first, on a device that is kept busy.

On a GPU nothing waits for a batch: features lie in pinned memory before they are needed, copies do not block, and the
vectors of a window are fetched when the next window is on its way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from evenspan.models.budget import TokenBudget
from evenspan.models.features import Ids, Layout, TextFeatures
from evenspan.models.layouts import Layouts
from evenspan.prefetching import prefetched

Attempt = Callable[[], AbstractContextManager[Any]]
MOST_TEXTS = 1024  # in a batch, however short


def plan_batches(
    lengths: Sequence[int], most_tokens: int, most_texts: int = MOST_TEXTS, *, padded: bool = True
) -> Iterator[list[int]]:
    """The places of the texts of each batch, the longest first; padding counts where there is any."""
    batch: list[int] = []
    tokens = 0
    for place in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        # The first of a batch is the longest, so that is what the others are padded to.
        tokens += lengths[batch[0] if batch and padded else place]
        if batch and (tokens > most_tokens or len(batch) == most_texts):
            yield batch
            batch, tokens = [], lengths[place]
        batch.append(place)
    if batch:
        yield batch


@dataclass
class Batch:
    """Texts that are encoded together: where their vectors belong, and their features, on the CPU."""

    places: list[int]
    ids: list[Ids]
    layout: Layout
    features: dict[str, Any]

    @property
    def tokens(self) -> int:
        """What it takes of a budget."""
        lengths = [len(ids) for ids in self.ids]
        return sum(lengths) if self.layout == "flat" else len(lengths) * max(lengths)


@dataclass
class Window:
    """Texts whose vectors are fetched together, in batches."""

    batches: list[Batch]
    texts: int
    budget: int  # that its batches were made for


@dataclass
class Launched:
    """The vectors of a window, perhaps still being computed."""

    window: Window
    order: list[int] = field(default_factory=list)  # the places of the vectors
    parts: list[Tensor] = field(default_factory=list)
    marks: list[tuple[Any, Any]] = field(default_factory=list)  # CUDA events before and behind each batch
    seconds: float = 0.0

    def send(self, arrived: Any) -> None:
        """Bring the vectors to the host: on a GPU right behind their own batches, before those of the next window."""
        together = torch.cat(self.parts)
        self.vectors = together.float() if together.dtype == torch.bfloat16 else together
        self.parts.clear()
        if arrived is not None:
            on_host = torch.empty(self.vectors.shape, dtype=self.vectors.dtype, pin_memory=True)
            self.vectors = on_host.copy_(self.vectors, non_blocking=True)
            arrived.record()
        self.arrived = arrived

    def array(self) -> NDArray[Any]:
        """The vectors in the order of the texts; waits for them.  # (texts, dimensions)"""
        if self.arrived is not None:
            self.arrived.synchronize()
        unordered = self.vectors.numpy()
        vectors = np.empty_like(unordered)
        vectors[self.order] = unordered
        self.seconds += sum(before.elapsed_time(behind) for before, behind in self.marks) / 1000
        return vectors


class BatchRunner:
    """Runs the batches of one call of a model.

    Args:
        model: what encodes.
        features: makes the features of its texts.
        budget: tokens in a batch; shared with later calls.
        options: what the model is called with besides the features.
        most_texts: in a batch.
        unit: whether vectors get length 1.
        dimensions: that are kept of each vector; None for all.
        attempt: makes a context that each attempt at a batch runs in.
        done: is told how many texts are done.
        ahead: whether windows are prepared in a thread beside the device; by default on a GPU.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        features: TextFeatures,
        budget: TokenBudget,
        options: Mapping[str, Any],
        *,
        most_texts: int = MOST_TEXTS,
        unit: bool = False,
        dimensions: int | None = None,
        attempt: Attempt = nullcontext,
        done: Callable[[int], None] = lambda _: None,
        ahead: bool | None = None,
    ) -> None:
        self.model, self.features, self.budget, self.options = model, features, budget, options
        self.most_texts, self.unit, self.dimensions = most_texts, unit, dimensions
        self.attempt, self.done = attempt, done
        resolve = getattr(model, "_resolve_inference_device", None)
        self.device: torch.device = model.device if resolve is None else resolve(None)
        model.eval()
        self.on_gpu = self.device.type == "cuda"
        self.ahead = self.on_gpu if ahead is None else ahead
        watched = attempt is not nullcontext
        self.layouts = Layouts.of(model, features, self.device, options) if not watched else Layouts(features)
        self.busy = 0.0  # seconds of the device

    def arrays(self, windows: Iterable[Sequence[Ids]]) -> Iterator[NDArray[Any]]:
        """The vectors of every window, in order; the next one is on its way before one is waited for."""
        prepared = (self.prepare(window) for window in windows if len(window))
        with prefetched(prepared) if self.ahead else contextlib.closing(prepared) as ready:
            waiting: Launched | None = None
            for window in ready:
                launched = self.launch(window)
                if waiting is not None:
                    yield self.fetch(waiting)
                waiting = launched
                if not self.on_gpu:
                    yield self.fetch(waiting)
                    waiting = None
            if waiting is not None:
                yield self.fetch(waiting)

    def prepare(self, window: Sequence[Ids]) -> Window:
        """The batches of a window."""
        budget = self.budget.tokens
        lengths = [len(ids) for ids in window]
        plan = plan_batches(lengths, budget, self.most_texts, padded=self.layouts.padded)
        return Window(
            [self._batch(places, [window[place] for place in places]) for places in plan], len(window), budget
        )

    def _batch(self, places: list[int], ids: list[Ids]) -> Batch:
        layout = self.layouts.choose(ids)
        return Batch(places, ids, layout, self.layouts.batch(ids, layout, pinned=self.on_gpu))

    def launch(self, window: Window) -> Launched:
        """Hand all batches of a window to the device."""
        launched = Launched(window)
        with torch.inference_mode(), self._on_device(), self.layouts.installed():
            for batch in window.batches:
                self._run(batch, launched)
            launched.send(torch.cuda.Event() if self.on_gpu else None)  # type: ignore[no-untyped-call]
        return launched

    def _run(self, batch: Batch, launched: Launched) -> None:
        """Encode a batch, in halves if there is no room for it."""
        if len(batch.ids) == 1 or batch.tokens <= self.budget.most:
            before = self._mark()
            try:
                with self.attempt():
                    vectors = self._encode(batch)
            except torch.OutOfMemoryError:
                if len(batch.ids) == 1:
                    raise
            else:
                self._keep(batch, vectors, before, launched)
                return
            # Outside of the handler: the error holds on to the tensors that did not fit.
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.budget.halve(batch.tokens)
        middle = len(batch.ids) // 2
        for half in (slice(None, middle), slice(middle, None)):
            self._run(self._batch(batch.places[half], batch.ids[half]), launched)

    def _encode(self, batch: Batch) -> Tensor:
        features = {
            name: value.to(self.device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in batch.features.items()
        }
        vectors: Tensor = self.model(features, **self.options)["sentence_embedding"]
        vectors = vectors if self.dimensions is None else vectors[..., : self.dimensions]
        return torch.nn.functional.normalize(vectors, p=2, dim=1) if self.unit else vectors

    def _keep(self, batch: Batch, vectors: Tensor, before: Any, launched: Launched) -> None:
        launched.order += batch.places
        launched.parts.append(vectors)
        if self.on_gpu:
            launched.marks.append((before, self._mark()))
        else:
            launched.seconds += time.perf_counter() - before
            self.done(len(batch.places))

    def _on_device(self) -> AbstractContextManager[Any]:
        """Where events are recorded and memory is asked for, whatever the current device is."""
        return torch.cuda.device(self.device) if self.on_gpu else nullcontext()

    def _mark(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def fetch(self, launched: Launched) -> NDArray[Any]:
        """The vectors of a window; waits for them."""
        with self._on_device():
            vectors = launched.array()
            self.busy += launched.seconds
            if self.on_gpu:
                self.done(launched.window.texts)
                sizes = [batch.tokens for batch in launched.window.batches]
                self.budget.learn(launched.window.budget, sizes, launched.seconds)
        return vectors
