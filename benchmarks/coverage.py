"""Do intervals hold what they promise? Simulated benchmarks whose true figures are known.

    python benchmarks/coverage.py --repetitions 2000 --output benchmarks/results
    python benchmarks/coverage.py --resume                # with the rows that are there

A query's score is nDCG@10 of a rank that a latent quality gives: of its document, of itself, of its position, and of the
method, to queries and to whole documents. Documents have 1 query, or 5 or 30 on average, from 1 to twice as many, which share
the document's part. There are four kinds of benchmarks:

- `same`: positions do not matter, and all methods are equally good;
- `level`: positions do not matter, and the second method is better at all of them;
- `halved`: later positions are found worse, and with the second method half as much;
- `evened`: later positions are found worse, and with the second method they are not.

"Use it" is the answer of a tuning that goes by HM alone, which says so more often than one that also looks at losses.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy import stats

from evenspan.evaluation.measures import harmonic_mean, position_sensitivity
from evenspan.evaluation.sampling import Sample
from evenspan.evaluation.scoring import overall_mean
from evenspan.evaluation.statistics import Bootstrap, holm, paired_p_value

STATISTICS = {"harmonic_mean": harmonic_mean, "psi": position_sensitivity}
SETTINGS = 24  # of a tuning or a sweep
OF_DOCUMENT, OF_QUERY, OF_METHOD = 1.0, 1.0, 0.35  # standard deviations; of a method on documents, and on queries
KINDS = ("same", "level", "halved", "evened")
DOCUMENTS = {(1, 3): 300, (1, 20): 1000, (5, 3): 60, (5, 20): 200, (30, 3): 30, (30, 20): 40}


@dataclass
class Cell:
    """One kind of benchmark, and what came out: shares of all repetitions."""

    queries: int
    documents: int
    groups: int
    kind: str
    covered: dict[str, float] = field(default_factory=dict)
    starred: dict[str, float] = field(default_factory=dict)
    used: float = 0.0
    psi: float = 0.0
    true_psi: float = 0.0


def simulate(cell: Cell, repetitions: int, resamples: int) -> Cell:
    """Fill a cell."""
    places = np.linspace(0, 1, cell.groups)
    worse = {"same": (0.0, 0.0), "level": (0.0, 0.0), "halved": (1.0, 0.5), "evened": (1.0, 0.0)}[cell.kind]
    better = {"same": 0.0, "level": 1.0, "halved": -0.15, "evened": -0.3}[cell.kind]
    qualities = np.stack([-worse[0] * places, better - worse[1] * places])  # (sides, groups)
    truth = _truth(qualities)
    generator, seen = np.random.default_rng([cell.queries, cell.groups, KINDS.index(cell.kind)]), []
    turn = 0
    while len(seen) < repetitions:
        turn += 1
        document = np.repeat(np.arange(cell.documents), generator.integers(1, 2 * cell.queries, cell.documents))
        group = generator.integers(0, cell.groups, len(document))
        if np.bincount(group, minlength=cell.groups).min() < 2:
            continue
        latent = OF_DOCUMENT * generator.standard_normal(cell.documents)[document]
        latent += OF_QUERY * generator.standard_normal(len(group))
        sides = 1 + SETTINGS if cell.kind == "same" else 2
        method = OF_METHOD * generator.standard_normal((sides, cell.documents))[:, document]
        method += OF_METHOD * generator.standard_normal((sides, len(group)))
        scores = _score(latent + method + (0.0 if cell.kind == "same" else qualities[:, group])).T  # (queries, sides)
        seen.append(_outcome(scores, group, document, truth, resamples, turn))
    means = {name: float(np.mean([outcome[name] for outcome in seen])) for name in seen[0]}
    cell.covered = {name[8:]: value for name, value in means.items() if name.startswith("covered ")}
    cell.starred = {name[8:]: value for name, value in means.items() if name.startswith("starred ")}
    cell.used, cell.psi, cell.true_psi = means.get("used", 0.0), means["psi"], float(position_sensitivity(truth)[1])
    return cell


def _score(quality: np.ndarray) -> np.ndarray:
    rank = np.maximum(1, np.ceil(np.exp(1.2 * (0.6 - quality))))
    return np.where(rank <= 10, 1 / np.log2(1 + rank), 0.0)


def _truth(qualities: np.ndarray) -> np.ndarray:
    """The true means of groups.  # (groups, sides)"""
    spread = np.sqrt(OF_DOCUMENT**2 + OF_QUERY**2 + 2 * OF_METHOD**2)
    drawn = spread * stats.norm.ppf((np.arange(1_000_000) + 0.5) / 1_000_000)
    return np.array([[_score(quality + drawn).mean() for quality in side] for side in qualities]).T


