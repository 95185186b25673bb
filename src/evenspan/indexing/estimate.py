"""What a run would do, and how long it would take here: everything is read and counted, and a sample encoded."""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenspan.encoding import Encoder
from evenspan.formatting import counted
from evenspan.indexing.pieces import Cutter, Piece, part
from evenspan.indexing.plan import EncodingOptions, IndexPlan
from evenspan.indexing.reading import Rejects, SourceRows
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.summary import IndexProgress, IndexSummary
from evenspan.models.features import TokenizedTexts

_SAMPLE = 512  # texts that are timed, at most
_FIRST = 16  # of them, to see how long the others may take
_SECONDS = 10.0  # for all of them
_SEED = 0
_BYTES = {"float32": 4, "float16": 2}


@dataclass(frozen=True, kw_only=True)
class IndexEstimate(IndexSummary):
    """What a run would count; the time of encoding is an estimate, at the speed of a sample."""

    bytes: int  # of vectors, texts and metadata, before compression and without the store's own index
    sampled: int  # texts that were timed
    device: str

    def _closing(self) -> list[str]:
        sampled = f"from a sample of {counted(self.sampled, 'text')}"
        return [
            f"  bytes      {self.bytes:,} (before compression, without the store's own index)",
            f"  time       {self.encoding_seconds:,.1f} s of encoding on {self.device}, {sampled}",
            "Nothing was written: this was a dry run.",
        ]


class NewIndex:
    """What a plan asks of a store in which nothing is yet."""

    def columns(self) -> dict[str, str]:  # noqa: D102
        return {}

    def count(self) -> int:  # noqa: D102
        return 0

    def refusal(self, document: Any) -> None:  # noqa: ARG002, D102
        return None

    def digests(self, names: Sequence[str]) -> list[bytes | None]:  # noqa: D102
        return [None] * len(names)


class _Sample:
    """Texts drawn evenly from any number."""

    def __init__(self) -> None:
        self._random, self._met = random.Random(_SEED), 0  # noqa: S311
        self.drawn: list[tuple[str, Piece]] = []

    def meet(self, text: str, piece: Piece) -> None:
        """Perhaps take one more."""
        self._met += 1
        if len(self.drawn) < _SAMPLE:
            self.drawn.append((part(text, piece.span), piece))
        elif (place := self._random.randrange(self._met)) < _SAMPLE:
            self.drawn[place] = part(text, piece.span), piece

    def seconds_per_token(self, encoder: Encoder) -> tuple[float, int]:
        """How long the encoder takes, and by how many texts that was found out."""
        self._random.shuffle(self.drawn)
        self._encode(encoder, self.drawn[:_FIRST])  # the first time takes longer
        seconds = self._encode(encoder, self.drawn[:_FIRST])
        timed = min(len(self.drawn), max(_FIRST, int(_FIRST * _SECONDS / max(seconds, 1e-9))))
        if timed > _FIRST:
            seconds = self._encode(encoder, self.drawn[:timed])
        tokens = sum(min(piece.tokens, encoder.max_tokens) for _, piece in self.drawn[:timed])
        return seconds / max(tokens, 1), min(timed, len(self.drawn))

    @staticmethod
    def _encode(encoder: Encoder, drawn: Sequence[tuple[str, Piece]]) -> float:
        ids = [piece.ids for _, piece in drawn if piece.ids is not None]
        texts: list[str] | TokenizedTexts = [text for text, _ in drawn]
        if len(ids) == len(drawn):
            texts = TokenizedTexts(ids, [piece.tokens for _, piece in drawn])
        began = time.perf_counter()
        for _ in encoder.windows([texts]):
            pass
        return time.perf_counter() - began


def estimate(
    store: Any,  # a `Store`, None if there is none yet
    location: str,
    rows: SourceRows,
    max_rejects: float,
    encoder: Encoder,
    settings: IndexSettings,
    options: EncodingOptions,
) -> IndexEstimate:
    """Read and count everything as a run into this store would, or into a new one (None)."""
    if options.engine != "local":
        raise ValueError(f"A dry run measures this machine: leave out engine={options.engine!r}.")
    if store is not None:
        if options.layout.options is None:
            settings = settings.kept_like(store.made_with())
        settings.check_same(store.made_with(), store.location)
    total = 0 if store is None else store.count()
    counts, sample, size = IndexProgress(rows.size, shown=options.progress, label="Counting tokens"), _Sample(), 0
    with _no_rejects(max_rejects, rows) as rejected:
        cutter = Cutter(encoder, settings)
        there: Any = NewIndex() if store is None else store
        plan = IndexPlan(rows.rules, there, rejected, cutter, options.shard)
        plan.columns.update(rows.types)
        with contextlib.closing(plan.seen), counts:
            for shard in plan.shards(rows.rows):
                for entry, piece in () if shard.kept else shard.rows():
                    sample.meet(entry.document.text, piece)
                size += (
                    shard.table(settings.text).nbytes + shard.pieces * settings.dimensions * _BYTES[settings.vectors]
                )
                counts.committed(shard, encoder.max_tokens)
    per_token, sampled = sample.seconds_per_token(encoder) if sample.drawn else (0.0, 0)
    total += counts.documents - counts.replaced
    summary = IndexSummary.of(location, total, counts, plan.unchanged, rejected, encoder)
    seconds = per_token * counts.tokens
    return IndexEstimate(
        **{**vars(summary), "rejects": None, "encoding_seconds": seconds, "seconds": seconds},
        bytes=size,
        sampled=sampled,
        device=str(encoder.model.device),
    )


@contextlib.contextmanager
def _no_rejects(max_rejects: float, rows: SourceRows) -> Iterator[Rejects]:
    """Rejects that are counted and not kept."""
    with tempfile.TemporaryDirectory() as folder:
        rejected = Rejects(None, max_rejects)
        rejected.begin(Path(folder) / "rejects.jsonl", rows)
        with contextlib.closing(rejected):
            yield rejected
