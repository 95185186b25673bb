"""The paper's tables, run again: our figures beside the paper's, row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.benchmarks import load_benchmark
from evenspan.evaluation.benchmarks.posir import LANGUAGES
from evenspan.evaluation.evaluating import Evaluator, require_evaluation
from evenspan.evaluation.methods import Calibrated, Method, Plain, SegmentAverage
from evenspan.evaluation.reproduction import ReproducedRow, Reproduction
from evenspan.evaluation.scores import EvaluationResult, file_name
from evenspan.evaluation.scoring import BUCKETS

TABLES = ("fineweb-posq", "posir", "nanobeir")
# The paper's names for languages; its x→en averages leave English and Chinese out.
_NAMES = ("Arabic", "Chinese", "German", "English", "French", "Italian", "Korean", "Portuguese", "Russian", "Spanish")
LANGUAGE_NAMES = dict(zip(LANGUAGES, _NAMES, strict=True))
NOT_AVERAGED = {"x-x": (), "x-en": ("English", "Chinese")}
TINY_DOCUMENTS = 200
# Our names of PosIR's figures by language, and the paper's.
_PRINTED = {"PSI": "PSI", "nDCG@10": "overall", **{f"nDCG@10 {bucket}": bucket for bucket in BUCKETS}}


def reproduce(
    table: str,
    model: SentenceTransformer,
    *,
    paper_model: str | None = None,
    tiny: bool = False,
    output: str | Path | None = None,
    path: str | Path | None = None,
    languages: Sequence[str] | None = None,
    settings: Sequence[str] = ("x-x", "x-en"),
    segment_average: SegmentAverage | None = None,
    report: Callable[[str], None] | None = None,
    progress: bool = True,
    **options: Any,
) -> Reproduction:
    """Run one of the paper's tables for a model.

    Args:
        table: `"fineweb-posq"`, `"posir"` or `"nanobeir"`.
        model: one of the paper's models, or any other with `paper_model`.
        paper_model: the paper's name of the model to compare with; by default found by the model's own name.
        tiny: a first look on a part of the data; figures are not those of the paper.
        output: folder for results; those that are there are not computed again.
        path: a local copy of the data set in the hub's own layout.
        languages: PosIR: only these languages, e.g. `["deu-Latn"]`.
        settings: PosIR: `"x-x"`, `"x-en"` or both.
        segment_average: the segment-average baseline, with its embedder.
        report: called with a line of text before each evaluation.
        progress: whether to show bars.
        **options: as in `evaluate` (`cache`, `batch_size`, …).
    """
    if table not in TABLES:
        raise ValueError(f"There is no table {table!r}; the paper has {', '.join(TABLES)}.")
    require_evaluation("Reproducing the paper's tables", "chonkie", "datasets", "pyarrow")
    name = paper_model or _paper_model(model)
    known = list(dict.fromkeys(row["model"] for row in paper_table(table.replace("-", "_"))))
    if name not in known:
        raise ValueError(f"The paper's table {table!r} has no model {name!r}; it has {', '.join(known)}.")
    folder = None if output is None else Path(output)
    evaluator = Evaluator.of(model, **options)
    load = partial(load_benchmark, path=path)
    runner = _Runner(evaluator, load, name, tiny, folder, segment_average or SegmentAverage(), report, progress)
    if table == "fineweb-posq":
        rows = _fineweb(runner)
    elif table == "nanobeir":
        rows = _nanobeir(runner)
    else:
        rows = _posir(runner, languages or LANGUAGES, settings)
    notes = ("a first look on a part of the data: the paper's figures are of all of it",) if tiny else ()
    return Reproduction(table, name, tuple(rows), notes)


def paper_table(name: str) -> list[dict[str, Any]]:
    """The rows of a table of the paper: `fineweb_posq`, `posir`, `posir_by_language` or `nanobeir`."""
    text = (files("evenspan.evaluation") / "paper" / f"{name}.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


@dataclass(frozen=True)
class _Runner:
    """Evaluates once: a result of the very same run that is in the output folder is read instead."""

    evaluator: Evaluator
    load: Callable[..., Benchmark]
    paper_model: str
    tiny: bool
    output: Path | None
    segment_average: SegmentAverage
    report: Callable[[str], None] | None
    progress: bool

    def run(self, benchmark: Benchmark, method: Method) -> EvaluationResult:
        file = None if self.output is None else self.output / benchmark.name / f"{file_name(method.name)}.json"
        if file is not None and file.exists():
            stored = EvaluationResult.read(file)
            if stored.setting == json.loads(json.dumps(self.evaluator.setting(benchmark))):
                return stored
        if self.report is not None:
            self.report(f"{benchmark.name}: {method.name}")
        result = self.evaluator.run(benchmark, method, progress=self.progress)
        if file is not None:
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
        """The paper's rows of the model."""
        return [row for row in paper_table(table) if row["model"] == self.paper_model]


