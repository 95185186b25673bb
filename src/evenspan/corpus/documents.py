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


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a reader must know of the rows that are wanted."""

    text_field: str = "text"  # into which the content of a plain-text file goes
    id_field: str = "id"  # into which its path goes
    max_chars: int = 10_000_000  # how much of a line is worth reading
    wanted: tuple[str, ...] | None = None  # the other fields to read, where a format can leave some out; None for all


@dataclass(frozen=True)
class Document:
    """A row that can be used."""

    id: str
    text: str
    metadata: Mapping[str, Any]
    place: Place

    def digest(self) -> bytes:
        """Tells a changed document from an unchanged one: 8 bytes of the text, and 8 of the metadata."""
        return _digest(self.text.encode(), 8) + _digest(_json(self.metadata), 8)

    def first_digest(self) -> bytes:
        """What indexes of the first format hold, of text and metadata together."""
        return _digest(_json([self.text, self.metadata]), 16)


def _digest(content: bytes, size: int) -> bytes:
    return hashlib.blake2b(content, digest_size=size).digest()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True)
class RowRules:
    """Which fields of a row are the document, its id and its metadata, and how long a text may be."""

    text_field: str = "text"
    id_field: str = "id"  # or "@line" for `file:line`
    metadata: tuple[str, ...] | None = None  # the fields to keep, all others if None
    max_chars: int = 10_000_000

    def __post_init__(self) -> None:
        if self.max_chars < 1:
            raise ValueError(f"max_chars must be at least 1, not {self.max_chars}.")
        if self.text_field == self.id_field:
            raise ValueError(f"text and id cannot both be read from the field {self.text_field!r}.")

    def document(self, row: Row) -> Document:
        """The document of a row; raises `BadRowError`."""
        if row.fields is None:
            raise BadRowError(row.problem or "unreadable")
        text = _text(row.fields, self.text_field)
        if not text.strip():
            raise BadRowError("empty text")
        if len(text) > self.max_chars:
            raise BadRowError(too_long(self.max_chars))
        others = {
            name: _plain(name, value)
            for name, value in row.fields.items()
            if name not in (self.text_field, self.id_field) and (self.metadata is None or name in self.metadata)
        }
        name = row.place if self.id_field == LINE_ID else self._id(row.fields)
        return Document(str(name), text, {k: v for k, v in others.items() if v is not None}, row.place)

    def name(self, row: Row) -> str | None:
        """The id of a row, None if it cannot be read; for rows that are no documents."""
        if self.id_field == LINE_ID:
            return str(row.place)
        try:
            return str(self._id(row.fields or {}))
        except BadRowError:
            return None

    def _id(self, fields: Mapping[str, Any]) -> Any:
        value = fields.get(self.id_field)
        whole_number = isinstance(value, int) and not isinstance(value, bool)
        if not whole_number and not _text(fields, self.id_field):
            raise BadRowError("empty id")
        return value


def too_long(max_chars: int) -> str:
    """What is wrong with a longer text."""
    return f"text longer than {max_chars:,} characters"


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise BadRowError(f"missing field {name!r}")
    if isinstance(value, bytes):  # a column of bytes in a Parquet file
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str):
        raise BadRowError(f"field {name!r} is not text")
    return _utf8(name, value)


def _utf8(name: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRowError(f"invalid UTF-8 in field {name!r}") from None
    return value


def _plain(name: str, value: Any) -> Any:
    """A value that every store has a column type for; what is nested becomes JSON."""
    if isinstance(value, str):
        return _utf8(name, value)
    if isinstance(value, int):  # bool is one
        if not -(2**63) <= value < 2**63:
            raise BadRowError(f"field {name!r} does not fit 64 bits")
        return value
    if value is None or isinstance(value, float):
        return None if value is None or math.isnan(value) else value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    try:
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise BadRowError(f"field {name!r} holds a {type(value).__name__}, which no column can hold") from None
    return _utf8(name, text)
