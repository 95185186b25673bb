"""What a log may say of an error: its kind and where it arose; not its message, which may hold a text."""

from __future__ import annotations

import logging
import traceback

_logger = logging.getLogger(__name__)


def report(what: str, error: BaseException) -> None:
    """Log an error that nobody expected."""
    where = "".join(traceback.format_tb(error.__traceback__)[-4:])
    _logger.error("%s: %s\n%s", what, type(error).__name__, where.rstrip())
