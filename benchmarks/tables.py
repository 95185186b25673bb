"""Every table of README and docs with the command that makes it; run all of them, or some, with one build.

    python benchmarks/tables.py --list
    python benchmarks/tables.py --data DIR --model DIR --output tables            # all that this machine can make
    python benchmarks/tables.py --data DIR --model DIR --output tables --only drcd newwiki-cls

`--data` holds `newwiki-long-en` and `drcd-zh` in BEIR layout, `--model` is bge-small-zh-v1.5. Every command writes to a folder
of its own, with its output in `log.txt`; one that has finished is not run again. `NAME.json` beside the folder has the figures,
without scores of queries and without texts: what benchmarks/results/tables keeps.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenspan.evaluation import EvaluationResult

_GRID = "{output}/grid.txt"  # the paper's grid and ablation, each setting once
_CHUNKS = "--baseline token-average --baseline late-chunking --baseline chunks-max --baseline bm25 --baseline hybrid"
_DRCD = (
    "evaluate {model} --benchmark {data}/drcd-zh --calibration soft,basket_size=64 --window 128 --segment-embedder self "
    f"--calibration soft,strength=1.0,basket_size=64 --baseline segment-average --baseline window-average {_CHUNKS}"
)
_NEWWIKI = "--benchmark {data}/newwiki-long-en"
_ARTICLES = "{data}/newwiki-long-en/corpus.jsonl"
_SCRIPTS = ("index", "index_faults", "overhead", "scoring", "coverage", "audit", "sweep")


@dataclass(frozen=True)
class Table:
    """A table or figure: where it is shown, and the command that makes it."""

    name: str
    shown: str
    command: str  # of `evenspan`, or a script
    gpu: bool = False


TABLES = (
    Table("demo", "README, See it", "demo"),
    Table(
        "drcd-default",
        "README, Does it help",
        "evaluate {model} --benchmark {data}/drcd-zh --calibration soft --output {output}",
    ),
    Table("drcd", "docs/results.md, bge-small-zh-v1.5 on DRCD", f"{_DRCD} --output {{output}}"),
    *(
        Table(
            f"newwiki-{kind}",
            "docs/sweeps.md, all tables and figures",
            f"sweep miniature:{kind} {_NEWWIKI} --grid {_GRID} --output {{output}}",
        )
        for kind in ("cls", "last")
    ),
    Table(
        "newwiki-cls-detached",
        "docs/sweeps.md, the detached approximation",
        f"sweep miniature:cls {_NEWWIKI} --grid {_GRID} --detached --output {{output}}",
    ),
    *(
        Table(
            f"chunks-{kind}",
            "docs/results.md, chunks and calibration together",
            f"evaluate miniature:{kind} {_NEWWIKI} --calibration soft,basket_size=64 --baseline chunks-max --baseline hybrid "
            "--baseline bm25 --window 512 --output {output}",
        )
        for kind in ("cls", "last")
    ),
    Table(
        "newwiki-mean",
        "docs/mean_pooling.md, What it brings",
        f"evaluate miniature:mean {_NEWWIKI} --calibration soft --calibration soft,strength=0.75 "
        "--calibration soft,strength=1.0 --baseline window-average --output {output}",
    ),
    Table(
        "minilm",
        "docs/mean_pooling.md, MiniLM itself",
        f"evaluate {{minilm}} {_NEWWIKI} --calibration soft,basket_size=64,partition=even --baseline chunks-max "
        "--baseline window-average --window 240 --output {output}",
    ),
    *(
        Table(
            f"audit-{name}",
            "docs/audit.md, What it found",
            f"audit {model} --texts {texts} --output {{output}}",
        )
        for name, model, texts in (
            ("cls", "miniature:cls", _ARTICLES),
            ("last", "miniature:last", _ARTICLES),
            ("shuffled", "miniature:cls", "{shuffled}"),
            ("minilm", "{minilm}", _ARTICLES),
        )
    ),
    *(Table(f"benchmark-{name}", f"benchmarks/results, {name}", f"benchmarks/{name}.py") for name in _SCRIPTS),
    Table("benchmark-encode_gpu", "README, What it costs", "benchmarks/encode_gpu.py", gpu=True),
    Table("benchmark-index_ray", "docs/indexing.md", "benchmarks/index_ray.py", gpu=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--output", type=Path, default=Path("tables"))
    parser.add_argument("--only", nargs="+", choices=[table.name for table in TABLES])
    options = parser.parse_args()
    chosen = [table for table in TABLES if table.name in options.only] if options.only else list(TABLES)
    if options.list:
        for table in chosen:
            print(f"{table.name:<22}{table.shown:<54}{table.command}")
        return
    if options.data is None or options.model is None:
        parser.error("--data and --model are needed to make tables; --list shows what there is.")
    for table in chosen:
        print(f"{table.name}: {_make(table, options)}", flush=True)


def _make(table: Table, options: argparse.Namespace) -> str:
    import torch

    folder = options.output / table.name
    if table.gpu and not torch.cuda.is_available():
        return "needs a GPU, left out"
    if (folder / "done").exists():
        return "is there"
    folder.mkdir(parents=True, exist_ok=True)
    if _GRID in table.command:
        from evenspan.sweeps import ablation_grid, paper_grid

        settings = dict.fromkeys([*paper_grid(), *ablation_grid()])
        (folder / "grid.txt").write_text("".join(f"{setting}\n" for setting in settings), encoding="utf-8")
    values: dict[str, Path] = {"data": options.data, "model": options.model, "output": folder}
    if "{minilm}" in table.command:
        from evenspan.models.miniatures import base_folder

        values["minilm"] = base_folder(None)
    if "{shuffled}" in table.command:
        values["shuffled"] = folder / "shuffled.jsonl"
        values["shuffled"].write_text(_shuffled(options.data / "newwiki-long-en" / "corpus.jsonl"), encoding="utf-8")
    words = [word.format(**values) for word in shlex.split(table.command)]
    command = [sys.executable, *words] if words[0].endswith(".py") else [sys.executable, "-m", "evenspan", *words]
    start = time.perf_counter()
    with (folder / "log.txt").open("w", encoding="utf-8") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    if code == 0:
        made = {"command": table.command, "build": _build(), **_figures(folder)}
        figures = json.dumps(made, indent=1, ensure_ascii=False)
        for name, place in values.items():  # where things lie on this machine is nobody's business
            figures = figures.replace(str(place), f"{{{name}}}")
        (options.output / f"{table.name}.json").write_text(f"{figures}\n", encoding="utf-8")
        (folder / "done").touch()
    return (
        f"{'made' if code == 0 else f'failed with {code}, see {folder}/log.txt'}, {time.perf_counter() - start:.0f} s"
    )


def _build() -> str:
    """The commit that this is."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _shuffled(source: Path) -> str:
    """The same documents with their words in random order: what is found in them is position, not content."""
    rng = random.Random(5)
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        words = row["text"].split()
        row["text"] = " ".join(rng.sample(words, len(words)))
    return "".join(json.dumps(row) + "\n" for row in rows)


