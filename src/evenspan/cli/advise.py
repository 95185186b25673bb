"""`evenspan advise`: whether to calibrate and whether to chunk, from your own texts."""

from typing import Annotated, Any

from evenspan.cli import options
from evenspan.cli.loading import load_model
from evenspan.cli.output import Display, how_to_use, made
from evenspan.cli.parsing import BadOptionError, decimal, number, option
from evenspan.errors import require_evaluation

_BUDGET = "Maximum average number of vectors per document."
_BYTES = "Maximum average bytes per document in the index, with float32 vectors."
_SETTING = "Setting for whole documents, or a file written by `tune` or `advise` (default: the best of four strengths)."


def advise(
    *,
    model: options.Model,
    texts: options.Texts,
    sample: Annotated[int, number("Number of documents to draw at random.")] = 300,
    field: options.TextField = None,
    source_format: options.SourceFormat = None,
    calibration: Annotated[Any, option(_SETTING, "STRING|FILE", options.setting_or_plain)] = None,
    budget: Annotated[float | None, decimal(_BUDGET, 1, 1_000_000)] = None,
    size: Annotated[int | None, number(_BYTES, 1, 10**9, "--bytes")] = None,
    output: options.OutputFolder = None,
    encoding: options.Encoding,
    display: Display,
) -> None:
    """Decide whether to calibrate and whether to chunk. No labels needed.

    Sentences of a sample of your documents stand in for questions. Compares whole documents, chunks of several lengths, late
    chunking and hybrid search, plain and calibrated: quality by position, vectors and bytes per document, encoding time, and
    truncation. Ends with the `evenspan index` command to run. --output writes advice.json, which every --calibration option
    accepts, and results for `evenspan report`.
    """
    if encoding.resamples < 100:
        raise BadOptionError(f"--resamples must be at least 100 to tell a gain from noise, not {encoding.resamples}.")
    require_evaluation("Advice", "bm25s")
    arguments = encoding.arguments()
    from evenspan.advising.advising import advise as run
    from evenspan.advising.advising import prompt_options, short_texts
    from evenspan.corpus.texts import index_options, read_texts
    from evenspan.evaluation.benchmarks.texts import TooShortError, of_texts

    drawn = read_texts(texts, field, sample, encoding.seed, source_format)
    short: TooShortError | None = None
    try:
        benchmark = of_texts(drawn, texts, sample, encoding.seed, field)
    except TooShortError as error:
        short = error
    command = {} if source_format is None else {"--format": source_format}
    command |= index_options(texts, drawn, field, source_format)
    command |= prompt_options(encoding.query_prompt, encoding.document_prompt)
    if short is not None:
        loaded, prompt = load_model(model, encoding.device), encoding.document_prompt
        result = short_texts(loaded, short, source=texts, prompt=prompt, more=command, budget=budget, bytes=size)
    else:
        limits: dict[str, Any] = {"budget": budget, "bytes": size, "progress": not display.quiet}
        loaded = load_model(model, encoding.device)
        result = run(loaded, benchmark, calibration, source=texts, index_options=command, **limits, **arguments)
    display.show(result, result.to_dict(), result.to_markdown())
    if output is not None:
        with made(output):
            result.write(output)
        display.say(how_to_use(output / "advice.json", result.calibration))
