"""Audits, results and sweeps to report on, and a parser for the page."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from evenspan import Calibration
from evenspan.auditing.audit_result import Audit
from evenspan.auditing.schema import (
    Attention,
    CutDocument,
    Estimate,
    LayerAttention,
    Representation,
    Truncation,
    View,
)
from evenspan.evaluation.scores import EvaluationResult, GroupScore, QueryScore, file_name
from evenspan.report import write_report

HOSTILE = (
    '<script>window.hacked = 1; alert(1)</script><img src=x onerror="window.hacked=1">\u202eDAOLNWOD " \' \x00 שלום'
)


SOFT = str(Calibration())


def representation(values=(0.80, 0.72, 0.68, 0.64, 0.60), bias="primacy", degree="strong") -> Representation:
    slope = values[-1] - values[0]
    return Representation(
        documents=80,
        positions=tuple(Estimate(value, (value - 0.02, value + 0.02)) for value in values),
        slope=Estimate(slope, (slope - 0.02, slope + 0.02)),
        primacy=Estimate(0.11, (0.09, 0.13)),
        recency=Estimate(-0.04, (-0.06, -0.02)),
        relative_slope=Estimate(10 * slope, (10 * slope - 0.2, 10 * slope + 0.2)),
        bias=bias,
        degree=degree,
    )


def attention(even: float = 0.0, layers: int = 6) -> Attention:
    of_layers = []
    for layer in range(layers):
        calibrated = bool(even) and layer >= layers // 2
        own = 0.1 + 0.05 * layer
        shares = [(1 - even * calibrated) * 0.6**place + even * calibrated * 0.5 for place in range(4)]
        baskets = tuple((1 - own) * share / sum(shares) for share in shares)
        spread = (own / 3, own / 1.5, own, 1.3 * own, 1.8 * own)
        of_layers.append(LayerAttention(layer, calibrated, spread, own, None, baskets))
    return Attention(128, (80, 80, 71, 12), tuple(of_layers))


def an_audit(**changes) -> Audit:
    worst = (CutDocument("long.txt", 5000, 4490, "Once upon a time, in a paragraph that went on and on"),)
    audit = Audit(
        model="miniature:cls",
        calibration=SOFT,
        truncation=Truncation(100, 40, 80_000, 24_000, 510, 5000, worst),
        plain=View(attention(), representation()),
        calibrated=View(attention(0.9), representation((0.75, 0.73, 0.71, 0.69, 0.68), "primacy", "mild")),
        slope_change=Estimate(0.13, (0.11, 0.15)),
        notes=("Only 80 documents are long enough for five segments.",),
        setting={"sample": 100, "seed": 42, "versions": {"evenspan": "0.1.0"}},
    )
    return replace(audit, **changes)


def a_result(method: str, scores: dict[str, float], **changes) -> EvaluationResult:
    rows = tuple(
        QueryScore("one", f"{name}{turn}", (name,), None, None, {"ndcg@10": value, "recall@10": value})
        for name, mean in scores.items()
        for turn in range(20)
        for value in [mean + (-1) ** turn * random.Random(f"{method}{name}{turn // 2}").uniform(0, 0.05)]
    )
    groups = {
        name: GroupScore(value, value, 20, (value - 0.05, value + 0.05), (value - 0.05, value + 0.05))
        for name, value in scores.items()
    }
    values = list(scores.values())
    mean = len(values) / sum(1 / value for value in values)
    setting = {"model": "miniature:cls", "resamples": 100, "seed": 42, "max_tokens": 512, "data_sha256": "d"}
    result = EvaluationResult(
        benchmark="generated",
        scoring="positions",
        method=method,
        ndcg=sum(values) / len(values),
        recall=0.9,
        groups=groups,
        harmonic_mean=mean,
        psi=1 - min(values) / max(values),
        intervals={},
        more={},
        vectors_per_document=1.0,
        notes=(),
        setting=setting,
        per_query=rows,
    )
    return replace(result, **changes)


def a_sweep() -> list[EvaluationResult]:
    results = [a_result("none", {"beginning": 0.9, "middle": 0.5, "end": 0.4})]
    for layers in ("half", "last"):
        for strength in (0.25, 0.5, 1.0):
            moved = {"beginning": 0.9 - 0.2 * strength, "middle": 0.5 + 0.05 * strength, "end": 0.4 + 0.2 * strength}
            results.append(a_result(str(Calibration("soft", strength, layers)), moved))
    return results


def write_sources(folder: Path, audits=(), results=()) -> Path:
    for place, audit in enumerate(audits):
        audit.write(folder / f"audit{place}" / "audit.json")
    for result in results:
        (folder / "sweep").mkdir(parents=True, exist_ok=True)
        result.write(folder / "sweep" / f"{file_name(result.method)[:80]}.json")
    if results:
        run = {"command": ["evenspan", "sweep", "miniature:cls"], "versions": {"evenspan": "0.1.0", "torch": "2.13"}}
        (folder / "sweep" / "run.json").write_text(json.dumps(run))
    return folder


def hostile_sources(folder: Path) -> Path:
    worst = (CutDocument(HOSTILE, 900, 400, HOSTILE), CutDocument("rtl", 800, 300, "\u202e\u2067 שלום עולם"))
    audit = an_audit(model=HOSTILE, notes=(HOSTILE,), setting={HOSTILE: HOSTILE})
    audit = replace(audit, truncation=replace(audit.truncation, worst=worst))
    scores = {HOSTILE: 0.8, "$x_1$": 0.4}
    results = [a_result("none", scores), a_result(HOSTILE, scores, notes=(HOSTILE,)), a_result(SOFT, scores)]
    results = [replace(each, benchmark=HOSTILE, setting={**each.setting, "model": HOSTILE}) for each in results]
    return write_sources(folder, [audit], results)


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def report(tmp_path: Path, audits=(), results=()) -> tuple[Page, str]:
    source = write_sources(tmp_path / "in", audits, results)
    text = write_report([source], tmp_path / "report.html").read_text(encoding="utf-8")
    return Page(text), text


def rows(tmp_path: Path, name: str) -> list[dict[str, str]]:
    with (tmp_path / "report_figures" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
