"""Texts to vectors: batches by token budget, longest first, halved when the device runs out of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.models.reading import document_prompt

BATCH_TOKENS = 16_384
_COUNTED_AT_ONCE = 1_000_000  # characters
_MOST_TEXTS = 1024  # in a batch, however short


class DocumentEncoder:
    """Encodes documents with a model as it is, calibrated or not.

    Args:
        model: what encodes.
        prompt: in front of documents; None for the model's own.
        batch_tokens: tokens in a batch, padding included.
    """

    def __init__(self, model: SentenceTransformer, prompt: str | None = None, batch_tokens: int = BATCH_TOKENS) -> None:
        if batch_tokens < 1:
            raise ValueError(f"batch_tokens must be at least 1, not {batch_tokens}.")
        self.model, self.prompt, self.batch_tokens = model, prompt, batch_tokens
        self.max_tokens: int = model.max_seq_length or 2**31
        self.normalised = str(model.similarity_fn_name) == "cosine"
        in_front = prompt if prompt is not None else document_prompt(model)
        self._counter = _counter(model)
        empty, prompted = self.count_tokens(["", in_front])
        self._prompt_tokens = prompted - empty

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, before anything is cut off, special tokens and prompt included."""
        added = getattr(self, "_prompt_tokens", 0)
        if self._counter is None:
            found = self.model.tokenizer(list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
            return [len(ids) + added for ids in found]
        counts: list[int] = []
        some: list[str] = []
        size = 0
        for text in texts:  # in parts: an encoding takes many times the memory of its text
            some.append(text)
            size += len(text)
            if size >= _COUNTED_AT_ONCE:
                counts += [len(encoding) + added for encoding in self._counter.encode_batch_fast(some)]
                some, size = [], 0
        return counts + [len(encoding) + added for encoding in self._counter.encode_batch_fast(some)]

    def encode(self, texts: Sequence[str], tokens: Sequence[int]) -> NDArray[np.float32]:
        """One vector for each text, of length 1 where the model compares by cosine."""
        vectors: NDArray[np.float32] | None = None
        for batch in self._batches(tokens):
            found = self._encode([texts[at] for at in batch])
            if vectors is None:
                vectors = np.empty((len(texts), found.shape[1]), dtype=np.float32)
            vectors[batch] = found
        return np.empty((0, 0), dtype=np.float32) if vectors is None else vectors

    def _batches(self, tokens: Sequence[int]) -> Iterator[list[int]]:
        lengths = [min(count, self.max_tokens) for count in tokens]
        order = sorted(range(len(lengths)), key=lambda at: -lengths[at])
        batch: list[int] = []
        for at in order:
            # The first of a batch is the longest, so that is what the others are padded to.
            full = batch and (len(batch) + 1) * lengths[batch[0]] > self.batch_tokens
            if full or len(batch) == _MOST_TEXTS:
                yield batch
                batch = []
            batch.append(at)
        if batch:
            yield batch

    def _encode(self, texts: list[str], budget: int | None = None) -> NDArray[np.float32]:
        budget = self.batch_tokens if budget is None else budget
        try:
            tensor: torch.Tensor = self.model.encode_document(
                texts,
                prompt=self.prompt,
                batch_size=len(texts),
                show_progress_bar=False,
                convert_to_tensor=True,
                normalize_embeddings=self.normalised,
            )
            array: NDArray[np.float32] = tensor.float().cpu().numpy()
        except torch.OutOfMemoryError:
            if len(texts) == 1:
                raise
        else:
            if not np.isfinite(array).all():
                raise RuntimeError("The model returned a vector that is not finite: use float32, or check the model.")
            return array
        # Outside of the handler: the error holds on to the tensors that did not fit.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        budget = max(1, budget // 2)
        self.batch_tokens = min(self.batch_tokens, budget)  # once for both halves
        middle = len(texts) // 2
        return np.concatenate([self._encode(texts[:middle], budget), self._encode(texts[middle:], budget)])


def _counter(model: SentenceTransformer) -> Any:
    """A tokenizer of its own for counting, with nothing cut off: those of a model are set anew by each call."""
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    copy = type(backend).from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy
