"""Fill the marked tables of README, docs and recipes from the committed result files: `make tables`.

    python benchmarks/fill_tables.py            # write the tables
    python benchmarks/fill_tables.py --check    # say which of them are not what their result files say; a test does this

A table lies between `<!-- table: NAME -->` and `<!-- end -->`. Its figures come from `benchmarks/results`, or from the paper's
tables in the package: nothing is typed by hand. `benchmarks/tables.py` makes the result files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from evenspan import Calibration

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "recipes" / "miniature" / "README.md"]
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
POSITIONS = ("beginning", "middle", "end")

Rows = Iterable[Sequence[str]]


def table(header: Sequence[str], rows: Rows, left: int = 1) -> str:
    """A Markdown table whose first columns are text and whose others are figures."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, rule, *rows))


def markdown_rows(name: str) -> list[dict[str, str]]:
    """The rows of all tables in a Markdown file that a benchmark wrote."""
    found: list[dict[str, str]] = []
    header: list[str] | None = None
    for line in (RESULTS / name).read_text("utf-8").splitlines():
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if header is None:
            header = cells
        elif set(line) - set("|-: "):
            found.append(dict(zip(header, cells, strict=True)))
    return found


def result(name: str) -> Any:
    return json.loads((RESULTS / "tables" / f"{name}.json").read_text("utf-8"))


def times(value: str | float) -> str:
    return f"× {float(str(value).strip('*')):.2f}"


def setting_name(method: str) -> str:
    """A setting in a few words: what differs from the defaults."""
    if method == "none":
        return "plain"
    setting = Calibration.parse(method)
    size = f", B = {setting.basket_size}" if setting.basket_size != Calibration.basket_size else ""
    even = ", even" if setting.partition == "even" else ""
    return f"{setting.variant}, λ = {setting.strength:g}{size}{even}"


def method_name(method: str) -> str:
    """A method in a few words: of a baseline's options its window alone, as the others have their defaults."""
    first, plus, second = method.partition("+")
    if is_setting(first):
        return setting_name(first)
    name, _, options = first.partition(",")
    window = re.search(r"window=(\d+)", options)
    name = f"{name} {window[1]}" if window else name
    return f"{name} + {setting_name(second)}" if plus else name


def demo() -> str:
    return f"```text\n{(RESULTS / 'tables' / 'demo.txt').read_text('utf-8').rstrip()}\n```\n"


def paper() -> str:
    return table(["bge-m3", *POSITIONS, "HM", "PSI"], paper_rows())


def paper_rows() -> list[list[str]]:
    """The paper's figures for bge-m3 on FineWeb-PosQ: plain and with the default setting."""
    path = ROOT / "src" / "evenspan" / "evaluation" / "paper" / "fineweb_posq.json"
    rows = [row for row in json.loads(path.read_text("utf-8")) if row["model"] == "bge-m3-dense"]
    default = Calibration().to_dict()
    (plain,) = [row for row in rows if row["method"] == "none"]
    (calibrated,) = [
        row
        for row in rows
        if row["method"] == default["variant"]
        and all(row[name] == default[name] for name in ("strength", "layers", "basket_size"))
    ]
    return [
        [name, *(f"{row[key]:.1f}" for key in ("begin", "mid", "end", "HM")), f"{row['PSI']:.3f}"]
        for name, row in {"plain": plain, setting_name(str(Calibration())): calibrated}.items()
    ]


def summary() -> str:
    """Plain and with the default setting, in one cell: the paper's figures and ours."""
    rows = [["bge-m3, as printed in the paper", *arrows(*(row[1:] for row in paper_rows()))]]
    names = {
        "drcd-default": "bge-small-zh-v1.5",
        "newwiki-cls": "first-token miniature",
        "newwiki-last": "last-token miniature",
        "newwiki-mean": "mean-pooled miniature",
    }
    for file, name in names.items():
        found = [figures(file)[setting] for setting in ("none", str(Calibration()))]
        pair = [[*(100 * value for value in (*groups, mean)), psi] for *groups, _, mean, psi in found]
        rows.append([name, *arrows(*map(cells, pair))])
    return table(["model", *POSITIONS, "HM", "PSI"], rows)


def cells(values: Sequence[float]) -> list[str]:
    """nDCG@10 × 100 by position and HM, then PSI."""
    return [*(f"{value:.1f}" for value in values[:-1]), f"{values[-1]:.3f}"]


def arrows(before: list[str], after: list[str]) -> list[str]:
    return [f"{one}\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}{other}" for one, other in zip(before, after, strict=True)]


def encoding() -> str:
    rows = markdown_rows("encode_gpu_h200.md")
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    shapes = dict.fromkeys(row["shape"] for row in rows)
    ratio = {(row["shape"], row["batch"]): row["calibrated"] for row in rows}
    header = ["NVIDIA H200, float16", *batches]
    return table(header, ([f"{shape}'s shape", *(times(ratio[shape, batch]) for batch in batches)] for shape in shapes))


def every_row() -> str:
    """What mean-pooled models cost when calibrated, over plain passes: on a GPU, and on a CPU."""
    machines = {
        "every_row_h200.json": ("model", "NVIDIA H200, float16, 24 layers × 1,024"),
        "every_row_cpu.json": ("cpu", "2 CPU cores, float32, 6 layers × 384"),
    }
    settings = [str(Calibration()), str(Calibration(partition="even"))]
    cells = []
    for name, (what, machine) in machines.items():
        rows = [row for row in json.loads((RESULTS / name).read_text("utf-8")) if row["what"] == what]
        ratio = {(tuple(row["batch"]), row["setting"]): times(row["ratio"]) for row in rows}
        for a, b in dict.fromkeys(tuple(row["batch"]) for row in rows):
            cells.append([machine, f"{a:,} × {b:,}", *(ratio.get(((a, b), setting), "–") for setting in settings)])
    return table(["machine and model", "texts × tokens", "baskets of 128", "even"], cells, left=2)


def stream() -> str:
    """Texts to vectors, and into an index, in multiples of the bare forward passes."""
    results = json.loads((RESULTS / "encode_stream_h200.json").read_text("utf-8"))
    indexed = {row["shape"]: row["times_bare"] for row in results["index"] if row["turn"] == "warm"}
    header = ["NVIDIA H200, float16", "tokens per document", "plain", "calibrated", "index into Parquet"]
    header += ["sentence-transformers' `encode_document`, plain", "the tokenizer alone"]

    def cells(row: dict[str, Any], *, index: bool) -> list[str]:
        values = [row["plain"], row["calibrated"], indexed[row["shape"]] if index else None]
        values += [row.get("sentence_transformers"), row["tokenizer_alone"]]
        shape, tokens = row["shape"].replace(" x ", " × "), f"{row['tokens'] / row['documents']:,.0f}"
        return [shape, tokens, *("–" if value is None else times(value) for value in values)]

    rows = [cells(row, index=section == "main") for section in ("main", "lengths", "qwen") for row in results[section]]
    return table(header, rows)


def stream_cpu() -> str:
    """Texts to vectors on a CPU, in multiples of sentence-transformers' own way."""
    found = json.loads((RESULTS / "encode_stream_cpu.json").read_text("utf-8"))
    (machine,), (row,) = found["machine"], found["cpu"]
    header = ["`encode_documents`, plain", "calibrated", "a calibrated model's own `encode_document`"]
    cells = [times(row[name]) for name in ("plain", "calibrated", "own_encode_document_calibrated")]
    name = f"{machine['cores']} CPU cores, first-token miniature, {row['documents']} documents"
    return table(["sentence-transformers' `encode_document`: × 1", *header], [[name, *cells]])


def sweeping() -> str:
    machines = {"sweep_cpu.md": "2 CPU cores, float32", "sweep_h200.md": "NVIDIA H200, float16"}
    rows = [(machine, row) for name, machine in machines.items() for row in markdown_rows(name)]
    columns = ("settings", "one by one", "together, exact", "together, detached")
    return table(
        ["machine", "model", *columns],
        ([machine, row["model"], *(row[column].strip("*") for column in columns)] for machine, row in rows),
        left=3,
    )


def auditing() -> str:
    rows = markdown_rows("audit_cpu.md")
    return table(
        ["1,000 documents of 1,000 tokens, 2 CPU cores", *list(rows[0])[2:]],
        ([row[""], *list(row.values())[2:]] for row in rows),
    )


def indexing() -> str:
    rows = markdown_rows("index_search_texts.md")
    names = {"lance": "LanceDB", "postgres": "PostgreSQL", "parquet": "Parquet"}
    columns = list(rows[0])[1:]
    return table(["store", *columns], ([names[row["store"]], *(row[column] for column in columns)] for row in rows))


def partitions() -> str:
    """What both partitions change, by length of chunks: HM with its interval, and PSI."""
    rows = json.loads((RESULTS / "partition.json").read_text("utf-8"))
    by_kind: dict[tuple[str, int], dict[tuple[float, str], dict[str, Any]]] = {}
    for row in (row for row in rows if row["strength"] is not None):
        by_kind.setdefault((row["model"], row["chunks"]), {})[row["strength"], row["partition"]] = row

    def cell(row: dict[str, Any]) -> str:
        low, high = row["hm_gain_interval"]
        return f"{row['hm_gain']:+.1f} ({low:+.1f} to {high:+.1f}), {row['psi']:.3f}"

    wanted = list(itertools.product((0.5, 1.0), ("paper", "even")))
    header = [
        "model",
        "chunks",
        "plain: HM, PSI",
        *(f"{partition}, λ = {strength:g}" for strength, partition in wanted),
    ]
    return table(
        header,
        (
            [
                model.replace("-", " ", 1) if model.startswith("miniature") else model,
                f"{size:,}" if size else "whole",
                f"{settings[0.0, 'paper']['hm']:.1f}, {settings[0.0, 'paper']['psi']:.3f}",
                *(cell(settings[pair]) for pair in wanted),
            ]
            for (model, size), settings in by_kind.items()
        ),
        left=2,
    )


def one_vector() -> str:
    """One vector for each document: plain, calibrated, or the average of its plain chunks."""
    rows = json.loads((RESULTS / "partition.json").read_text("utf-8"))

    def named(row: dict[str, Any]) -> str:
        if row["strength"] is None:
            return f"average of windows of {row['chunks']}"
        return f"{row['partition']}, λ = {row['strength']:g}" if row["strength"] else "plain"

    def place(row: dict[str, Any]) -> tuple[bool, int]:
        return row["strength"] is None, row["chunks"]

    cells = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model and (row["strength"] is None or not row["chunks"])]
        for row in sorted(own, key=place):
            figures = (*row["by"], row["ndcg"], row["hm"])
            cells.append([model, named(row), *(f"{figure:.1f}" for figure in figures), f"{row['psi']:.3f}"])
    return table(["model", "vector", *POSITIONS, "all", "HM", "PSI"], cells, left=2)


def stand_ins() -> str:
    """How well stand-ins rank settings and methods, and what the setting that they choose is worth."""
    rows = json.loads((RESULTS / "stand_ins.json").read_text("utf-8"))
    header = ["model", "data", "stand-ins", "rank correlation of HM: settings", "methods", "real HM: plain"]
    cells = []
    for row in rows:
        for kind, by in row["kinds"].items():
            correlated = [
                f"{by['correlation'][f'{name} harmonic_mean']:.2f} ({row[name]})" for name in ("settings", "methods")
            ]
            values = (row["plain"], by["real_hm_of_tuned"], by["real_hm_of_highest"], row["best"])
            cells.append([row["model"], row["data"], kind, *correlated, *(f"{100 * value:.1f}" for value in values)])
    return table([*header, "`tune`", "highest by stand-ins", "best possible"], cells, left=3)


def compared(name: str) -> str:
    """A comparison that `evenspan evaluate` wrote: methods by position, with stars and what a document costs."""
    comparison = result(name)["comparison"]
    rows = sorted(comparison["rows"], key=kind_of_method)
    columns = [f"nDCG@10 {position}" for position in POSITIONS] + ["nDCG@10", "HM", "PSI", "PSI floor"]

    def cell(row: dict[str, Any], column: str) -> str:
        value, star = row["figures"].get(column), "*" * row["differences"].get(column, {}).get("significant", False)
        return "–" if value is None else f"{value:.3f}{star}" if "PSI" in column else f"{100 * value:.1f}{star}"

    header = ["method", *POSITIONS, "all", "HM", "PSI", "PSI floor", "vectors per document", "bytes"]
    stars = "corrected after Holm" if comparison["corrected"] else "not corrected"
    note = f"\nStars are {stars} for the {len(rows) - 1} methods that are compared with the plain model.\n"
    filled_table = table(
        header,
        (
            [
                method_name(row["method"]),
                *(cell(row, column) for column in columns),
                f"{row['vectors_per_document']:.1f}",
                f"{row['bytes_per_document']:,.0f}",
            ]
            for row in rows
        ),
    )
    return filled_table + note


AUDITED = {
    "cls": "miniature, first token",
    "last": "miniature, last token",
    "shuffled": "first token, words shuffled",
    "minilm": "all-MiniLM-L6-v2, mean",
}


def audited() -> str:
    """How much each position shows in the vectors of several models, plain and calibrated."""
    rows = []
    for name, model in AUDITED.items():
        found = result(f"audit-{name}")["audit"]
        for lead, view in ((model, found["plain"]), ("– calibrated", found["calibrated"])):
            seen = view["representation"]
            low, high = seen["slope"]["interval"]
            slope = f"{seen['slope']['value']:+.3f} ({low:+.3f} to {high:+.3f})".replace("-", "−")
            relative = f"{seen['relative_slope']['value']:.1f}".replace("-", "−")
            verdict = " ".join(filter(None, (seen["degree"], seen["bias"])))
            rows.append([lead, *(f"{place['value']:.3f}" for place in seen["positions"]), slope, relative, verdict])
    header = ["model", "position 1", "2", "3", "4", "5", "slope (95 %)", "relative", "verdict"]
    return table(header, rows)


