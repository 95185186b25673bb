"""`--where`: a language of comparisons that can filter and nothing else.

    year >= 2020 and (lang = 'de' or lang in ('fr', 'it')) and not source is null

It is parsed here and never passed on as text: every store builds its own expression from the parsed one, with the
values as parameters.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Value = str | int | float | bool
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?!\w)
    | '(?P<text>(?:[^']|'')*)'
    | "(?P<quoted>(?:[^"]|"")*)"
    | (?P<word>[^\W\d]\w*)
    | (?P<sign><=|>=|!=|<>|==|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_VALUES = {"str": "text in 'single quotes'", "bool": "true or false", "int": "a whole number", "float": "a number"}
_KEYWORDS = ("and", "or", "not", "in", "is", "null", "true", "false")
_DEEPEST = 20
_MOST = 200


@dataclass(frozen=True)
class ColumnComparison:
    """A column, one of `=`, `!=`, `<`, `<=`, `>`, `>=`, and a value."""

    column: str
    sign: str
    value: Value


@dataclass(frozen=True)
class OneOf:
    """A column and the values of which it must have one."""

    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class IsNull:
    """Whether a column has no value."""

    column: str


@dataclass(frozen=True)
class Not:
    """The opposite."""

    part: Filter


@dataclass(frozen=True)
class Joined:
    """All of the parts (`and`), or at least one (`or`)."""

    word: str
    parts: tuple[Filter, ...]


Filter = ColumnComparison | OneOf | IsNull | Not | Joined


def parse(text: str, columns: Mapping[str, str]) -> Filter:
    """Read a filter on columns of the given types; raises `ValueError` with what is wrong and what there is.

    Example:
        >>> parse("year >= 2020", {"year": "int"})
        ColumnComparison(column='year', sign='>=', value=2020)
    """
    return _Parser(text, {"id": "str", **columns}).whole()


class _Parser:
    def __init__(self, text: str, columns: Mapping[str, str]) -> None:
        self._text, self._columns = text, columns
        self._at = self._depth = self._comparisons = 0
        self._tokens: list[tuple[str, str]] = []
        end = 0
        while text[end:].strip():
            match = _TOKEN.match(text, end)
            if match is None:
                raise self._wrong(f"cannot read {text[end:].strip()[:20]!r}")
            kind = match.lastgroup or ""
            word = match[kind]
            if kind == "word" and word.lower() in _KEYWORDS:
                kind, word = "keyword", word.lower()
            self._tokens.append((kind, word))
            end = match.end()

    def whole(self) -> Filter:
        parsed = self._either()
        if self._at < len(self._tokens):
            raise self._wrong(f"did not expect {self._tokens[self._at][1]!r}")
        return parsed

    def _either(self) -> Filter:
        return self._joined("or", lambda: self._joined("and", self._part))

    def _joined(self, word: str, part: Callable[[], Filter]) -> Filter:
        operands = [part()]
        while self._take("keyword", word):
            operands.append(part())
        if len(operands) == 1:
            return operands[0]
        alike = (each.parts if isinstance(each, Joined) and each.word == word else (each,) for each in operands)
        return Joined(word, tuple(itertools.chain(*alike)))

    def _part(self) -> Filter:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"more than {_DEEPEST} levels deep")
        try:
            if self._take("keyword", "not"):
                part = self._part()
                return part.part if isinstance(part, Not) else Not(part)
            if self._take("sign", "("):
                part = self._either()
                self._need("sign", ")")
                return part
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Filter:
        self._comparisons += 1
        if self._comparisons > _MOST:
            raise self._wrong(f"more than {_MOST} comparisons; for many values write `column in (…)`")
        column = self._column()
        if self._take("keyword", "is"):
            negated = self._take("keyword", "not")
            self._need("keyword", "null")
            return Not(IsNull(column)) if negated else IsNull(column)
        negated = self._take("keyword", "not")
        if negated or self._peek() == ("keyword", "in"):
            self._need("keyword", "in")
            self._need("sign", "(")
            values = [self._value(column)]
            while self._take("sign", ","):
                values.append(self._value(column))
            self._need("sign", ")")
            one_of = OneOf(column, tuple(values))
            return Not(one_of) if negated else one_of
        kind, word = self._next("a comparison")
        if kind != "sign" or word not in _COMPARISONS:
            raise self._wrong(f"after {column!r} one of =, !=, <, <=, >, >=, in, is must follow, not {word!r}")
        return ColumnComparison(column, _COMPARISONS[word], self._value(column))

    def _column(self) -> str:
        kind, word = self._next("a column")
        name = word.replace('""', '"') if kind == "quoted" else word
        if kind not in ("word", "quoted") or name not in self._columns:
            raise self._wrong(f"there is no column {name!r}; there are {', '.join(sorted(self._columns))}")
        return name

    def _value(self, column: str) -> Value:
        kind, word = self._next("a value")
        expected = self._columns[column]
        if kind == "text" and expected == "str":
            return word.replace("''", "'")
        if kind == "keyword" and word in ("true", "false") and expected == "bool":
            return word == "true"
        if kind == "number" and expected == "float":
            if math.isfinite(float(word)):
                return float(word)
            raise self._wrong(f"{word} is too large")
        if kind == "number" and expected == "int" and not re.search("[.eE]", word):
            if -(2**63) <= int(word) < 2**63:
                return int(word)
            raise self._wrong(f"{word} does not fit 64 bits")
        raise self._wrong(f"{column!r} is compared with {_VALUES[expected]}, not {word!r}")

    def _peek(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self, what: str) -> tuple[str, str]:
        token = self._peek()
        if token is None:
            raise self._wrong(f"it ends where {what} is expected")
        self._at += 1
        return token

    def _take(self, kind: str, word: str) -> bool:
        if self._peek() != (kind, word):
            return False
        self._at += 1
        return True

    def _need(self, kind: str, word: str) -> None:
        if not self._take(kind, word):
            token = self._peek()
            raise self._wrong(f"expected {word!r}, not {'the end' if token is None else repr(token[1])}")

    def _wrong(self, problem: str) -> ValueError:
        return ValueError(
            f"Cannot read the filter {self._text[:200]!r}: {problem}. Write it as: year >= 2020 and lang = 'de'."
        )