def _fineweb(runner: _Runner) -> Iterator[ReproducedRow]:
    benchmark = runner.load("fineweb-posq", tiny=runner.tiny)
    names = {"begin": "beginning", "mid": "middle", "end": "end"}
    for row in runner.rows("fineweb_posq"):
        method = runner.method(row)
        result = runner.run(benchmark, method)
        ours = {short: 100 * result.groups[group].ndcg for short, group in names.items()}
        ours |= {"HM": 100 * (result.harmonic_mean or 0.0), "PSI": result.psi or 0.0}
        yield ReproducedRow({"method": method.name}, ours, {name: row[name] for name in ours})


def _nanobeir(runner: _Runner) -> Iterator[ReproducedRow]:
    rows = runner.rows("nanobeir")
    sets = ["ArguAna", "NFCorpus"] if runner.tiny else None
    for documents in ("original", "shuffled"):
        benchmark = runner.load("nanobeir", shuffled=documents == "shuffled", sets=sets)
        for kind in dict.fromkeys(row["method"] for row in rows):
            result = runner.run(benchmark, runner.method({"method": kind}))
            ours = {name: (group.ndcg, group.recall) for name, group in result.groups.items()}
            if not runner.tiny:
                ours["Avg"] = (result.ndcg, result.recall)
            for dataset, (ndcg, recall) in ours.items():
                matching = _matching(rows, dataset=dataset, documents=documents, method=kind)
                paper = {row["metric"]: row["value"] for row in matching}
                labels = {"documents": documents, "method": kind, "set": dataset}
                yield ReproducedRow(labels, {"nDCG@10": 100 * ndcg, "Recall@10": 100 * recall}, paper)


def _posir(runner: _Runner, languages: Sequence[str], settings: Sequence[str]) -> Iterator[ReproducedRow]:
    for wrong in (language for language in languages if language not in LANGUAGE_NAMES):
        raise ValueError(f"PosIR has no language {wrong!r}; there are {', '.join(LANGUAGE_NAMES)}.")
    for wrong in (setting for setting in settings if setting not in NOT_AVERAGED):
        raise ValueError(f"PosIR is run as x-x or x-en, not {wrong!r}.")
    summary, by_language = runner.rows("posir"), runner.rows("posir_by_language")
    kinds = list(dict.fromkeys(row["method"] for row in summary))
    limit = TINY_DOCUMENTS if runner.tiny else None
    for setting in settings:
        figures: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        for language in languages:
            name = LANGUAGE_NAMES[language]
            if name in NOT_AVERAGED[setting]:
                continue
            searched = "eng-Latn" if setting == "x-en" else language
            benchmark = runner.load("posir", language=language, corpus_language=searched, limit=limit)
            for kind in kinds:
                labels = {"setting": setting, "method": kind, "language": name}
                figures[kind].append(_posir_figures(runner.run(benchmark, runner.method({"method": kind}))))
                paper = next(_matching(by_language, **labels), {})
                theirs = {ours: paper[printed] for ours, printed in _PRINTED.items() if printed in paper}
                yield ReproducedRow(labels, figures[kind][-1], theirs)
        for kind, of_languages in figures.items():
            average = {
                key: float(np.mean([of_language[key] for of_language in of_languages if key in of_language]))
                for key in dict.fromkeys(key for of_language in of_languages for key in of_language)
            }
            whole = len(languages) == len(LANGUAGES)
            paper = next(_matching(summary, setting=setting, method=kind), {}) if whole else {}
            theirs = {key: paper[key] for key in average if key in paper}
            yield ReproducedRow({"setting": setting, "method": kind, "language": "average"}, average, theirs)


def _posir_figures(result: EvaluationResult) -> dict[str, float]:
    figures = {"nDCG@10": 100 * result.ndcg, "PSI": result.psi or 0.0}
    for bucket in BUCKETS:
        if f"psi_{bucket}" in result.more:
            figures[f"PSI_{bucket}"] = result.more[f"psi_{bucket}"]
            figures[f"nDCG@10 {bucket}"] = 100 * result.more[f"ndcg_{bucket}"]
    return figures


def _matching(rows: Sequence[dict[str, Any]], **wanted: str) -> Iterator[dict[str, Any]]:
    return (row for row in rows if all(row[name] == value for name, value in wanted.items()))


def _paper_model(model: SentenceTransformer) -> str:
    name = Path(str(getattr(model.config, "_name_or_path", "") or "")).name
    return {"bge-m3": "bge-m3-dense"}.get(name, name)
