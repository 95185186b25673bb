"""HTML in which everything is escaped that is not made here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

# HTML forbids them, and lone surrogates cannot be written at all.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_VOID = ("meta",)


class Markup(str):
    """Text that is HTML already; any other string is escaped before it becomes part of a page."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Text as HTML, for content and attributes alike."""
    return text if isinstance(text, Markup) else Markup(html.escape(_UNPRINTABLE.sub("\ufffd", text), quote=True))


def joined(parts: Iterable[str]) -> Markup:
    """Several parts as one."""
    return Markup("".join(escaped(part) for part in parts))


def element(tag: str, /, *content: str, **attributes: str) -> Markup:
    """`element("p", "a < b", class_="note")`; underscores in names of attributes become hyphens."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{joined(content)}</{tag}>")


def foreign(text: str) -> Markup:
    """Text of documents and names of models: its direction must not reach beyond it."""
    return element("bdi", text, dir="auto")


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table that scrolls in its own box; the first cell of a row is its header."""
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    body = joined(
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    )
    inside = element("table", element("caption", caption), element("thead", head), element("tbody", body))
    box = element("div", inside, class_="scroll", role="region", aria_label=caption, tabindex="0")
    # A caption is as wide as its table: seen is one that stays in place when the table scrolls.
    return joined([element("p", foreign(caption), class_="caption", aria_hidden="true"), box])


def fold(title: str, *content: str) -> Markup:
    """What is there for those who look for it."""
    return element("details", element("summary", title), *content)
