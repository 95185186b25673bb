"""Ways to turn documents into vectors: as the model does, calibrated, and what people do instead.

Every method is a frozen dataclass whose `name` says it all: it keys caches and names results. A new one adds a class
here and a row to `BASELINES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense

from evenspan.calibration import Calibration
from evenspan.models.calibrating import calibrated, uncalibrated
from evenspan.models.inspecting import inspect_model
from evenspan.models.loading import MINIATURE, load
from evenspan.models.reading import check_window, room_for_text, windows

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

    def encode(self, model: SentenceTransformer, texts: Sequence[str], **options: Any) -> Vectors:
        """The vectors of some documents; options go to `encode_document`."""
        raise NotImplementedError

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:
        """Raise a `ValueError` if this method cannot be used with a model, before anything is encoded."""


@dataclass(frozen=True)
class Plain(Method):
    """No calibration: the model as it is published."""

    kind: ClassVar[str] = "none"

    def encode(self, model: SentenceTransformer, texts: Sequence[str], **options: Any) -> Vectors:  # noqa: D102
        with uncalibrated(model):
            return list(_encode(model, texts, **options)[:, None])


@dataclass(frozen=True)
class Calibrated(Method):
    """Attention calibration."""

    calibration: Calibration = Calibration()

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: ARG002, D102
        found = inspect_model(model, self.calibration)
        if not found.calibratable:
            raise ValueError(found.reason)

    @property
    def name(self) -> str:  # noqa: D102
        return str(self.calibration)

    def encode(self, model: SentenceTransformer, texts: Sequence[str], **options: Any) -> Vectors:  # noqa: D102
        with calibrated(model, self.calibration):
            return list(_encode(model, texts, **options)[:, None])


@dataclass(frozen=True)
class SegmentAverage(Method):
    """Segment-embed-average as in the paper: Chonkie's semantic chunks, embedded one by one, averaged.

    Args:
        embedder: what the chunker compares sentences with: a model folder or hub name, or `"self"` for the model under
            test. The paper names neither embedder nor threshold; these are Chonkie's own defaults.
        threshold: of Chonkie's `SemanticChunker`.
        chunk_size: most tokens in a chunk.
    """

    kind: ClassVar[str] = "segment-average"
    embedder: str = "minishlab/potion-base-32M"
    threshold: float = 0.8
    chunk_size: int = 512

    def encode(self, model: SentenceTransformer, texts: Sequence[str], **options: Any) -> Vectors:  # noqa: D102
        chunker = _semantic_chunker(self, model)
        room = room_for_text(model, options.get("prompt"))
        # A chunk is as long as the chunker's own tokenizer counts; what the model would cut off becomes another piece.
        pieces = [
            [piece for chunk in chunker.chunk(text) for piece in windows(model, chunk.text, room)] or [text]
            for text in texts
        ]
        return [_average(vectors) for vectors in _encode_pieces(model, pieces, **options)]


@dataclass(frozen=True)
class WindowAverage(Method):
    """Windows of a fixed number of tokens, embedded one by one, averaged."""

    kind: ClassVar[str] = "window-average"
    window: int = 256

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: D102
        check_window(model, self.window, prompt)

    def encode(self, model: SentenceTransformer, texts: Sequence[str], **options: Any) -> Vectors:  # noqa: D102
        pieces = [windows(model, text, self.window) for text in texts]
        return [_average(vectors) for vectors in _encode_pieces(model, pieces, **options)]


@dataclass(frozen=True)
class ChunksMax(Method):
    """A vector for each window of tokens, scored by the best one: what most people run."""

    kind: ClassVar[str] = "chunks-max"
    window: int = 256

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: D102
        check_window(model, self.window, prompt)

    def encode(self, model: SentenceTransformer, texts: Sequence[str], **options: Any) -> Vectors:  # noqa: D102
        return _encode_pieces(model, [windows(model, text, self.window) for text in texts], **options)


@dataclass(frozen=True)
class LateChunking(Method):
    """One pass over the whole passage; its token embeddings are averaged per window, then the windows."""

    kind: ClassVar[str] = "late-chunking"
    window: int = 256

    def check(self, model: SentenceTransformer, prompt: str | None = None) -> None:  # noqa: ARG002, D102
        if self.window < 1:
            raise ValueError(f"window must be at least 1, not {self.window}.")
        if model.truncate_dim is not None or any(isinstance(module, Dense) for module in model):
            raise ValueError(
                "late-chunking averages token embeddings: it cannot be used with truncate_dim or a Dense module."
            )

    def encode(self, model: SentenceTransformer, texts: Sequence[str], **options: Any) -> Vectors:  # noqa: D102
        with uncalibrated(model):
            if getattr(model.tokenizer, "padding_side", "right") == "right":  # what is cut off then is the padding
                tokens: Any = model.encode_document(list(texts), output_value="token_embeddings", **options)
            else:  # not with sentence-transformers 6.0, which stumbles over features that are text
                features: Any = model.encode_document(list(texts), output_value=None, **options)
                tokens = [one["token_embeddings"][one["attention_mask"].bool()] for one in features]
        pooled = [torch.stack([part.float().mean(0) for part in one.split(self.window)]).mean(0) for one in tokens]
        vectors = torch.nn.functional.normalize(torch.stack(pooled), dim=1)
        return list(vectors.cpu().numpy()[:, None])


@dataclass(frozen=True)
class Bm25(Method):
    """BM25 by bm25s: words, no vectors. Where its scores differ by position, the data does, not a model."""

    kind: ClassVar[str] = "bm25"
    k1: float = 1.5
    b: float = 0.75

    def rank(self, corpus: Mapping[str, str], queries: Sequence[str], depth: int) -> Iterator[list[str]]:
        """The best `depth` documents that share a word with each query; equal scores in order of id."""
        import bm25s

        ids = sorted(corpus)
        index = bm25s.BM25(method="lucene", k1=self.k1, b=self.b)
        index.index([words(corpus[name]) for name in ids], show_progress=False)
        for query in queries:
            scores = index.get_scores(words(query)) if words(query) else np.zeros(len(ids), dtype=np.float32)
            best = np.lexsort((np.arange(len(ids)), -scores.astype(np.float64).round(6)))[:depth]
            yield [ids[place] for place in best if scores[place] > 0]


# Chonkie's own, and those of scripts without spaces, which it would not cut at all.
_DELIMITERS = [". ", "! ", "? ", "\n", "。", "！", "？"]

BASELINES: dict[str, type[Method]] = {
    method.kind: method for method in (Plain, SegmentAverage, WindowAverage, LateChunking, ChunksMax, Bm25)
}


def baseline(name: str, **options: Any) -> Method:
    """A baseline by its name, e.g. `baseline("window-average", window=128)`."""
    if name not in BASELINES:
        raise ValueError(f"There is no baseline {name!r}; there are {', '.join(BASELINES)}.")
    known = {field.name for field in fields(BASELINES[name])}
    return BASELINES[name](**{option: value for option, value in options.items() if option in known})


def words(text: str) -> list[str]:
    """Lower-case words; in scripts without spaces each character is one."""
    import re

    return re.findall(r"[㐀-鿿豈-﫿぀-ヿ가-힯]|[^\W㐀-鿿豈-﫿぀-ヿ가-힯]+", text.lower())


def _encode(model: SentenceTransformer, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
    vectors: torch.Tensor = model.encode_document(list(texts), convert_to_tensor=True, **options)
    array: NDArray[np.float32] = vectors.float().cpu().numpy()
    return array


def _encode_pieces(model: SentenceTransformer, pieces: list[list[str]], **options: Any) -> Vectors:
    """The vectors of the pieces of each text, all pieces in one call."""
    with uncalibrated(model):
        vectors = _encode(model, [piece for group in pieces for piece in group], **options)
    return np.split(vectors, np.cumsum([len(group) for group in pieces])[:-1])


def _average(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    mean = vectors.mean(axis=0, keepdims=True)
    averaged: NDArray[np.float32] = mean / max(float(np.linalg.norm(mean)), 1e-12)
    return averaged


def _semantic_chunker(method: SegmentAverage, model: SentenceTransformer) -> Any:
    try:
        from chonkie import SemanticChunker
        from chonkie.embeddings import SentenceTransformerEmbeddings
    except ImportError as error:
        raise ImportError("segment-average needs Chonkie: pip install 'evenspan[eval]'") from error
    embedder: Any = method.embedder
    if embedder == "self":
        embedder = SentenceTransformerEmbeddings(model)
    elif _is_folder(embedder) or embedder.startswith(MINIATURE):
        embedder = SentenceTransformerEmbeddings(load(embedder))
    try:
        return SemanticChunker(embedder, threshold=method.threshold, chunk_size=method.chunk_size, delim=_DELIMITERS)
    except Exception as error:
        raise OSError(
            f"Cannot load the chunker's embedder {method.embedder!r}: {error}. Name a local SentenceTransformer folder, "
            "or 'self' for the model under test."
        ) from error


def _is_folder(name: str) -> bool:
    from pathlib import Path

    return Path(name).is_dir()
