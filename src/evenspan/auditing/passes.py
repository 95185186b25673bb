"""The passes of an audit over a sample: segments by themselves, and documents with their segments in some order."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evenspan.auditing.attention import Observer
from evenspan.auditing.schema import Attention
from evenspan.auditing.segments import MeasuredDocument
from evenspan.calibration import Calibration
from evenspan.encoding import Encoder
from evenspan.errors import UnsupportedModelError
from evenspan.models.calibrating import calibrated, uncalibrated
from evenspan.progress import ProgressBar

Look = tuple[Attention | None, NDArray[np.float64]]  # attention, and similarities  # (documents, versions, positions)


@dataclass(frozen=True)
class Passes:
    """The passes over a sample."""

    encoder: Encoder  # of documents, to vectors of length 1
    documents: list[MeasuredDocument]
    cut: list[int]  # the numbers of those that are cut into segments
    order: NDArray[np.int64]  # which segment of those stands at each position  # (documents, versions, positions)
    progress: bool

    @cached_property
    def segments(self) -> NDArray[np.float32]:
        """The plain vectors of all segments.  # (documents, segments, dimensions)"""
        texts = [segment for number in self.cut for segment in self.documents[number].segments]
        if not texts:
            return np.zeros((0, 0, 0), dtype=np.float32)
        label = "Encoding the segments of documents"
        with ProgressBar(label, len(texts), shown=self.progress) as bar, uncalibrated(self.encoder.model):
            vectors = self.encoder.encode(texts, bar=bar)
        return vectors.reshape(len(self.cut), -1, vectors.shape[-1])

    def look(self, calibration: Calibration | None, notes: list[str], cut: Calibration) -> Look:
        """Encode the documents, their segments in all the orders, under a calibration or plain, in the baskets of `cut`.

        Returns what their pooling tokens look at, and the similarity of the segment at each position with the whole, NaN
        for a document whose vectors are not finite.
        """
        segments, model, observer = self.segments, self.encoder.model, None
        try:
            observer = Observer(model, calibration, cut)
        except (TypeError, UnsupportedModelError) as error:
            notes.append(f"Attention was not measured. {error}")
        texts = [document.text for document in self.documents]
        for number, text in zip(self.cut, self._in_order(0), strict=True):
            texts[number] = text
        others = range(1, self.order.shape[1] if self.cut else 1)
        label = f"Encoding documents ({'plain' if calibration is None else 'calibrated'})"
        bar = ProgressBar(label, len(texts) + len(others) * len(self.cut), shown=self.progress)
        with bar, uncalibrated(model) if calibration is None else calibrated(model, calibration):
            watching = nullcontext if observer is None else observer.watching
            whole = [self.encoder.encode(texts, bar=bar, attempt=watching)[self.cut]]
            whole += [self.encoder.encode(self._in_order(version), bar=bar) for version in others]
        similarities = np.zeros(self.order.shape)
        if self.cut:
            vectors = np.stack(whole, axis=1).astype(np.float64)  # (documents, versions, dimensions)
            by_segment = np.einsum("dvx,dsx->dvs", vectors, segments.astype(np.float64))
            similarities = np.take_along_axis(by_segment, self.order, axis=2)
        return None if observer is None else observer.attention(), similarities

    def intact(self, calibration: Calibration | None) -> Attention | None:
        """What plain pooling tokens look at in documents as they are, by the baskets of a calibration, if it can be seen."""
        model, texts = self.encoder.model, [document.text for document in self.documents]
        try:
            observer = Observer(model, None, calibration or Calibration())
        except (TypeError, UnsupportedModelError):
            return None
        with ProgressBar("Encoding intact documents", len(texts), shown=self.progress) as bar, uncalibrated(model):
            self.encoder.encode(texts, bar=bar, attempt=observer.watching)
        return observer.attention()

    def _in_order(self, version: int) -> list[str]:
        """The documents that have segments, with those in this order."""
        return [
            " ".join(self.documents[number].segments[place] for place in self.order[row, version])
            for row, number in enumerate(self.cut)
        ]
