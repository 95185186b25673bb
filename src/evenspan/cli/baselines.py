"""The baselines of `evenspan evaluate`, and their settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from evenspan.calibration import Calibration
from evenspan.cli.options import SegmentEmbedder
from evenspan.cli.parsing import BadOptionError, choice, decimal, number, option, share

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from evenspan.evaluation.methods import Method

_BASELINE = (
    "segment-average, window-average, token-average, late-chunking, chunks-max, bm25 or hybrid. May be repeated. With "
    "--calibration, chunks-max and hybrid run plain and with each calibration."
)
_MODULES = {"bm25": "bm25s", "hybrid": "bm25s", "segment-average": "chonkie"}  # what a baseline needs
_SIZE = "For segment-average: maximum tokens per chunk; the default is Chonkie's."
_STEMMER = "For bm25 and hybrid: a language, such as german, auto (detected from the documents) or none."


@dataclass(frozen=True)
class Baselines:
    """What calibrations are compared with."""

    baseline: Annotated[list[str] | None, option(_BASELINE)] = None
    window: Annotated[int | None, number("Window of the baselines, in tokens (default: 256, or what fits).")] = None
    overlap: Annotated[int, number("Tokens shared by neighbouring chunks of chunks-max and late-chunking.", 0)] = 0
    chunk_at: Annotated[str, choice("Where chunks-max cuts documents.", "tokens|sentences")] = "tokens"
    k1: Annotated[float, decimal("For bm25 and hybrid: weight of repeated words.", 0, 1000)] = 1.5
    b: Annotated[float, share("For bm25 and hybrid: strength of length normalization.", with_ends=True)] = 0.75
    stemmer: Annotated[str, option(_STEMMER, "LANGUAGE")] = "auto"
    segment_embedder: SegmentEmbedder = None
    segment_threshold: Annotated[float, share("For segment-average: threshold of Chonkie's chunker.")] = 0.8
    segment_size: Annotated[int, number(_SIZE)] = 2048

    @property
    def names(self) -> list[str]:
        """Those that were asked for, besides the plain model, which always is."""
        return [name for name in self.baseline or () if name != "none"]

    @property
    def modules(self) -> list[str]:
        """What they need installed."""
        return [_MODULES[name] for name in self.names if name in _MODULES]

    def check(self) -> None:
        """Refuse what no model could be evaluated with, before one is loaded."""
        if self.window is not None and self.overlap >= self.window:
            raise BadOptionError(f"--overlap must be less than --window, which is {self.window}, not {self.overlap}.")
        for name in self.names:
            self._methods(name, self.window or 1_000_000_000, ())

    def methods(
        self, model: "SentenceTransformer", prompt: str | None, settings: Sequence[Calibration]
    ) -> "list[Method]":
        """Every baseline, those that can be combined with a calibration also with each of them."""
        from evenspan.models.reading import room_for_text

        window = self.window or min(256, room_for_text(model, prompt))
        return [method for name in self.names for method in self._methods(name, window, settings)]

    def _methods(self, name: str, window: int, settings: Sequence[Calibration]) -> "list[Method]":
        from evenspan.evaluation.methods import Bm25, Calibrated, ChunksMax, Hybrid, baseline

        if name in ("bm25", "hybrid"):
            sparse = Bm25(self.k1, self.b, self.stemmer)
            if name == "bm25":
                return [sparse]
            return [Hybrid(sparse=sparse), *(Hybrid(dense=Calibrated(setting), sparse=sparse) for setting in settings)]
        cut: dict[str, Any] = {"window": window, "overlap": self.overlap}
        if name == "chunks-max":
            each = (None, *settings)
            return [ChunksMax(**cut, cut=self.chunk_at, calibration=setting) for setting in each]
        segments: dict[str, Any] = {"embedder": self.segment_embedder} if self.segment_embedder else {}
        return [baseline(name, threshold=self.segment_threshold, chunk_size=self.segment_size, **segments, **cut)]