def _pairs(results: Mapping[str, EvaluationResult]) -> list[dict[str, Any]]:
    """What a change of one thing in a setting changes: of the variant, the strength, the layers or the size of baskets."""
    from evenspan import Calibration
    from evenspan.evaluation import compare

    changes: tuple[tuple[float, dict[str, Any]], ...] = (
        *((strength, {"variant": variant}) for strength in (0.5, 1.0) for variant in ("uniform", "hard")),
        *((0.5, {"strength": strength}) for strength in (0.75, 1.0)),
        *((strength, change) for change in ({"layers": "last"}, {"basket_size": 256}) for strength in (0.5, 1.0)),
    )
    found = []
    for strength, change in changes:
        base = Calibration(strength=strength)
        pair = [results[str(base)], results[str(replace(base, **change))]]
        differences = json.loads(compare(pair).to_json())["rows"][1]["differences"]
        found.append({"from": str(base), "to": str(replace(base, **change)), "differences": differences})
    return found


def _figures(folder: Path) -> dict[str, Any]:
    """What the results and audits of a folder found, without scores of queries and without texts."""
    from evenspan import Calibration
    from evenspan.evaluation import EvaluationResult, compare
    from evenspan.formatting import is_baseline

    found: dict[str, Any] = {}
    if (folder / "audit.json").exists():
        audit = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
        del audit["truncation"]["worst"]
        found["audit"] = audit
    files = [path for path in sorted(folder.glob("*.json")) if path.stem not in ("audit", "comparison", "run")]
    results = sorted(map(EvaluationResult.read, files), key=lambda result: result.method != "none")
    if results:
        swept = sum(not is_baseline(result.method) for result in results) > 3
        found["results"] = [result.to_dict(per_query=False) for result in results]
        found["comparison"] = json.loads(compare(results, corrected=swept).to_json())
    if str(Calibration()) in {result.method for result in results} and (folder / "grid.txt").exists():
        found["pairs"] = _pairs({result.method: result for result in results})
    return found


if __name__ == "__main__":
    main()
