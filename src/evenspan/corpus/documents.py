"""A document, and the rules that turn a row of a source into one."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

LINE_ID = "@line"


class BadRowError(ValueError):
    """A row that is no document; the message says why."""


def kind_of(reason: str) -> str:
    """Why a row cannot be used, without the names and values of this one: to be counted by."""
    return re.sub(r" in field .*|^([^':]+): .*", r"\1", reason)


@dataclass(frozen=True)
class Place:
    """Where a row stands: its file and its line (rows of Parquet files and hub datasets are counted from 1)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Row:
    """What a source yields: the fields of one row, or why there are none; `position` is how far the source was read."""

    place: Place
    fields: Mapping[str, Any] | None
    problem: str | None = None
    position: int = 0


@dataclass(frozen=True)
class Document:
    """A row that can be used."""

    id: str
    text: str
    metadata: Mapping[str, Any]
    place: Place

    def digest(self) -> bytes:
        """Tells a changed document from an unchanged one."""
        content = json.dumps([self.text, self.metadata], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(content.encode(), digest_size=16).digest()


@dataclass(frozen=True)
class RowRules:
    """Which fields of a row are the document, its id and its metadata, and how long a text may be.

    Args:
        text_field: the field that holds the text.
        id_field: the field that holds the id, or `"@line"` for `file:line`.
        metadata: the fields to keep, all others if None.
        max_chars: longer texts are rejected.
    """

    text_field: str = "text"
    id_field: str = "id"
    metadata: tuple[str, ...] | None = None
    max_chars: int = 10_000_000

    def __post_init__(self) -> None:
        if self.max_chars < 1:
            raise ValueError(f"The longest text must have room for at least 1 character, not {self.max_chars}.")
        if self.text_field == self.id_field:
            raise ValueError(f"The text and the id cannot both be read from the field {self.text_field!r}.")

    def document(self, row: Row) -> Document:
        """The document of a row; raises `BadRowError`."""
        if row.fields is None:
            raise BadRowError(row.problem or "unreadable")
        text = _text(row.fields, self.text_field)
        if not text.strip():
            raise BadRowError("empty text")
        if len(text) > self.max_chars:
            raise BadRowError(f"text longer than {self.max_chars:,} characters")
        others = {
            name: _plain(name, value)
            for name, value in row.fields.items()
            if name not in (self.text_field, self.id_field) and (self.metadata is None or name in self.metadata)
        }
        return Document(self._id(row), text, {k: v for k, v in others.items() if v is not None}, row.place)

    def _id(self, row: Row) -> str:
        if self.id_field == LINE_ID:
            return str(row.place)
        fields = row.fields or {}
        value = fields.get(self.id_field)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not _text(fields, self.id_field):
            raise BadRowError("empty id")
        return str(value)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise BadRowError(f"missing field {name!r}")
    if isinstance(value, bytes):  # a column of bytes in a Parquet file
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str):
        raise BadRowError(f"field {name!r} is not text")
    _check_utf8(name, value)
    return value


def _check_utf8(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRowError(f"invalid UTF-8 in field {name!r}") from None


def _plain(name: str, value: Any) -> Any:
    """A value that every store has a column type for; what is nested becomes JSON."""
    if isinstance(value, str):
        _check_utf8(name, value)
        return value
    if isinstance(value, int):  # bool is one
        if not -(2**63) <= value < 2**63:
            raise BadRowError(f"field {name!r} does not fit 64 bits")
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float):
        return value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    try:
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise BadRowError(f"field {name!r} holds a {type(value).__name__}, which no column can hold") from None
    _check_utf8(name, text)
    return text
