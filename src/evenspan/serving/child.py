"""The process that has the model: it ends when it is told to, or when the one that started it is gone."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from evenspan.serving.channel import Outbox
from evenspan.serving.logs import report
from evenspan.serving.messages import Loaded, NotLoaded
from evenspan.serving.settings import ServerSettings

if TYPE_CHECKING:
    from evenspan.serving.intake import Intake

Surroundings = Callable[[], AbstractContextManager[None]]
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(pipe: Connection, settings: ServerSettings, surroundings: Surroundings = nullcontext) -> None:
    """Load the model and encode until the end, in this thread; others receive and send."""
    for name in SIGNALS:  # they reach the whole group: the process that speaks HTTP decides what comes of it
        signal.signal(name, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # held until here
    inbox, outbox = Inbox(pipe), Outbox(pipe)
    with ExitStack() as stack:
        try:
            stack.enter_context(surroundings())
            from evenspan.serving.engine import Engine  # the other process does without torch
            from evenspan.serving.intake import Intake

            engine = Engine(settings, lambda ran: outbox.put(None, ran))
            engine.load()
        except Exception as error:
            outbox.put(None, _not_loaded(error))
        else:
            gc.collect()  # what loading left behind goes
            gc.freeze()  # and the rest stays: looking through it again and again would hold up batches
            outbox.put(None, Loaded(engine.calibration))
            inbox.open(Intake(engine, outbox.put))
            try:
                engine.run()
            except Exception as error:
                report("The encoder process cannot go on", error)
                os._exit(1)
        outbox.close()


class Inbox:
    """Takes in what comes, once there is a model for it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._opened = threading.Event()
        # From the beginning, as the end of the other process must be seen while the model is loaded, too.
        threading.Thread(target=self._run, name="evenspan-receiving", daemon=True).start()

    def open(self, intake: Intake) -> None:
        """Begin."""
        self._intake = intake
        self._opened.set()

    def _run(self) -> None:
        try:
            while True:
                messages = self._pipe.recv()
                self._opened.wait()
                for number, request in messages:
                    self._intake.ask(number, request)
        except (EOFError, OSError):
            os._exit(1)  # whatever is running: nobody waits for it
        except Exception as error:
            report("The encoder process cannot go on", error)
            os._exit(1)


def _not_loaded(error: Exception) -> NotLoaded:
    frames = traceback.extract_tb(error.__traceback__)
    file, line = (frames[-1].filename, frames[-1].line or "") if frames else ("", "")
    return NotLoaded(_sendable(error), file, line, "".join(traceback.format_exception(error)))


def _sendable(error: Exception) -> Exception:
    """An error, or if it gets lost on the way, one of the nearest built-in kind that says the same."""
    try:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:  # noqa: S110
        pass
    kind: type[Exception] = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return kind(str(error))
