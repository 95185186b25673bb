"""The one encoder: batches by tokens, longest first, on a device that is kept busy, halved when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding.fallback import OwnEncode, Pool, token_counter
from evenspan.models.batches import MOST_TEXTS, Attempt, BatchRunner, plan_batches
from evenspan.models.budget import budget_for
from evenspan.models.calibrating import calibration_of
from evenspan.models.fast import list_windows
from evenspan.models.features import Ids, TextFeatures, TokenizedTexts
from evenspan.models.modules import call_options
from evenspan.models.reading import document_prompt, query_prompt
from evenspan.models.standard import NotStandardError, text_features
from evenspan.models.windows import FIRST_TEXTS, in_windows, text_windows
from evenspan.progress import ProgressBar

_USUAL_SIZE = 32  # the default of `evaluate`, `sweep` and `audit`: on a GPU, batches are limited by tokens alone
_logger = logging.getLogger(__name__)


class Encoder:
    """Encodes texts with a model as it is at the time, calibrated or not.

    The same texts in one call always share the same batches, so that they get the same vectors, bit for bit, unless
    batches grow.

    Args:
        model: what encodes.
        role: `"document"` or `"query"`: which of the model's two ways to encode.
        prompt: in front of texts; None for the model's own.
        batch_tokens: most tokens in a batch, padding included; less from then on when memory has run out. By default
            4,096, on a GPU 32,768 and more for small models.
        batch_size: most texts in a batch, whatever their length; on a GPU the usual 32 are no limit.
        unit: whether vectors get length 1; by default where the model compares by cosine.
        check_finite: refuse vectors with NaN or infinity; False where the caller does, and can name the texts.
        grows: whether batches on a GPU grow as long as that is faster; vectors then differ by rounding from run to run.
        counted: is told how many tokens texts have before anything is cut off, special tokens and prompt included.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        *,
        role: Literal["document", "query"] = "document",
        prompt: str | None = None,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        unit: bool | None = None,
        check_finite: bool = True,
        grows: bool = False,
        counted: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        for name, value in (("batch_tokens", batch_tokens), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}.")
        self.model, self.role, self.prompt = model, role, prompt
        self._on_gpu = model.device.type == "cuda"
        self.budget = budget_for(model, model.device, batch_tokens, grows=grows)
        if batch_size is None or (self._on_gpu and batch_size == _USUAL_SIZE):
            batch_size = MOST_TEXTS
        self.batch_size = min(MOST_TEXTS, batch_size)
        self.unit = str(model.similarity_fn_name) == "cosine" if unit is None else unit
        self.check_finite = check_finite
        self.max_tokens: int = model.max_seq_length or 2**31
        self.busy_seconds = 0.0  # of the device
        self._counted = counted

    @property
    def batch_tokens(self) -> int:
        """Most tokens in a batch, as of now."""
        return self.budget.tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has before anything is cut off, special tokens and prompt included."""
        tokenized = self.tokenize(texts)
        if tokenized is not None:
            return tokenized.counts
        windows = text_windows(texts, len(texts) or 1, 1_000_000)
        return [count + self._prompt_tokens for window in windows for count in self._count(window)]

    def tokenize(self, texts: Sequence[str]) -> TokenizedTexts | None:
        """What `encode` needs of texts, and their numbers of tokens; None for models that take nothing but texts."""
        features = self.features()
        return None if features is None else features.tokenize(texts)

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
        if not len(texts):
            return np.empty((0, self.model.truncate_dim or self.model.get_embedding_dimension() or 0), dtype=np.float32)
        # For one text it is not worth while to copy a tokenizer.
        features = self.features() if pool is None and len(texts) > 1 else None
        if features is None:
            return self._checked(self._through_model(texts, tokens, bar, attempt, pool))
        windows = (self._ids(features, window) for window in list_windows(texts, on_gpu=self._on_gpu))
        arrays = list(self._run(features, windows, bar, attempt))
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def encode_tokenized(self, texts: TokenizedTexts) -> NDArray[np.float32]:
        """What `encode` returns for texts that `tokenize` was given.  # (texts, dimensions)"""
        both = zip(in_windows(texts.ids), in_windows(texts.counts), strict=True)
        windows = (TokenizedTexts(*each) for each in both) if self._on_gpu else iter([texts])
        return np.concatenate(list(self.windows(windows)))

    def stream(self, texts: Iterable[str], bar: ProgressBar | None = None) -> Iterator[NDArray[np.float32]]:
        """The vectors of any number of texts, in their order, window by window: no more than a few windows are held."""
        return self.windows(text_windows(texts, first=FIRST_TEXTS if self._on_gpu else None), bar=bar)

    def windows(
        self, windows: Iterable[list[str] | TokenizedTexts], bar: ProgressBar | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """The vectors of windows of texts, tokenized or not, in their order; the next is on its way while one is fetched."""
        features = self.features()
        if features is not None:
            standard: TextFeatures = features
            ids = (self._ids(standard, window) for window in windows)
            yield from self._run(standard, ids, bar, nullcontext)
            return
        calibration = calibration_of(self.model)
        for window in windows:
            self._check_same(calibration)  # every window is a call of its own here
            if isinstance(window, TokenizedTexts):
                raise RuntimeError("The model was changed since these texts were tokenized.")
            yield self.encode(window, bar=bar)

    def _check_same(self, calibration: Calibration | None) -> None:
        """Refuse to go on under another calibration than the one that a call began with."""
        if calibration_of(self.model) != calibration:
            raise RuntimeError(
                "The calibration was changed in the middle of a call. What a stream has returned is complete."
            )

    def _ids(self, features: TextFeatures, window: list[str] | TokenizedTexts) -> list[Ids]:
        tokenized = window if isinstance(window, TokenizedTexts) else features.tokenize(window)
        if self._counted is not None:
            self._counted(tokenized.counts)
        return tokenized.ids

    def _run(
        self, features: TextFeatures, windows: Iterable[Sequence[Ids]], bar: ProgressBar | None, attempt: Attempt
    ) -> Iterator[NDArray[np.float32]]:
        with call_options(self.model, self.role) as options:
            runner = BatchRunner(
                self.model,
                features,
                self.budget,
                options,
                most_texts=self.batch_size,
                unit=self.unit,
                dimensions=self.model.truncate_dim,
                attempt=attempt,
                done=(lambda _: None) if bar is None else bar.advance,
            )
            for vectors in runner.arrays(windows):
                self.busy_seconds += runner.busy
                runner.busy = 0.0
                yield self._checked(vectors.astype(np.float32, copy=False))

    def _through_model(
        self,
        texts: Sequence[str],
        tokens: Sequence[int] | None,
        bar: ProgressBar | None,
        attempt: Attempt,
        pool: Pool | None,
    ) -> NDArray[np.float32]:
        """What the model's own `encode_document` or `encode_query` gives."""
        if tokens is None:
            needed = len(texts) > 1 or self._counted is not None  # one is a batch, however long
            tokens = self.count_tokens(texts) if needed else [1] * len(texts)
        if self._counted is not None:
            self._counted(tokens)
        lengths = [min(count, self.max_tokens) for count in tokens]
        calibration = calibration_of(self.model)
        own = OwnEncode(self.model, self.role, self.prompt, self.unit, self.budget, attempt, pool)
        vectors = np.empty((0, 0), dtype=np.float32)
        for batch in plan_batches(lengths, self.budget.tokens, self.batch_size):
            encoded = own.batch([texts[place] for place in batch], lengths[batch[0]])
            self._check_same(calibration)  # every batch is
            if not len(vectors):
                vectors = np.empty((len(texts), encoded.shape[1]), dtype=np.float32)
            vectors[batch] = encoded
            if bar is not None:
                bar.advance(len(batch))
        return vectors

    def _checked(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.check_finite and not np.isfinite(vectors).all():
            raise RuntimeError("The model returned a vector that is not finite: use float32, or check the model.")
        return vectors

    def features(self) -> TextFeatures | None:
        """What makes the features of texts, as the model is now; None if it does that itself."""
        try:
            return text_features(self.model, self.role, self._own_prompt if self.prompt is None else self.prompt)
        except NotStandardError as error:
            _logger.debug("Texts are encoded by sentence-transformers: %s.", error)
            return None

    @property
    def _own_prompt(self) -> str:
        return (query_prompt if self.role == "query" else document_prompt)(self.model)

    @cached_property
    def _count(self) -> Callable[[list[str]], list[int]]:
        return token_counter(self.model)

    @cached_property
    def _prompt_tokens(self) -> int:
        empty, prompted = self._count(["", self._own_prompt if self.prompt is None else self.prompt])
        return prompted - empty


def unit_length(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors divided by their length; those of length 0 stay what they are."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit
