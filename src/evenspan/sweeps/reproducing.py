"""The paper's tables, run again for any model: our figures beside the paper's, row by row, where it has the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.errors import require_evaluation
from evenspan.evaluation.benchmarks import load_benchmark
from evenspan.evaluation.benchmarks.posir import LANGUAGES
from evenspan.evaluation.evaluating import Evaluator
from evenspan.evaluation.methods import SegmentAverage
from evenspan.models.calibrating import uncalibrated
from evenspan.models.inspecting import inspect_model
from evenspan.sweeps.paper import claims, paper_models
from evenspan.sweeps.paper_rows import TableRunner, fineweb_rows, nanobeir_rows, posir_rows
from evenspan.sweeps.reproduction import Reproduction

TABLES = ("fineweb-posq", "posir", "nanobeir")
_LAST_TOKEN = (
    "Last-token pooling: the pooling token is the last one that is not padding, an end-of-sequence token where the tokenizer "
    "adds one. The first token of the sequence, the attention sink, is a basket of its own: it keeps its mass under soft and "
    "hard and gets an equal share under uniform. The paper leaves this rule open."
)
_MEAN = "Mean pooling: uniform and hard are about the pooling token, which there is none of; their rows are left out."
_POSIR = "Intervals of averages over languages are the means of theirs, and have no stars."


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
        model: any model that can be calibrated; the paper's figures are shown beside those of its own models.
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
        raise ValueError(f"Unknown table {table!r}. Available: {', '.join(TABLES)}.")
    require_evaluation("Reproducing the paper's tables", "chonkie", "datasets", "pyarrow")
    known = paper_models(table)
    if paper_model is not None and paper_model not in known:
        raise ValueError(f"The paper's table {table!r} has no model {paper_model!r}; it has {', '.join(known)}.")
    name = paper_model or _own_name(model)
    inspection = inspect_model(model)
    if not inspection.calibratable:
        raise ValueError(f"The paper's tables are about calibration. {inspection.reason}")
    load = partial(load_benchmark, path=path)
    folder = None if output is None else Path(output)
    cache = options.pop("cache", None)
    with uncalibrated(model), TemporaryDirectory() if cache is None else nullcontext(cache) as vectors:
        evaluator = Evaluator.of(model, cache=vectors, **options)
        segments = segment_average or SegmentAverage()
        runner = TableRunner(evaluator, load, name if name in known else None, tiny, folder, segments, report, progress)
        if table == "fineweb-posq":
            rows = tuple(fineweb_rows(runner))
        elif table == "nanobeir":
            rows = tuple(nanobeir_rows(runner))
        else:
            rows = tuple(posir_rows(runner, languages or LANGUAGES, settings))
    notes = ["part of the data only: the paper's figures are of all of it"] if tiny else []
    notes += [] if name in known else [f"The paper has no figures of {name}; it has {', '.join(known)}."]
    notes += [_MEAN] if inspection.pooling == "mean" else []
    notes += [_LAST_TOKEN] if inspection.pooling == "last" else []
    notes += [_POSIR] if table == "posir" else []
    return Reproduction(table, name, rows, tuple(notes), claims(table, rows))


def _own_name(model: SentenceTransformer) -> str:
    name = Path(str(getattr(model.config, "_name_or_path", "") or "")).name
    return {"bge-m3": "bge-m3-dense"}.get(name, name or "a model without a name")
