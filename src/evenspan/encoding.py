"""Texts to vectors, for everybody: batches by tokens, longest first, halved when the device runs out of memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from torch import Tensor

from evenspan.models.reading import document_prompt, query_prompt
from evenspan.progress import ProgressBar

BATCH_TOKENS = 16_384
_MOST_TEXTS = 1024  # in a batch, however short
_WINDOW_TEXTS, _WINDOW_CHARACTERS = 4096, 8_000_000  # of a stream: what is held and sorted at a time
_COUNTED_CHARACTERS = 1_000_000  # tokenized at a time: an encoding takes many times the memory of its text
_logger = logging.getLogger(__name__)

Attempt = Callable[[], AbstractContextManager[Any]]
Pool = Callable[[list[Tensor]], Tensor]


class Encoder:
    """Encodes texts with a model as it is at the time, calibrated or not.

    The same texts in one call always share the same batches, so that they get the same vectors, bit for bit.

    Args:
        model: what encodes.
        role: `"document"` or `"query"`: which of the model's two ways to encode.
        prompt: in front of texts; None for the model's own.
        batch_tokens: most tokens in a batch, padding included; less from then on when memory has run out.
        batch_size: most texts in a batch, whatever their length.
        unit: whether vectors get length 1; by default where the model compares by cosine.
        check_finite: refuse vectors with NaN or infinity; False where the caller does, and can name the texts.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        role: Literal["document", "query"] = "document",
        prompt: str | None = None,
        batch_tokens: int = BATCH_TOKENS,
        batch_size: int | None = None,
        unit: bool | None = None,
        check_finite: bool = True,
    ) -> None:
        for name, value in (("batch_tokens", batch_tokens), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}.")
        self.model, self.role, self.prompt, self.batch_tokens = model, role, prompt, batch_tokens
        self.batch_size = min(_MOST_TEXTS, batch_size or _MOST_TEXTS)
        self.unit = str(model.similarity_fn_name) == "cosine" if unit is None else unit
        self.check_finite = check_finite
        self.max_tokens: int = model.max_seq_length or 2**31

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has before anything is cut off, special tokens and prompt included."""
        windows = _windows(texts, len(texts), _COUNTED_CHARACTERS)
        return [count + self._prompt_tokens for window in windows for count in self._count(window)]

    def encode(
        self,
        texts: Sequence[str],
        *,
        tokens: Sequence[int] | None = None,
        bar: ProgressBar | None = None,
        attempt: Attempt = nullcontext,
        pool: Pool | None = None,
    ) -> NDArray[np.float32]:
        """One vector for each text, in their order.  # (texts, dimensions)

        Args:
            texts: what to encode.
            tokens: what `count_tokens` says of them, if it was asked already.
            bar: is told of every batch that is done.
            attempt: makes a context that each attempt at a batch runs in; an exception in it means that it does not count.
            pool: makes vectors of the token embeddings of a batch, in place of the model's own pooling.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a list of texts, not one string.")
        if tokens is None:
            tokens = self.count_tokens(texts) if len(texts) > 1 else [1] * len(texts)  # one is a batch, however long
        lengths = [min(count, self.max_tokens) for count in tokens]
        vectors: NDArray[np.float32] | None = None
        for batch in self._batches(lengths):
            encoded = self._encode_batch([texts[place] for place in batch], lengths[batch[0]], attempt, pool)
            if vectors is None:
                vectors = np.empty((len(texts), encoded.shape[1]), dtype=np.float32)
            vectors[batch] = encoded
            if bar is not None:
                bar.advance(len(batch))
        if vectors is None:
            return np.empty((0, self.model.truncate_dim or self.model.get_embedding_dimension() or 0), dtype=np.float32)
        return vectors

    def stream(self, texts: Iterable[str]) -> Iterator[NDArray[np.float32]]:
        """The vectors of any number of texts, in their order, window by window: no more than a window is held."""
        for window in _windows(texts, _WINDOW_TEXTS, _WINDOW_CHARACTERS):
            yield self.encode(window)

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """The places of the texts of each batch."""
        batch: list[int] = []
        for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
            # The first of a batch is the longest, so that is what the others are padded to.
            full = batch and (len(batch) + 1) * lengths[batch[0]] > self.batch_tokens
            if full or len(batch) == self.batch_size:
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    def _encode_batch(self, texts: list[str], longest: int, attempt: Attempt, pool: Pool | None) -> NDArray[np.float32]:
        try:
            with attempt():
                vectors = self._call(texts, pool)
        except torch.OutOfMemoryError:
            if len(texts) == 1:
                raise
        else:
            if self.check_finite and not np.isfinite(vectors).all():
                raise RuntimeError("The model returned a vector that is not finite: use float32, or check the model.")
            return vectors
        # Outside of the handler: the error holds on to the tensors that did not fit.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        middle = len(texts) // 2
        if middle * longest < self.batch_tokens:
            self.batch_tokens = max(1, middle * longest)
            _logger.warning("Out of memory: going on with at most %d tokens in a batch.", self.batch_tokens)
        halves = (texts[:middle], texts[middle:])
        return np.concatenate([self._encode_batch(half, longest, attempt, pool) for half in halves])

    def _call(self, texts: list[str], pool: Pool | None) -> NDArray[np.float32]:
        encode: Any = self.model.encode_query if self.role == "query" else self.model.encode_document
        options = {"prompt": self.prompt, "batch_size": len(texts), "show_progress_bar": False}
        if pool is None:
            vectors: Tensor = encode(texts, convert_to_tensor=True, normalize_embeddings=self.unit, **options)
        else:
            if getattr(self.model.tokenizer, "padding_side", "right") == "right":  # what is cut off is the padding
                tokens = encode(texts, output_value="token_embeddings", **options)
            else:  # not with sentence-transformers 6.0, which stumbles over features that are text
                features = encode(texts, output_value=None, **options)
                tokens = [text["token_embeddings"][text["attention_mask"].bool()] for text in features]
            vectors = pool(tokens)
            vectors = torch.nn.functional.normalize(vectors, dim=1) if self.unit else vectors
        array: NDArray[np.float32] = vectors.float().cpu().numpy()
        return array

    @cached_property
    def _count(self) -> Callable[[list[str]], list[int]]:
        return _token_counter(self.model)

    @cached_property
    def _prompt_tokens(self) -> int:
        own = query_prompt if self.role == "query" else document_prompt
        empty, prompted = self._count(["", own(self.model) if self.prompt is None else self.prompt])
        return prompted - empty


def unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors divided by their length; those of length 0 stay what they are."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit


def _token_counter(model: SentenceTransformer) -> Callable[[list[str]], list[int]]:
    """Counts tokens with nothing cut off, by a tokenizer of its own: that of a model is set anew by each of its calls."""
    tokenizer: Any = getattr(next(iter(model)), "tokenizer", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if isinstance(backend, Tokenizer):
        copy = Tokenizer.from_str(backend.to_str())
        copy.no_truncation()
        copy.no_padding()
        return lambda texts: [len(encoding) for encoding in copy.encode_batch_fast(texts)]
    if callable(tokenizer):
        options = {"truncation": False, "padding": False, "verbose": False}
        return lambda texts: [len(ids) for ids in tokenizer(texts, **options)["input_ids"]]
    return lambda texts: [len(text.split()) for text in texts]  # none that is known: words


def _windows(texts: Iterable[str], most: int, characters: int) -> Iterator[list[str]]:
    """Texts in parts of at most so many, each full when it has so many characters."""
    window: list[str] = []
    size = 0
    for text in texts:
        window.append(text)
        size += len(text)
        if len(window) == most or size >= characters:
            yield window
            window, size = [], 0
    if window:
        yield window
