"""Commands in processes of their own that stop at a place and wait there, however fast the machine is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_SCRIPT = """
import pydoc, sys, time
from pathlib import Path
from evenspan.cli import main

place, calls, signs, prelude, *arguments = sys.argv[1:]
owner, _, name = place.rpartition(".")
owner, done, signs = pydoc.locate(owner), 0, Path(signs)
original = getattr(owner, name)

def held(*given, **options):
    global done
    if done == int(calls):
        (signs / "held").touch()
        while not (signs / "released").exists():
            time.sleep(0.01)
    done += 1
    return original(*given, **options)

setattr(owner, name, held)
exec(prelude)
sys.exit(main(arguments))
"""
PATIENCE = 600  # seconds, after which something hangs; no machine is that slow


class HeldCommand:
    """An `evenspan` command that waits after so many calls of a function, for ever unless it is released.

    Args:
        arguments: of the command.
        folder: where it runs.
        place: the function's full name.
        calls: how many of its calls go through.
        prelude: Python that the process runs before the command.
    """

    def __init__(self, arguments: list[str], folder: Path, place: str, calls: int, prelude: str = "") -> None:
        self._signs = folder / f"signs-{time.monotonic_ns()}"
        self._signs.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, place, str(calls), str(self._signs), prelude, *arguments],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def running(self) -> bool:
        """True; an error if the command has ended instead."""
        assert self._process.poll() is None, f"It has ended: {self._process.stderr.read().decode()}"
        return True

    def wait(self) -> None:
        """Return when the process is held."""
        self.wait_until((self._signs / "held").exists)

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Return when something is so that the process brings about."""
        end = time.monotonic() + PATIENCE
        while self.running() and not reached():
            assert time.monotonic() < end, "It hangs."
            time.sleep(0.01)

    def release(self) -> None:
        """Let it go on."""
        (self._signs / "released").touch()

    def kill(self) -> None:
        """SIGKILL, which must not come too late."""
        self.running()
        self._process.kill()
        self._process.communicate()
        assert self._process.returncode == -signal.SIGKILL

    def finish(self) -> None:
        """Wait for its end, which must be a good one."""
        _, said = self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode == 0, said.decode()
