"""The tables of a report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenspan.auditing.audit_result import Audit
from evenspan.auditing.schema import Estimate, Representation
from evenspan.drawing.figure import Figure
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import count, interval, method_name, share, signed
from evenspan.report.load import Evaluation, Material
from evenspan.report.selection import comparison_of, shown

_FEW_GROUPS = 6
_FEW_ROWS = 40  # a longer table of a figure's data is left to its CSV file


@dataclass(frozen=True)
class Table:
    """Cells of text; the first one of a row is its header.

    Attributes:
        caption: what it shows.
        header: of its columns.
        rows: its cells.
        kind: `texts` where the last column is running text.
        folded: a further table that is closed at first.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: str = ""
    folded: Table | None = None


def audit_tables(audit: Audit) -> list[Table]:
    """What is read, how evenly, before and after; and the documents that lose most."""
    cut = audit.truncation
    rows = [
        ("documents", count(cut.documents), ""),
        ("of them cut", f"{count(cut.cut)} ({share(cut.cut, cut.documents)})", ""),
        ("tokens", count(cut.tokens), ""),
        ("of them never read", f"{count(cut.unread)} ({share(cut.unread, cut.tokens)})", ""),
        ("tokens of a document that are read", count(cut.room), ""),
    ]
    before = audit.plain.representation
    after = audit.calibrated.representation if audit.calibrated else None
    if before is not None:
        pairs = zip(_shape(before), _shape(after) if after else [""] * 5, strict=True)
        names = ("verdict", "slope", "primacy", "recency", "relative slope")
        rows += [(name, *pair) for name, pair in zip(names, pairs, strict=True)]
    if audit.slope_change is not None:
        rows.append(("change of the slope", "", _with_interval(audit.slope_change)))
    columns = 3 if any(row[2] for row in rows) else 2
    figures = Table(
        "Figures of the audit, with 95 % intervals",
        ("figure", "plain", "calibrated")[:columns],
        [row[:columns] for row in rows],
    )
    worst = [
        (
            document.name,
            count(document.tokens),
            f"{count(document.unread)} ({share(document.unread, document.tokens)})",
            document.opening,
        )
        for document in cut.worst
    ]
    header = ("document", "tokens", "never read", "begins with")
    return [figures, *([Table("Documents that lose most", header, worst, kind="texts")] if worst else [])]


def _shape(shape: Representation) -> list[str]:
    estimates = (shape.slope, shape.primacy, shape.recency, shape.relative_slope)
    return [shape.verdict, *map(_with_interval, estimates)]


def _with_interval(estimate: Estimate) -> str:
    return f"{signed(estimate.value)} ({interval(*estimate.interval)})"


def evaluation_table(evaluation: Evaluation, audited: str | None) -> Table:
    """The methods of the figures with the significance of each difference, and all others folded."""
    first = shown(evaluation, audited)
    compared = comparison_of(first) if len(first) > 1 else None
    marks = {
        (row.method, name)
        for row in (compared.rows if compared else ())
        for name, difference in row.differences.items()
        if difference.significant
    }
    caption = "nDCG@10 and Recall@10 × 100"
    if compared is not None:
        caption += f"; * differs from {method_name(first[0].method)} (p < 0.05, or a 95 % paired interval without 0)"
    everything = None
    if len(first) < len(evaluation.results):
        everything = _methods(f"All {len(evaluation.results)} methods", evaluation.results, set())
    return _methods(caption, first, marks, everything)


def _methods(
    caption: str, results: Sequence[EvaluationResult], marks: set[tuple[str, str]], folded: Table | None = None
) -> Table:
    groups = list(results[0].groups) if len(results[0].groups) <= _FEW_GROUPS else []
    positions = results[0].psi is not None
    many = any(result.vectors_per_document > 1 for result in results)
    rows = []
    for result in results:
        scores = {f"nDCG@10 {name}": result.groups[name].ndcg if name in result.groups else None for name in groups}
        scores |= {"nDCG@10": result.ndcg, "Recall@10": result.recall}
        scores |= {"HM": result.harmonic_mean, "PSI": result.psi} if positions else {}
        cells = [method_name(result.method)]
        for name, score in scores.items():
            text = "–" if score is None else f"{score:.3f}" if name == "PSI" else f"{100 * score:.1f}"
            cells.append(text + "*" * ((result.method, name) in marks))
        rows.append([*cells, *([f"{result.vectors_per_document:.1f}"] if many else [])])
    header = ["method", *groups, "nDCG@10", "Recall@10", *(["HM", "PSI"] if positions else [])]
    return Table(caption, header + ["vectors/document"] * many, rows, folded=folded)


def data_table(figure: Figure) -> Table | None:
    """The data of a figure, if they are few."""
    if len(figure.rows) > _FEW_ROWS:
        return None
    return Table(f"Data of “{figure.title}”", figure.columns, [list(map(_cell, row)) for row in figure.rows])


def _cell(value: str | float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def settings_tables(material: Material) -> Iterator[tuple[str, Table]]:
    """Everything needed to repeat what is shown: the settings and versions of every source, with its name."""
    for subject in material.subjects:
        for path, audit in subject.audits:
            yield _settings(path, {"calibration": audit.calibration, **audit.setting}, material.runs.get(path.parent))
        for evaluation in subject.evaluations:
            for folder in dict.fromkeys(path.parent for path in evaluation.paths):
                pairs = zip(evaluation.paths, evaluation.results, strict=True)
                results = [result for path, result in pairs if path.parent == folder]
                setting = {"methods": [result.method for result in results], **results[0].setting}
                yield _settings(folder, setting, material.runs.get(folder))


def _settings(path: Path, setting: Mapping[str, Any], run: Mapping[str, Any] | None) -> tuple[str, Table]:
    run = run or {}
    values = {**({"command": run["command"]} if "command" in run else {}), **setting}
    if "versions" not in values and "versions" in run:
        values["versions"] = run["versions"]
    name = "/".join(path.parts[-2:])  # where it lies on a machine is nobody's business
    rows = [(key.replace("_", " "), _written(value)) for key, value in values.items()]
    return name, Table(f"Settings of {name}", ("setting", "value"), rows)


def _written(value: object) -> str:
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return " ".join(value) if value and value[0] == "evenspan" else "; ".join(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_written(inner)}" for name, inner in value.items()) or "–"
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
