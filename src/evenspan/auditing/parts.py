"""How much of one document's vector each of its parts makes up, plain and calibrated: what an audit measures, for one text.

As in an audit, a document is cut into segments of the same number of tokens, and a segment's similarity is the cosine of its
own plain vector with the vector of the whole. Here the segments stay in their order, so that the figures are of this document:
content and position together. An audit of many documents tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.auditing.segments import SHORTEST_SEGMENT, read
from evenspan.calibration import Calibration
from evenspan.encoding import Encoder
from evenspan.models.calibrating import calibrated, uncalibrated
from evenspan.models.reading import room_for_text

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reflection:
    """How much of a vector a part makes up: its similarity with it, and its share of the similarities of all parts."""

    similarity: float
    share: float


@dataclass(frozen=True)
class Part:
    """A part of a document, in the plain vector and in the calibrated one, and its similarity with a question."""

    text: str
    plain: Reflection
    calibrated: Reflection
    question: float | None


@dataclass(frozen=True)
class Parts:
    """A document by its parts, and how near its two vectors are to a question."""

    parts: tuple[Part, ...]
    tokens: int  # of the document, special tokens and prompt not counted
    unread: int  # of those, how many the model does not read
    question: tuple[float, float] | None  # the similarity with the plain and with the calibrated vector


def parts(
    model: SentenceTransformer,
    text: str,
    calibration: Calibration,
    *,
    segments: int = 5,
    question: str | None = None,
) -> Parts:
    """Cut a document into parts and see how much of its vector each makes up, plain and under a calibration.

    Raises:
        ValueError: if the document is too short for so many parts.
    """
    room = room_for_text(model)
    (document,) = read(model, [""], [text], room, segments)
    if not document.segments:
        raise ValueError(
            f"The document has {document.tokens} tokens: too few for {segments} parts of {SHORTEST_SEGMENT} or more. "
            "Use a longer document or fewer parts."
        )
    encoder = Encoder(model, unit=True)
    asked: Array | None = None
    with uncalibrated(model):
        plain_vectors = encoder.encode([*document.segments, text]).astype(np.float64)
        if question is not None:
            asked = Encoder(model, role="query", unit=True).encode([question])[0].astype(np.float64)
    whole = plain_vectors[-1]
    if calibration.strength > 0:
        with calibrated(model, calibration):
            whole = encoder.encode([text])[0].astype(np.float64)
    of_segments = plain_vectors[:-1]
    reflections = zip(_reflections(of_segments @ plain_vectors[-1]), _reflections(of_segments @ whole), strict=True)
    seen = tuple(
        Part(segment, before, after, None if asked is None else float(vector @ asked))
        for segment, vector, (before, after) in zip(document.segments, of_segments, reflections, strict=True)
    )
    near = None if asked is None else (float(plain_vectors[-1] @ asked), float(whole @ asked))
    return Parts(seen, document.tokens, max(0, document.tokens - room), near)


def _reflections(similarities: Array) -> list[Reflection]:
    positive = np.maximum(similarities, 0.0)
    shares = positive / max(float(positive.sum()), 1e-12)
    return [Reflection(float(own), float(share)) for own, share in zip(similarities, shares, strict=True)]
