"""A benchmark out of texts: which sentences stand in for questions, and what is kept apart."""

from __future__ import annotations

import json

import pytest
from helpers import readers

from evenspan.corpus.duplicates import near_duplicates
from evenspan.corpus.terms import unit_spans
from evenspan.evaluation import load_benchmark
from evenspan.evaluation.benchmarks.texts import TooShortError, from_texts

CHINESE = "。".join("".join(chr(0x4E00 + 97 * a + 7 * b) for b in range(12)) for a in range(30)) + "。"


def test_sentences_are_drawn_evenly_and_thinned() -> None:
    texts = [*readers.documents(10), "W1 W2. Too short to ask for."]
    benchmark = from_texts(texts, seed=3)
    (collection,) = benchmark.collections
    assert benchmark.group_counts() == {"beginning": 30, "middle": 30, "end": 30}
    assert len(collection.corpus) == 11  # short documents are searched, too
    for query in collection.queries:
        (document,) = collection.relevance[query.id]
        start = int(query.id.rpartition("#")[2])
        sentence = collection.corpus[document][start:].partition(".")[0]
        kept = query.text.rstrip(".").split()
        assert len(kept) == 4
        assert [word for word in sentence.split() if word in kept] == kept
        assert {"beginning": 0, "middle": 1, "end": 2}[query.groups[0]] == int(3 * query.position)
    assert from_texts(texts, seed=3).digest() == benchmark.digest() != from_texts(texts, seed=4).digest()
    assert "90 sentences of 10 of the 11 documents, with 50 % of their words left out" in benchmark.notes[0]
    whole = from_texts(texts, left_out=0.0, sentences=3)
    assert len(whole.queries) == 30
    assert all(query.text in collection.corpus[next(iter(whole.relevance[query.id]))] for query in whole.queries)


