"""The options that commands share, each written once, and the groups that they come in."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from evenspan.calibration import Calibration
from evenspan.cli.files import check_cache
from evenspan.cli.parsing import (
    BadOptionError,
    calibration,
    calibration_or_none,
    choice,
    location,
    name_and_value,
    number,
    parsed,
    path,
    text,
)

_MODEL = "A model folder, a name on the Hugging Face hub, or miniature:cls or miniature:last."
_BENCHMARK = "fineweb-posq, squad-posq, posir, nanobeir, generated, a folder in BEIR layout, or a file in SQuAD format."
_CALIBRATION = "Such as 'soft' or 'hard,strength=1.0,layers=last,basket_size=64'; what is left out takes its default."
_OR_NONE = f"Such as 'soft,strength=1.0', or 'none' (default: the model's own, or '{Calibration()}')."
_DOCUMENT_PROMPT = "In front of documents (default: the model's own)."
_QUERY_PROMPT = "In front of queries (default: the model's own)."
_EMBEDDER = "What segment-average compares sentences with: a model, or 'self' (default: Chonkie's own)."
_CACHE = "Folder for vectors (default: evenspan/vectors in $XDG_CACHE_HOME or ~/.cache)."

Model = Annotated[str, text("MODEL", "MODEL", _MODEL)]
OneCalibration = Annotated[Any, parsed("--calibration", "STRING", _CALIBRATION, calibration)]
Calibrations = Annotated[list[Any] | None, parsed("--calibration", "STRING", "May be repeated.", calibration)]
CalibrationOrNone = Annotated[Any, parsed("--calibration", "STRING", _OR_NONE, calibration_or_none)]
SourceFormat = Annotated[
    str | None,
    choice("--format", "Where the name of a file does not say.", "jsonl", "csv", "tsv", "parquet", "text"),
]
Device = Annotated[str | None, text("--device", "NAME", "cpu, cuda, … (default: the best there is).")]
BatchSize = Annotated[int, number("--batch-size", "Texts in a batch.")]
Seed = Annotated[int, number("--seed", "Of all that is drawn.", 0, 2**63 - 1)]
DocumentPrompt = Annotated[str | None, text("--document-prompt", "TEXT", _DOCUMENT_PROMPT, may_be_empty=True)]
QueryPrompt = Annotated[str | None, text("--query-prompt", "TEXT", _QUERY_PROMPT, may_be_empty=True)]
Table = Annotated[str | None, text("--table", "NAME", "In PostgreSQL (default: evenspan).")]
SegmentEmbedder = Annotated[str | None, text("--segment-embedder", "MODEL", _EMBEDDER)]
OutputFolder = Annotated[Path | None, path("--output", "DIR", "Write results, tables and figures here.", "-o")]
CacheFolder = Annotated[Path | None, path("--cache", "DIR", _CACHE)]
Store = Annotated[
    str, location("STORE", "STORE", "A folder (LanceDB), parquet:FOLDER, or postgresql://… (needs pgvector).")
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
    cache: CacheFolder = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep vectors in memory only.")] = False
    seed: Seed = 42
    resamples: Annotated[int, number("--resamples", "Of the bootstrap, 0 for none.", 0)] = 1000

    def arguments(self) -> dict[str, Any]:
        """What `evaluate`, `sweep` and `reproduce` take."""
        if self.no_cache and self.cache is not None:
            raise BadOptionError("--cache and --no-cache exclude each other: leave one of them out.")
        cache = None if self.no_cache else (self.cache or default_cache())
        check_cache(cache)
        names = ("query_prompt", "document_prompt", "batch_size", "seed", "resamples")
        return {"cache": cache, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class Data:
    """A benchmark and how much of it."""

    benchmark: Annotated[str, location("--benchmark", "NAME|DIR", _BENCHMARK)]
    option: Annotated[
        list[str] | None,
        parsed(
            "--option",
            "NAME=VALUE",
            "An option of the benchmark, e.g. tiny=true, language=deu-Latn, path=DIR; may be repeated.",
            name_and_value,
        ),
    ] = None
    limit: Annotated[int | None, number("--limit", "A quick look: N documents and the queries they answer.")] = None

    def load(self, **more: Any) -> Any:
        """The benchmark; `more` are options of it that have an option of their own."""
        from evenspan.evaluation import load_benchmark

        pairs = dict(pair.split("=", 1) for pair in self.option or ())
        given = {name: _value(value) for name, value in pairs.items()}
        try:
            return load_benchmark(self.benchmark, limit=self.limit, **{**given, **more})
        except TypeError as error:
            if not given:
                raise
            raise ValueError(
                f"The benchmark {self.benchmark!r} does not take one of the values {', '.join(self.option or ())}."
            ) from error


def _value(words: str) -> bool | int | str:
    """True, false and whole numbers are read as such."""
    return {"true": True, "false": False}.get(words.lower(), int(words) if words.isdecimal() else words)


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: a parameter that is a dataclass becomes its fields on the command line."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    empty = inspect.Parameter.empty
    declared: list[tuple[str, Any, Any]] = []  # name, default, annotation
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            declared.append((name, parameter.default, hints[name]))
            continue
        kinds = get_type_hints(groups[name], include_extras=True)
        declared += [
            (field.name, empty if field.default is MISSING else field.default, kinds[field.name])
            for field in fields(groups[name])
        ]

    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, default, kind in declared
        ]
    )
    run.__annotations__ = {name: kind for name, _, kind in declared}
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    return run
