"""Texts to vectors through a model's own `encode_document` and `encode_query`, batch by batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from torch import Tensor

from evenspan.models.batches import Attempt
from evenspan.models.budget import TokenBudget
from evenspan.models.reading import document_prompt, query_prompt

Pool = Callable[[list[Tensor]], Tensor]


@dataclass(frozen=True)
class OwnEncode:
    """Encodes batches by what the model itself offers, for models and poolings that are not the usual ones."""

    model: SentenceTransformer
    role: str
    prompt: str | None
    unit: bool
    budget: TokenBudget
    attempt: Attempt
    pool: Pool | None  # makes vectors of token embeddings

    def batch(self, texts: list[str], longest: int) -> NDArray[np.float32]:
        """The vectors of a batch, in halves if there is no room for it."""
        try:
            with self.attempt():
                return self._call(texts)
        except torch.OutOfMemoryError:
            if len(texts) == 1:
                raise
        # Outside of the handler: the error holds on to the tensors that did not fit.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.budget.halve(len(texts) * longest)
        middle = len(texts) // 2
        return np.concatenate([self.batch(half, longest) for half in (texts[:middle], texts[middle:])])

    def _call(self, texts: list[str]) -> NDArray[np.float32]:
        encode: Any = self.model.encode_query if self.role == "query" else self.model.encode_document
        options = {"prompt": self.prompt, "batch_size": len(texts), "show_progress_bar": False}
        if self.pool is None:
            vectors: Tensor = encode(texts, convert_to_tensor=True, normalize_embeddings=self.unit, **options)
        else:
            tokens: list[Tensor] = encode(texts, output_value="token_embeddings", **options)
            if getattr(self.model.tokenizer, "padding_side", "right") == "left":  # cut off is padding at the end alone
                own_prompt = query_prompt(self.model) if self.role == "query" else document_prompt(self.model)
                features = self.model.preprocess(texts, prompt=own_prompt if self.prompt is None else self.prompt)
                counts = features["attention_mask"].sum(1).tolist()
                tokens = [rows[len(rows) - count :] for rows, count in zip(tokens, counts, strict=True)]
            vectors = self.pool(tokens)
            vectors = torch.nn.functional.normalize(vectors, dim=1) if self.unit else vectors
        array: NDArray[np.float32] = vectors.float().cpu().numpy()
        return array


def token_counter(model: SentenceTransformer) -> Callable[[list[str]], list[int]]:
    """Counts tokens with nothing cut off, by a tokenizer of its own: that of a model is set anew by each of its calls."""
    tokenizer: Any = getattr(next(iter(model)), "tokenizer", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    copy = None
    if isinstance(backend, Tokenizer):
        with contextlib.suppress(Exception):  # tokenizers has no narrower one for parts that are written in Python
            copy = Tokenizer.from_str(backend.to_str())
    if copy is not None:
        copy.no_truncation()
        copy.no_padding()
        return lambda texts: [len(encoding) for encoding in copy.encode_batch_fast(texts)]
    if callable(tokenizer):
        options = {"truncation": False, "padding": False, "verbose": False}
        return lambda texts: [len(ids) for ids in tokenizer(texts, **options)["input_ids"]]
    return lambda texts: [len(text.split()) for text in texts]  # none that is known: words