def _outcome(
    scores: np.ndarray, group: np.ndarray, document: np.ndarray, truth: np.ndarray, resamples: int, seed: int
) -> dict[str, float]:
    """What intervals and tests say of one simulated benchmark; the second side is the plain model."""
    pair, true = scores[:, 1::-1], truth[:, ::-1]
    whole = Sample.of([pair], [document.tolist()])
    grouped = _grouped(pair, group, document, truth.shape[0])
    overall, by_group = (Bootstrap.of(sample, resamples, seed) for sample in (whole, grouped))
    found: dict[str, float] = {"psi": float(position_sensitivity(grouped.means)[0])}
    levels = {"ndcg": (overall.interval(overall_mean), true.mean(axis=0)[0])}
    levels["harmonic_mean"] = by_group.interval(harmonic_mean), harmonic_mean(true)[0]
    levels["psi"] = by_group.sensitivity_interval(), position_sensitivity(true)[0]
    differences = {"ndcg_difference": (overall.difference(overall_mean), np.subtract(*true.mean(axis=0)))}
    for name, statistic in STATISTICS.items():
        differences[f"{name}_difference"] = by_group.difference(statistic), np.subtract(*statistic(true))
    for name, ((low, high), value) in {**levels, **differences}.items():
        found[f"covered {name}"] = low - 1e-12 <= value <= high + 1e-12
    if np.ptp(position_sensitivity(true)) < 1e-9:  # no difference to find
        low, high = differences["psi_difference"][0]
        found["starred psi"] = not low <= 0 <= high
    if scores.shape[1] == 2:
        return found
    together = Sample.of([scores], [document.tolist()])
    pairs = (replace(together, sums=together.sums[:, :, [side, 0]]) for side in range(1, 1 + SETTINGS))
    p_values = [paired_p_value(pair) for pair in pairs]
    found["starred ndcg"] = (p_values[0] or 0) < 0.05
    low, high = differences["harmonic_mean_difference"][0]
    found["starred harmonic_mean"] = not low <= 0 <= high
    found["starred harmonic_mean by p"] = by_group.p_value(harmonic_mean) < 0.05
    found["starred any of 24, Holm"] = min(holm([float(p or 0.0) for p in p_values])) < 0.05
    return found | _tuned(scores, group, document, truth.shape[0], resamples, seed)


def _tuned(
    scores: np.ndarray, group: np.ndarray, document: np.ndarray, groups: int, resamples: int, seed: int
) -> dict[str, float]:
    """Whether a tuning would say "use it": the best of all settings by HM on half of the documents, confirmed on the rest."""
    first = document < (document.max() + 1) // 2
    if any(np.bincount(group[part], minlength=groups).min() < 2 for part in (first, ~first)):
        return {"used": 0.0}
    developed = harmonic_mean(_grouped(scores[first], group[first], document[first], groups).means)
    best = 1 + int(developed[1:].argmax())
    confirming = _grouped(scores[~first][:, [best, 0]], group[~first], document[~first], groups)
    low, _ = Bootstrap.of(confirming, resamples, seed).difference(harmonic_mean)
    return {"used": developed[best] > developed[0] and low > 0}


def _grouped(scores: np.ndarray, group: np.ndarray, document: np.ndarray, groups: int) -> Sample:
    inside = [group == place for place in range(groups)]
    return Sample.of([scores[of_group] for of_group in inside], [document[of_group].tolist() for of_group in inside])


def _markdown(cells: list[Cell], repetitions: int, resamples: int) -> str:
    names = list(cells[0].covered)
    header = [
        "queries/document",
        "documents",
        "groups",
        "kind",
        "true PSI",
        "mean PSI",
        *names,
        "starred, no effect",
        "“use it”",
    ]
    lines = [f"| {' | '.join(header)} |", f"|{'---:|' * len(header)}"]
    for cell in cells:
        stars = ", ".join(f"{name} {100 * share:.1f}" for name, share in cell.starred.items()) or "–"
        cells_of_row = [
            str(cell.queries),
            str(cell.documents),
            str(cell.groups),
            cell.kind,
            f"{cell.true_psi:.2f}",
            f"{cell.psi:.2f}",
        ]
        cells_of_row += [f"{100 * cell.covered[name]:.1f}" for name in names]
        cells_of_row += [stars, f"{100 * cell.used:.1f}" if cell.kind == "same" else "–"]
        lines.append(f"| {' | '.join(cells_of_row)} |")
    title = f"Coverage of 95 % intervals in %, {repetitions} simulated benchmarks in each row, {resamples} resamples"
    command = f"`python benchmarks/coverage.py --repetitions {repetitions} --resamples {resamples}`"
    return "\n".join([f"# {title}", "", command, "", *lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--resume", action="store_true", help="run what is not in the output yet")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    file, cells = options.output / "coverage.json", []
    values = {"repetitions": options.repetitions, "resamples": options.resamples}
    if options.resume and file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        cells = [Cell(**cell) for cell in before.pop("cells")] if before.items() >= values.items() else []
    known = {(cell.queries, cell.groups, cell.kind) for cell in cells}
    for (queries, groups), documents in DOCUMENTS.items():
        for kind in (kind for kind in KINDS if (queries, groups, kind) not in known):
            start = time.perf_counter()
            cells.append(simulate(Cell(queries, documents, groups, kind), options.repetitions, options.resamples))
            print(json.dumps(asdict(cells[-1])), f"{time.perf_counter() - start:.0f} s", flush=True)
            options.output.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values | {"cells": [asdict(cell) for cell in cells]}, indent=1) + "\n", "utf-8")
            table = _markdown(cells, options.repetitions, options.resamples)
            (options.output / "coverage.md").write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
