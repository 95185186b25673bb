"""The options that commands share, each written once, and the groups that they come in."""

import inspect
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from evenspan.calibration import Calibration
from evenspan.cli import parsing
from evenspan.cli.parsing import BadOptionError, argument, choice, number, option
from evenspan.errors import require_evaluation

SOURCE = (
    "Documents: a file (.jsonl, .csv, .tsv, .parquet, .txt or .md; also .gz and .zst), a folder of such files, a glob in "
    "quotes, - for standard input, or hf:OWNER/NAME[:CONFIG[:SPLIT]] for a dataset on the hub."
)
_CALIBRATION = (
    "A setting such as 'soft' or 'hard,strength=1.0,layers=last,basket_size=64', or a file written by `tune` or `advise`. "
    "Omitted parts take their defaults."
)
_OR_NONE = (
    "A setting such as 'soft,strength=1.0', a file written by `tune` or `advise`, or 'none' (default: the model's own, or "
    f"'{Calibration()}')."
)
_ANSWERS = ("tuning", "advice")
_TEXTS = f"Instead of a benchmark, use documents; their sentences stand in for questions. {SOURCE}"
_SAMPLE = "With --texts: number of documents to draw at random (default: 300)."
_FIELD = "With --texts: the text field (default: text, or the only field)."
_BENCHMARK = "fineweb-posq, squad-posq, posir, nanobeir, generated, a folder in BEIR layout, or a file in SQuAD format."
_OPTION = "An option of the benchmark, such as tiny=true, language=deu-Latn (or all) or path=DIR. May be repeated."
_EMBEDDER = "For segment-average: the model that compares sentences, or 'self' (default: Chonkie's own)."
_FORMAT = "File format, if the extension does not show it."
_MODEL = "A folder, a name on the Hugging Face hub, miniature:cls, miniature:last or miniature:mean."
_PROMPT = "Text to put before each {} (default: the model's own)."
_STORE = "A folder (LanceDB), parquet:FOLDER, or postgresql://HOST/NAME (needs pgvector)."
CACHE = "Folder for cached vectors (default: evenspan/vectors in $XDG_CACHE_HOME or ~/.cache)."


def _saved(words: str) -> Calibration | None:
    """A setting by its words, or the one that `tune` or `advise` saved; None if they said to leave it off."""
    try:
        return Calibration.parse(words)
    except ValueError as error:
        if not (words.endswith(".json") or (words and os.path.isfile(words))):
            raise
        try:
            values: Any = json.loads(Path(words).read_text(encoding="utf-8"))
        except OSError:
            raise ValueError(f"there is no file {words}, and it is not a setting: {error}") from None
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict) or values.get("kind") not in _ANSWERS or "calibration" not in values:
            raise ValueError(f"{words} was not written by `evenspan tune` or `evenspan advise`.") from None
        return None if values["calibration"] is None else Calibration.parse(values["calibration"])


def setting_or_plain(words: str) -> Calibration:
    """A setting, as an answer that was saved has it too: strength 0 where that is to leave it off."""
    return _saved(words) or Calibration(strength=0.0)


def _or_none(words: str) -> Calibration | str:
    return words if words == "none" else _saved(words) or "none"


Model = Annotated[str, argument(_MODEL, "MODEL", parsing.model_name)]
OneCalibration = Annotated[Any, option(_CALIBRATION, "STRING|FILE", setting_or_plain)]
Calibrations = Annotated[list[Any] | None, option(f"{_CALIBRATION} May be repeated.", "STRING|FILE", setting_or_plain)]
CalibrationOrNone = Annotated[Any, option(_OR_NONE, "STRING|FILE", _or_none)]
SourceFormat = Annotated[str | None, choice(_FORMAT, "jsonl|csv|tsv|parquet|text", "--format")]
Texts = Annotated[str, option(SOURCE, "FILE|DIR", parsing.given)]
TextField = Annotated[str | None, option("The text field (default: text, or the only field).")]
Device = Annotated[str | None, option("Device, such as cpu or cuda (default: the best available).")]
BatchSize = Annotated[int, number("Maximum texts per batch. On a GPU the default (32) means no limit.")]
Seed = Annotated[int, number("Random seed.", 0, 2**63 - 1)]
DocumentPrompt = Annotated[str | None, option(_PROMPT.format("document"), "TEXT", parsing.prompt)]
QueryPrompt = Annotated[str | None, option(_PROMPT.format("query"), "TEXT", parsing.prompt)]
Table = Annotated[str | None, option("Table in PostgreSQL (default: evenspan).")]
SegmentEmbedder = Annotated[str | None, option(_EMBEDDER, "MODEL", parsing.model_name)]
OutputFolder = Annotated[Path | None, option("Write all results here.", "DIR", parsing.new_folder, "--output", "-o")]
Store = Annotated[str, argument(_STORE, "STORE", parsing.given)]


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
    cache: Annotated[Path | None, option(CACHE, "DIR", parsing.any_path)] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep vectors in memory only.")] = False
    seed: Seed = 42
    resamples: Annotated[int, number("Bootstrap resamples for intervals, 0 for none.", 0)] = 1000

    def arguments(self) -> dict[str, Any]:
        """What `evaluate`, `sweep` and `reproduce` take."""
        if self.no_cache and self.cache is not None:
            raise BadOptionError("--cache and --no-cache cannot be combined.")
        cache = None if self.no_cache else self.cache or default_cache()
        if cache is not None:
            way_out = "Choose another folder with --cache, or keep them in memory with --no-cache."
            parsing.writable(cache, "Cannot keep vectors in", way_out)
        chosen = {name: value for name, value in vars(self).items() if name not in ("device", "no_cache")}
        return {**chosen, "cache": cache}


