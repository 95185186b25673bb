"""The tables of a report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenspan.advising.advice import Advice
from evenspan.auditing.audit_result import Audit
from evenspan.auditing.schema import Estimate, Representation
from evenspan.drawing.figure import Figure
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import count, interval, is_baseline, method_name, share, signed
from evenspan.report.load import Evaluation, Material
from evenspan.report.selection import comparison_of, shown

_FEW_GROUPS = 6
_FEW_ROWS = 40  # a longer table of a figure's data is left to its CSV file


@dataclass(frozen=True)
class Table:
    """Cells of text; the first one of a row is its header."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: str = ""  # `texts` where the last column is running text
    folded: Table | None = None  # a further table that is closed at first


def audit_tables(audit: Audit) -> list[Table]:
    """What is read, how evenly, before and after; and the documents that lose most."""
    cut = audit.truncation
    rows = [
        ("documents", count(cut.documents), ""),
        ("of them cut off", _part(cut.cut, cut.documents), ""),
        ("tokens", count(cut.tokens), ""),
        ("of them never read", _part(cut.unread, cut.tokens), ""),
        ("tokens of text that the model reads", count(cut.room), ""),
    ]
    before, after = (_shape(shape) for shape in audit.representations)
    rows += [(name, figure, after.get(name, "")) for name, figure in before.items()]
    if audit.slope_change is not None:
        rows.append(("change of the slope", "", _with_interval(audit.slope_change)))
    columns = 3 if any(row[2] for row in rows) else 2
    header = ("figure", "plain", "calibrated")[:columns]
    tables = [Table("Figures of the audit, with 95 % intervals", header, [row[:columns] for row in rows])]
    if cut.worst:
        worst = [
            (document.name, count(document.tokens), _part(document.unread, document.tokens), document.opening)
            for document in cut.worst
        ]
        header = ("document", "tokens", "never read", "begins with")
        tables.append(Table("Documents that lose the most text", header, worst, kind="texts"))
    return tables


def _part(part: int, whole: int) -> str:
    return f"{count(part)} ({share(part, whole)})"


def _shape(shape: Representation | None) -> dict[str, str]:
    if shape is None:
        return {}
    names = ("slope", "primacy", "recency", "relative_slope")
    return {"verdict": shape.verdict} | {name.replace("_", " "): _with_interval(getattr(shape, name)) for name in names}


def _with_interval(estimate: Estimate) -> str:
    return f"{signed(estimate.value)} ({interval(*estimate.interval)})"


def evaluation_table(evaluation: Evaluation, audited: str | None) -> Table:
    """The methods of the figures with the significance of each difference, and all others folded."""
    first = shown(evaluation, audited)
    compared = comparison_of(evaluation, first) if len(first) > 1 else None
    marks = {
        (row.method, name)
        for row in (compared.rows if compared else ())
        for name, difference in row.differences.items()
        if difference.significant
    }
    caption = "nDCG@10 and Recall@10 × 100"
    if compared is not None:
        over = f"over {compared.observations}"
        test = (
            f"p < 0.05 {over} after Holm's correction for {compared.corrected} methods"
            if compared.corrected
            else (f"p < 0.05, or a 95 % paired interval without 0, {over}, not corrected for the number of methods")
        )
        caption += f"; * differs from {method_name(first[0].method)} ({test})"
    results = evaluation.results
    folded = _methods(f"All {len(results)} methods", results, set()) if len(first) < len(results) else None
    return _methods(caption, first, marks, folded)


def _methods(
    caption: str, results: Sequence[EvaluationResult], marks: set[tuple[str, str]], folded: Table | None = None
) -> Table:
    groups = list(results[0].groups) if len(results[0].groups) <= _FEW_GROUPS else []
    positions = results[0].psi is not None
    costly = any(result.vectors_per_document != 1 or is_baseline(result.method) for result in results)
    rows = []
    for result in results:
        scores = {f"nDCG@10 {name}": result.groups[name].ndcg if name in result.groups else None for name in groups}
        scores |= {"nDCG@10": result.ndcg, "Recall@10": result.recall}
        scores |= {"HM": result.harmonic_mean, "PSI": result.psi} if positions else {}
        cells = [method_name(result.method)]
        for name, score in scores.items():
            text = "–" if score is None else f"{score:.3f}" if name == "PSI" else f"{100 * score:.1f}"
            cells.append(text + "*" * ((result.method, name) in marks))
        size = result.bytes_per_document
        costs = [f"{result.vectors_per_document:.1f}", "–" if size is None else count(size)]
        rows.append(cells + (costs if costly else []))
    header = ["method", *groups, "nDCG@10", "Recall@10", *["HM", "PSI"] * positions]
    header += ["vectors/document", "bytes/document"] if costly else []
    return Table(caption, header, rows, folded=folded)


def advice_table(advice: Advice) -> Table:
    """What was compared, and what each is the best at."""
    header, *rows = advice.table()
    caption = (
        f"nDCG@10 × 100 by position, vectors and bytes per document in the index, and encoding time; {advice.command}"
    )
    return Table(caption, [*header[:-1], "remarks"], rows, kind="texts")


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
        for path, answer in subject.tunings:
            yield _settings(path, {"calibration": answer.calibration, **answer.setting}, material.runs.get(path.parent))
        for path, advice in subject.advice:
            yield _settings(path, {"command": advice.command, **advice.setting}, material.runs.get(path.parent))
        for evaluation in subject.evaluations:
            for folder in dict.fromkeys(path.parent for path in evaluation.paths):
                pairs = zip(evaluation.paths, evaluation.results, strict=True)
                results = [result for path, result in pairs if path.parent == folder]
                setting = {"methods": [result.method for result in results], **results[0].setting}
                yield _settings(folder, setting, material.runs.get(folder))


def _settings(path: Path, setting: Mapping[str, Any], run: Mapping[str, Any] | None) -> tuple[str, Table]:
    values = {name: value for name, value in (run or {}).items() if name == "command"} | dict(setting)
    if run and "versions" in run:
        values.setdefault("versions", run["versions"])
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
