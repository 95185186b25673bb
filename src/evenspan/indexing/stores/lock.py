"""One run at a time in a folder."""

from __future__ import annotations

import sqlite3
from pathlib import Path

LOCK = "_lock.sqlite"


class FolderLock:
    """Keeps a second run out of a folder; the system lets go of it when the process dies."""

    def __init__(self, folder: Path) -> None:
        try:
            self._database = sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise OSError(f"Cannot write to {folder}: {error}.") from error
        try:
            self._database.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self._database.close()
            if "locked" not in str(error):
                raise OSError(f"Cannot lock {folder}: {error}.") from error
            raise RuntimeError(f"Another run is writing to {folder}: wait for it, or stop it.") from None

    def release(self) -> None:
        """Let others in."""
        self._database.close()
