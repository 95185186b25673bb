"""Everything needed to repeat what a report shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenspan.report.html import Markup, element, fold, foreign, table
from evenspan.report.load import Material


def settings(material: Material) -> Markup:
    """The settings and versions of every source, each folded."""
    parts = []
    for subject in material.subjects:
        for path, audit in subject.audits:
            parts.append(_setting(path, {"calibration": audit.calibration, **audit.setting}, material))
        for evaluation in subject.evaluations:
            folders = dict.fromkeys(path.parent for path in evaluation.paths)
            for folder in folders:
                place = next(place for place, path in enumerate(evaluation.paths) if path.parent == folder)
                methods = [
                    one.method
                    for one, path in zip(evaluation.results, evaluation.paths, strict=True)
                    if path.parent == folder
                ]
                setting = {"methods": methods, **evaluation.results[place].setting}
                parts.append(_setting(evaluation.paths[place], setting, material, shown=folder))
    heading = element("h2", "Settings and versions", id="settings")
    return element("section", heading, element("div", *parts, class_="card"), aria_labelledby="settings")


def _setting(path: Path, setting: Mapping[str, Any], material: Material, shown: Path | None = None) -> Markup:
    run = material.runs.get(path.parent, {})
    values = {**({"command": run["command"]} if "command" in run else {}), **setting}
    if "versions" not in values and "versions" in run:
        values["versions"] = run["versions"]
    rows = [
        (foreign(name.replace("_", " ")), element("span", foreign(_written(value)), class_="code"))
        for name, value in values.items()
    ]
    name = "/".join((shown or path).parts[-2:])  # where it lies on a machine is nobody's business
    inside = table(f"Settings of {name}", ("setting", "value"), rows)
    return fold(foreign(name), element("div", inside, class_="pairs"))


def _written(value: object) -> str:
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return " ".join(value) if value and value[0] == "evenspan" else "; ".join(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_written(one)}" for name, one in value.items()) or "–"
    return (
        "–"
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, default=str)
    )
