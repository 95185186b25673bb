"""Where results go: checked before the work, made when there is something to write, and never left empty."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evenspan.cli.parsing import BadOptionError


def check_folder(option: str, folder: Path | None) -> None:
    """Refuse a folder that cannot be made or written to; nothing is made."""
    if folder is not None and (problem := _problem(folder)):
        raise BadOptionError(f"{option}: cannot write to {folder}: {problem}. Name another folder.")


def check_file(option: str, file: Path | None, *, example: str) -> None:
    """Refuse a file that cannot be written; nothing is made."""
    if file is None:
        return
    if file.is_dir():
        raise BadOptionError(f"{option}: {file} is a folder: name a file, such as {file / example}.")
    if problem := _problem(file.parent):
        raise BadOptionError(f"{option}: cannot write {file}: {problem}. Name another file.")


def check_cache(folder: Path | None) -> None:
    """Refuse a folder for vectors that cannot be written to."""
    if folder is not None and (problem := _problem(folder)):
        raise BadOptionError(
            f"Cannot keep vectors in {folder}: {problem}. Name another folder with --cache, or keep them in memory with "
            "--no-cache."
        )


def _problem(folder: Path) -> str | None:
    """Why nothing can be written to a folder that may not be there yet."""
    try:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists() or place.is_symlink())
        if not there.is_dir():
            return f"{there} is no folder"
    except OSError as error:  # a name that is too long
        return error.strerror or str(error)
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} is not writable"


@contextmanager
def made(folder: Path) -> Iterator[Path]:
    """A folder to write to; if that fails, what was made and is empty goes again."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except BaseException:
        for place in new:
            try:
                place.rmdir()
            except OSError:  # there is something in it
                break
        raise


def write_run(folder: Path) -> None:
    """Write down the command and the versions that made the files in a folder."""
    from importlib import metadata

    packages = ("evenspan", "torch", "transformers", "sentence-transformers")
    run = {"command": ["evenspan", *sys.argv[1:]], "versions": {name: metadata.version(name) for name in packages}}
    (folder / "run.json").write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
