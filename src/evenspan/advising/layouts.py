"""Ways to put documents into an index, which advice compares."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

from evenspan.calibration import Calibration
from evenspan.evaluation.methods import Calibrated, ChunksMax, Hybrid, LateChunking, Method, Plain

LENGTHS = (128, 256, 512)  # of chunks, in tokens
LATE = 256
_CHUNK_BASKETS = 64  # even ones: the paper's make short texts worse


@dataclass(frozen=True)
class Layout:
    """A way to put documents into an index.

    Attributes:
        name: what people call it.
        method: encodes it, as `evaluate` takes it.
        plain: the same without calibration, with which it is compared; None where it is that.
        chunk_tokens: of the index; None for whole documents.
        cannot_build: why `evenspan index` does not build it.
        truncates: whether documents are cut off at the model's limit.
    """

    name: str
    method: Method
    plain: Method | None = None
    chunk_tokens: int | None = None
    cannot_build: str | None = None
    truncates: bool = True

    @property
    def dense(self) -> Method:
        """What makes its vectors."""
        return self.method.dense if isinstance(self.method, Hybrid) else self.method

    @property
    def calibration(self) -> Calibration | None:
        """The setting that documents or chunks are encoded under; None for plain."""
        return self.dense.calibration if isinstance(self.dense, (Calibrated, ChunksMax)) else None

    @property
    def is_hybrid(self) -> bool:
        """Whether BM25 takes part."""
        return isinstance(self.method, Hybrid)

    def command(self, model: str, source: str, more: dict[str, str]) -> str:
        """The command that builds such an index."""
        options = {"--calibration": str(self.calibration or "none")}
        if self.chunk_tokens is not None:
            options["--chunk-tokens"] = str(self.chunk_tokens)
        words = ["evenspan", "index", model, source, "my-index", *(["--full-text"] if self.is_hybrid else [])]
        return shlex.join([*words, *(part for pair in (options | more).items() for part in pair)])


def layouts(calibration: Calibration | None, room: int, longest: int) -> Iterator[Layout]:
    """Whole documents, chunks of several lengths, late chunking and hybrid search, plain and calibrated.

    `room` is how many tokens of a text the model reads, `longest` how many the longest document has.
    """
    yield Layout("whole documents", Plain())
    if calibration is not None:
        yield Layout("whole documents, calibrated", Calibrated(calibration), Plain())
    for size in (size for size in LENGTHS if size <= room and size < longest):
        cut = ChunksMax(size, cut="sentences")  # as `evenspan index` cuts
        name = f"chunks of {size} tokens"
        yield Layout(name, cut, chunk_tokens=size, truncates=False)
        setting = chunk_setting(calibration)
        if setting is not None and size >= setting.fewest_tokens:
            method = replace(cut, calibration=setting)
            yield Layout(f"{name}, calibrated", method, cut, chunk_tokens=size, truncates=False)
    if longest > LATE:
        yield Layout(
            f"late chunking, {LATE} tokens", LateChunking(LATE), cannot_build="`evenspan index` has no late chunking"
        )
    yield Layout("hybrid with BM25", Hybrid())
    if calibration is not None:
        yield Layout("hybrid with BM25, calibrated", Hybrid(dense=Calibrated(calibration)), Hybrid())


def chunk_setting(calibration: Calibration | None) -> Calibration | None:
    """The setting for chunks: the same with small even baskets, unless it has even ones already."""
    if calibration is None or calibration.partition == "even":
        return calibration
    return replace(calibration, basket_size=min(_CHUNK_BASKETS, calibration.basket_size), partition="even")
