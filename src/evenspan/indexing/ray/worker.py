"""What runs on Ray's workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc

from evenspan.indexing.columns import with_vectors
from evenspan.indexing.plan import EncodingOptions
from evenspan.indexing.ray.feed import BUSY, IDS, NUMBER, SHARD
from evenspan.indexing.settings import NO_CALIBRATION, IndexSettings
from evenspan.indexing.stores.base import ShardWriter
from evenspan.models.features import TokenizedTexts
from evenspan.models.windows import in_windows

_TRIES = 5  # of a shard


class ShardEncoder:
    """An actor: loads the model once, then encodes and writes shard after shard."""

    def __init__(self, settings: IndexSettings, writer: ShardWriter, handoff: Any, options: EncodingOptions) -> None:
        from evenspan.calibration import Calibration
        from evenspan.encoding import Encoder
        from evenspan.identity import vectors_digest
        from evenspan.models.calibrating import calibrate, uncalibrated
        from evenspan.models.loading import load

        self._writer, self._handoff = writer, handoff
        # All workers load at once, before the first has succeeded.
        self._count("load", _TRIES + (options.workers or 1), "while they loaded the model")
        self._keep_text, self._kept_as = settings.text, settings.vectors
        model = load(settings.model, **({} if options.device is None else {"device": options.device}))
        if vectors_digest(model) != settings.weights:
            raise RuntimeError(f"{settings.model!r} has other weights on this machine than where the run was started.")
        if settings.calibration == NO_CALIBRATION:
            self._plain = uncalibrated(model)
            self._plain.__enter__()
        else:
            calibrate(model, Calibration.parse(settings.calibration))
        self._encoder = Encoder(model, prompt=options.document_prompt, batch_tokens=options.batch_tokens)
        self._handoff.succeed.remote("load")

    def __call__(self, block: Any) -> Any:
        """Encode and write one shard; returns what the driver needs to commit it."""
        (packed,) = block[SHARD]
        if not len(packed.as_buffer()):  # committed before Ray read it again
            return pyarrow.Table.from_pylist([])
        block = pyarrow.ipc.open_stream(packed.as_buffer()).read_all()
        (number,) = block[NUMBER].unique().to_pylist()
        names = block["id"]
        self._count(number, _TRIES, f"with the documents from {names[0].as_py()!r} to {names[-1].as_py()!r}")
        busy = self._encoder.busy_seconds
        vectors = np.concatenate(list(self._encoder.windows(windows_of(block))))
        dropped = {NUMBER, IDS, *([] if self._keep_text else ["text"])}.intersection(block.column_names)
        written = self._writer.write(number, with_vectors(block.drop_columns(list(dropped)), vectors, self._kept_as))
        return pyarrow.Table.from_pylist([asdict(written) | {BUSY: self._encoder.busy_seconds - busy}])

    def _count(self, work: int | str, tries: int, when: str) -> None:
        """Give up on what ends every worker that begins with it: Ray itself would go on for ever."""
        import ray

        if ray.get(self._handoff.begin.remote(work)) > tries:
            raise RuntimeError(f"{tries} workers died {when}, perhaps out of memory.")


def windows_of(block: Any) -> Iterator[list[str] | TokenizedTexts]:
    """What the rows of a shard are encoded from: the ids that the driver counted, or texts where the model takes only those."""
    if IDS not in block.column_names:
        return in_windows(block["text"].to_pylist())
    ids = [own.values.to_numpy() for own in block[IDS]]
    return (TokenizedTexts(window, list(map(len, window))) for window in in_windows(ids))
