"""The paper's tables, run again: our figures beside the paper's, row by row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.evaluation.benchmark import Benchmark
from evenspan.evaluation.benchmarks import load_benchmark
from evenspan.evaluation.benchmarks.posir import LANGUAGES
from evenspan.evaluation.evaluating import evaluate, require_evaluation, run_setting
from evenspan.evaluation.methods import Calibrated, Method, Plain, SegmentAverage
from evenspan.evaluation.reproduction import ReproducedRow, Reproduction
from evenspan.evaluation.scores import EvaluationResult, file_name
from evenspan.identity import ModelIdentity

TABLES = ("fineweb-posq", "posir", "nanobeir")
# The paper's names for languages; its x→en averages leave English and Chinese out.
LANGUAGE_NAMES = dict(
    zip(
        LANGUAGES,
        ("Arabic", "Chinese", "German", "English", "French", "Italian", "Korean", "Portuguese", "Russian", "Spanish"),
        strict=True,
    )
)
NOT_AVERAGED = {"x-x": (), "x-en": ("English", "Chinese")}
TINY_DOCUMENTS = 200


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
        **options: passed to `evaluate` (`cache`, `batch_size`, …).
    """
    if table not in TABLES:
        raise ValueError(f"There is no table {table!r}; the paper has {', '.join(TABLES)}.")
    require_evaluation("Reproducing the paper's tables", "chonkie", "datasets", "pyarrow")
    name = paper_model or _paper_model(model)
    if name not in _known_models(table):
        raise ValueError(
            f"The paper's table {table!r} has no model {name!r}; it has {', '.join(_known_models(table))}."
        )
    segments = segment_average or SegmentAverage()
    folder = None if output is None else Path(output)
    runner = _Runner(model, folder, segments, report, options, ModelIdentity.of(model))
    if table == "fineweb-posq":
        rows = list(_fineweb(runner, name, tiny, path))
    elif table == "nanobeir":
        rows = list(_nanobeir(runner, name, tiny, path))
    else:
        rows = list(_posir(runner, name, tiny, path, languages or LANGUAGES, settings))
    notes = ["a first look on a part of the data: the paper's figures are of all of it"] if tiny else []
    return Reproduction(table, name, tuple(rows), tuple(notes))


