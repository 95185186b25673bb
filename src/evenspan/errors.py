"""Errors that callers tell apart, and the check that names a missing extra before any work is done."""

from __future__ import annotations

from importlib.util import find_spec


class UnsupportedModelError(ValueError):
    """This model cannot be calibrated; the message says why and what to do instead."""


class ElsewhereError(Exception):
    """The cause of an error that was raised in another process: its traceback there, and the last line of it."""

    def __init__(self, trace: str, file: str, line: str) -> None:
        super().__init__(f"\n{trace}")
        self.file, self.line = file, line


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message names the extra and its pip command."""


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Raise a `MissingExtraError` unless these modules can be imported; call it before any work.

    Example:
        >>> require_extra("eval", "Evaluation", "json")
        >>> require_extra("eval", "Evaluation", "no_such_module")
        Traceback (most recent call last):
        ...
        evenspan.errors.MissingExtraError: Evaluation needs no_such_module: pip install 'evenspan[eval]'
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"{purpose} needs {', '.join(missing)}: pip install 'evenspan[{extra}]'")


def require_evaluation(purpose: str, *more: str) -> None:
    """Raise a `MissingExtraError` unless all is installed that scores and their tables need, and these modules."""
    require_extra("eval", purpose, "ir_measures", "scipy", "pandas", *more)
