"""Audit a model on a sample of documents: no labels, no queries."""

from __future__ import annotations

import copy
import platform
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import metadata
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tqdm.auto import tqdm

from evenspan.auditing.documents import Document, read, truncation
from evenspan.auditing.observing import Observer
from evenspan.auditing.positions import Effects, effects, estimate, orders, representation
from evenspan.auditing.result import Audit, Representation, View
from evenspan.baselines import room_for_text, uncalibrated
from evenspan.calibration import Calibration
from evenspan.inspection import inspect_model
from evenspan.models import calibrated, calibration_of

_AT_ONCE = 128  # documents: what is lost when memory runs out, and how often the bar moves
_FEWEST = 10  # documents with segments, to say anything
_PACKAGES = ("evenspan", "torch", "transformers", "sentence-transformers", "numpy")


def audit(
    model: SentenceTransformer,
    texts: Sequence[str],
    calibration: Calibration | None = None,
    *,
    names: Sequence[str] | None = None,
    sample: int | None = 1000,
    segments: int = 5,
    versions: int = 2,
    document_prompt: str | None = None,
    batch_size: int = 32,
    seed: int = 42,
    progress: bool = True,
    notes: Sequence[str] = (),
) -> Audit:
    """Find out what a model makes of each part of a document: what it never reads, where it looks, what its vectors show.

    Every document of the sample is encoded twice, in its own order and with its segments in another one, and its segments
    are encoded by themselves: somewhat less than three passes, or five with a calibration. Truncation and representation
    are found for any `SentenceTransformer`, attention for those that can be calibrated.

    Args:
        model: the model; it is left as it was.
        texts: documents, not cut into pieces.
        calibration: a setting to compare with; by default the model's own if it has one, otherwise none.
        names: of the documents; by default their numbers.
        sample: how many documents to look at, drawn at random; None for all.
        segments: parts of the same length that a document is cut into.
        versions: orders that a document is encoded in, its own first.
        document_prompt: put in front of documents, in place of the model's own document prompt.
        batch_size: of encoding; halved when memory runs out.
        seed: of the sample, the orders and the bootstrap.
        progress: whether to show a bar.
        notes: to put into the result, besides what there is to say anyway.

    Example:
        >>> found = evenspan.audit(model, texts, evenspan.Calibration())  # doctest: +SKIP
        >>> print(found)  # doctest: +SKIP
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a list of documents, not one string.")
    if segments < 2 or versions < 2:
        raise ValueError(f"segments and versions must be at least 2, not {segments} and {versions}.")
    if sample is not None and sample < 1:
        raise ValueError(f"sample must be at least 1, or None for all documents, not {sample}.")
    remarks = list(notes)
    texts, names = _sampled(texts, names, sample, seed, remarks)
    wanted = calibration if calibration is not None else calibration_of(model)
    if wanted is not None and not (found := inspect_model(model, wanted)).calibratable:
        raise ValueError(found.reason)
    size = (wanted or Calibration()).basket_size
    room = room_for_text(model, document_prompt)
    documents = read(model, names, texts, room, segments)
    cut = [number for number, document in enumerate(documents) if document.segments]
    if len(cut) < _FEWEST:
        remarks.append(
            f"Only {len(cut)} of {len(documents)} documents are long enough to be cut into {segments} segments: too few to say "
            "how positions are reflected. On short texts there is little for a position to be late in."
        )
        cut = []
    elif len(cut) < len(documents):
        remarks.append(
            f"{len(documents) - len(cut)} documents are too short for segments, and not in the representation."
        )
    run = _Run(model, document_prompt, batch_size, progress, documents, cut, orders(len(cut), segments, versions, seed))
    with run:
        run.embed_segments()
        plain, before = run.view(None, remarks, seed, size)
        after_view, after = run.view(wanted, remarks, seed, size) if wanted is not None else (None, None)
    change = estimate(after.slope - before.slope) if before is not None and after is not None else None
    setting = _setting(model, document_prompt, batch_size, seed, segments, versions, len(documents))
    return Audit(
        model=str(setting["model"]),
        calibration=None if wanted is None else str(wanted),
        truncation=truncation(documents, room),
        plain=plain,
        calibrated=after_view,
        slope_change=change,
        notes=tuple(dict.fromkeys(remarks)),
        setting=setting,
    )


class _Run:
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

    def view(
        self, calibration: Calibration | None, notes: list[str], seed: int, basket_size: int
    ) -> tuple[View, Effects | None]:
        """Look at the documents in all their orders, under a calibration or plain."""
        name = "plain" if calibration is None else "calibrated"
        observer: Observer | None = None
        try:
            observer = Observer(self.model, calibration, basket_size)
        except (TypeError, ValueError) as error:
            notes.append(f"Attention was not looked at. {error}")
        texts = [document.text for document in self.documents]
        with ExitStack() as stack:
            if calibration is None:
                stack.enter_context(uncalibrated(self.model))
            else:
                stack.enter_context(calibrated(self.model, calibration))
            vectors = _unit(self._encode(texts, f"{name}, own order", observer))
            whole = [vectors[self.cut]]
            for version in range(1, self.order.shape[1] if self.cut else 1):
                shuffled = [
                    " ".join(self.documents[number].segments[place] for place in self.order[row, version])
                    for row, number in enumerate(self.cut)
                ]
                whole.append(_unit(self._encode(shuffled, f"{name}, another order")))
        attention = None if observer is None else observer.found()
        if not self.cut:
            return View(attention, None), None
        similarities = self._similarities(np.stack(whole, axis=1))
        found = effects(similarities, self.order, seed)
        shown: Representation = representation(found, len(self.cut))
        return View(attention, shown), found

    def _similarities(self, whole: NDArray[np.float32]) -> NDArray[np.float64]:
        """Of the segment at each position with the whole.  # (documents, versions, positions)"""
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
            before = None if observer is None else copy.deepcopy(observer.seen)
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
                if observer is not None and before is not None:  # what this part had added already
                    observer.seen = before


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(1e-12))
    return unit


