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
from evenspan.cli import parsing
from evenspan.cli.parsing import BadOptionError

_BEST = "cpu, cuda, … (default: the best there is)"
_DEFAULT = f"default: the model's own, or '{Calibration()}'"

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model folder, a name on the Hugging Face hub, or miniature:cls or miniature:last.",
        parser=parsing.text("MODEL"),
    ),
]
OneCalibration = Annotated[
    Any,
    typer.Option(
        "--calibration",
        metavar="STRING",
        help="A calibration such as 'soft' or 'hard,strength=1.0,layers=last,basket_size=64'; what is left out takes its "
        "default.",
        parser=parsing.calibration,
    ),
]
CalibrationOrNone = Annotated[
    Any,
    typer.Option(
        "--calibration",
        metavar="STRING",
        help=f"Such as 'soft,strength=1.0', or 'none' ({_DEFAULT}).",
        parser=parsing.calibration_or_none,
        show_default=False,
    ),
]
SourceFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="jsonl, csv, tsv, parquet or text, where the name of a file does not say.",
        parser=parsing.choice("--format", "jsonl", "csv", "tsv", "parquet", "text"),
    ),
]
Device = Annotated[str | None, typer.Option("--device", metavar="NAME", help=_BEST, parser=parsing.text("--device"))]
BatchSize = Annotated[
    int, typer.Option("--batch-size", metavar="N", help="Texts in a batch.", parser=parsing.whole("--batch-size"))
]
Seed = Annotated[
    int,
    typer.Option("--seed", metavar="N", help="Of all that is drawn.", parser=parsing.whole("--seed", 0, 2**63 - 1)),
]
DocumentPrompt = Annotated[
    str | None,
    typer.Option(
        "--document-prompt",
        metavar="TEXT",
        help="In front of documents (default: the model's own).",
        parser=parsing.text("--document-prompt", may_be_empty=True),
    ),
]
QueryPrompt = Annotated[
    str | None,
    typer.Option(
        "--query-prompt",
        metavar="TEXT",
        help="In front of queries (default: the model's own).",
        parser=parsing.text("--query-prompt", may_be_empty=True),
    ),
]
Table = Annotated[
    str | None,
    typer.Option("--table", metavar="NAME", help="In PostgreSQL (default: evenspan).", parser=parsing.text("--table")),
]
SegmentEmbedder = Annotated[
    str | None,
    typer.Option(
        "--segment-embedder",
        metavar="MODEL",
        help="What segment-average compares sentences with: a model, or 'self' (default: Chonkie's own).",
        parser=parsing.text("--segment-embedder"),
    ),
]
OutputFolder = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="DIR", help="Write results, tables and figures here.", parser=parsing.path("--output")
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Folder for vectors (default: evenspan/vectors in $XDG_CACHE_HOME or ~/.cache).",
        parser=parsing.path("--cache"),
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
    cache: CacheFolder = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep vectors in memory only.")] = False
    seed: Seed = 42
    resamples: Annotated[
        int,
        typer.Option(
            "--resamples", metavar="N", help="Of the bootstrap, 0 for none.", parser=parsing.whole("--resamples", 0)
        ),
    ] = 1000

    def arguments(self) -> dict[str, Any]:
        """What `evaluate`, `sweep` and `reproduce` take."""
        from evenspan.cli.files import check_cache

        if self.no_cache and self.cache is not None:
            raise BadOptionError("--cache and --no-cache exclude each other: leave one of them out.")
        cache = None if self.no_cache else (self.cache or default_cache())
        if cache is not None:
            check_cache(cache)
        names = ("query_prompt", "document_prompt", "batch_size", "seed", "resamples")
        return {"cache": cache, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class Data:
    """A benchmark and how much of it."""

    benchmark: Annotated[
        str,
        typer.Option(
            "--benchmark",
            metavar="NAME|DIR",
            help="fineweb-posq, squad-posq, posir, nanobeir, generated, a folder in BEIR layout, or a file in SQuAD format.",
            parser=parsing.text("--benchmark"),
        ),
    ]
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="An option of the benchmark, e.g. tiny=true, language=deu-Latn, path=DIR; may be repeated.",
            parser=parsing.name_and_value,
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            help="A quick look: N documents and the queries they answer.",
            parser=parsing.whole("--limit"),
        ),
    ] = None

    def load(self, **more: Any) -> Any:
        """The benchmark; `more` are options of it that have an option of their own."""
        from evenspan.evaluation import load_benchmark

        pairs = dict(pair.split("=", 1) for pair in self.option or ())
        given = {name: _value(text) for name, text in pairs.items()}
        try:
            return load_benchmark(self.benchmark, limit=self.limit, **{**given, **more})
        except TypeError as error:
            if not given:
                raise
            raise ValueError(
                f"The benchmark {self.benchmark!r} does not take one of the values {', '.join(self.option or ())}."
            ) from error


def _value(text: str) -> bool | int | str:
    """True, false and whole numbers are read as such."""
    return {"true": True, "false": False}.get(text.lower(), int(text) if text.isdecimal() else text)


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
