"""The tables of a report."""

from __future__ import annotations

from evenspan.auditing.schema import Audit, Estimate, Representation
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import count, interval, method_name, share, signed
from evenspan.report.html import Markup, element, fold, foreign, joined, table
from evenspan.report.load import Evaluation
from evenspan.report.selection import comparison_of, shown

_FEW_GROUPS = 6


def audit_table(audit: Audit) -> Markup:
    """What is read, and how evenly, before and after."""
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
        rows.append(("verdict", before.verdict, after.verdict if after else ""))
        rows += [
            (name.replace("_", " "), _estimate(before, name), _estimate(after, name) if after else "")
            for name in ("slope", "primacy", "recency", "relative_slope")
        ]
    if audit.slope_change is not None:
        change = audit.slope_change
        rows.append(("change of the slope", "", f"{signed(change.value)} ({interval(change)})"))
    both = any(row[2] for row in rows)
    header = ("figure", "plain", "calibrated") if both else ("figure", "plain")
    known = [row if both else row[:2] for row in rows]
    return element("div", table("Figures of the audit, with 95 % intervals", header, known), class_="card")


def _estimate(found: Representation, name: str) -> str:
    estimate: Estimate = getattr(found, name)
    return f"{signed(estimate.value)} ({interval(estimate)})"


def cut_documents(audit: Audit) -> Markup:
    """The documents that lose most; their names and openings are other people's text."""
    if not audit.truncation.worst:
        return Markup("")
    rows = [
        (
            foreign(one.name),
            count(one.tokens),
            f"{count(one.unread)} ({share(one.unread, one.tokens)})",
            foreign(one.opening),
        )
        for one in audit.truncation.worst
    ]
    inside = table("Documents that lose most", ("document", "tokens", "never read", "begins with"), rows)
    return element("div", inside, class_="card texts")


def evaluation_tables(evaluation: Evaluation, wanted: str | None) -> Markup:
    """The methods of the figures with the significance of each difference, and all others folded."""
    first = shown(evaluation, wanted)
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
    parts = [_methods(caption, first, marks)]
    if len(first) < len(evaluation.results):
        others = f"All {len(evaluation.results)} methods"
        parts.append(fold(others, _methods(others, list(evaluation.results), set())))
    return element("div", *parts, class_="card")


def _methods(caption: str, results: list[EvaluationResult], marks: set[tuple[str, str]]) -> Markup:
    groups = list(results[0].groups)
    groups = groups if len(groups) <= _FEW_GROUPS else []
    positions = results[0].psi is not None
    many = any(one.vectors_per_document > 1 for one in results)
    header = ["method", *groups, "nDCG@10", "Recall@10", *(["HM", "PSI"] if positions else [])]
    rows = []
    for one in results:
        values = {f"nDCG@10 {name}": one.groups[name].ndcg if name in one.groups else None for name in groups}
        values |= {"nDCG@10": one.ndcg, "Recall@10": one.recall}
        values |= {"HM": one.harmonic_mean, "PSI": one.psi} if positions else {}
        cells = [foreign(method_name(one.method))]
        for name, value in values.items():
            text = "–" if value is None else f"{value:.3f}" if name == "PSI" else f"{100 * value:.1f}"
            cells.append(joined([text, "*" if (one.method, name) in marks else ""]))
        rows.append([*cells, *([Markup(f"{one.vectors_per_document:.1f}")] if many else [])])
    return table(caption, [*map(foreign, header), *(["vectors/document"] if many else [])], rows)