def pairs() -> str:
    """What a change of one thing in a setting changes for both miniatures, with intervals over documents."""
    found = {kind: result(f"newwiki-{kind}")["pairs"] for kind in ("cls", "last")}

    def cells(pair: dict[str, Any]) -> list[str]:
        by = pair["differences"]
        return [
            f"{scale * by[figure]['value']:+.{digits}f} ({scale * by[figure]['interval'][0]:+.{digits}f} to "
            f"{scale * by[figure]['interval'][1]:+.{digits}f})".replace("-", "−")
            for figure, scale, digits in (("HM", 100, 1), ("PSI", 1, 3))
        ]

    rows = []
    for pair in zip(*found.values(), strict=True):
        base, other = (Calibration.parse(pair[0][end]) for end in ("from", "to"))
        before, after, named = next(
            (getattr(base, name), getattr(other, name), named)
            for name, named in {"variant": "", "strength": "λ ", "layers": "layers ", "basket_size": "baskets "}.items()
            if getattr(base, name) != getattr(other, name)
        )
        change = f"{named}{before} → {after}"
        rows.append([f"{base.strength:g}", change, *(cell for each in pair for cell in cells(each))])
    return table(["λ", "change", "first token: HM", "PSI", "last token: HM", "PSI"], rows, left=2)


def kind_of_method(row: dict[str, Any]) -> tuple[int, str]:
    """The plain model first, then calibrations, one vector for each document, several, and words."""
    method = row["method"]
    several = row["vectors_per_document"] != 1
    return (method != "none") + (not is_setting(method)) * (1 + several + method.startswith("bm25")), method


def is_setting(method: str) -> bool:
    return method.partition(",")[0] in ("none", "soft", "uniform", "hard")


def miniatures() -> str:
    """Each miniature plain and at three strengths of the default setting."""
    settings = ["none", *(str(Calibration(strength=strength)) for strength in (0.5, 0.75, 1.0))]
    rows = []
    names = {"cls": "first token", "last": "last token", "mean": "mean"}
    for kind, name in names.items():
        by_method = figures(f"newwiki-{kind}")
        for setting in filter(by_method.__contains__, settings):
            *scores, psi = by_method[setting]
            rows.append([name, setting_name(setting), *(f"{100 * value:.1f}" for value in scores), f"{psi:.3f}"])
    return table(["pools", "setting", *POSITIONS, "all", "HM", "PSI"], rows, left=2)


def detached() -> str:
    """How far figures of a detached sweep lie from exact ones, and what both choose."""
    exact, approximate = (figures(name) for name in ("newwiki-cls", "newwiki-cls-detached"))
    marked = {name.removesuffix(" (detached)"): of for name, of in approximate.items() if name.endswith(" (detached)")}
    apart = [max(abs(marked[name][place] - exact[name][place]) for name in marked) for place in (-2, -1)]
    best = [max(marked, key=lambda name: by_method[name][-2]) for by_method in (exact, marked)]
    row = [str(len(marked)), f"{100 * apart[0]:.2f}", f"{apart[1]:.3f}", *map(setting_name, best)]
    return table(["settings", "HM off by at most", "PSI", "highest HM, exact", "detached"], [row], left=0)


def figures(name: str) -> dict[str, list[float]]:
    """The figures of a comparison by method."""
    columns = (*(f"nDCG@10 {position}" for position in POSITIONS), "nDCG@10", "HM", "PSI")
    rows = result(name)["comparison"]["rows"]
    return {row["method"]: [row["figures"][column] for column in columns] for row in rows}


TABLES: dict[str, Callable[[], str]] = {
    "demo": demo,
    "drcd": lambda: compared("drcd"),
    "chunks": lambda: compared("chunks-cls"),
    "chunks-last": lambda: compared("chunks-last"),
    "paper": paper,
    "summary": summary,
    "encoding": encoding,
    "every-row": every_row,
    "stream": stream,
    "stream-cpu": stream_cpu,
    "sweeping": sweeping,
    "audited": audited,
    "detached": detached,
    "pairs": pairs,
    "one-vector": one_vector,
    "auditing": auditing,
    "indexing": indexing,
    "miniatures": miniatures,
    "mean": lambda: compared("newwiki-mean"),
    "minilm": lambda: compared("minilm"),
    "partitions": partitions,
    "stand-ins": stand_ins,
}


def filled(text: str) -> str:
    """A page with its tables made again."""
    return BLOCK.sub(lambda block: block[1] + "\n" + TABLES[block[2]]() + "\n" + block[3], text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a table has drifted")
    options = parser.parse_args()
    changed = [page for page in PAGES if filled(page.read_text("utf-8")) != page.read_text("utf-8")]
    for page in changed:
        if not options.check:
            page.write_text(filled(page.read_text("utf-8")), encoding="utf-8")
        print(
            f"{page.relative_to(ROOT)}: {'its tables are not those of the result files' if options.check else 'filled'}"
        )
    sys.exit(bool(changed) and options.check)


if __name__ == "__main__":
    main()
