"""Audit a model on a sample of documents: no labels, no queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.auditing.audit_result import Audit
from evenspan.auditing.passes import Look, Passes
from evenspan.auditing.positions import effects, estimate, likeness, orders, representation
from evenspan.auditing.schema import Estimate, View
from evenspan.auditing.segments import MeasuredDocument, read, truncation
from evenspan.calibration import Calibration
from evenspan.corpus.texts import storable
from evenspan.encoding import Encoder
from evenspan.errors import UnsupportedModelError
from evenspan.formatting import counted
from evenspan.identity import ModelIdentity
from evenspan.identity import versions as package_versions
from evenspan.models.calibrating import calibration_of
from evenspan.models.inspecting import inspect_model
from evenspan.models.reading import document_module, room_for_text

_FEWEST = 10  # documents with segments, to say anything
_FEW = 30  # to say it without a warning
_PACKAGES = ("evenspan", "torch", "transformers", "sentence-transformers", "numpy", "python")


def audit(
    model: SentenceTransformer,
    texts: Sequence[str],
    calibration: Calibration | Literal["none"] | None = None,
    *,
    names: Sequence[str] | None = None,
    sample: int | None = 1000,
    segments: int = 5,
    versions: int = 1,
    intact: bool = False,
    document_prompt: str | None = None,
    batch_size: int = 32,
    seed: int = 42,
    progress: bool = True,
    notes: Sequence[str] = (),
) -> Audit:
    """Find out what a model makes of each part of a document: what it never reads, where it looks, what its vectors show.

    Documents are encoded with their segments in random order, and segments by themselves: less than two passes, one more with
    a calibration. Truncation and representation work for any `SentenceTransformer`, attention for calibratable ones.

    Args:
        model: the model; it is left as it was.
        texts: documents, not cut into pieces.
        calibration: a setting to compare with; by default the model's own if it has one, otherwise none; `"none"` for none.
        names: of the documents; by default their numbers.
        sample: how many documents to look at, drawn at random; None for all.
        segments: parts of the same length that a document is cut into.
        versions: orders that a document is encoded in; more of them narrow the intervals where documents are few.
        intact: look at the attention in intact documents as well, plain: one more pass.
        document_prompt: as in `evaluate`.
        batch_size: as in `evaluate`.
        seed: of the sample, the orders and the bootstrap.
        progress: whether to show bars.
        notes: to put into the result, besides what there is to say anyway.

    Example:
        >>> print(evenspan.audit(model, texts, evenspan.Calibration()))  # doctest: +SKIP
    """
    _check_options(sample, segments, versions, batch_size, seed)
    wanted, remarks = _wanted(model, calibration), list(notes)
    texts, names = _sampled(texts, names, sample, seed, remarks)
    documents = read(model, names, texts, room := room_for_text(model, document_prompt), segments)
    cut = _with_segments(documents, segments, remarks)
    encoder = Encoder(model, prompt=document_prompt, batch_size=batch_size, unit=True, check_finite=False)
    passes = Passes(encoder, documents, cut, orders(len(cut), segments, versions, seed), progress)
    views, change = _views(passes, wanted, seed, remarks)
    options = {"segments": segments, "versions": versions, "batch_size": batch_size, "seed": seed}
    setting = _setting(model, document_prompt) | {"documents": len(documents), **options}
    return Audit(
        model=setting["model"],
        calibration=None if wanted is None else str(wanted),
        truncation=truncation(documents, room),
        plain=views[0],
        calibrated=None if wanted is None else views[1],
        slope_change=change,
        notes=tuple(dict.fromkeys(remarks)),
        setting=setting,
        intact=passes.intact(wanted) if intact else None,
    )


def _sampled(
    texts: Sequence[str], names: Sequence[str] | None, sample: int | None, seed: int, notes: list[str]
) -> tuple[list[str], list[str]]:
    """The documents to look at and their names, in their own order; what is no text or empty is left out and counted."""
    if isinstance(texts, str):
        raise TypeError("texts must be a list of documents, not one string.")
    texts = list(texts)
    if names is not None and len(names) != len(texts):
        raise ValueError(f"There are {len(names)} names for {len(texts)} texts.")
    usable = [
        number for number, text in enumerate(texts) if isinstance(text, str) and text.strip() and storable(text) == text
    ]
    if left_out := len(texts) - len(usable):
        notes.append(f"{left_out} of {len(texts)} texts were left out: empty, not a string, or not UTF-8.")
    if not usable:
        raise ValueError("texts must contain at least one document that is not empty.")
    if sample is not None and sample < len(usable):
        drawn = np.random.default_rng(seed).choice(len(usable), size=sample, replace=False)
        notes.append(f"A sample of {sample} of {len(usable)} documents.")
        usable = [usable[number] for number in sorted(drawn)]
    of_usable = [number if names is None else names[number] for number in usable]
    return [texts[number] for number in usable], [storable(str(name)) for name in of_usable]


def _wanted(model: SentenceTransformer, calibration: Calibration | Literal["none"] | None) -> Calibration | None:
    """The setting to compare with, which the model must be able to take."""
    wanted = calibration_of(model) if calibration is None else calibration
    if wanted is None or wanted == "none":
        return None
    if not isinstance(wanted, Calibration):
        raise TypeError(f"calibration must be a Calibration, 'none' or None, not {wanted!r}; see Calibration.parse.")
    if not (inspection := inspect_model(model, wanted)).calibratable:
        raise UnsupportedModelError(inspection.reason)
    return wanted


def _with_segments(documents: Sequence[MeasuredDocument], segments: int, notes: list[str]) -> list[int]:
    """The documents that are long enough for segments; none if they are too few."""
    cut = [number for number, document in enumerate(documents) if document.segments]
    if len(cut) < _FEWEST:
        notes.append(
            f"Position bias not measured: {len(cut)} of {len(documents)} documents have enough text for {segments} segments, "
            f"at least {_FEWEST} are needed."
        )
        return []
    if short := len(documents) - len(cut):
        notes.append(f"{counted(short, 'document')} too short for segments, not in the representation.")
    return cut


def _looks(passes: Passes, calibration: Calibration | None, notes: list[str]) -> list[Look]:
    """What the plain model shows, and with a calibration what it shows then."""
    cut = calibration or Calibration()
    plain = passes.look(None, notes, cut)
    if calibration is None:
        return [plain]
    # At strength 0 that is the plain model, and rounding in a second pass would look like a change.
    return [plain, passes.look(calibration, notes, cut) if calibration.strength > 0 else plain]


def _views(
    passes: Passes, calibration: Calibration | None, seed: int, notes: list[str]
) -> tuple[list[View], Estimate | None]:
    """What each look shows, and how far the slope of the second lies from that of the first.

    Positions are estimated from the documents that have finite vectors in all looks.
    """
    order, alike = passes.order, likeness(passes.segments)
    looks = _looks(passes, calibration, notes)
    finite: NDArray[np.bool_] = np.isfinite(np.concatenate([look[1] for look in looks], axis=1)).all(axis=(1, 2))
    documents = int(finite.sum())
    if documents < len(finite):
        notes.append(
            f"Left out of the representation for vectors that are not finite: {len(finite) - documents} of {len(finite)} "
            "documents. Try another dtype."
        )
    if documents < _FEWEST:
        return [View(attention, None) for attention, _ in looks], None
    if documents < _FEW:
        notes.append(f"The representation rests on only {documents} documents: its intervals are wide.")
    estimated = [effects(similarities[finite], order[finite], alike[finite], seed) for _, similarities in looks]
    views = [View(look[0], representation(of_look)) for look, of_look in zip(looks, estimated, strict=True)]
    slopes = [of_look.slope for of_look in estimated]
    return views, estimate(slopes[1] - slopes[0], documents) if len(slopes) > 1 else None


def _check_options(sample: int | None, segments: int, versions: int, batch_size: int, seed: int) -> None:
    """Raise a `ValueError` for options that no audit can have."""
    if sample is not None and sample < 1:
        raise ValueError(f"sample must be at least 1, or None for all documents, not {sample}.")
    bounds = {"segments": (segments, 2), "versions": (versions, 1), "batch_size": (batch_size, 1), "seed": (seed, 0)}
    for name, (value, least) in bounds.items():
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}.")


def _setting(model: SentenceTransformer, prompt: str | None) -> dict[str, Any]:
    """What the audit's figures depend on, besides its own options."""
    module = document_module(model)
    identity = ModelIdentity.of(model, module)
    return {
        **identity.to_setting(),
        "model": identity.name or type(module).__name__,
        "max_tokens": identity.max_tokens if isinstance(identity.max_tokens, int) else None,
        "document_prompt": prompt if prompt is not None else model.prompts.get("document", ""),
        "packages": package_versions(*_PACKAGES),
    }
