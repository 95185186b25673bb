"""Sentences in any script."""

from __future__ import annotations

import pytest

from evenspan.corpus.sentences import sentence_spans


def sentences(text: str) -> list[str]:
    spans = sentence_spans(text)
    assert "".join(text[start:end] for start, end in spans) == text
    return [text[start:end].strip() for start, end in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        (
            "Dr. Ray met J. Smith at 5 p.m. on Monday. Then he left.",
            ["Dr. Ray met J. Smith at 5 p.m. on Monday.", "Then he left."],
        ),
        (
            "It cost 3.50 euros. “Much,” he said. (It was.) Yes.",
            ["It cost 3.50 euros.", "“Much,” he said.", "(It was.)", "Yes."],
        ),
        ("Das ist z.B. gut. Ja, d.h. nein.", ["Das ist z.B. gut.", "Ja, d.h. nein."]),
        ("他走了。“真的？”我问。好！", ["他走了。", "“真的？”", "我问。", "好！"]),
        ("東京です。大阪です", ["東京です。", "大阪です"]),
        ("هل هذا صحيح؟ نعم. لا", ["هل هذا صحيح؟", "نعم.", "لا"]),
        ("यह पहला है। यह दूसरा है।", ["यह पहला है।", "यह दूसरा है।"]),
        (
            "A heading\n\nA paragraph\nthat goes on.\n- a point\n- another",
            ["A heading", "A paragraph\nthat goes on.", "- a point", "- another"],
        ),
        ("Wait... what? Yes", ["Wait...", "what?", "Yes"]),
        ("no end", ["no end"]),
        ("", []),
        ("   ", [""]),
    ],
)
def test_sentences(text, expected) -> None:
    assert sentences(text) == expected


def test_texts_without_an_end_take_no_quadratic_time() -> None:
    """A list of authors of half a megabyte, dots, and spaces: in quadratic time each would take minutes to hours."""
    for text in ("A. Smith and J. Ray, " * 20_000, "." * 200_000, " " * 200_000 + "x"):
        assert len(sentences(text)) == 1
