"""What all methods are: a way to encode documents, whose name says it all. The plainest, and what several share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.corpus.chunks import Chunker
from evenspan.encoding import Encoder, unit_length
from evenspan.models.calibrating import calibrated, uncalibrated
from evenspan.models.reading import check_window
from evenspan.progress import ProgressBar

Vectors = list[NDArray[np.float32]]  # one (vectors, dimensions) array for each text


@dataclass(frozen=True)
class Method:
    """A way to encode documents: one vector each, or several of which the best one counts."""

    kind: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The kind and every setting of it."""
        settings = [f"{field.name}={getattr(self, field.name)}" for field in fields(self)]
        return ",".join([self.kind, *settings])

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:
        """The vectors of documents, here those of the plain model, of the length that the encoder leaves them."""
        with uncalibrated(encoder.model):
            return list(encoder.encode(texts, bar=bar)[:, None])

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:
        """Raise an error that says why if this method cannot be used with a model, before anything is encoded."""

    def remarks(self) -> tuple[str, ...]:
        """What its name does not say, for the notes of a result."""
        return ()


@dataclass(frozen=True)
class Plain(Method):
    """No calibration: the model as it is published."""

    kind: ClassVar[str] = "none"


@dataclass(frozen=True)
class Windowed(Method):
    """A method that cuts documents into windows of a number of tokens."""

    window: int = 256

    def __post_init__(self) -> None:
        _ = self.chunker  # refuses what cannot be

    @property
    def chunker(self) -> Chunker:
        """What cuts."""
        return Chunker(self.window, cut="tokens")

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: D102
        check_window(model, self.window, prompt)

    def encode(self, encoder: Encoder, texts: Sequence[str], bar: ProgressBar | None = None) -> Vectors:
        """The vectors of the windows of each text."""
        return encode_pieces(encoder, self.chunker.chunks(encoder.model, texts), bar)


@dataclass(frozen=True)
class Chunked(Windowed):
    """A method that cuts documents into chunks: see `Chunker` for its settings."""

    overlap: int = 0
    cut: str = "tokens"

    @property
    def chunker(self) -> Chunker:  # noqa: D102
        return Chunker(self.window, self.overlap, self.cut)

    @property
    def name(self) -> str:
        """The kind and its settings; chunks that are cut as ever are called as ever."""
        more = [f"overlap={self.overlap}"] * (self.overlap > 0) + [f"cut={self.cut}"] * (self.cut != "tokens")
        return ",".join([self.kind, f"window={self.window}", *more])

    def chunks(self, model: SentenceTransformer, text: str) -> list[str]:
        """The chunks of a text."""
        return self.chunker.chunks(model, [text])[0]


def encode_pieces(
    encoder: Encoder, pieces: Sequence[Sequence[str]], bar: ProgressBar | None, calibration: Calibration | None = None
) -> Vectors:
    """The vectors of the pieces of each text, all pieces together, plain or calibrated."""
    together = [piece for group in pieces for piece in group]
    if bar is not None and bar.total is not None:
        bar.refresh(bar.total + len(together) - len(pieces))  # it counted a text for each
    model = encoder.model
    with uncalibrated(model) if calibration is None else calibrated(model, calibration):
        vectors = encoder.encode(together, bar=bar)
    return np.split(vectors, np.cumsum([len(group) for group in pieces])[:-1])


def average(vectors: NDArray[np.float32], model: SentenceTransformer) -> NDArray[np.float32]:
    """The mean of vectors, of length 1 where the model compares by cosine.  # (1, dimensions)"""
    mean: NDArray[np.float32] = vectors.mean(axis=0, keepdims=True)
    return unit_length(mean) if compares_by_cosine(model) else mean


def compares_by_cosine(model: SentenceTransformer) -> bool:
    """Whether the length of vectors does not count."""
    return str(model.similarity_fn_name) == "cosine"
