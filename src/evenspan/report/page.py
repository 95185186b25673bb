"""The page: words on top, then figures, tables, and everything needed to repeat it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from evenspan.drawing.figure import Figure, inline
from evenspan.formatting import audit_name, listed, model_name
from evenspan.report.findings import findings
from evenspan.report.html import Markup, element, fold, foreign, joined, table
from evenspan.report.load import Material, Subject
from evenspan.report.settings import settings
from evenspan.report.style import STYLE
from evenspan.report.tables import audit_table, cut_documents, evaluation_tables
from evenspan.report.tiles import tiles

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_FEW_ROWS = 40  # a longer table of a figure's data is left to its CSV file

Figures = Mapping[tuple[str, int, int], Sequence[Figure]]  # ("audit" or "evaluation", subject, place) to its figures


def page(material: Material, figures: Figures, folder: str) -> str:
    """The whole report as HTML; `folder` is where its figures are kept."""
    names = [model_name(subject.model) for subject in material.subjects]
    title = f"How evenly does it read? {', '.join(names)}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    opening = element(
        "header",
        element("p", "Position bias report", class_="eyebrow"),
        element("h1", "How evenly does ", joined_names(names), " read?"),
        element("p", _scope(material), class_="lead"),
    )
    sections = [_summary(subject, len(names) > 1) for subject in material.subjects]
    summary = element("section", element("h2", "Summary", id="summary"), *sections, aria_labelledby="summary")
    body = [_section(subject, place, figures) for place, subject in enumerate(material.subjects)]
    closing = element(
        "footer",
        element(
            "p", "Every figure lies beside this page as SVG and PNG, with its data as CSV, in ", _code(folder), "."
        ),
    )
    main = element("main", summary, *body, settings(material))
    return f'<!DOCTYPE html>\n<html lang="en">{head}{element("body", opening, main, closing)}</html>\n'


def joined_names(names: Sequence[str]) -> Markup:
    """Names of models, each kept to itself."""
    return joined(part for place, name in enumerate(names) for part in ([", "] if place else []) + [foreign(name)])


def _unbroken(text: str) -> str:
    """No line ends between a number and its percent sign."""
    return re.sub(r"(?<=\d) %", "\u00a0%", text)


def _code(text: str) -> Markup:
    return element("code", foreign(text))


def _scope(material: Material) -> str:
    audits = sum(len(subject.audits) for subject in material.subjects)
    results = sum(len(one.results) for subject in material.subjects for one in subject.evaluations)
    parts = [f"{audits} audit{'s' * (audits != 1)}"] if audits else []
    parts += [f"{results} evaluation{'s' * (results != 1)}"] if results else []
    return (
        f"Made from {listed(parts)}. Dense retrievers often see the beginning of a document better than the rest, and stop "
        "reading at a maximum length. This page shows how much of that applies here, and what calibration changes."
    )


def _summary(subject: Subject, named: bool) -> Markup:
    at_a_glance = [
        element(
            "div",
            element("dt", foreign(tile.label)),
            element("dd", foreign(tile.value), class_="value"),
            element("dd", foreign(tile.note), class_="note"),
            class_=f"tile {tile.tone}",
        )
        for tile in tiles(subject)
    ]
    said = [
        element(
            "li", element("strong", foreign(_unbroken(one.lead))), " ", foreign(_unbroken(one.text)), class_=one.tone
        )
        for one in findings(subject)
    ]
    heading = [element("h3", foreign(model_name(subject.model)))] if named else []
    numbers = [element("dl", *at_a_glance, class_="tiles")] if at_a_glance else []
    return element("div", *heading, *numbers, element("ul", *said, class_="findings"), class_="card")


def _section(subject: Subject, number: int, figures: Figures) -> Markup:
    parts = []
    for place, (path, audit) in enumerate(subject.audits):
        heading = "What the audit shows" + (f": {audit_name(path)}" if len(subject.audits) > 1 else "")
        parts.append(element("h3", foreign(heading)))
        parts += [
            _figures(figures["audit", number, place]),
            audit_table(audit),
            cut_documents(audit),
            _notes(audit.notes),
        ]
    wanted = next((audit.calibration for _, audit in subject.audits if audit.calibration), None)
    for place, evaluation in enumerate(subject.evaluations):
        parts.append(element("h3", "How well answers are found: ", foreign(evaluation.benchmark)))
        notes = tuple(dict.fromkeys(note for result in evaluation.results for note in result.notes))
        parts += [_figures(figures["evaluation", number, place]), evaluation_tables(evaluation, wanted), _notes(notes)]
    label = f"model-{number}"
    return element(
        "section", element("h2", foreign(model_name(subject.model)), id=label), *parts, aria_labelledby=label
    )


def _notes(notes: Sequence[str]) -> Markup:
    return element("ul", *(element("li", foreign(note)) for note in notes), class_="notes") if notes else Markup("")


def _figures(figures: Sequence[Figure]) -> Markup:
    single = [figure.key for figure in figures if len(figure.panels) == 1]
    alone = single[-1] if len(single) % 2 else None  # without a neighbour it takes the whole width
    inside = [_figure(figure, "alone" if figure.key == alone else "") for figure in figures]
    return element("div", *inside, class_="figures") if inside else Markup("")


def _figure(figure: Figure, kind: str) -> Markup:
    panels = []
    for place, (panel, drawing) in enumerate(zip(figure.panels, inline(figure), strict=True)):
        label, more = f"{figure.key}-{place}-title", f"{figure.key}-{place}-description"
        name = f"{figure.title}: {panel.title}" if panel.title else figure.title
        inside = element("title", name, id=label), element("desc", figure.description, id=more), Markup(drawing.content)
        image = element("svg", *inside, viewBox=drawing.box, role="img", aria_labelledby=label, aria_describedby=more)
        heading = [element("p", foreign(panel.title), class_="panel-title")] if panel.title else []
        panels.append(element("div", *heading, image, class_="panel"))
    rows = [tuple(_cell(cell) for cell in row) for row in figure.rows]
    data = [table(f"Data of “{figure.title}”", figure.columns, rows)] if len(rows) <= _FEW_ROWS else []
    words = [
        element("p", foreign(_unbroken(figure.description))),
        *data,
        element("p", "File: ", _code(f"{figure.key}.csv")),
    ]
    caption = element("figcaption", foreign(_unbroken(figure.caption)), fold("In words and numbers", *words))
    kind = kind or ("wide" if len(panels) > 1 else "single")
    return element(
        "figure",
        element("h4", figure.title),
        element("div", *panels, class_="panels"),
        caption,
        class_=kind,
        id=figure.key,
    )


def _cell(value: str | float | None) -> Markup:
    if value is None:
        return Markup("–")
    return foreign(f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value))
