"""Audit a model on a sample of documents: no labels, no queries."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.auditing.audit_result import Audit
from evenspan.auditing.passes import Passes
from evenspan.auditing.positions import Effects, effects, estimate, likeness, orders, representation
from evenspan.auditing.sampling import sampled
from evenspan.auditing.schema import Attention, View
from evenspan.auditing.segments import Document, read, truncation
from evenspan.calibration import Calibration
from evenspan.models.calibrating import calibration_of
from evenspan.models.inspecting import inspect_model
from evenspan.models.reading import document_module, room_for_text

_FEWEST = 10  # documents with segments, to say anything
_FEW = 30  # to say it without a warning
_PACKAGES = ("evenspan", "torch", "transformers", "sentence-transformers", "numpy")


def audit(
    model: SentenceTransformer,
    texts: Sequence[str],
    calibration: Calibration | Literal["none"] | None = None,
    *,
    names: Sequence[str] | None = None,
    sample: int | None = 1000,
    segments: int = 5,
    versions: int = 1,
    document_prompt: str | None = None,
    batch_size: int = 32,
    seed: int = 42,
    progress: bool = True,
    notes: Sequence[str] = (),
) -> Audit:
    """Find out what a model makes of each part of a document: what it never reads, where it looks, what its vectors show.

    Every document of the sample is encoded once, with its segments in an order drawn at random, and its segments are encoded
    by themselves: less than two passes, and one more with a calibration. Truncation and representation are found for any
    `SentenceTransformer`, attention for those that can be calibrated.

    Args:
        model: the model; it is left as it was.
        texts: documents, not cut into pieces.
        calibration: a setting to compare with; by default the model's own if it has one, otherwise none; `"none"` for none.
        names: of the documents; by default their numbers.
        sample: how many documents to look at, drawn at random; None for all.
        segments: parts of the same length that a document is cut into.
        versions: orders that a document is encoded in; more of them narrow the intervals where documents are few.
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
    check_options(sample, segments, versions, batch_size, seed)
    wanted = _wanted(model, calibration)
    remarks = list(notes)
    texts, names = sampled(list(texts), names, sample, seed, remarks)
    size = (wanted or Calibration()).basket_size
    room = room_for_text(model, document_prompt)
    documents = read(model, names, texts, room, segments)
    cut = _with_segments(documents, segments, remarks)
    order = orders(len(cut), segments, versions, seed)
    passes = Passes(model, document_prompt, batch_size, progress, documents, cut, order)
    similarities: NDArray[np.float64] | None = None
    attention: Attention | None = None
    with passes:
        passes.embed_segments()
        plain_attention, plain_similarities = passes.look(None, remarks, size)
        if wanted is not None:
            attention, similarities = passes.look(wanted, remarks, size)
    alike = likeness(passes.segments)
    before, after = _effects(plain_similarities, similarities, order, alike, seed, remarks)
    change = (
        estimate(after.slope - before.slope, before.documents) if before is not None and after is not None else None
    )
    plain = View(plain_attention, None if before is None else representation(before))
    calibrated = None if wanted is None else View(attention, None if after is None else representation(after))
    setting = _setting(model, document_prompt, batch_size, seed, segments, versions, len(documents))
    return Audit(
        model=str(setting["model"]),
        calibration=None if wanted is None else str(wanted),
        truncation=truncation(documents, room),
        plain=plain,
        calibrated=calibrated,
        slope_change=change,
        notes=tuple(dict.fromkeys(remarks)),
        setting=setting,
    )


def _wanted(model: SentenceTransformer, calibration: Calibration | Literal["none"] | None) -> Calibration | None:
    """The setting to compare with, which the model must be able to take."""
    if calibration is not None and calibration != "none" and not isinstance(calibration, Calibration):
        raise TypeError(
            f"calibration must be a Calibration, 'none' or None, not {calibration!r}; see Calibration.parse."
        )
    own = calibration_of(model) if calibration is None else None
    wanted = calibration if isinstance(calibration, Calibration) else own
    if wanted is not None and not (found := inspect_model(model, wanted)).calibratable:
        raise ValueError(found.reason)
    return wanted


def _with_segments(documents: Sequence[Document], segments: int, notes: list[str]) -> list[int]:
    """The documents that are long enough for segments; none if they are too few."""
    cut = [number for number, document in enumerate(documents) if document.segments]
    if len(cut) < _FEWEST:
        notes.append(
            f"Only {len(cut)} of {len(documents)} documents are long enough to be cut into {segments} segments: too few to say "
            "how positions are reflected. On short texts there is little for a position to be late in."
        )
        return []
    if len(cut) < len(documents):
        notes.append(
            f"{len(documents) - len(cut)} documents are too short for segments, and not in the representation."
        )
    return cut


def _effects(
    plain: NDArray[np.float64],
    calibrated: NDArray[np.float64] | None,
    order: NDArray[np.int64],
    alike: NDArray[np.float64],
    seed: int,
    notes: list[str],
) -> tuple[Effects | None, Effects | None]:
    """What is estimated from the documents that have finite vectors everywhere, plain and calibrated."""
    both = plain if calibrated is None else np.concatenate([plain, calibrated], axis=1)
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(both).all(axis=(1, 2)))
    if not finite.all():
        notes.append(
            f"{int((~finite).sum())} of {len(finite)} documents have vectors that are not finite, and are not in the "
            "representation: try another dtype."
        )
    documents = int(finite.sum())
    if documents < _FEWEST:
        return None, None
    if documents < _FEW:
        notes.append(f"Only {documents} documents are in the representation, so its intervals are wide and rough.")
    before = effects(plain[finite], order[finite], alike[finite], seed)
    after = None if calibrated is None else effects(calibrated[finite], order[finite], alike[finite], seed)
    return before, after


def check_options(sample: int | None, segments: int, versions: int, batch_size: int, seed: int) -> None:
    """Raise a `ValueError` for options that no audit can have."""
    if sample is not None and sample < 1:
        raise ValueError(f"sample must be at least 1, or None for all documents, not {sample}.")
    if segments < 2 or versions < 1:
        raise ValueError(f"segments must be at least 2 and versions at least 1, not {segments} and {versions}.")
    if batch_size < 1 or seed < 0:
        raise ValueError(f"batch_size must be at least 1 and seed at least 0, not {batch_size} and {seed}.")


def _setting(
    model: SentenceTransformer,
    prompt: str | None,
    batch_size: int,
    seed: int,
    segments: int,
    versions: int,
    documents: int,
) -> dict[str, Any]:
    module = document_module(model)
    config: Any = getattr(getattr(module, "model", None), "config", None)
    longest = getattr(module, "max_seq_length", None)
    versions_of: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions_of[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions_of[name] = None
    return {
        "model": getattr(config, "_name_or_path", None) or type(module).__name__,
        "revision": getattr(config, "_commit_hash", None),
        "max_tokens": longest if isinstance(longest, int) else None,
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
