"""What an evaluation found, and everything needed to repeat it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenspan.evaluation.benchmark import POSITIONS, Scoring
from evenspan.evaluation.cache import write_whole
from evenspan.evaluation.statistics import Interval

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class GroupScore:
    """Scores of the queries of one group, with 95 % bootstrap intervals where there are enough of them.

    `ndcg` and `recall` are at 10; `scores` has every cut that was asked for.
    """

    ndcg: float
    recall: float
    count: int
    ndcg_interval: Interval | None = None
    recall_interval: Interval | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class QueryScore:
    """Scores of one query, and the document that it is about; queries on one document are resampled together."""

    collection: str
    query: str
    groups: tuple[str, ...]
    position: float | None
    length: int | None
    scores: Mapping[str, float]
    unit: str | None = None


@dataclass(frozen=True)
class EvaluationResult:
    """Scores of one method on one benchmark, between 0 and 1.

    Attributes:
        benchmark: its name.
        scoring: by whose rules its figures are made, see `Benchmark.scoring`.
        method: `"none"`, a calibration's string, or a baseline with its settings.
        ndcg: nDCG@10 over all queries (for NanoBEIR the mean over its sets).
        recall: Recall@10 likewise.
        groups: the same for each position group, bin or set.
        harmonic_mean: HM of the groups' nDCG@10; None without position groups.
        psi: position sensitivity index, 1 − min / max of the groups' nDCG@10.
        intervals: 95 % bootstrap intervals over documents of `ndcg`, `recall`, `harmonic_mean` and `psi`, for PosIR also of
            `psi_Q1` to `psi_Q4`.
        more: scores at other cuts; `psi_floor`, the PSI that shuffled positions give on average, and `psi_p_value`, in how
            many shuffles it is as high as it is; and what a benchmark's own scoring adds (PosIR's length buckets).
        vectors_per_document: what a document costs in the index; 0 for BM25.
        bytes_per_document: the same in bytes, vectors in float32; None in results of earlier versions.
        notes: what to know before trusting a figure.
        setting: model, revision, versions, prompts, seed.
        per_query: the scores of each query.
    """

    benchmark: str
    scoring: Scoring
    method: str
    ndcg: float
    recall: float
    groups: Mapping[str, GroupScore]
    harmonic_mean: float | None
    psi: float | None
    intervals: Mapping[str, Interval | None]
    more: Mapping[str, float]
    vectors_per_document: float
    notes: tuple[str, ...]
    setting: Mapping[str, Any]
    per_query: tuple[QueryScore, ...] = field(repr=False, default=())
    bytes_per_document: float | None = None

    @property
    def ranking_score(self) -> float:
        """What methods are ranked by: HM, or nDCG@10 where a benchmark has no positions."""
        return self.ndcg if self.harmonic_mean is None else self.harmonic_mean

    def to_dict(self, per_query: bool = True) -> dict[str, Any]:
        """All fields as JSON-ready values."""
        values = asdict(self)
        if not per_query:
            del values["per_query"]
        return values

    def to_json(self, per_query: bool = True) -> str:
        """The same result always gives the same text: nothing in it depends on when or how fast it was computed."""
        return json.dumps(self.to_dict(per_query), indent=2, sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EvaluationResult:
        """The inverse of `to_dict` and `to_json`: groups come in the order of the benchmark, whatever order they have here."""
        per_query = tuple(QueryScore(**_tuples(row)) for row in values.get("per_query", ()))
        first = dict.fromkeys(row.collection for row in per_query) if values["scoring"] == "average" else POSITIONS
        names = sorted(values["groups"], key=lambda name: _place(name, tuple(first)))
        groups = {name: GroupScore(**_tuples(values["groups"][name])) for name in names}
        intervals = _tuples(values["intervals"])
        known = {
            "groups": groups,
            "per_query": per_query,
            "intervals": intervals,
            "method": current_name(values["method"]),
        }
        return cls(**{**_tuples(values), **known})

    @classmethod
    def read(cls, path: str | Path) -> EvaluationResult:
        """A result from a file that `write` made."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))

    def write(self, path: str | Path) -> None:
        """Write the result as JSON, whole or not at all."""
        write_whole(Path(path), (self.to_json() + "\n").encode())

    def to_frame(self) -> pandas.DataFrame:
        """The scores of each query as a table."""
        import pandas

        rows = [{**vars(row), "groups": "|".join(row.groups), **row.scores} for row in self.per_query]
        return pandas.DataFrame(rows).drop(columns="scores", errors="ignore")


def current_name(method: str) -> str:
    """A method's name today: what earlier versions called late chunking is the average of all tokens."""
    return re.sub(r"^late-chunking(,window=\d+)$", r"token-average\1", method)


def file_name(method: str) -> str:
    """A method's name as the name of a file."""
    return re.sub(r"[^\w.,=+-]", "_", method)


def remove_results(folder: Path, methods: Iterable[str]) -> None:
    """Remove the results of some methods: what a former run has left must not stand beside what this one finds."""
    for method in methods:
        path = folder / f"{file_name(method)}.json"
        with suppress(OSError, ValueError, TypeError, LookupError, RecursionError):  # then it is no result
            if json.loads(path.read_text(encoding="utf-8"))["method"] == method:
                path.unlink()


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples: intervals, groups and notes come back as lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _place(name: str, first: Sequence[str]) -> tuple[int, list[tuple[int, str]]]:
    """Where a group stands: JSON has them by the alphabet, which puts the end before the middle and bin 10 before bin 2."""
    parts = [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
    return first.index(name) if name in first else len(first), parts
