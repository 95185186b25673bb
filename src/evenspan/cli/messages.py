"""Errors as a command says them: one line, no long values, and the words of the command line, not of Python."""

import re
import traceback
from collections.abc import Mapping
from pathlib import Path

import evenspan
from evenspan.errors import ElsewhereError
from evenspan.formatting import tame

_HOME = str(Path(evenspan.__file__).parent)
_LONG_VALUE = re.compile(r"'[^'\n]{200,}'|\S{200,}")
# What the library says, and what the command line calls it.
_PHRASES = {
    r" \(replace=True\)": "",
    r"\bpath=DIR \(on the command line: (--option path=DIR)\)": r"\1",
    r"`path` names": "the option path names",
    r"^An address and a number of workers\b": "--address and --workers",
    r"\b([Tt]he engine 'ray'|engine='ray')": "--engine ray",
    r"^The table '.*' is for PostgreSQL": "--table is for PostgreSQL",
    r"\badd a format\b": "add --format",
    r"\bsay with a format or a pattern\b": "say with --format or a pattern",
    r"\bsay which format it is\b": "give their format with --format",
    r"\bfull_text=True\b": "--full-text",
    r"\bnot True\b": "not true",
    r"\bnot False\b": "not false",
    r"\bnot str\b": "not text",
}


def is_expected(error: BaseException) -> bool:
    """Whether an error says what is wrong with the input; others are mistakes of the program.

    Files, networks, memory and missing packages fail by themselves. A bad value is refused on purpose, by a `raise`: a
    `TypeError`, or a `ValueError` of our own code, that no `raise` made is a mistake.
    """
    if isinstance(error, (ImportError, OSError, RuntimeError)):
        return not isinstance(error, (NotImplementedError, RecursionError))
    if _is_ours(error) and isinstance(error, (TypeError, ValueError)):
        return _last_line(error)[1].startswith("raise")
    return isinstance(error, ValueError)


def message(error: BaseException, flags: Mapping[str, str]) -> str:
    """What an error says, for people at a command line; `flags` are the options of the command, by their Python names."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    for pattern, words in _PHRASES.items():
        text = re.sub(pattern, words, text)
    for name, flag in flags.items():
        text = re.sub(rf"^{name}(?= (must|is|needs)\b)", flag, text)  # a sentence about an argument
        if "_" in name:
            text = re.sub(rf"(?<![\w./'\"-]){name}(?![\w./'\"-])", flag, text)
    if "\n  " in text and _is_ours(error):  # a list with its lines set in, such as two settings side by side
        return tame(_shortened(text))
    return one_line(text)


def one_line(text: str) -> str:
    """A text in a line, with long values cut, and nothing in it that would steer the terminal."""
    return tame(_shortened(" ".join(text.split())))


def _shortened(text: str) -> str:
    return _LONG_VALUE.sub(lambda match: f"{match[0][:80]}…{match[0][-20:]}", text)


def _is_ours(error: BaseException) -> bool:
    """Whether an error arose in evenspan's own code."""
    return _last_line(error)[0].startswith(_HOME)


def _last_line(error: BaseException) -> tuple[str, str]:
    """Where an error arose, in whichever process: the file and the line."""
    if isinstance(error.__cause__, ElsewhereError):
        return error.__cause__.file, error.__cause__.line
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].filename, frames[-1].line or "") if frames else ("", "")
