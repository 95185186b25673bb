"""Sentences in any script."""

from __future__ import annotations

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

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
        (
            "Er und die Frau waren bei Prof. Müller. Das ist in der Stadt.",
            ["Er und die Frau waren bei Prof. Müller.", "Das ist in der Stadt."],
        ),
        (
            "Он жил в г. Москве и не на ул. Ленина. Потом уехал.",
            ["Он жил в г. Москве и не на ул. Ленина.", "Потом уехал."],
        ),
        (
            "One (see below. Two goes on. Three (a note) ends.",
            ["One (see below.", "Two goes on.", "Three (a note) ends."],
        ),
        (
            'A 15" pipe. “He left. She stayed. (Well.) "No!" she said. Yes.',
            ['A 15" pipe.', "“He left.", "She stayed.", "(Well.)", '"No!" she said.', "Yes."],
        ),
        (
            "See System.Out and www.Example.Com for it. Then go.",
            ["See System.Out and www.Example.Com for it.", "Then go."],
        ),
        (
            "Le chat de M. Dupont est dans la maison et ne sort pas. Mme. Durand est là.",
            ["Le chat de M. Dupont est dans la maison et ne sort pas.", "Mme. Durand est là."],
        ),
        ("他在一九九〇年来了。1991年走了。", ["他在一九九〇年来了。", "1991年走了。"]),
        ("他说：「走吧。我们走。」然后走了。", ["他说：「走吧。", "我们走。」", "然后走了。"]),
        ("他走了。“真的？”我问。好！", ["他走了。", "“真的？”", "我问。", "好！"]),
        ("東京です。大阪です", ["東京です。", "大阪です"]),
        ("هل هذا صحيح؟ نعم. لا", ["هل هذا صحيح؟", "نعم.", "لا"]),
        ("यह पहला है। यह दूसरा है।", ["यह पहला है।", "यह दूसरा है।"]),
        (
            "A heading\n\nA paragraph\nthat goes on.\n- a point\n- another",
            ["A heading", "A paragraph\nthat goes on.", "- a point", "- another"],
        ),
        ("Wait... what? Yes", ["Wait... what?", "Yes"]),
        ("no end", ["no end"]),
        ("", []),
        ("   ", [""]),
    ],
)
def test_sentences(text, expected) -> None:
    assert sentences(text) == expected


def test_texts_without_an_end_take_no_quadratic_time() -> None:
    """A list of authors of half a megabyte, dots, and spaces: in quadratic time each would take minutes to hours."""
    for text in ("A. Smith and J. Ray, " * 20_000, "." * 200_000, " " * 200_000 + "x", "\n" * 200_000):
        assert len(sentences(text)) == 1
    for unclosed in ("「他。", "“Hallo. ", '"Go. ', "« Allo. ", "(Yes. "):  # marks that nothing closes
        assert len(sentences(unclosed * 50_000)) > 20_000


@given(st.text(st.sampled_from('aA1 .!?。\n\t"“”「」()[]é😀\u2028\u2029\x85\xa0\u3000\ud800\u200f\u0301-*•')))
def test_any_text_is_covered(text) -> None:
    """sentencex alone fails at some of these characters."""
    assert all(start < end for start, end in sentence_spans(text))
    sentences(text)


def test_what_sentencex_fails_at_is_cut_at_full_stops(monkeypatch) -> None:
    class PanicException(BaseException):
        pass

    def fails(language: str, text: str):
        raise PanicException("end byte index 3 is not a char boundary")

    monkeypatch.setattr(sentencex, "get_sentence_boundaries", fails)
    assert sentences("One. Two! Three") == ["One.", "Two!", "Three"]
