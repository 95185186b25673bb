"""The options that commands share, each written once, and the groups that they come in."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from evenspan.calibration import Calibration
from evenspan.cli import parsing
from evenspan.cli.loading import load_model
from evenspan.cli.parsing import BadOptionError, choice, number, parameter

_CALIBRATION = "Such as 'soft' or 'hard,strength=1.0,layers=last,basket_size=64'; what is left out takes its default."
_OR_NONE = f"Such as 'soft,strength=1.0', or 'none' (default: the model's own, or '{Calibration()}')."
_MODEL = "A model folder, a name on the Hugging Face hub, or miniature:cls or miniature:last."
_BENCHMARK = "fineweb-posq, squad-posq, posir, nanobeir, generated, a folder in BEIR layout, or a file in SQuAD format."
_OPTION = "An option of the benchmark, such as tiny=true, language=deu-Latn or path=DIR. May be repeated."
_DOCUMENT_PROMPT = "Put in front of every document (default: the model's own)."
_QUERY_PROMPT = "Put in front of every query (default: the model's own)."
_EMBEDDER = "For segment-average: the model that compares sentences, or 'self' for MODEL (default: Chonkie's own)."
SOURCE = (
    "Documents: a file (.jsonl, .csv, .tsv, .parquet, .txt or .md; also .gz and .zst), a folder of such files, a glob in "
    "quotes, - for standard input, or hf:OWNER/NAME[:CONFIG[:SPLIT]] for a dataset on the hub."
)
CACHE = "Folder for vectors (default: evenspan/vectors in $XDG_CACHE_HOME or ~/.cache)."

Model = Annotated[str, parameter("MODEL", _MODEL, "MODEL", parsing.model)]
OneCalibration = Annotated[Any, parameter("--calibration", _CALIBRATION, "STRING", Calibration.parse)]
Calibrations = Annotated[
    list[Any] | None, parameter("--calibration", f"{_CALIBRATION} May be repeated.", "STRING", Calibration.parse)
]
CalibrationOrNone = Annotated[
    Any,
    parameter(
        "--calibration", _OR_NONE, "STRING", lambda words: words if words == "none" else Calibration.parse(words)
    ),
]
SourceFormat = Annotated[
    str | None,
    choice("--format", "What the files hold, where their names do not say.", "jsonl", "csv", "tsv", "parquet", "text"),
]
Device = Annotated[
    str | None, parameter("--device", "cpu, cuda, … (default: the best there is).", "NAME", parsing.text)
]
BatchSize = Annotated[int, number("--batch-size", "Most texts in a batch.")]
Seed = Annotated[int, number("--seed", "Of all that is drawn at random.", 0, 2**63 - 1)]
DocumentPrompt = Annotated[str | None, parameter("--document-prompt", _DOCUMENT_PROMPT, "TEXT", parsing.prompt)]
QueryPrompt = Annotated[str | None, parameter("--query-prompt", _QUERY_PROMPT, "TEXT", parsing.prompt)]
Table = Annotated[str | None, parameter("--table", "In PostgreSQL (default: evenspan).", "NAME", parsing.text)]
SegmentEmbedder = Annotated[str | None, parameter("--segment-embedder", _EMBEDDER, "MODEL", parsing.model)]
OutputFolder = Annotated[
    Path | None, parameter("--output", "Write results, tables and figures here.", "DIR", parsing.new_folder, "-o")
]
Store = Annotated[
    str,
    parameter(
        "STORE", "A folder (LanceDB), parquet:FOLDER, or postgresql://… (needs pgvector).", "STORE", parsing.given
    ),
]


def default_cache() -> Path:
    """Where vectors are kept unless told otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenspan" / "vectors"


@dataclass(frozen=True)
class Encoding:
    """How documents and queries are encoded and figures resampled."""

    query_prompt: QueryPrompt = None
    document_prompt: DocumentPrompt = None
    batch_size: BatchSize = 32
    device: Device = None
    cache: Annotated[Path | None, parameter("--cache", CACHE, "DIR", parsing.path)] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep vectors in memory only.")] = False
    seed: Seed = 42
    resamples: Annotated[int, number("--resamples", "Of the bootstrap, for intervals; 0 for none.", 0)] = 1000

    def arguments(self) -> dict[str, Any]:
        """What `evaluate`, `sweep` and `reproduce` take."""
        if self.no_cache and self.cache is not None:
            raise BadOptionError("--cache and --no-cache exclude each other: leave one of them out.")
        cache = None if self.no_cache else self.cache or default_cache()
        if cache is not None:
            way_out = "Name another folder with --cache, or keep them in memory with --no-cache."
            parsing.writable(cache, "Cannot keep vectors in", way_out)
        chosen = {name: value for name, value in vars(self).items() if name not in ("device", "no_cache")}
        return {**chosen, "cache": cache}


def _pair(words: str) -> str:
    if not all(words.partition("=")[:2]):
        raise ValueError(f"write it as NAME=VALUE, such as tiny=true, not {words!r}.")
    return words


@dataclass(frozen=True)
class Data:
    """A model and a benchmark, and how much of it."""

    model: Model
    benchmark: Annotated[str, parameter("--benchmark", _BENCHMARK, "NAME|DIR", parsing.given)]
    option: Annotated[list[str] | None, parameter("--option", _OPTION, "NAME=VALUE", _pair)] = None
    limit: Annotated[int | None, number("--limit", "A quick look: N documents and the queries they answer.")] = None

    def require(self, purpose: str, *modules: str) -> None:
        """Name what is not installed, before any work."""
        from evenspan.evaluation.evaluating import require_evaluation

        on_hub = self.benchmark in ("fineweb-posq", "squad-posq", "posir", "nanobeir")
        require_evaluation(purpose, *modules, *(("datasets", "pyarrow") if on_hub else ()))

    def load(self, device: str | None, **more: Any) -> tuple[Any, Any]:
        """The model and the benchmark; `more` are options of it that have an option of their own."""
        from evenspan.evaluation import load_benchmark

        pairs = dict(pair.split("=", 1) for pair in self.option or ())
        given = {name: _value(value) for name, value in pairs.items()}
        try:
            benchmark = load_benchmark(self.benchmark, limit=self.limit, **{**given, **more})
        except TypeError as error:
            if not given:
                raise
            values = ", ".join(self.option or ())
            raise ValueError(f"The benchmark {self.benchmark!r} does not take one of the values {values}.") from error
        return load_model(self.model, device), benchmark


def _value(words: str) -> bool | int | str:
    """True, false and whole numbers are read as such."""
    return {"true": True, "false": False}.get(words.lower(), int(words) if words.isdecimal() else words)


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: a parameter that is a dataclass becomes its fields on the command line."""
    groups: dict[str, Any] = {name: kind for name, kind in get_type_hints(command).items() if is_dataclass(kind)}
    declared: list[inspect.Parameter] = []
    for name, own in inspect.signature(command, eval_str=True).parameters.items():
        inner = inspect.signature(groups[name], eval_str=True).parameters.values() if name in groups else [own]
        declared += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in inner]

    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in declared}
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    return run
