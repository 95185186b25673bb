"""Ray for the time of a run: started or found, hushed, and with errors that a reader can use."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

_PATIENCE = 10  # seconds, for a cluster to answer; Ray itself tries for minutes
_ERROR_LINE = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception))(?:: (.+))?$", re.MULTILINE)
_OF_RAY = ("UserCodeException", "RayTaskError", "SystemException")


@contextlib.contextmanager
def ray_session(address: str | None) -> Iterator[Any]:
    """Ray, started for the run, or that which the process has."""
    import ray
    import ray.data

    if ray.is_initialized():
        if address is not None:
            raise ValueError("This process is connected to a Ray cluster already: leave the address out.")
        yield ray
        return
    _try(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to its makers
    # By itself Ray would join whatever cluster was last started on this machine, by whomever.
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    ray.init(address=where, log_to_driver=False, logging_level=logging.WARNING)
    _hush()
    try:
        yield ray
    finally:
        ray.shutdown()


def _try(address: str | None) -> None:
    """Raise an error if nobody listens at an address."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():  # `auto`, or none
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise OSError(f"No Ray cluster answers at {address}: {error}.") from error


def _hush() -> None:
    """Keep Ray Data's news out of the progress bar; its warnings are shown, and everything is in its own log file."""
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)  # that its own bar is off
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.WARNING)


@contextlib.contextmanager
def data_context(ray: Any, **values: Any) -> Iterator[None]:
    """Settings of Ray Data, for now: the process may have other datasets. What this version does not have is left out."""
    context = ray.data.DataContext.get_current()
    before = {name: getattr(context, name) for name in values if hasattr(context, name)}
    try:
        for name in before:
            setattr(context, name, values[name])
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)


@contextlib.contextmanager
def plain_errors(ray: Any) -> Iterator[None]:
    """What went wrong on a worker in one line; Ray says it in a hundred."""
    try:
        yield
    except (ray.exceptions.RayError, ray.data.exceptions.SystemException) as error:
        raise RuntimeError(f"On a Ray worker: {_reason(error)} Fix that and run the same command again.") from error


def _reason(error: BaseException) -> str:
    """The last error of the workers' own code that a message names, or else its first line."""
    text = str(error)
    named = [(kind, words) for kind, words in _ERROR_LINE.findall(text) if kind not in _OF_RAY]
    if not named:
        return next(iter(text.splitlines()), type(error).__name__)
    kind, words = named[-1]
    return f"{kind}: {words}" if words else f"{kind}."
