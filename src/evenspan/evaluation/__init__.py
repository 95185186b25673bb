"""Position-aware evaluation: what calibration does to each position and to overall quality."""

from evenspan.evaluation.averaging import macro_average
from evenspan.evaluation.benchmark import Benchmark, Collection, Query
from evenspan.evaluation.benchmarks import load_benchmark
from evenspan.evaluation.comparing import Comparison, compare
from evenspan.evaluation.evaluating import evaluate
from evenspan.evaluation.scores import EvaluationResult, GroupScore, QueryScore

__all__ = [
    "Benchmark",
    "Collection",
    "Comparison",
    "EvaluationResult",
    "GroupScore",
    "Query",
    "QueryScore",
    "compare",
    "evaluate",
    "load_benchmark",
    "macro_average",
]
