"""Position-aware evaluation: what calibration does to each position and to overall quality."""

from evenspan.evaluation.benchmark import Benchmark, Collection, Query
from evenspan.evaluation.comparison import Comparison, compare
from evenspan.evaluation.result import EvaluationResult, GroupScore, QueryScore
from evenspan.evaluation.running import evaluate
from evenspan.evaluation.sources import load_benchmark

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
]