@dataclass(frozen=True)
class Data:
    """A model and a benchmark, and how much of it."""

    model: Model
    benchmark: Annotated[str | None, option(_BENCHMARK, "NAME|DIR", parsing.given)] = None
    texts: Annotated[str | None, option(_TEXTS, "FILE|DIR", parsing.given)] = None
    sample: Annotated[int | None, number(_SAMPLE)] = None
    field: Annotated[str | None, option(_FIELD)] = None
    source_format: SourceFormat = None
    options: Annotated[list[str] | None, option(_OPTION, "NAME=VALUE", parsing.text, "--option")] = None
    limit: Annotated[int | None, number("Evaluate only N documents and their queries.")] = None

    def require(self, purpose: str, *modules: str) -> None:
        """Refuse what does not go together, and name what is not installed, before any work."""
        of_texts = {"--sample": self.sample, "--field": self.field, "--format": self.source_format}
        if (self.benchmark is None) == (self.texts is None):
            raise BadOptionError("Give either --benchmark or --texts.")
        given = next((name for name, value in of_texts.items() if value is not None), None)
        if given is not None and self.texts is None:
            raise BadOptionError(
                f"{given} applies only to --texts: leave it out, or give --texts instead of --benchmark."
            )
        on_hub = self.benchmark in ("fineweb-posq", "squad-posq", "posir", "nanobeir")
        require_evaluation(purpose, *modules, *(("datasets", "pyarrow") if on_hub else ()))

    def languages(self) -> "list[Data]":
        """One for each language of PosIR where several were asked for, such as `language=all`; otherwise this one alone."""
        chosen = dict(map(_name_and_value, self.options or ()))
        asked = str(chosen.get("language", "")).split(",")
        if self.benchmark != "posir" or (asked != ["all"] and len(asked) < 2):
            return [self]
        from evenspan.evaluation.benchmarks.posir import LANGUAGES

        others = [pair for pair in self.options or () if not pair.startswith("language=")]
        return [
            replace(self, options=[*others, f"language={name}"]) for name in (LANGUAGES if asked == ["all"] else asked)
        ]

    def load_benchmark(self, seed: int, **more: Any) -> Any:
        """The benchmark; `more` are options of it that have an option of their own."""
        from evenspan.evaluation import load_benchmark

        chosen = dict(map(_name_and_value, self.options or ()))
        given = {"sample": self.sample, "field": self.field, "format": self.source_format}
        if self.texts is not None:
            more |= {"seed": seed, **{name: value for name, value in given.items() if value is not None}}
        name = self.benchmark or f"texts:{self.texts}"
        try:
            return load_benchmark(name, limit=self.limit, **{**more, **chosen})
        except TypeError as error:
            if not chosen:
                raise
            values = ", ".join(self.options or ())
            raise ValueError(f"The benchmark {name!r} does not accept one of the values {values}.") from error


def _name_and_value(pair: str) -> tuple[str, bool | int | float | str]:
    """The parts of NAME=VALUE; true, false and numbers are read as such."""
    name, equals, value = pair.partition("=")
    if not (name and equals):
        raise BadOptionError(f"--option: write it as NAME=VALUE, such as tiny=true, not {pair!r}.")
    number = int(value) if value.isdecimal() else float(value) if re.fullmatch(r"\d*\.\d+", value, re.ASCII) else value
    return name, {"true": True, "false": False}.get(value.lower(), number)


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: a parameter that is a dataclass becomes its fields on the command line."""
    groups: dict[str, Any] = {name: kind for name, kind in command.__annotations__.items() if is_dataclass(kind)}
    declared: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        own = inspect.signature(groups[name]).parameters.values() if name in groups else [parameter]
        declared += [each.replace(kind=parameter.kind) for each in own]

    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in declared}
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    return run
