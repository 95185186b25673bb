"""Methods that cut documents into chunks."""

from __future__ import annotations

from dataclasses import dataclass

from sentence_transformers import SentenceTransformer

from evenspan.corpus.chunks import Chunker
from evenspan.evaluation.methods.base import Windowed


@dataclass(frozen=True)
class Chunked(Windowed):
    """A method that cuts documents into chunks: see `Chunker` for its settings."""

    overlap: int = 0
    cut: str = "tokens"

    def __post_init__(self) -> None:
        _ = self.chunker  # refuses what cannot be

    @property
    def chunker(self) -> Chunker:
        """What cuts."""
        return Chunker(self.window, self.overlap, self.cut)

    @property
    def name(self) -> str:
        """The kind and its settings; chunks that are cut as ever are called as ever."""
        more = [f"overlap={self.overlap}"] * (self.overlap > 0) + [f"cut={self.cut}"] * (self.cut != "tokens")
        return ",".join([self.kind, f"window={self.window}", *more])

    def chunks(self, model: SentenceTransformer, text: str) -> list[str]:
        """The chunks of a text."""
        return self.chunker.chunks(model, [text])[0]
