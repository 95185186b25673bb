"""Which of the files are audits, evaluations, advice and answers of `tune`, and of which model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenspan.advising.advice import KIND as ADVICE
from evenspan.advising.advice import Advice
from evenspan.auditing.audit_result import KIND, Audit
from evenspan.auditing.parsing import parse
from evenspan.evaluation.scores import EvaluationResult
from evenspan.formatting import tame
from evenspan.sweeps.tuned import KIND as TUNING

HOW = (
    "a report is made from the output of `evenspan audit MODEL --texts FILE -o DIR`, `evenspan evaluate MODEL --benchmark NAME "
    "-o DIR`, `evenspan sweep`, `evenspan tune` or `evenspan advise`"
)
# What an answer on short texts lacks.
_SHORT: dict[str, Any] = {"rests_on": "", "model": None, "weights_sha256": None, "setting": {}}
_COMPANIONS = ("run.json", "comparison.json")  # written beside results, and no results themselves
# Results that agree in these are of the same queries and the same model, so that their figures can stand side by side.
_SAME = (
    "model",
    "weights_sha256",
    "max_tokens",
    "truncate_dim",
    "prompts",
    "default_prompt_name",
    "query_prompt",
    "document_prompt",
    "data_sha256",
    "benchmark_options",
)


@dataclass(frozen=True)
class Evaluation:
    """Results of one model on the same queries, the plain one first if it is there, and the files they are from."""

    benchmark: str
    results: tuple[EvaluationResult, ...]
    paths: tuple[Path, ...]

    @property
    def setting(self) -> Mapping[str, Any]:
        """Of the first result; the others agree in all that figures depend on."""
        return self.results[0].setting

    @property
    def plain(self) -> EvaluationResult | None:
        """The result of the model without calibration."""
        return self.results[0] if self.results[0].method == "none" else None


@dataclass(frozen=True)
class Answer:
    """What `tune` answers, as its file has it; on short texts it says less."""

    answer: str
    calibration: str | None
    rests_on: str
    model: str | None
    weights_sha256: str | None
    setting: Mapping[str, Any]


@dataclass
class Subject:
    """A model, and what is known about it."""

    model: str
    weights: str | None = None
    audits: list[tuple[Path, Audit]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    advice: list[tuple[Path, Advice]] = field(default_factory=list)
    tunings: list[tuple[Path, Answer]] = field(default_factory=list)

    @property
    def audited_calibration(self) -> str | None:
        """The setting that was audited first."""
        return next((audit.calibration for _, audit in self.audits if audit.calibration), None)

    def audit_name(self, path: Path) -> str:
        """What tells this audit from others of the model, after its folder; empty where there are no others."""
        return "" if len(self.audits) == 1 else tame(path.parent.name or path.stem)


@dataclass(frozen=True)
class Material:
    """What a report is made of: the models, in the order in which they were found."""

    subjects: tuple[Subject, ...]
    runs: Mapping[Path, Mapping[str, Any]]  # what `run.json` says, for each folder that has one
    skipped: tuple[tuple[Path, str], ...]  # files that cannot be used, with the reason


def read_sources(sources: Iterable[str | Path]) -> Material:
    """Read audits and results from files and, with everything below them, folders.

    Raises:
        FileNotFoundError: one of them does not exist.
        ValueError: there is nothing to report in them.
    """
    named = [Path(source) for source in sources]
    contents = [(path, _read(path)) for path in _files(named)]
    audits = [(path, content) for path, content in contents if isinstance(content, Audit)]
    results = [(path, content) for path, content in contents if isinstance(content, EvaluationResult)]
    advice = [(path, content) for path, content in contents if isinstance(content, Advice)]
    answers = [(path, content) for path, content in contents if isinstance(content, Answer)]
    skipped = [(path, content) for path, content in contents if isinstance(content, str)]
    if len(skipped) == len(contents):
        where = ", ".join(map(str, named)) or "nothing"
        reasons = "".join(f"\n  {path}: {reason}" for path, reason in skipped[:5])
        raise ValueError(f"There is nothing to report in {where}: {HOW}.{reasons}")
    folders = dict.fromkeys(path.parent for path, _ in [*audits, *results, *advice, *answers])
    runs = {folder: run for folder in folders if (run := _run(folder / "run.json"))}
    return Material(_subjects(audits, _evaluations(results), advice, answers), runs, tuple(skipped))


def _files(named: Sequence[Path]) -> list[Path]:
    files: dict[Path, Path] = {}
    for path in named:
        if not (path.is_dir() or path.is_file()):
            raise FileNotFoundError(f"There is no file or folder {str(path)!r}.")
        below = (file for file in path.rglob("*.json") if file.is_file() and file.name not in _COMPANIONS)
        inside = sorted(below) if path.is_dir() else [path]
        for file in inside:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _read(path: Path) -> Audit | EvaluationResult | Advice | Answer | str:
    """What a file holds, or why that is nothing for a report."""
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
        if isinstance(values, dict) and values.get("kind") == KIND:
            return Audit.from_dict(values)
        if isinstance(values, dict) and values.get("kind") == ADVICE:
            return Advice.from_dict(values)
        if isinstance(values, dict) and values.get("kind") == TUNING:
            answer: Answer = parse(Answer, _SHORT | values)
            return answer
        if not isinstance(values, dict) or not {"benchmark", "method", "groups", "ndcg", "setting"} <= values.keys():
            return "not written by audit, evaluate, sweep, tune or advise"
        result = EvaluationResult.from_dict(values)
        for score in (result.ndcg, result.recall, *(group.ndcg for group in result.groups.values())):
            parse(float, score)
    except json.JSONDecodeError as error:
        return f"not valid JSON ({error})"
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        return f"damaged, or of another version ({error})"
    return result


def _run(path: Path) -> Mapping[str, Any] | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def _evaluations(results: Sequence[tuple[Path, EvaluationResult]]) -> list[Evaluation]:
    groups: dict[object, dict[str, tuple[Path, EvaluationResult]]] = {}
    for path, result in results:
        same = json.dumps([result.setting.get(name) for name in _SAME], sort_keys=True)
        key = (result.benchmark, same, tuple((row.collection, row.query) for row in result.per_query))
        groups.setdefault(key, {}).setdefault(result.method, (path, result))
    evaluations = []
    for members in groups.values():
        paths, of_paths = zip(*sorted(members.values(), key=lambda member: member[1].method != "none"), strict=True)
        evaluations.append(Evaluation(of_paths[0].benchmark, of_paths, paths))
    return evaluations


def _subjects(
    audits: Sequence[tuple[Path, Audit]],
    evaluations: Sequence[Evaluation],
    advice: Sequence[tuple[Path, Advice]],
    answers: Sequence[tuple[Path, Answer]],
) -> tuple[Subject, ...]:
    subjects: list[Subject] = []

    def subject(model: object, weights: object) -> Subject:
        name, digest = str(model or "a model without a name"), str(weights) if weights else None
        for known in subjects:
            if (digest and known.weights == digest) or (known.model == name and (not digest or not known.weights)):
                known.weights = known.weights or digest
                return known
        subjects.append(Subject(name, digest))
        return subjects[-1]

    for path, audit in audits:
        subject(audit.model, audit.setting.get("weights_sha256")).audits.append((path, audit))
    for evaluation in evaluations:
        subject(*map(evaluation.setting.get, ("model", "weights_sha256"))).evaluations.append(evaluation)
    for path, content in advice:
        subject(content.model, content.setting.get("weights_sha256")).advice.append((path, content))
    for path, answer in answers:
        subject(answer.model, answer.weights_sha256).tunings.append((path, answer))
    return tuple(subjects)
