"""The passes of an audit over a sample: segments by themselves, and documents with their segments in some order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from evenspan.auditing.attention import Observer
from evenspan.auditing.schema import Attention
from evenspan.auditing.segments import Document
from evenspan.calibration import Calibration
from evenspan.models.calibrating import calibrated, uncalibrated

_AT_ONCE = 128  # documents: what is lost when memory runs out, and how often the bar moves


class Passes:
    """The passes over a sample."""

    def __init__(
        self,
        model: SentenceTransformer,
        prompt: str | None,
        batch_size: int,
        progress: bool,
        documents: list[Document],
        cut: list[int],
        order: NDArray[np.int64],
    ) -> None:
        self.model, self.prompt, self.batch_size = model, prompt, batch_size
        self.documents, self.cut, self.order = documents, cut, order
        self.segments: NDArray[np.float32] = np.zeros((0, 0, 0), dtype=np.float32)
        self.bar: Any = tqdm(unit=" texts", disable=not progress, desc="audit")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def embed_segments(self) -> None:
        """The plain vectors of all segments.  # (documents, segments, dimensions)"""
        texts = [segment for number in self.cut for segment in self.documents[number].segments]
        if texts:
            with uncalibrated(self.model):
                vectors = _unit(self._encode(texts, "segments"))
            self.segments = vectors.reshape(len(self.cut), -1, vectors.shape[-1])

    def look(
        self, calibration: Calibration | None, notes: list[str], basket_size: int
    ) -> tuple[Attention | None, NDArray[np.float64]]:
        """Encode the documents, their segments in all the orders, under a calibration or plain.

        Returns:
            What their pooling tokens look at, and the similarity of the segment at each position with the whole, NaN for a
            document whose vectors are not finite.  # (documents, versions, positions)
        """
        name = "plain" if calibration is None else "calibrated"
        observer: Observer | None = None
        try:
            observer = Observer(self.model, calibration, basket_size)
        except (TypeError, ValueError) as error:
            notes.append(f"Attention was not looked at. {error}")
        with ExitStack() as stack:
            if calibration is None:
                stack.enter_context(uncalibrated(self.model))
            else:
                stack.enter_context(calibrated(self.model, calibration))
            texts = [document.text for document in self.documents]
            for row, text in zip(self.cut, self._in_order(0), strict=True):
                texts[row] = text
            whole = [_unit(self._encode(texts, name, observer))[self.cut]]
            others = range(1, self.order.shape[1] if self.cut else 1)
            whole += [_unit(self._encode(self._in_order(version), name)) for version in others]
        attention = None if observer is None else observer.found()
        return attention, self._similarities(np.stack(whole, axis=1))

    def _in_order(self, version: int) -> list[str]:
        """The documents that have segments, with those in this order."""
        return [
            " ".join(self.documents[number].segments[place] for place in self.order[row, version])
            for row, number in enumerate(self.cut)
        ]

    def _similarities(self, whole: NDArray[np.float32]) -> NDArray[np.float64]:
        """Of the segment at each position with the whole.  # (documents, versions, positions)"""
        if not self.cut:
            return np.zeros(self.order.shape)
        by_segment = np.einsum("dvx,dsx->dvs", whole.astype(np.float64), self.segments.astype(np.float64))
        return np.take_along_axis(by_segment, self.order, axis=2)

    def _encode(self, texts: Sequence[str], what: str, observer: Observer | None = None) -> NDArray[np.float32]:
        self.bar.total = (self.bar.total or 0) + len(texts)
        self.bar.set_postfix_str(what)
        # Long ones first and together, as `encode` does inside of each part.
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        parts = []
        for start in range(0, len(order), max(_AT_ONCE, self.batch_size)):
            some = [texts[number] for number in order[start : start + max(_AT_ONCE, self.batch_size)]]
            parts.append(self._encode_part(some, observer))
            self.bar.update(len(some))
        together = np.concatenate(parts)
        back = np.empty_like(together)
        back[order] = together
        return back

    def _encode_part(self, texts: list[str], observer: Observer | None) -> NDArray[np.float32]:
        while True:
            try:
                with ExitStack() as stack:
                    if observer is not None:
                        stack.enter_context(observer.watching())
                    tensor: torch.Tensor = self.model.encode_document(
                        texts,
                        prompt=self.prompt,
                        batch_size=self.batch_size,
                        convert_to_tensor=True,
                        show_progress_bar=False,
                    )
                array: NDArray[np.float32] = tensor.float().cpu().numpy()
                return array
            except torch.OutOfMemoryError:
                if self.batch_size == 1:
                    raise
                self.batch_size = max(1, self.batch_size // 2)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12))
    return unit
