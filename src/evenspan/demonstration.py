"""The bias and its cure in two minutes: a miniature retriever, a generated benchmark, before and after."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.core.baskets import PoolingToken
from evenspan.drawing import palette
from evenspan.drawing.figure import Figure, Panel, save_image
from evenspan.errors import require_extra
from evenspan.evaluation import Comparison, EvaluationResult, compare, evaluate, load_benchmark
from evenspan.evaluation.benchmark import POSITIONS, Benchmark
from evenspan.models.calibrating import calibrated
from evenspan.models.miniatures import miniature
from evenspan.progress import ProgressBar

_TIMINGS = 3


@dataclass(frozen=True)
class Example:
    """One question whose evidence stands at the end, and the rank of its document."""

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

    @property
    def comparison(self) -> Comparison:
        """The figures side by side."""
        return compare([self.before, self.after])

    def __str__(self) -> str:
        example = self.example
        return "\n".join(
            [
                str(self.comparison),
                f"encoding time, calibrated / plain: {self.time_ratio:.2f}",
                "",
                *self._bars(),
                "",
                f"Of the questions whose answer stands at the end, the one that gained most: “{example.question}”",
                f"  evidence: {example.evidence}",
                f"  rank of the document: {example.rank_before} before, {example.rank_after} after calibration",
            ]
        )

    def plot(self, path: str | Path) -> None:
        """Draw nDCG@10 by position, before and after."""
        require_extra("report", "A figure", "matplotlib")
        sides = (("plain", self.before, palette.PLAIN), ("calibrated", self.after, palette.CALIBRATED))
        scores = {name: [100 * result.groups[group].ndcg for group in POSITIONS] for name, result, _ in sides}

        def draw(axes: Any) -> None:
            for shift, (name, result, colour) in zip((-0.2, 0.2), sides, strict=True):
                label = f"{name} (PSI {result.psi:.3f})"
                axes.bar([place + shift for place in range(3)], scores[name], 0.38, label=label, color=colour)
            axes.set(xticks=range(3), xticklabels=POSITIONS, ylabel="nDCG@10", xlabel="where the answer stands")
            axes.grid(visible=False, axis="x")
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)

        title = "nDCG@10 by position of the answer"
        save_image(Figure("demo", title, "", "", (Panel("", draw),), (), ()), path)

    def _bars(self) -> list[str]:
        lines = ["nDCG@10 by where the answer stands"]
        for name in POSITIONS:
            for label, result in (("plain", self.before), ("calibrated", self.after)):
                value = 100 * result.groups[name].ndcg
                lines.append(
                    f"  {name if label == 'plain' else '':<10} {label:<11}{'█' * round(value / 2)} {value:.1f}"
                )
        return lines


def demonstrate(
    pooling: PoolingToken = "cls",
    calibration: Calibration = Calibration(),
    *,
    documents: int = 36,
    tokens: int = 600,
    seed: int = 0,
    progress: bool = True,
    report: Callable[[str], None] | None = None,
) -> Demonstration:
    """Ask a miniature the generated benchmark before and after calibration."""
    require_extra("demo", "The demo", "ir_measures", "scipy", "pandas")
    say = report or (lambda _: None)
    benchmark = load_benchmark("generated", documents=documents, tokens=tokens, seed=seed)  # refuses bad sizes at once
    say(f"Loading miniature:{pooling}; {documents} documents of about {tokens} tokens are generated …")
    model = miniature(pooling)
    say("Every question is asked three times: with its answer at the beginning, in the middle and at the end.")
    results = [
        evaluate(model, benchmark, setting, cuts=(documents,), seed=seed, progress=progress)
        for setting in (None, calibration)
    ]
    with ProgressBar("Timing plain and calibrated encoding", _TIMINGS, unit="passes", shown=progress) as bar:
        ratio = _time_ratio(model, benchmark, calibration, bar)
    return Demonstration(pooling, calibration, results[0], results[1], ratio, _example(benchmark, *results))


def _time_ratio(model: SentenceTransformer, benchmark: Benchmark, calibration: Calibration, bar: ProgressBar) -> float:
    """Calibrated over plain encoding time, in alternating passes over a few documents."""
    texts = list(benchmark.collections[0].corpus.values())[:8]

    def seconds() -> float:
        start = time.perf_counter()
        model.encode_document(texts)
        return time.perf_counter() - start

    ratios = []
    for _ in range(_TIMINGS):
        plain = seconds()
        with calibrated(model, calibration):
            model.encode_document(texts[:1])  # a first batch is verified, which takes longer
            ratios.append(seconds() / plain)
        bar.advance()
    return statistics.median(ratios)


def _example(benchmark: Benchmark, before: EvaluationResult, after: EvaluationResult) -> Example:
    """The question with its answer at the end whose document rises the most."""
    collection = next(candidate for candidate in benchmark.collections if candidate.name == "end")
    ranks = [
        {
            row.query: _rank(row.scores[f"ndcg@{len(collection.corpus)}"])
            for row in result.per_query
            if row.collection == "end"
        }
        for result in (before, after)
    ]
    best = max(collection.queries, key=lambda query: (ranks[0][query.id] / ranks[1][query.id], query.id))
    (document,) = collection.relevance[best.id]
    place = re.search(r"[A-Z]\w+(?= \w)", best.text.partition(" ")[2])  # the name in the question is in its evidence
    paragraph = collection.corpus[document].rsplit("\n\n", 1)[1]
    sentences = re.split(r"(?<=\.) (?=[A-Z])", paragraph)
    facts = [sentence for sentence in sentences if place and place[0] in sentence]
    evidence = facts[int(best.id.rpartition("-")[2])]  # questions are numbered as the facts they ask for
    return Example(best.text, evidence, ranks[0][best.id], ranks[1][best.id])


def _rank(ndcg: float) -> int:
    """With one relevant document, nDCG at full depth gives its rank away."""
    return round(2 ** (1 / ndcg) - 1)