def paper_table(name: str) -> list[dict[str, Any]]:
    """The rows of a table of the paper: `fineweb_posq`, `posir`, `posir_by_language` or `nanobeir`."""
    text = (files("evenspan.evaluation") / "paper" / f"{name}.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


@dataclass(frozen=True)
class _Runner:
    """Evaluates once: a result of the very same run that is in the output folder is read instead."""

    model: SentenceTransformer
    output: Path | None
    segment_average: SegmentAverage
    report: Callable[[str], None] | None
    options: Mapping[str, Any]
    identity: ModelIdentity

    def run(self, benchmark: Benchmark, method: Method) -> EvaluationResult:
        file = None if self.output is None else self.output / benchmark.name / f"{file_name(method.name)}.json"
        if file is not None and file.exists():
            options = {name: value for name, value in self.options.items() if name not in ("cache", "progress")}
            wanted = run_setting(self.model, benchmark, identity=self.identity, **options)
            stored = EvaluationResult.read(file)
            if stored.setting == json.loads(json.dumps(wanted)):
                return stored
        if self.report is not None:
            self.report(f"{benchmark.name}: {method.name}")
        result = evaluate(self.model, benchmark, method=method, **self.options)
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


def _fineweb(runner: _Runner, model: str, tiny: bool, path: str | Path | None) -> Iterator[ReproducedRow]:
    benchmark = load_benchmark("fineweb-posq", tiny=tiny, path=path)
    names = {"begin": "beginning", "mid": "middle", "end": "end"}
    for row in _rows_of("fineweb_posq", model):
        method = runner.method(row)
        result = runner.run(benchmark, method)
        ours = {short: 100 * result.groups[group].ndcg for short, group in names.items()}
        ours |= {"HM": 100 * (result.harmonic_mean or 0.0), "PSI": result.psi or 0.0}
        yield ReproducedRow({"method": method.name}, ours, {name: row[name] for name in ours})


def _nanobeir(runner: _Runner, model: str, tiny: bool, path: str | Path | None) -> Iterator[ReproducedRow]:
    rows = _rows_of("nanobeir", model)
    sets = ["ArguAna", "NFCorpus"] if tiny else None
    for shuffled in (False, True):
        documents = "shuffled" if shuffled else "original"
        benchmark = load_benchmark("nanobeir", shuffled=shuffled, sets=sets, path=path)
        for kind in dict.fromkeys(row["method"] for row in rows):
            result = runner.run(benchmark, runner.method({"method": kind}))
            ours = {name: (group.ndcg, group.recall) for name, group in result.groups.items()}
            if not tiny:
                ours["Avg"] = (result.ndcg, result.recall)
            for dataset, (ndcg, recall) in ours.items():
                paper = {
                    row["metric"]: row["value"]
                    for row in rows
                    if (row["dataset"], row["documents"], row["method"]) == (dataset, documents, kind)
                }
                labels = {"documents": documents, "method": kind, "set": dataset}
                yield ReproducedRow(labels, {"nDCG@10": 100 * ndcg, "Recall@10": 100 * recall}, paper)


def _posir(
    runner: _Runner, model: str, tiny: bool, path: str | Path | None, languages: Sequence[str], settings: Sequence[str]
) -> Iterator[ReproducedRow]:
    summary, by_language = _rows_of("posir", model), _rows_of("posir_by_language", model)
    kinds = list(dict.fromkeys(row["method"] for row in summary))
    for wrong in (name for name in languages if name not in LANGUAGE_NAMES):
        raise ValueError(f"PosIR has no language {wrong!r}; there are {', '.join(LANGUAGE_NAMES)}.")
    for setting in settings:
        if setting not in NOT_AVERAGED:
            raise ValueError(f"PosIR is run as x-x or x-en, not {setting!r}.")
        figures: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        for language in languages:
            name = LANGUAGE_NAMES[language]
            if name in NOT_AVERAGED[setting]:
                continue
            corpus_language = "eng-Latn" if setting == "x-en" else language
            limit = TINY_DOCUMENTS if tiny else None
            benchmark = load_benchmark(
                "posir", language=language, corpus_language=corpus_language, path=path, limit=limit
            )
            for kind in kinds:
                figures[kind].append(_posir_figures(runner.run(benchmark, runner.method({"method": kind}))))
                paper = _match(by_language, setting=setting, method=kind, language=name)
                theirs = {ours: paper[printed] for ours, printed in _PRINTED.items() if printed in paper}
                yield ReproducedRow({"setting": setting, "method": kind, "language": name}, figures[kind][-1], theirs)
        for kind in kinds:
            average = {
                key: float(np.mean([of_language[key] for of_language in figures[kind] if key in of_language]))
                for key in dict.fromkeys(key for of_language in figures[kind] for key in of_language)
            }
            paper = _match(summary, setting=setting, method=kind) if len(languages) == len(LANGUAGES) else {}
            theirs = {key: paper[key] for key in average if key in paper}
            yield ReproducedRow({"setting": setting, "method": kind, "language": "average"}, average, theirs)


# Our names of PosIR's figures by language, and the paper's.
_PRINTED = {"PSI": "PSI", "nDCG@10": "overall", **{f"nDCG@10 {bucket}": bucket for bucket in ("Q1", "Q2", "Q3", "Q4")}}


def _posir_figures(result: EvaluationResult) -> dict[str, float]:
    figures = {"nDCG@10": 100 * result.ndcg, "PSI": result.psi or 0.0}
    for bucket in ("Q1", "Q2", "Q3", "Q4"):
        if f"psi_{bucket}" in result.more:
            figures[f"PSI_{bucket}"] = result.more[f"psi_{bucket}"]
            figures[f"nDCG@10 {bucket}"] = 100 * result.more[f"ndcg_{bucket}"]
    return figures


def _match(rows: Sequence[Mapping[str, Any]], **wanted: str) -> Mapping[str, Any]:
    return next((row for row in rows if all(row[name] == value for name, value in wanted.items())), {})


def _rows_of(table: str, model: str) -> list[dict[str, Any]]:
    return [row for row in paper_table(table) if row["model"] == model]


def _known_models(table: str) -> list[str]:
    return list(dict.fromkeys(row["model"] for row in paper_table(table.replace("-", "_"))))


def _paper_model(model: SentenceTransformer) -> str:
    name = Path(str(getattr(model.config, "_name_or_path", "") or "")).name
    return {"bge-m3": "bge-m3-dense"}.get(name, name)
