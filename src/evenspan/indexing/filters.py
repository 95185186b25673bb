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
        self._at = self._depth = self._comparisons = end = 0
        self._tokens: list[tuple[str, str]] = []
        while text[end:].strip():
            match = _TOKEN.match(text, end)
            if match is None:
                raise self._wrong(f"cannot read {text[end:].strip()[:20]!r}")
            kind = match.lastgroup or ""
            word = match[kind]
            if kind == "word" and word.lower() in _KEYWORDS:
                kind, word = "sign", word.lower()
            self._tokens.append((kind, word))
            end = match.end()
        self._tokens.append(("end", ""))

    def whole(self) -> Filter:
        parsed = self._either()
        kind, word = self._tokens[self._at]
        if kind != "end":
            raise self._wrong(f"unexpected {word!r}")
        return parsed

    def _either(self) -> Filter:
        return self._joined("or", lambda: self._joined("and", self._part))

    def _joined(self, word: str, part: Callable[[], Filter]) -> Filter:
        operands = [part()]
        while self._take(word):
            operands.append(part())
        if len(operands) == 1:
            return operands[0]
        alike = (each.parts if isinstance(each, Joined) and each.word == word else (each,) for each in operands)
        return Joined(word, tuple(itertools.chain(*alike)))

    def _part(self) -> Filter:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(f"more than {_DEEPEST} levels of nesting")
        if self._take("not"):
            inner = self._part()
            part = inner.part if isinstance(inner, Not) else Not(inner)
        elif self._take("("):
            part = self._either()
            self._need(")")
        else:
            part = self._comparison()
        self._depth -= 1
        return part

    def _comparison(self) -> Filter:
        self._comparisons += 1
        if self._comparisons > _MOST:
            raise self._wrong(f"more than {_MOST} comparisons; for many values write `column in (…)`")
        column = self._column()
        test: Filter
        if self._take("is"):
            negated = self._take("not")
            self._need("null")
            test = IsNull(column)
        elif (negated := self._take("not")) or self._tokens[self._at] == ("sign", "in"):
            self._need("in")
            self._need("(")
            values = [self._value(column)]
            while self._take(","):
                values.append(self._value(column))
            self._need(")")
            test = OneOf(column, tuple(values))
        else:
            kind, word = self._next("a comparison")
            if kind != "sign" or word not in _COMPARISONS:
                raise self._wrong(f"expected =, !=, <, <=, >, >=, in or is after {column!r}, not {word!r}")
            test = ColumnComparison(column, _COMPARISONS[word], self._value(column))
        return Not(test) if negated else test

    def _column(self) -> str:
        kind, word = self._next("a column")
        name = word.replace('""', '"') if kind == "quoted" else word
        if kind not in ("word", "quoted") or name not in self._columns:
            raise self._wrong(f"unknown column {name!r}. Available columns: {', '.join(sorted(self._columns))}")
        return name

    def _value(self, column: str) -> Value:
        kind, word = self._next("a value")
        expected = self._columns[column]
        if kind == "text" and expected == "str":
            return word.replace("''", "'")
        if (kind, expected) == ("sign", "bool") and word in ("true", "false"):
            return word == "true"
        if kind == "number" and expected == "float":
            if math.isfinite(float(word)):
                return float(word)
            raise self._wrong(f"{word} is too large")
        if kind == "number" and expected == "int" and not re.search("[.eE]", word):
            if -(2**63) <= int(word) < 2**63:
                return int(word)
            raise self._wrong(f"{word} does not fit 64 bits")
        raise self._wrong(f"compare {column!r} with {_VALUES[expected]}, not {word!r}")

    def _next(self, what: str) -> tuple[str, str]:
        token = self._tokens[self._at]
        if token[0] == "end":
            raise self._wrong(f"expected {what}, not the end")
        self._at += 1
        return token

    def _take(self, sign: str) -> bool:
        taken = self._tokens[self._at] == ("sign", sign)
        self._at += taken
        return taken

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            kind, word = self._tokens[self._at]
            raise self._wrong(f"expected {sign!r}, not {'the end' if kind == 'end' else repr(word)}")

    def _wrong(self, problem: str) -> ValueError:
        return ValueError(
            f"Cannot read the filter {self._text[:200]!r}: {problem}. Write it as: year >= 2020 and lang = 'de'."
        )
