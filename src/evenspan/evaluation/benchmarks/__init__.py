"""Where benchmarks come from: one file per source, one row here."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from evenspan.evaluation.benchmark import Benchmark

# name: (module, function); hub sources take `path` for a local copy in the hub's own layout.
SOURCES = {
    "fineweb-posq": ("fineweb", "load_fineweb_posq"),
    "squad-posq": ("squad", "load_squad_posq"),
    "posir": ("posir", "load_posir"),
    "nanobeir": ("nanobeir", "load_nanobeir"),
    "generated": ("generated", "load_generated"),
}
TEXTS = "texts:"  # in front of any source of documents


def load_benchmark(name_or_path: str | os.PathLike[str], *, limit: int | None = None, **options: Any) -> Benchmark:
    """Load a benchmark by name, from a folder in BEIR layout, from files in SQuAD format, or make one of texts alone.

    Args:
        name_or_path: `"fineweb-posq"`, `"squad-posq"`, `"posir"`, `"nanobeir"`, a folder with `corpus.jsonl`,
            `queries.jsonl` and qrels (also with .gz or .zst), a `.json` file in SQuAD format (or a folder of them), or
            `"texts:corpus.jsonl"`: any corpus, sentences of whose documents stand in for questions.
        limit: maximum documents per collection, for a quick look.
        **options: of the source; for hub sources `path` names a local copy in the hub's own layout.

    Example:
        >>> load_benchmark("posir", language="deu-Latn", corpus_language="eng-Latn")  # doctest: +SKIP
    """
    name, path = os.fspath(name_or_path), Path(name_or_path)
    if name in SOURCES:
        module, function = SOURCES[name]
    elif name.startswith(TEXTS):
        module, function = "texts", "load_texts"
    elif path.is_dir() and not _squad_files(path):
        module, function = "directory", "load_directory"
    elif path.exists():
        module, function = "squad", "load_squad_files"
    else:
        raise ValueError(
            f"Unknown benchmark {name!r}: give a folder, a file in SQuAD format, "
            f"texts:FILE for a corpus without questions, or one of {', '.join(SOURCES)}."
        )
    loader: Callable[..., Benchmark] = getattr(import_module(f"{__name__}.{module}"), function)
    arguments = () if name in SOURCES else (name.removeprefix(TEXTS),) if name.startswith(TEXTS) else (path,)
    known = list(inspect.signature(loader).parameters)[len(arguments) :]
    unknown = next((option for option in options if option not in known), None)
    if unknown is not None:
        raise ValueError(f"The benchmark {name!r} has no option {unknown!r}. Available: {', '.join(known)}.")
    return loader(*arguments, **options).limited(limit)


def _squad_files(path: Path) -> bool:
    return not any(path.glob("corpus.jsonl*")) and any(path.glob("*.json"))
