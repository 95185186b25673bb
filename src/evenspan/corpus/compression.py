"""Files that may be compressed, by their names; standard input, by its first bytes."""

from __future__ import annotations

import gzip
import io
import sys
from typing import IO, Any

from evenspan.errors import require_extra

COMPRESSED = (".gz", ".zst")
_BEGINNINGS = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}


def decompressed(file: IO[bytes], name: str) -> IO[bytes]:
    """The content of a file that may be compressed."""
    if name.lower().endswith(".gz"):
        return gzip.open(file, "rb")  # type: ignore[return-value]
    if name.lower().endswith(".zst"):
        require_extra("index", "A .zst file", "pyarrow")
        import pyarrow

        stream: Any = pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")
        return io.BufferedReader(stream)
    return file


def standard_input() -> IO[bytes]:
    """The content of standard input, whether it is compressed or not."""
    file: Any = sys.stdin.buffer
    first = file.read(4)  # waits for all four, where a pipe brings them one by one
    if file.seekable():  # a file, redirected
        file.seek(-len(first), io.SEEK_CUR)
    else:
        file = io.BufferedReader(_Again(first, file))
    return decompressed(file, next((end for start, end in _BEGINNINGS.items() if first.startswith(start)), ""))


class _Again(io.RawIOBase):
    """A stream of which the first bytes were read already."""

    def __init__(self, first: bytes, file: IO[bytes]) -> None:
        self._first, self._file = first, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content, self._first = self._first[: len(buffer)], self._first[len(buffer) :]
        if not content:
            # What there is, not as much as would fit: whoever pipes slowly is not waited for.
            read: Any = getattr(self._file, "read1", self._file.read)
            content = read(len(buffer))
        buffer[: len(content)] = content
        return len(content)
