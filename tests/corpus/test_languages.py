"""Languages told by their function words, for stemming."""

from __future__ import annotations

import pytest

from evenspan.corpus.languages import detect_language
from evenspan.evaluation.methods import baseline
from evenspan.evaluation.methods.bm25 import terms


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("english", "The cat is in the house and does not want to go out."),
        ("german", "Die Katze ist in dem Haus und will nicht heraus."),
        ("french", "Le chat est dans la maison et ne veut pas sortir de son coin."),
        ("spanish", "El gato está en la casa y no quiere salir de su sitio."),
        ("portuguese", "O gato está na casa e não quer sair do lugar para um rato."),
        ("romanian", "Pisica este în casă și nu vrea să iasă din loc, pe care o știe."),
        ("finnish", "Kissa istuu talossa ja se on musta. Hän ei ole täällä, mutta hän oli eilen."),
        ("hungarian", "A macska a házban van, és nem akar kimenni, hogy egy kutya volt az utcán."),
        ("polish", "Kot jest w domu i nie chce wyjść, jak pies na ulicy."),
        ("russian", "Кошка в доме и не хочет выходить, и он не знает, что это за дом."),
        ("bulgarian", "Котката е в къщата и не иска да излезе, за да се радва на града."),
        ("hindi", "बिल्ली घर में है और वह बाहर नहीं जाना चाहती।"),
        ("arabic", "القطة في البيت ولا تريد أن تخرج من هذا المكان التي كان فيه."),
        ("persian", "گربه در خانه است و نمی‌خواهد از آن بیرون برود که با این سگ بود."),
        (None, "猫在家里，不想出去。"),
        (None, "def main(): return x + 1"),
        (None, ""),
    ],
)
def test_languages(language, text) -> None:
    assert detect_language([text]) == language


def test_a_language_without_a_stemmer_is_not_stemmed_by_that_of_another() -> None:
    index = baseline("bm25").index({"a": "Котката е в къщата и не иска да излезе, за да се радва на града."})
    assert index.language is None
    assert "not stemmed" in index.remark()


def test_words_are_whole_in_scripts_whose_vowels_are_no_letters() -> None:
    assert terms("हिन्दी में किताब। Über 3 Äpfel, 東京都 a") == [
        "हिन्दी",
        "में",
        "किताब",
        "über",
        "3",
        "äpfel",
        "東京",
        "京都",
        "a",
    ]
