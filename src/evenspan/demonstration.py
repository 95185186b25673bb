"""A miniature retriever on a generated benchmark, before and after calibration."""

from __future__ import annotations

import re
import statistics
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.core.baskets import PoolingToken
from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel, save_image
from evenspan.encoding import Encoder
from evenspan.errors import require_extra
from evenspan.evaluation import Comparison, EvaluationResult, compare, evaluate, load_benchmark
from evenspan.evaluation.benchmark import POSITIONS, Benchmark
from evenspan.models.calibrating import calibrated
from evenspan.models.miniatures import miniature
from evenspan.progress import ProgressBar

_TIMINGS = 3


@dataclass(frozen=True)
class Example:
    """One question whose evidence is at the end, and the rank of its document."""

    question: str
    evidence: str
    rank_before: int
    rank_after: int


@dataclass(frozen=True)
class Demonstration:
    """What the demo found; prints as the demo does."""

    pooling: PoolingToken
    calibration: Calibration
    before: EvaluationResult
    after: EvaluationResult
    time_ratio: float
    example: Example

    @cached_property
    def comparison(self) -> Comparison:
        """The figures side by side."""
        return compare([self.before, self.after])

    def __str__(self) -> str:
        lines = [str(self.comparison), f"encoding time, calibrated / plain: {self.time_ratio:.2f}", ""]
        lines.append("nDCG@10 by where the answer is")
        for name in POSITIONS:
            for group, label, result in ((name, "plain", self.before), ("", "calibrated", self.after)):
                value = 100 * result.groups[name].ndcg
                lines.append(f"  {group:<10} {label:<11}{'█' * round(value / 2)} {value:.1f}")
        example = self.example
        lines += [
            "",
            f"Of the questions whose answer is at the end, the one that gained most: “{example.question}”",
            f"  evidence: {example.evidence}",
            f"  rank of the document: {example.rank_before} before, {example.rank_after} after calibration",
        ]
        return "\n".join(lines)

    def plot(self, path: str | Path) -> None:
        """Draw nDCG@10 by position, before and after."""
        require_extra("report", "A figure", "matplotlib")
        sides = (("plain", self.before, palette.PLAIN, -0.2), ("calibrated", self.after, palette.CALIBRATED, 0.2))

        def draw(axes: Any) -> None:
            for name, result, colour, shift in sides:
                scores = [100 * result.groups[group].ndcg for group in POSITIONS]
                places = [place + shift for place in range(3)]
                axes.bar(places, scores, 0.38, label=f"{name} (PSI {result.psi:.3f})", color=colour)
            axes.set(xticks=range(3), xticklabels=POSITIONS, ylabel="nDCG@10", xlabel="where the answer is")
            axes.grid(visible=False, axis="x")
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

        title = "nDCG@10 by position of the answer"
        save_image(Figure("demo", title, "", "", (Panel("", draw),), (), ()), path)


def demonstrate(
    pooling: PoolingToken = "cls",
    calibration: Calibration = Calibration(),
    *,
    documents: int = 36,
    tokens: int = 600,
    seed: int = 0,
    progress: bool = True,
) -> Demonstration:
    """Evaluate a miniature on the generated benchmark before and after calibration."""
    require_extra("demo", "The demo", "ir_measures", "scipy", "pandas")
    benchmark = load_benchmark("generated", documents=documents, tokens=tokens, seed=seed)  # refuses bad sizes at once
    with ProgressBar("Loading the miniature retriever", 1, unit="model", shown=progress) as bar:
        model = miniature(pooling)
        bar.advance()

    def evaluated(setting: Calibration | None, kind: str) -> EvaluationResult:
        name = f"Encoding {documents} documents, {kind}"
        return evaluate(model, benchmark, setting, cuts=(documents,), seed=seed, progress=progress and name)

    before, after = evaluated(None, "plain"), evaluated(calibration, "calibrated")
    with ProgressBar("Timing plain against calibrated", _TIMINGS, unit="passes", shown=progress) as bar:
        ratio = _time_ratio(model, benchmark, calibration, bar)
    return Demonstration(pooling, calibration, before, after, ratio, _example(benchmark, before, after))


def _time_ratio(model: SentenceTransformer, benchmark: Benchmark, calibration: Calibration, bar: ProgressBar) -> float:
    """Calibrated over plain encoding time, in alternating passes over a few documents."""
    texts, encoder = list(benchmark.collections[0].corpus.values())[:8], Encoder(model)

    def seconds() -> float:
        start = time.perf_counter()
        encoder.encode(texts)
        return time.perf_counter() - start

    ratios = []
    for _ in range(_TIMINGS):
        plain = seconds()
        with calibrated(model, calibration):
            encoder.encode(texts[:1])  # a first batch is verified, which takes longer
            ratios.append(seconds() / plain)
        bar.advance()
    return statistics.median(ratios)


def _example(benchmark: Benchmark, before: EvaluationResult, after: EvaluationResult) -> Example:
    """The question with its answer at the end whose document rises the most."""
    collection = benchmark.collections[-1]  # the one whose answers stand at the end
    measure = f"ndcg@{len(collection.corpus)}"
    # With one relevant document, nDCG at full depth gives its rank away.
    old, new = (
        {
            row.query: round(2 ** (1 / row.scores[measure]) - 1)
            for row in result.per_query
            if row.collection == collection.name
        }
        for result in (before, after)
    )
    best = max(collection.queries, key=lambda query: (old[query.id] / new[query.id], query.id))
    (document,) = collection.relevance[best.id]
    place = re.search(r"[A-Z]\w+(?= \w)", best.text.partition(" ")[2])  # the name in the question is in its evidence
    paragraph = collection.corpus[document].rsplit("\n\n", 1)[1]
    sentences = re.split(r"(?<=\.) (?=[A-Z])", paragraph)
    facts = [sentence for sentence in sentences if place and place[0] in sentence]
    evidence = facts[int(best.id.rpartition("-")[2])]  # questions are numbered as the facts they ask for
    return Example(best.text, evidence, old[best.id], new[best.id])
