"""A benchmark as a retrieval task of mteb, with its position groups as scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata

from evenspan.evaluation import Benchmark, Collection
from evenspan.evaluation.measures import harmonic_mean, position_sensitivity
from evenspan.evaluation.scores import file_name

if TYPE_CHECKING:
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.results import TaskResult

SPLIT = "test"
MAIN = "ndcg_at_10"


@dataclass(frozen=True)
class PositionScores:
    """A benchmark's figures over all its collections, by the benchmark's own rules; between 0 and 1.

    Attributes:
        ndcg: nDCG@10 over all queries, or the mean over collections where the benchmark's scoring is an average.
        groups: the same for each position group that has queries.
        harmonic_mean: of the groups; None without groups.
        psi: position sensitivity index, 1 − min / max of the groups; None without groups.
    """

    ndcg: float
    groups: Mapping[str, float]
    harmonic_mean: float | None
    psi: float | None


class BenchmarkTask(AbsTaskRetrieval):
    """What `as_task` returns. mteb keeps a task's metadata in its class, so each benchmark has a class of its own."""

    benchmark: Benchmark

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:  # noqa: ARG002
        """Hand mteb the benchmark, which is in memory already."""
        if not self.data_loaded:
            self.dataset = {subset: {SPLIT: _split(part)} for subset, part in self._collections().items()}
            self.data_loaded = True

    def task_specific_scores(
        self,
        scores: dict[str, dict[str, float]],
        qrels: Any,  # noqa: ARG002
        results: Any,  # noqa: ARG002
        hf_split: str,  # noqa: ARG002
        hf_subset: str,
    ) -> dict[str, float]:
        """The position groups of one collection, and how many queries each figure rests on."""
        queries = [query for query in self._collections()[hf_subset].queries if query.id in scores]
        values = [scores[query.id]["ndcg_cut_10"] for query in queries]
        # mteb rounds its own to five decimals; this one takes its place.
        figures = {MAIN: float(np.mean(values)), "queries": float(len(values))}
        groups: dict[str, float] = {}
        for name in self.benchmark.groups:
            members = [value for query, value in zip(queries, values, strict=True) if name in query.groups]
            if members:
                groups[name] = float(np.mean(members))
                figures |= {f"{MAIN}_{name}": groups[name], f"queries_{name}": float(len(members))}
        spread = self._spread(groups)
        return figures if spread is None else figures | dict(zip(("harmonic_mean", "psi"), spread, strict=True))

    def position_scores(self, result: TaskResult) -> PositionScores:
        """The figures over all collections, from a result of this task, fresh or read from mteb's cache."""
        if result.task_name != self.metadata.name:
            raise ValueError(f"A result of {result.task_name!r} is none of {self.metadata.name!r}.")
        rows: Sequence[Mapping[str, Any]] = result.scores[SPLIT]
        missing = set(self._collections()) - {row["hf_subset"] for row in rows}
        if missing:
            raise ValueError(f"The result lacks {', '.join(sorted(missing))}: evaluate all of {self.metadata.name!r}.")
        groups = {
            name: _mean(having, f"{MAIN}_{name}", f"queries_{name}")
            for name in self.benchmark.groups
            if (having := [row for row in rows if f"queries_{name}" in row])
        }
        ndcg = _mean(rows, MAIN, None if self.benchmark.scoring == "average" else "queries")
        return PositionScores(ndcg, groups, *(self._spread(groups) or (None, None)))

    def _spread(self, groups: Mapping[str, float]) -> tuple[float, float] | None:
        """HM and PSI of the groups' scores; None where groups are missing (PosIR goes by those bins that it has)."""
        if not groups or len(groups) < (2 if self.benchmark.scoring == "posir" else len(self.benchmark.groups)):
            return None
        values = np.array(list(groups.values()))
        return float(harmonic_mean(values)), float(position_sensitivity(values))

    def _collections(self) -> dict[str, Collection]:
        """The collections by mteb's names of subsets; mteb calls a single one `default`."""
        collections = self.benchmark.collections
        return {"default" if len(collections) == 1 else collection.name: collection for collection in collections}


def as_task(benchmark: Benchmark, *, languages: Sequence[str] | None = None) -> BenchmarkTask:
    """Make a benchmark a retrieval task that `mteb.evaluate` takes; nothing is downloaded.

    Its main score is nDCG@10. Beside mteb's scores each subset (one per collection) has `ndcg_at_10_<group>`,
    `harmonic_mean` and `psi`, the last two where it has queries in every group; `position_scores` of the task has them
    over all collections. The name of the task ends in a digest of the data: mteb would return stored scores for other data
    of the same name.

    Args:
        benchmark: from `evenspan.evaluation.load_benchmark`.
        languages: what mteb lists it under, as `"deu-Latn"`; by default PosIR's own, else undetermined.

    Example:
        >>> task = as_task(load_benchmark("generated"))  # doctest: +SKIP
        >>> result = mteb.evaluate(CalibratedEncoder("BAAI/bge-m3"), task)  # doctest: +SKIP
        >>> task.position_scores(result.task_results[0]).psi  # doctest: +SKIP
    """
    names = [collection.name for collection in benchmark.collections]
    if len(set(names)) < len(names):
        raise ValueError(f"Two collections of {benchmark.name!r} have the same name: {', '.join(names)}.")
    known = [benchmark.options[option] for option in ("language", "corpus_language") if option in benchmark.options]
    listed = list(dict.fromkeys(languages or known or ["und-Zyyy"]))
    digest = benchmark.digest()
    metadata = TaskMetadata(
        name=f"{file_name(benchmark.name)}-{digest[:12]}",
        description=f"The benchmark {benchmark.name!r} of evenspan, by position of the evidence in its document.",
        dataset={"path": f"evenspan/{benchmark.name}", "revision": digest},
        type="Retrieval",
        category="t2t",
        eval_splits=[SPLIT],
        eval_langs=listed if len(names) == 1 else dict.fromkeys(names, listed),
        main_score=MAIN,
    )
    task: BenchmarkTask = type("BenchmarkTask", (BenchmarkTask,), {"metadata": metadata, "benchmark": benchmark})()
    return task


def _split(collection: Collection) -> RetrievalSplitData:
    queries = {query.id: query.text for query in collection.queries}
    corpus, questions = (
        Dataset.from_dict({"id": list(texts), "text": list(texts.values())}) for texts in (collection.corpus, queries)
    )
    relevance = {query: dict(collection.relevance[query]) for query in queries}
    return {"corpus": corpus, "queries": questions, "relevant_docs": relevance, "top_ranked": None}


def _mean(rows: Sequence[Mapping[str, Any]], score: str, weight: str | None) -> float:
    weights = None if weight is None else [row[weight] for row in rows]
    return float(np.average([row[score] for row in rows], weights=weights))