def test_titles_repeated_lines_and_near_duplicates(tmp_path) -> None:
    one, two, three, *more = readers.documents(12)
    footer = " All rights of this page are reserved by W1."
    heading = "W9 W8 W7 W6 W5 W4 W3 of all things\n"
    rows = [
        {"_id": "titled", "title": "W5 W6 W7 W8 W9 W10", "text": f"W5 W6 W7 W8 W9 W10 {one}{footer}"},
        {"_id": "headed", "text": f"{heading}{two}{footer}"},
        {"_id": "twice", "text": three},
        {"_id": "twice", "text": more[0]},
        {"_id": "copy", "text": f"{three} W1 W2 W3."},
    ]
    (tmp_path / "corpus.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    benchmark = load_benchmark(f"texts:{tmp_path / 'corpus.jsonl'}", left_out=0.0, sentences=90)
    (collection,) = benchmark.collections
    assert list(collection.corpus) == [f"corpus.jsonl:{name}" for name in ("titled", "headed", "twice", "twice~2")]
    assert any(note.startswith("near-duplicates left out") and note.endswith(": 1") for note in benchmark.notes)
    asked = [query.text for query in collection.queries]
    assert not any("rights" in text or "things" in text or "W5 W6 W7 W8 W9 W10" in text for text in asked)
    assert benchmark.name == "corpus (stand-in queries)"
    assert near_duplicates(["a b", "c d", "A  b"]) == {2}
    drawn = load_benchmark(f"texts:{tmp_path / 'corpus.jsonl'}", sample=2, seed=1)
    assert load_benchmark(f"texts:{tmp_path / '*.jsonl'}").name == "texts (stand-in queries)"
    assert len(drawn.corpus) == 2


def test_an_excerpt_of_a_long_text_is_a_near_duplicate() -> None:
    long, other = (readers.documents(1, sentences=60, words=10, seed=seed)[0] for seed in (1, 2))
    excerpt = " ".join(long.split()[200:300])
    assert near_duplicates([long, excerpt]) == near_duplicates([excerpt, long]) == {1}
    assert near_duplicates([long, " ".join(other.split()[200:300]), other]) == {2}


def test_what_stands_in_many_documents_makes_none_of_them_a_near_duplicate() -> None:
    notice = readers.documents(1, sentences=40, seed=77)[0]
    for own, of_notice in ((300, 300), (900, 10_000)):  # short texts, and long ones
        texts = [f"{text[:own]} {notice[:of_notice]}" for text in readers.documents(40)]
        assert near_duplicates(texts) == set()
        assert near_duplicates([notice, *texts]) == near_duplicates([*texts, notice]) == set()
        assert near_duplicates([*texts, *texts[:9]]) == set(range(40, 49))
    one, other = readers.documents(2)
    assert near_duplicates([one] * 10 + [other] + [f"{one} W1 W2."] * 10) == {*range(1, 10), *range(11, 21)}
    notes = [from_texts([one] * copies + readers.documents(6, seed=1)).notes for copies in (2, 6)]
    assert ["more than a third of 12" in " ".join(of) for of in notes] == [False, True]


def test_a_paragraph_is_no_heading_and_a_line_that_is_repeated_is_not_asked_for() -> None:
    paragraph = readers.documents(1, sentences=1, words=300)[0].rstrip(".")  # as in scripts without full stops
    assert len(from_texts([f"{paragraph}\n", *readers.documents(2)], sentences=3).queries) == 9
    both = from_texts([f"{paragraph}\n{readers.documents(1)[0]}"], left_out=0.0, sentences=90)
    assert any(query.text in paragraph for query in both.queries)
    menu = "Home of W1 and W2\nProducts and Services\n"
    texts = [text.replace(". ", f".\n{menu}", 9) for text in readers.documents(5)]
    assert not any("Products" in query.text for query in from_texts(texts, left_out=0.0, sentences=90).queries)


def test_no_piece_of_a_repeated_line_and_no_title_inside_a_text_is_asked_for(tmp_path) -> None:
    notice = readers.documents(1, sentences=1, words=80)[0].replace("W", "N")
    texts = [text.replace(".", "") for text in readers.documents(6)]
    texts = [f"{text[: 1000 + 30 * n]}\n{notice}\n{text[1000 + 30 * n :]}" for n, text in enumerate(texts)]
    queries = from_texts(texts, left_out=0.0, sentences=90).queries
    assert len(queries) >= 18
    assert not any(word.startswith("N") for query in queries for word in query.text.split())
    title = "W5 W6 W7 W8 W9 W10 is the title"
    row = {"title": title, "text": f"Home > here\n{title}\n{readers.documents(1)[0]}"}
    (tmp_path / "corpus.jsonl").write_text(json.dumps(row))
    asked = load_benchmark(f"texts:{tmp_path / 'corpus.jsonl'}", left_out=0.0, sentences=90).queries
    assert not any("title" in query.text for query in asked)


@pytest.mark.parametrize(("sentences", "words"), [(2, 45), (3, 30), (4, 45)])
def test_texts_of_a_few_long_sentences_are_asked_for_parts_of_them(sentences, words) -> None:
    texts = readers.documents(12, sentences=sentences, words=words)
    benchmark = from_texts(texts, left_out=0.0, sentences=3)
    assert benchmark.group_counts() == {"beginning": 12, "middle": 12, "end": 12}
    for query in benchmark.queries:
        assert len(query.text.split()) >= 6
        assert query.text in texts[int(query.id.partition("#")[0])]
        assert {"beginning": 0, "middle": 1, "end": 2}[query.groups[0]] == int(3 * query.position)


def test_texts_may_come_in_any_order_of_labels() -> None:
    texts = readers.documents(4)
    column = pytest.importorskip("pandas").Series(texts, index=[7, 5, 3, 1])
    assert from_texts(column).digest() == from_texts(iter(texts)).digest() == from_texts(texts).digest()
    with pytest.raises(TypeError, match="not a mapping"):
        from_texts({"id": texts[0]})


def test_scripts_without_spaces() -> None:
    benchmark = from_texts([CHINESE, CHINESE[::-1]], sentences=3)
    for query in benchmark.queries:
        assert 5 <= len(query.text) <= 8  # half of twelve characters and a mark
        assert " " not in query.text
    short = "".join(mark for letter in CHINESE.replace("。", "")[:90] for mark in (letter * 8, "。"))
    with pytest.raises(TooShortError):  # eight characters say too little
        from_texts([short])
    thai = "ภาษาไทย"
    assert "".join(thai[start:end] for start, end in unit_spans(thai)) == thai
    assert len(unit_spans(thai)) == 7


def test_text_without_marks_is_cut_into_pieces_and_short_text_is_refused() -> None:
    words = readers.documents(1, sentences=1, words=300)[0].rstrip(".")
    assert from_texts([words, *readers.documents(2)]).group_counts()["middle"] >= 7
    with pytest.raises(TooShortError, match="None of the 2 texts has a usable sentence"):
        from_texts(["W1 W2 W3.", "W4."])
    with pytest.raises(TypeError, match="not one string"):
        from_texts("W1")
    with pytest.raises(ValueError, match="at least one document that is not empty"):
        from_texts(["", " "])
    with pytest.raises(ValueError, match="sample must be at least 1, not 0"):
        from_texts([words], sample=0)
