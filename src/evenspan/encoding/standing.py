"""A call that stays open: batches that nobody knows beforehand go through a model one by one, as a server needs it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenspan.encoding.encoder import Encoder
from evenspan.models.batches import BatchRunner, Launched, plan_batches
from evenspan.models.features import Ids, TextFeatures
from evenspan.models.modules import call_options

Vectors = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ReadyText:
    """What a model reads of a text, or the text where the model takes nothing else."""

    content: Ids | str
    tokens: int  # that are read
    cut: bool  # whether there were more


class StandingEncoder:
    """Encodes batches under the setting that the model has when this is opened, whatever it is changed to later.

    `read` may be called from any thread. The rest belongs to the thread that opened it: `launch` hands a batch to the device
    and `fetch` waits for its vectors, so that on a GPU the next batch is on its way while one is waited for.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._stack = contextlib.ExitStack()
        self._features = encoder.features()
        self._runner: BatchRunner | None = None
        if self._features is not None:
            options = self._stack.enter_context(call_options(encoder.model, encoder.role))
            self._runner = BatchRunner(
                encoder.model,
                self._features,
                encoder.budget,
                options,
                unit=encoder.unit,
                dimensions=encoder.model.truncate_dim,
                ahead=False,
            )

    def close(self) -> None:
        """End the call."""
        self._stack.close()

    def read(self, texts: Sequence[str]) -> list[ReadyText]:
        """Make texts ready."""
        limit = self.encoder.max_tokens
        if self._features is None:
            counts = self.encoder.count_tokens(texts)
            return [ReadyText(text, min(own, limit), own > limit) for text, own in zip(texts, counts, strict=True)]
        made = self._features.tokenize(texts)
        return [ReadyText(ids, len(ids), own > len(ids)) for ids, own in zip(made.ids, made.counts, strict=True)]

    def read_ids(self, ids: Sequence[Sequence[int]]) -> list[ReadyText]:
        """Make texts ready that somebody tokenized for this model, without special tokens or prompt."""
        return [ReadyText(own, len(own), cut) for own, cut in self._usual_features().around(ids)]

    def _usual_features(self) -> TextFeatures:
        if self._features is None:
            raise ValueError("This model takes no token ids: send texts.")
        return self._features

    def plan(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """The batches that texts of these lengths would be encoded in, by the encoder's own rule."""
        padded = self._runner is None or self._runner.layouts.padded
        return plan_batches(lengths, self.encoder.batch_tokens, self.encoder.batch_size, padded=padded)

    def launch(self, batch: Sequence[ReadyText]) -> Launched | Vectors:
        """Begin to encode."""
        if self._runner is None:
            texts = [str(text.content) for text in batch]
            return self.encoder.encode(texts, tokens=[text.tokens for text in batch])
        return self._runner.launch(self._runner.prepare([text.content for text in batch]))  # type: ignore[misc]

    def is_done(self, launched: Launched | Vectors) -> bool:
        """Whether `fetch` would not wait."""
        return isinstance(launched, np.ndarray) or launched.arrived is None or bool(launched.arrived.query())

    def fetch(self, launched: Launched | Vectors) -> Vectors:
        """The vectors of a batch, in its order.  # (texts, dimensions)"""
        if self._runner is None or isinstance(launched, np.ndarray):
            return launched  # type: ignore[return-value]
        vectors = self._runner.fetch(launched).astype(np.float32, copy=False)
        self.encoder.busy_seconds += self._runner.busy
        self._runner.busy = 0.0
        return vectors
