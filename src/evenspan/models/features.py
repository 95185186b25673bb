"""The features of batches of texts, as sentence-transformers' `preprocess` makes them, without its conversion of lists.

transformers turns the ids of a batch into tensors in Python, token by token, which takes longer than a GPU takes for the
batch. Here they go from the Rust tokenizer into arrays. For which models that is done is found out in `standard`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn

from evenspan.models.windows import text_windows

Ids = NDArray[np.int32]
Layout = Literal["padded", "flat"]

_CHARACTERS = 1_000_000  # tokenized at a time: an encoding takes many times the memory of its text


@dataclass(frozen=True)
class TokenizedTexts:
    """What a model reads of texts, and how many tokens they have before anything is cut off."""

    ids: list[Ids]
    counts: list[int]


@dataclass(frozen=True)
class TextFeatures:
    """Makes the features of texts behind one prompt, for a tokenizer as it is now."""

    tokenizer: Tokenizer  # a copy: that of the model is set anew by each of its calls
    prompt: str
    limit: int | None  # tokens that the model reads
    prefix: int  # special tokens in front of a text
    suffix: int  # and behind it
    types: tuple[int, int, int]  # of the prefix, the text and the suffix
    padding: tuple[int, int]  # id and type
    pads_left: bool
    cuts_left: bool
    names: tuple[str, ...]  # of the tensors of a padded batch
    flattens: bool  # whether sentence-transformers itself makes batches without padding (for FlashAttention)
    first_position: int  # of a batch without padding
    extras: tuple[tuple[str, Any], ...]  # what else a batch says: its modality, its prompt's length

    def tokenize(self, texts: Sequence[str]) -> TokenizedTexts:
        """The ids of texts behind the prompt."""
        parts = [self._tokenize(part) for part in text_windows(texts, len(texts) or 1, _CHARACTERS)]
        return TokenizedTexts([own for ids, _ in parts for own in ids], [own for _, counts in parts for own in counts])

    def _tokenize(self, texts: Sequence[str]) -> tuple[list[Ids], list[int]]:
        encodings = self.tokenizer.encode_batch_fast([self.prompt + text for text in texts])
        counts = [len(encoding) for encoding in encodings]
        together = itertools.chain.from_iterable(encoding.ids for encoding in encodings)
        flat = np.fromiter(together, dtype=np.int32, count=sum(counts))
        ends = list(itertools.accumulate(counts))
        return [self._cut(flat[end - count : end]) for end, count in zip(ends, counts, strict=True)], counts

    def around(self, contents: Sequence[Sequence[int]]) -> list[tuple[Ids, bool]]:
        """The ids of texts that are tokenized already, special tokens and prompt around them, and whether each was cut."""
        known = self.tokenizer.get_vocab_size()
        if not all(0 <= own < known for content in contents for own in content):
            raise ValueError(f"Token ids of this model are numbers from 0 to {known - 1}.")
        (empty,) = self.tokenize([""]).ids
        front, behind = empty[: len(empty) - self.suffix], empty[len(empty) - self.suffix :]
        whole = [np.concatenate([front, np.asarray(content, dtype=np.int32), behind]) for content in contents]
        return [(read, len(read) < len(ids)) for ids, read in zip(whole, map(self._cut, whole), strict=True)]

    def _cut(self, ids: Ids) -> Ids:
        """What is read of a text, as the tokenizer would cut it: special tokens stay."""
        if self.limit is None or len(ids) <= self.limit:
            return ids
        end = len(ids) - self.suffix
        kept = self.limit - self.prefix - self.suffix
        content = ids[end - kept : end] if self.cuts_left else ids[self.prefix : self.prefix + kept]
        return np.concatenate([ids[: self.prefix], content, ids[end:]])

    def batch(self, texts: Sequence[Ids], layout: Layout = "padded", *, pinned: bool = False) -> dict[str, Any]:
        """The features of a batch, on the CPU; in pinned memory if they are on their way to a GPU."""
        made = self._flat(texts, pinned) if layout == "flat" else self._padded(texts, pinned)
        return {**made, **dict(self.extras)}

    @property
    def layout(self) -> Layout:
        """How sentence-transformers lays out a batch."""
        return "flat" if self.flattens else "padded"

    def _padded(self, texts: Sequence[Ids], pinned: bool) -> dict[str, Any]:
        lengths = np.array([len(ids) for ids in texts])
        width = int(lengths.max(initial=0))
        made = {name: torch.zeros(len(texts), width, dtype=torch.long, pin_memory=pinned) for name in self.names}
        arrays = {name: tensor.numpy() for name, tensor in made.items()}
        column = np.arange(width)
        real = column >= (width - lengths)[:, None] if self.pads_left else column < lengths[:, None]
        arrays["input_ids"][real] = np.concatenate(texts) if len(texts) else 0
        arrays["input_ids"][~real] = self.padding[0]
        if "attention_mask" in arrays:
            arrays["attention_mask"][...] = real
        if "token_type_ids" in arrays and (self.padding[1] or any(self.types)):
            before, own, behind = self.types
            start = (width - lengths)[:, None] if self.pads_left else np.zeros((len(texts), 1), dtype=np.int64)
            at = column - start
            types = np.where(at < self.prefix, before, np.where(at >= lengths[:, None] - self.suffix, behind, own))
            arrays["token_type_ids"][...] = np.where(real, types, self.padding[1])
        return made

    def _flat(self, texts: Sequence[Ids], pinned: bool) -> dict[str, Any]:
        """One text behind the other, as `DataCollatorWithFlattening` has them."""
        lengths = np.array([len(ids) for ids in texts])
        ends = np.cumsum(lengths)
        tokens = int(ends[-1])
        made = {
            name: torch.empty(1, tokens, dtype=dtype, pin_memory=pinned)
            for name, dtype in (("input_ids", torch.long), ("position_ids", torch.long), ("seq_idx", torch.int32))
        }
        made["input_ids"].numpy()[0] = np.concatenate(texts)
        starts = np.repeat(ends - lengths, lengths)
        made["position_ids"].numpy()[0] = np.arange(tokens) - starts + self.first_position
        made["seq_idx"].numpy()[0] = np.repeat(np.arange(len(texts)), lengths)
        cumulative = torch.zeros(len(texts) + 1, dtype=torch.int32, pin_memory=pinned)
        cumulative.numpy()[1:] = ends
        longest = int(lengths.max())
        sizes = {"cu_seq_lens_q": cumulative, "cu_seq_lens_k": cumulative}
        return {**made, **sizes, "max_length_q": longest, "max_length_k": longest}


def first_position(model: nn.Module) -> int:
    """The position of a text's first token: RoBERTa and its kin count from the one after that of padding."""
    for module in model.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), nn.Embedding):
            return padding + 1
    return 0
