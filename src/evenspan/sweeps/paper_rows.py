"""The rows of the paper's tables, made again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenspan.calibration import Calibration
from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.benchmarks.posir import LANGUAGES
from evenspan.evaluation.comparing import compare
from evenspan.evaluation.evaluating import Evaluator
from evenspan.evaluation.methods import Calibrated, Method, Plain, SegmentAverage
from evenspan.evaluation.scores import EvaluationResult, file_name
from evenspan.evaluation.scoring import BUCKETS
from evenspan.evaluation.statistics import Interval
from evenspan.models.inspecting import inspect_model
from evenspan.sweeps.paper import TEMPLATE, matching, paper_table
from evenspan.sweeps.reproduction import Change, ReproducedRow
from evenspan.sweeps.sweeping import encode_together

# The paper's names for languages; its x→en averages leave English and Chinese out.
_NAMES = ("Arabic", "Chinese", "German", "English", "French", "Italian", "Korean", "Portuguese", "Russian", "Spanish")
LANGUAGE_NAMES = dict(zip(LANGUAGES, _NAMES, strict=True))
NOT_AVERAGED = {"x-x": (), "x-en": ("English", "Chinese")}
TINY_DOCUMENTS = 200
# Our names of PosIR's figures by language, and the paper's.
_PRINTED = {"PSI": "PSI", "nDCG@10": "overall", **{f"nDCG@10 {bucket}": bucket for bucket in BUCKETS}}


@dataclass(frozen=True)
class TableRunner:
    """Evaluates once: a result of the very same run that is in the output folder is read instead."""

    evaluator: Evaluator
    load: Callable[..., Benchmark]
    paper_model: str | None  # its name there, if it is there
    tiny: bool
    output: Path | None
    segment_average: SegmentAverage
    report: Callable[[str], None] | None
    progress: bool

    def run(self, benchmark: Benchmark, methods: Sequence[Method]) -> list[EvaluationResult]:
        """Of each method; the calibrations that are not there yet are encoded together."""
        stored = {method.name: self._stored(benchmark, method) for method in methods}
        missing = {
            method.calibration: method
            for method in methods
            if isinstance(method, Calibrated) and stored[method.name] is None
        }
        if len(missing) > 1:
            encoder = self.evaluator.encoder
            encode_together(encoder, benchmark, dict(missing), detached=False, progress=self.progress)
        return [stored[method.name] or self._evaluate(benchmark, method) for method in methods]

    def _file(self, benchmark: Benchmark, method: Method) -> Path | None:
        return None if self.output is None else self.output / benchmark.name / f"{file_name(method.name)}.json"

    def _stored(self, benchmark: Benchmark, method: Method) -> EvaluationResult | None:
        file = self._file(benchmark, method)
        if file is None or not file.exists():
            return None
        stored = EvaluationResult.read(file)
        same = stored.setting == json.loads(json.dumps(self.evaluator.setting(benchmark)))
        return stored if same and all(row.unit is not None for row in stored.per_query) else None

    def _evaluate(self, benchmark: Benchmark, method: Method) -> EvaluationResult:
        if self.report is not None:
            self.report(f"{benchmark.name}: {method.name}")
        result = self.evaluator.run(benchmark, method, progress=self.progress)
        if (file := self._file(benchmark, method)) is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            result.write(file)
        return result

    def method(self, row: Mapping[str, Any]) -> Method:
        """The method of a row of the paper; where a row names no setting it is the paper's default one."""
        if row["method"] == "none":
            return Plain()
        if row["method"] == "segment-average":
            return self.segment_average
        given = {name: row[name] for name in ("strength", "layers", "basket_size") if name in row}
        return Calibrated(Calibration(row["method"], **given))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The paper's rows of the model, or of one that the paper has, without figures; none that the model cannot take."""
        wanted, model = self.paper_model or TEMPLATE, self.evaluator.encoder.model
        methods = {row["method"]: self.method(row) for row in paper_table(table)}
        taken = {
            name: not isinstance(method, Calibrated) or inspect_model(model, method.calibration).calibratable
            for name, method in methods.items()
        }
        return [row for row in paper_table(table) if row["model"] == wanted and taken[row["method"]]]

    def paper(self, row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
        """The paper's figures of a row, by our names."""
        return {ours: row[printed] for ours, printed in names.items() if printed in row} if self.paper_model else {}


def _changes(results: Sequence[EvaluationResult], names: Mapping[str, str]) -> list[dict[str, Change]]:
    """How far figures of each result lie from those of the first, which is plain; `names` are those of a comparison."""
    changes = []
    for row in compare(results, corrected=True).rows:
        of_row = {}
        for name, compared in names.items():
            if (by := row.differences.get(compared)) is not None:
                scale = 1 if name.startswith("PSI") else 100
                ends = None if by.interval is None else (scale * by.interval[0], scale * by.interval[1])
                of_row[name] = Change(scale * by.value, ends, by.significant)
        changes.append(of_row)
    return changes


def _scaled(intervals: Mapping[str, Interval | None]) -> dict[str, Interval]:
    """Intervals in the units of a table: all but PSI × 100."""
    scales = {name: 1 if name.startswith("PSI") else 100 for name in intervals}
    return {name: (scales[name] * ends[0], scales[name] * ends[1]) for name, ends in intervals.items() if ends}


def fineweb_rows(runner: TableRunner) -> Iterator[ReproducedRow]:
    """FineWeb-PosQ: a row for each setting."""
    benchmark = runner.load("fineweb-posq", tiny=runner.tiny)
    names = {"begin": "beginning", "mid": "middle", "end": "end"}
    rows = runner.rows("fineweb_posq")
    methods = [runner.method(row) for row in rows]
    results = runner.run(benchmark, methods)
    compared = {short: f"nDCG@10 {group}" for short, group in names.items()} | {"HM": "HM", "PSI": "PSI"}
    for row, method, result, changes in zip(rows, methods, results, _changes(results, compared), strict=True):
        ours = {short: 100 * result.groups[group].ndcg for short, group in names.items()}
        ours |= {"HM": 100 * (result.harmonic_mean or 0.0), "PSI": result.psi or 0.0}
        intervals = {short: result.groups[group].ndcg_interval for short, group in names.items()}
        intervals |= {"HM": result.intervals["harmonic_mean"], "PSI": result.intervals["psi"]}
        paper = runner.paper(row, {name: name for name in ours})
        yield ReproducedRow({"method": method.name}, ours, paper, _scaled(intervals), changes)


def nanobeir_rows(runner: TableRunner) -> Iterator[ReproducedRow]:
    """NanoBEIR: a row for each set and method, documents as they are and shuffled, and their averages."""
    rows = runner.rows("nanobeir")
    sets = ["ArguAna", "NFCorpus"] if runner.tiny else None
    kinds = list(dict.fromkeys(row["method"] for row in rows))
    for documents in ("original", "shuffled"):
        benchmark = runner.load("nanobeir", shuffled=documents == "shuffled", sets=sets)
        results = runner.run(benchmark, [runner.method({"method": kind}) for kind in kinds])
        names = list(results[0].groups) + ([] if runner.tiny else ["Avg"])
        for dataset in names:
            average = dataset == "Avg"
            compared = {name: name if average else f"{name} {dataset}" for name in ("nDCG@10", "Recall@10")}
            for kind, result, changes in zip(kinds, results, _changes(results, compared), strict=True):
                group = result.groups.get(dataset)
                ends = {"nDCG@10": group.ndcg_interval, "Recall@10": group.recall_interval} if group else {}
                ends |= (
                    {"nDCG@10": result.intervals["ndcg"], "Recall@10": result.intervals["recall"]} if average else {}
                )
                ours = {"nDCG@10": 100 * (group or result).ndcg, "Recall@10": 100 * (group or result).recall}
                printed = matching(rows, dataset=dataset, documents=documents, method=kind)
                paper = {row["metric"]: row["value"] for row in printed} if runner.paper_model else {}
                labels = {"documents": documents, "method": kind, "set": dataset}
                yield ReproducedRow(labels, ours, paper, _scaled(ends), changes)


def posir_rows(runner: TableRunner, languages: Sequence[str], settings: Sequence[str]) -> Iterator[ReproducedRow]:
    """PosIR: a row for each language and method, and their macro-averages."""
    for wrong in (language for language in languages if language not in LANGUAGE_NAMES):
        raise ValueError(f"PosIR has no language {wrong!r}. Available: {', '.join(LANGUAGE_NAMES)}.")
    for wrong in (setting for setting in settings if setting not in NOT_AVERAGED):
        raise ValueError(f"PosIR is run as x-x or x-en, not {wrong!r}.")
    summary, by_language = runner.rows("posir"), runner.rows("posir_by_language")
    kinds = list(dict.fromkeys(row["method"] for row in summary))
    compared = {"nDCG@10": "nDCG@10", "PSI": "PSI", **{f"PSI_{bucket}": f"PSI({bucket})" for bucket in BUCKETS}}
    for setting in settings:
        made: dict[str, list[ReproducedRow]] = {kind: [] for kind in kinds}
        for language in (language for language in languages if LANGUAGE_NAMES[language] not in NOT_AVERAGED[setting]):
            searched, limit = "eng-Latn" if setting == "x-en" else language, TINY_DOCUMENTS if runner.tiny else None
            benchmark = runner.load("posir", language=language, corpus_language=searched, limit=limit)
            results = runner.run(benchmark, [runner.method({"method": kind}) for kind in kinds])
            for kind, result, changes in zip(kinds, results, _changes(results, compared), strict=True):
                labels = {"setting": setting, "method": kind, "language": LANGUAGE_NAMES[language]}
                paper = runner.paper(next(matching(by_language, **labels), {}), _PRINTED)
                made[kind].append(ReproducedRow(labels, *_posir_figures(result, paper), changes))
        yield from (row for place in range(len(made[kinds[0]])) for row in (made[kind][place] for kind in kinds))
        for kind in kinds:
            labels = {"setting": setting, "method": kind, "language": "average"}
            theirs: dict[str, float] = {}
            if len(languages) == len(LANGUAGES):
                row = next(matching(summary, setting=setting, method=kind), {})
                theirs = runner.paper(
                    next(matching(by_language, setting=setting, method=kind, language="Avg"), {}), _PRINTED
                )
                theirs |= runner.paper(row, {name: name for name in row if name.startswith(("PSI_", "nDCG"))})
            yield _averaged(labels, made[kind], theirs)


def _averaged(labels: Mapping[str, str], rows: Sequence[ReproducedRow], paper: Mapping[str, float]) -> ReproducedRow:
    """The macro-average of the rows of languages."""
    names = list(dict.fromkeys(name for row in rows for name in row.ours))
    ours = {name: float(np.mean([row.ours[name] for row in rows if name in row.ours])) for name in names}
    ends = {name: _mean_ends([row.intervals.get(name) for row in rows]) for name in names}
    changes = {}
    for name in names:
        each = [row.changes[name] for row in rows if name in row.changes]
        if each:  # a star would need scores of queries
            moved = float(np.mean([change.value for change in each]))
            changes[name] = Change(moved, _mean_ends([change.interval for change in each]), significant=False)
    known = {name: value for name, value in paper.items() if name in ours}
    return ReproducedRow(labels, ours, known, {name: both for name, both in ends.items() if both}, changes)


def _mean_ends(intervals: Sequence[Interval | None]) -> Interval | None:
    """The interval between the means of ends, if there are all of them."""
    known = [ends for ends in intervals if ends is not None]
    if len(known) < len(intervals):
        return None
    low, high = np.mean(known, axis=0).tolist()
    return low, high


def _posir_figures(
    result: EvaluationResult, paper: dict[str, float]
) -> tuple[dict[str, float], dict[str, float], dict[str, Interval]]:
    """Our figures, the paper's, and our intervals."""
    figures = {"nDCG@10": 100 * result.ndcg, "PSI": result.psi or 0.0}
    intervals = {"nDCG@10": result.intervals["ndcg"], "PSI": result.intervals["psi"]}
    for bucket in (bucket for bucket in BUCKETS if f"psi_{bucket}" in result.more):
        figures[f"PSI_{bucket}"] = result.more[f"psi_{bucket}"]
        figures[f"nDCG@10 {bucket}"] = 100 * result.more[f"ndcg_{bucket}"]
        intervals[f"PSI_{bucket}"] = result.intervals.get(f"psi_{bucket}")
        intervals[f"nDCG@10 {bucket}"] = result.intervals.get(f"ndcg_{bucket}")
    return figures, paper, _scaled(intervals)
