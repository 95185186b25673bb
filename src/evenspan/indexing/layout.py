"""What the rows of an index are: whole documents or chunks, with or without a full-text index; and options of the store."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

from evenspan.calibration import Calibration
from evenspan.corpus.chunks import Chunker
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores.options import StoreOptions

FEWEST_TOKENS = 16  # in a chunk


@dataclass(frozen=True)
class Layout:
    """See `index`. Checked before any work."""

    chunk_tokens: int | None = None
    overlap: int = 0
    full_text: bool = False
    store_options: StoreOptions | str | None = None

    def __post_init__(self) -> None:
        if self.chunk_tokens is None and self.overlap:
            raise ValueError(
                f"overlap is for chunks: give chunk_tokens, or leave out overlap, which is {self.overlap}."
            )
        if self.chunk_tokens is not None:
            if self.chunk_tokens < FEWEST_TOKENS:
                raise ValueError(f"chunk_tokens must be at least {FEWEST_TOKENS}, not {self.chunk_tokens}.")
            Chunker(self.chunk_tokens, self.overlap)  # refuses an overlap that cannot be
        _ = self.options  # refuses what cannot be read

    @property
    def options(self) -> StoreOptions | None:
        """Those of the store, if any are given."""
        given = self.store_options
        return StoreOptions.parse(given) if isinstance(given, str) else given

    def check(self, kind: str, location: str, *, keep_text: bool) -> None:
        """Refuse what a kind of store cannot do."""
        if self.full_text and kind == "parquet":
            raise ValueError(
                f"{location} is a Parquet index, which has no full-text search: use LanceDB or PostgreSQL."
            )
        if self.full_text and not keep_text:
            raise ValueError("A full-text index needs an index that stores texts.")
        if self.options is not None:
            self.options.check(kind, location)

    def check_baskets(self, calibration: Calibration) -> None:
        """Say so if chunks are too short for calibration to do anything."""
        if self.chunk_tokens is not None and self.chunk_tokens < calibration.fewest_tokens:
            warnings.warn(
                f"Chunks of {self.chunk_tokens} tokens are too short for baskets of {calibration.basket_size}: "
                f"calibration does not change them. Use smaller baskets (basket_size={max(1, self.chunk_tokens // 4)},"
                "partition=even), or no calibration.",
                stacklevel=2,
            )

    def of(self, settings: IndexSettings) -> IndexSettings:
        """The settings of an index that is laid out like this."""
        options = self.options or StoreOptions()
        return replace(
            settings,
            chunk_tokens=self.chunk_tokens,
            overlap=self.overlap,
            full_text=self.full_text,
            vectors=options.vectors,
            vector_index=str(replace(options, vectors="float32")),
        )
