"""The page: words on top, then figures, tables, and everything needed to repeat it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from evenspan.auditing.findings import Finding
from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, inline
from evenspan.formatting import listed, model_name, printable
from evenspan.report.figures.advice import advice_figures
from evenspan.report.figures.audit import audit_figures
from evenspan.report.figures.evaluation import evaluation_figures
from evenspan.report.figures.models import model_figures
from evenspan.report.findings import Tile, subject_findings, tiles
from evenspan.report.load import Material, Subject
from evenspan.report.tables import Table, advice_table, audit_tables, data_table, evaluation_table, settings_tables

_PLURALS = {"audit": "audits", "evaluation": "evaluations", "tuning": "tunings", "piece of advice": "pieces of advice"}


@dataclass(frozen=True)
class Part:
    """What one audit or evaluation shows; `name` tells several apart."""

    heading: str
    name: str
    figures: Sequence[tuple[Figure, str]]  # and how much of the width it takes
    tables: Sequence[Table]
    notes: Sequence[str]


@dataclass(frozen=True)
class Section:
    """What is known about one model."""

    model: str
    tiles: Sequence[Tile]
    findings: Sequence[Finding]
    parts: Sequence[Part]


def sections(material: Material) -> list[Section]:
    """Everything that a report shows, a section for each model."""
    return [
        Section(model_name(subject.model), tiles(subject), subject_findings(subject), _parts(subject, f"m{number}"))
        for number, subject in enumerate(material.subjects, 1)
    ]


def together(material: Material) -> list[tuple[Figure, str]]:
    """What shows several models side by side, with its width."""
    return _placed(model_figures(material))


def page(material: Material, content: Sequence[Section], folder: str, shared: Sequence[tuple[Figure, str]] = ()) -> str:
    """The whole report as HTML; `folder` is where its figures are kept, `shared` those of several models."""
    environment = Environment(loader=PackageLoader("evenspan.report"), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.globals |= {"inline": inline, "data_table": data_table}
    # No line ends between a number and its percent sign.
    environment.filters["unbroken"] = lambda text: re.sub(r"(?<=\d) %", "\u00a0%", text)
    text = environment.get_template("page.html").render(
        sections=content,
        shared=shared,
        made_from=_made_from(material),
        settings=list(settings_tables(material)),
        folder=folder,
        light=palette.variables(dark=False),
        dark=palette.variables(dark=True),
    )
    return printable(f"{text}\n")


def _made_from(material: Material) -> str:
    audits = sum(len(subject.audits) for subject in material.subjects)
    pieces = sum(len(subject.advice) for subject in material.subjects)
    results = sum(len(evaluation.results) for subject in material.subjects for evaluation in subject.evaluations)
    tunings = sum(len(subject.tunings) for subject in material.subjects)
    counts = {"audit": audits, "evaluation": results, "tuning": tunings, "piece of advice": pieces}
    return listed([f"{number} {name if number == 1 else _PLURALS[name]}" for name, number in counts.items() if number])


def _parts(subject: Subject, key: str) -> list[Part]:
    parts = []
    for place, (path, audit) in enumerate(subject.audits, 1):
        figures = _placed(audit_figures(audit, f"{key}-audit{place}"))
        parts.append(Part("What the audit shows", subject.audit_name(path), figures, audit_tables(audit), audit.notes))
    for place, (_, advice) in enumerate(subject.advice, 1):
        figures, tables = (
            _placed(advice_figures(advice, f"{key}-advice{place}")),
            [advice_table(advice)] * bool(advice.rows),
        )
        remarks = [str(advice.truncation), *advice.notes]
        parts.append(Part("Whether to calibrate, and whether to chunk", advice.benchmark, figures, tables, remarks))
    audited = subject.audited_calibration
    for place, evaluation in enumerate(subject.evaluations, 1):
        figures = _placed(evaluation_figures(evaluation, f"{key}-evaluation{place}", audited))
        notes = tuple(dict.fromkeys(note for result in evaluation.results for note in result.notes))
        tables = [evaluation_table(evaluation, audited)]
        parts.append(Part("How well answers are found", evaluation.benchmark, figures, tables, notes))
    return parts


def _placed(figures: Sequence[Figure]) -> list[tuple[Figure, str]]:
    single = [figure.key for figure in figures if len(figure.panels) == 1]
    widths = dict.fromkeys(single, "single")
    if len(single) % 2:
        widths[single[-1]] = "alone"  # without a neighbour it takes the whole width
    return [(figure, widths.get(figure.key, "wide")) for figure in figures]