def _sampled(
    texts: Sequence[str], names: Sequence[str] | None, sample: int | None, seed: int, notes: list[str]
) -> tuple[list[str], list[str]]:
    """The documents to look at, in their own order; what is no text or empty is left out and counted."""
    if names is not None and len(names) != len(texts):
        raise ValueError(f"There are {len(names)} names for {len(texts)} texts.")
    usable = [number for number, text in enumerate(texts) if isinstance(text, str) and text.strip()]
    if len(usable) < len(texts):
        notes.append(f"{len(texts) - len(usable)} of {len(texts)} texts are empty or no text and were left out.")
    if not usable:
        raise ValueError("There is no text to look at: texts must hold at least one document.")
    if sample is not None and sample < len(usable):
        drawn = np.random.default_rng(seed).choice(len(usable), size=sample, replace=False)
        notes.append(f"A sample of {sample} of {len(usable)} documents.")
        usable = [usable[number] for number in sorted(drawn)]
    chosen = names if names is not None else range(len(texts))
    return [texts[number] for number in usable], [str(chosen[number]) for number in usable]


def _setting(
    model: SentenceTransformer,
    prompt: str | None,
    batch_size: int,
    seed: int,
    segments: int,
    versions: int,
    documents: int,
) -> dict[str, Any]:
    config: Any = getattr(model, "config", None)
    versions_of: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions_of[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions_of[name] = None
    return {
        "model": getattr(config, "_name_or_path", None) or type(model).__name__,
        "revision": getattr(config, "_commit_hash", None),
        "max_tokens": model.max_seq_length,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": model.device.type,
        "attention": getattr(config, "_attn_implementation", None),
        "document_prompt": prompt if prompt is not None else model.prompts.get("document", ""),
        "documents": documents,
        "segments": segments,
        "versions": versions,
        "batch_size": batch_size,
        "seed": seed,
        "packages": {**versions_of, "python": platform.python_version()},
    }
