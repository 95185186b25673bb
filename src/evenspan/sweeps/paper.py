"""The paper's result tables, and the claims it makes by counting them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from evenspan.calibration import Calibration
from evenspan.sweeps.reproduction import ReproducedRow

TEMPLATE = "gte-multilingual-base"  # whose rows a table has for a model that is not in the paper

Figures = Mapping[str, float]
Rows = Mapping[tuple[str, ...], Figures]  # by their labels


def paper_table(name: str) -> list[dict[str, Any]]:
    """The rows of a table of the paper: `fineweb_posq`, `posir`, `posir_by_language` or `nanobeir`."""
    text = (files("evenspan.evaluation") / "paper" / f"{name}.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def paper_models(table: str) -> list[str]:
    """The models of a table, such as `fineweb-posq`."""
    return list(dict.fromkeys(row["model"] for row in paper_table(table.replace("-", "_"))))


def matching(rows: Iterable[dict[str, Any]], **wanted: str) -> Iterator[dict[str, Any]]:
    """The rows with these values."""
    return (row for row in rows if all(row[name] == value for name, value in wanted.items()))


def claims(table: str, rows: Sequence[ReproducedRow]) -> tuple[str, ...]:
    """What the paper says by counting the rows of a table, for these rows and, where it has them, for the paper's own."""
    count = {"fineweb-posq": _fineweb, "posir": _posir, "nanobeir": _nanobeir}[table]
    ours = dict(count({tuple(row.labels.values()): row.ours for row in rows}))
    theirs = dict(count({tuple(row.labels.values()): row.paper for row in rows if row.paper}))
    told = []
    for claim, (held, cases) in ours.items():
        paper = theirs.get(claim, (0, 0))
        beside = f" (paper: {paper[0]} of {paper[1]})" if paper[1] else ""
        told += [f"{claim} in {held} of {cases}{beside}"] if cases else []
    return tuple(told)


Counts = Iterator[tuple[str, tuple[int, int]]]  # what is claimed, in how many of how many cases


def _counted(
    pairs: Iterable[tuple[float | None, float | None]], holds: Callable[[float, float], bool]
) -> tuple[int, int]:
    known = [holds(value, other) for value, other in pairs if value is not None and other is not None]
    return sum(known), len(known)


def _fineweb(rows: Rows) -> Counts:
    plain = rows.get(("none",), {})
    settings = {
        Calibration.parse(method): figures
        for (method,), figures in rows.items()
        if not method.startswith(("none", "seg"))
    }
    pairs = [(figures.get("HM"), plain.get("HM")) for figures in settings.values()]
    yield "HM is higher than without calibration", _counted(pairs, lambda value, other: value > other)
    pairs = [(figures.get("PSI"), plain.get("PSI")) for figures in settings.values()]
    yield "PSI is lower than without calibration", _counted(pairs, lambda value, other: value < other)

    def compared(field: str, better: object) -> list[tuple[float | None, float | None]]:
        """HM of settings with one value of a field, and of those that differ in it alone."""
        return [
            (figures.get("HM"), others.get("HM"))
            for setting, figures in settings.items()
            for other, others in settings.items()
            if getattr(setting, field) == better != getattr(other, field)
            and all(getattr(setting, name) == getattr(other, name) for name in _FIELDS if name != field)
        ]

    soft = compared("variant", "soft")
    yield "soft has a higher HM than another variant", _counted(soft, lambda value, other: value > other)
    half = compared("layers", "half")
    yield "half of the layers has a higher HM than the last one", _counted(half, lambda value, other: value > other)


_FIELDS = ("variant", "strength", "layers", "basket_size")


def _posir(rows: Rows) -> Counts:
    kinds = dict.fromkeys(method for _, method, _ in rows if method != "none")
    for kind in kinds:
        averages = [
            (figures, rows.get((setting, "none", language), {}))
            for (setting, method, language), figures in rows.items()
            if method == kind and language == "average"
        ]
        buckets = [(own.get(f"PSI_Q{k}"), plain.get(f"PSI_Q{k}")) for own, plain in averages for k in range(1, 5)]
        yield f"{kind}: PSI of a length bucket is lower than without calibration", _counted(buckets, lambda a, b: a < b)
        languages = [
            (figures.get("nDCG@10"), rows.get((setting, "none", language), {}).get("nDCG@10"))
            for (setting, method, language), figures in rows.items()
            if method == kind and language != "average"
        ]
        yield (
            f"{kind}: nDCG@10 of a language is higher than without calibration",
            _counted(languages, lambda a, b: a > b),
        )


def _nanobeir(rows: Rows) -> Counts:
    for kind in dict.fromkeys(method for _, method, _ in rows if method != "none"):
        pairs = [
            (figures.get("nDCG@10"), rows.get((documents, "none", dataset), {}).get("nDCG@10"))
            for (documents, method, dataset), figures in rows.items()
            if method == kind and dataset != "Avg"
        ]
        within = _counted(pairs, lambda value, other: value >= other - 1)
        yield f"{kind}: nDCG@10 of a set stays within a point of that without calibration, or is higher,", within
