"""Rows that were skipped: counted, written down with their place, and too many of them stop a run."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import IO

from evenspan.corpus.documents import Place, kind_of
from evenspan.indexing.reading import SourceRows

_FEW = 1000  # rows before which a share says nothing


class Rejects:
    """A file with one JSON object for each row that was skipped; it is made when there is something to write."""

    def __init__(self, path: str | os.PathLike[str] | None, max_share: float) -> None:
        if not 0.0 <= max_share <= 1.0:
            raise ValueError(f"The share of rows that may be rejected must lie in [0, 1], not {max_share}.")
        self._given, self.max_share = path, max_share
        self.reasons: Counter[str] = Counter()
        self.rows = 0
        self._file: IO[str] | None = None

    def begin(self, default: Path, source: SourceRows) -> Rejects:
        """Settle where the file goes, which must be none of the source's."""
        self.path = default if self._given is None else Path(self._given)
        source.refuse(self.path)
        self.path.unlink(missing_ok=True)  # each run reads the whole source, and so its rejects are whole, too
        return self

    def add(self, place: Place, reason: str, name: str | None = None) -> None:
        """Write one row down."""
        self.reasons[kind_of(reason)] += 1
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("w", encoding="utf-8")
        entry = {"file": place.file, "line": place.line, "reason": reason} | ({} if name is None else {"id": name})
        self._file.write(json.dumps(entry) + "\n")

    def seen(self, rows: int = 1, *, last: bool = False) -> None:
        """Count rows of any kind, and stop the run if too many of them were bad."""
        self.rows += rows
        bad = sum(self.reasons.values())
        if (last or self.rows >= _FEW) and bad > self.max_share * self.rows:
            self.close()
            raise RuntimeError(
                f"{self}, more than the share of {self.max_share} that is allowed. See {self.path}; what is indexed "
                "stays. Mend the rows, or allow more rejects."
            )

    def __str__(self) -> str:
        kinds = ", ".join(f"{reason}: {count:,}" for reason, count in self.reasons.most_common(3))
        return f"{sum(self.reasons.values()):,} of {self.rows:,} rows could not be used ({kinds})"

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
