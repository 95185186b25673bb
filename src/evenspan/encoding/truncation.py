"""What a model never reads of documents, because it stops at its maximum length."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sentence_transformers import SentenceTransformer

from evenspan.encoding.encoder import Encoder
from evenspan.formatting import count, share
from evenspan.models.reading import UNLIMITED, room_for_text
from evenspan.models.windows import text_windows

OnTruncate = Literal["warn", "raise", "ignore"]
WAY_OUT = "Split long documents into chunks, or raise max_seq_length if the model allows it."


@dataclass(frozen=True)
class Truncated:
    """How many documents are longer than what a model reads, and how many tokens are past the cut.

    Tokens are those of the texts, special tokens and prompt not counted.
    """

    room: int  # tokens of a document that the model reads
    documents: int = 0
    cut: int = 0
    tokens: int = 0
    unread: int = 0
    longest: int = 0

    def with_lengths(self, lengths: Sequence[int]) -> Truncated:
        """The same with more documents, by their tokens."""
        behind = [length - self.room for length in lengths if length > self.room]
        return Truncated(
            self.room,
            self.documents + len(lengths),
            self.cut + len(behind),
            self.tokens + sum(lengths),
            self.unread + sum(behind),
            max(self.longest, *lengths, 0),
        )

    @property
    def share(self) -> float:
        """The share of the text that is never read."""
        return self.unread / self.tokens if self.tokens else 0.0

    def __str__(self) -> str:
        if not self.cut:
            known = "documents of any length" if self.room >= UNLIMITED else f"{count(self.room)} tokens of text"
            return f"Nothing is cut off: the model reads {known}, the longest document has {count(self.longest)}."
        cut = f"{count(self.cut)} of {count(self.documents)} documents ({share(self.cut, self.documents)})"
        unread = f"{share(self.unread, self.tokens)} of the text is never read"
        return f"Truncated after {count(self.room)} tokens of text: {cut}; {unread}."


def truncation(model: SentenceTransformer, texts: Iterable[str], prompt: str | None = None) -> Truncated:
    """What a model does not read of documents."""
    watch = TruncationWatch(model, prompt, "ignore")
    encoder = Encoder(model, prompt=prompt)
    for window in text_windows(texts):
        watch(encoder.count_tokens(window))
    return watch.seen


class TruncationWatch:
    """Sees how many tokens documents have while they are encoded, and says once what is cut off."""

    def __init__(self, model: SentenceTransformer, prompt: str | None, on_truncate: OnTruncate) -> None:
        if on_truncate not in get_args(OnTruncate):
            raise ValueError(f"on_truncate must be one of {', '.join(get_args(OnTruncate))}, not {on_truncate!r}.")
        self.seen, self.on_truncate = Truncated(room_for_text(model, prompt)), on_truncate
        self._besides = Encoder(model, prompt=prompt).count_tokens([""])[0]  # special tokens and prompt
        self._told = False

    def __call__(self, counts: Sequence[int]) -> None:
        """Take note of some documents, by all the tokens that are encoded for each before anything is cut off."""
        self.seen = self.seen.with_lengths([max(0, tokens - self._besides) for tokens in counts])
        if self.on_truncate == "raise" and self.seen.cut:
            raise ValueError(f"{self.seen} {WAY_OUT} To encode them anyway, set on_truncate to 'warn' or 'ignore'.")

    def tell(self) -> None:
        """Warn, the first time that something was cut off."""
        if self.on_truncate == "warn" and self.seen.cut and not self._told:
            self._told = True
            warnings.warn(f"{self.seen} {WAY_OUT}", stacklevel=3)
