"""What advice says: for people, and for files that `--calibration` and `evenspan report` read."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evenspan.auditing.parsing import parse
from evenspan.calibration import Calibration
from evenspan.encoding import Truncated
from evenspan.evaluation.cache import write_whole
from evenspan.evaluation.scores import EvaluationResult, file_name, remove_results
from evenspan.formatting import Cells, count, markdown_table, share, text_table

KIND = "advice"  # what a file of advice says it is


@dataclass(frozen=True)
class AdviceRow:
    """One way to put documents into an index, and what it gives and costs; scores are between 0 and 1.

    Attributes:
        name: for people.
        method: its name in `evaluate`.
        positions: nDCG@10 by position.
        vectors: of a document, on average.
        bytes: of a document in the index, with float32 vectors.
        cost: encoding time, as a multiple of that of whole documents without calibration, measured on a few.
        unread: the share of the text that is cut off at the model's limit.
        calibrated: whether documents or chunks are.
        marks: what it is the best at, among rows that no remark rules out.
        remark: what keeps it from being chosen.
    """

    name: str
    method: str
    positions: Mapping[str, float]
    ndcg: float
    harmonic_mean: float
    psi: float
    vectors: float
    bytes: float
    cost: float
    unread: float
    calibrated: bool = False
    marks: tuple[str, ...] = ()
    remark: str | None = None

    def cells(self) -> list[str]:
        """As the table has them."""
        scores = [f"{100 * score:.1f}" for score in (*self.positions.values(), self.ndcg, self.harmonic_mean)]
        costs = [f"{self.vectors:.1f}", count(self.bytes), f"{self.cost:.1f}×", share(self.unread, 1)]
        return [self.name, *scores, f"{self.psi:.3f}", *costs, "; ".join([*self.marks, *filter(None, [self.remark])])]


@dataclass(frozen=True)
class Advice:
    """Whether to calibrate and whether to chunk, with the figures.

    Attributes:
        model: its name.
        benchmark: the queries and documents it is based on.
        truncation: what the model never reads of whole documents.
        rows: what was compared; empty if the texts are too short.
        sentence: the answer.
        calibration: the setting of the choice; None: leave it off.
        command: builds the index that was chosen.
        budget: maximum average number of vectors per document, as asked for.
        bytes: maximum average bytes per document, likewise.
        notes: what to know before trusting a figure.
        setting: everything needed to reproduce it.
        results: what `evaluate` gives for each row.
    """

    model: str
    benchmark: str
    truncation: Truncated
    rows: tuple[AdviceRow, ...]
    sentence: str
    calibration: Calibration | None
    command: str
    budget: float | None = None
    bytes: float | None = None
    notes: tuple[str, ...] = ()
    setting: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[EvaluationResult, ...] = field(repr=False, default=())

    def __str__(self) -> str:
        return self._around(text_table)

    def to_markdown(self) -> str:
        """The same with a Markdown table."""
        return self._around(markdown_table)

    def _around(self, written: Callable[[Cells, Collection[int]], str]) -> str:
        cells = self.table()
        table = written(cells, (0, len(cells[0]) - 1))
        parts = [
            str(self.truncation),
            *([f"{self.benchmark}, {self.model}\n{table}"] if self.rows else []),
            self.sentence,
        ]
        return "\n\n".join([*parts, *(["\n".join(self.notes)] if self.notes else []), self.command])

    def table(self) -> list[list[str]]:
        """The header and every row."""
        positions: Sequence[str] = list(self.rows[0].positions) if self.rows else []
        header = ["index", *positions, "nDCG@10", "HM", "PSI", "vectors", "bytes", "cost", "cut off", ""]
        return [header, *(row.cells() for row in self.rows)]

    def to_dict(self) -> dict[str, Any]:
        """All fields but the results, as JSON-ready values."""
        own = {name: value for name, value in vars(self).items() if name != "results"}
        plain = {"rows": [asdict(row) for row in self.rows], "truncation": asdict(self.truncation)}
        return {
            "kind": KIND,
            **own,
            **plain,
            "calibration": None if self.calibration is None else str(self.calibration),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Advice:
        """The inverse of `to_dict`; raises a `ValueError` if it is not that."""
        try:
            texts = {name: parse(str, values[name]) for name in ("model", "benchmark", "sentence", "command")}
            limits = {name: parse(float | None, values[name]) for name in ("budget", "bytes")}
            calibration = values["calibration"]
            return cls(
                **texts,
                **limits,
                truncation=parse(Truncated, values["truncation"]),
                rows=parse(tuple[AdviceRow, ...], values["rows"]),
                calibration=None if calibration is None else Calibration.parse(calibration),
                notes=parse(tuple[str, ...], values["notes"]),
                setting=parse(Mapping[str, Any], values["setting"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"This advice is incomplete or damaged: {type(error).__name__}: {error}.") from error

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def write(self, folder: str | Path) -> None:
        """Write `advice.json`, which `--calibration` takes, and the result of every row, for `evenspan report`."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        with suppress(OSError, ValueError, RecursionError):  # there is no former advice
            former = Advice.from_dict(json.loads((target / "advice.json").read_text(encoding="utf-8")))
            remove_results(target, [row.method for row in former.rows])
        for result in self.results:
            result.write(target / f"{file_name(result.method)}.json")
        (target / "advice.txt").write_text(f"{self}\n", encoding="utf-8")
        write_whole(target / "advice.json", f"{self.to_json()}\n".encode())
