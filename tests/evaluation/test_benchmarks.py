"""Benchmarks load from every source, oddities included, and wrong files say where they are wrong."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow
import pytest
from helpers import copies

from evenspan.evaluation import load_benchmark
from evenspan.evaluation.benchmark import thirds
from evenspan.evaluation.benchmarks.files import BenchmarkError
from evenspan.evaluation.benchmarks.nanobeir import SETS, shuffle_sentences
from evenspan.evaluation.benchmarks.posir import BIN_NAMES, bin_of


def test_fineweb_posq(tmp_path) -> None:
    benchmark = load_benchmark("fineweb-posq", path=copies.fineweb_posq(tmp_path))
    assert list(benchmark.corpus.values()) == ["aardvark", "alpha beta", "gamma delta", "only corpus"]
    asked = {query.text: query for query in benchmark.queries}
    assert set(asked) == {"early?", "both?", "twice?", "old?", "older?"}
    assert asked["both?"].groups == ("middle", "end")
    assert asked["old?"].groups == ("beginning",)
    assert asked["older?"].groups == ("end",)
    relevant = benchmark.relevance[asked["twice?"].id]
    assert [benchmark.corpus[document] for document in relevant] == ["gamma delta"]
    assert benchmark.group_counts() == {"beginning": 2, "middle": 1, "end": 3}
    assert benchmark.depth == 100


def test_fineweb_posq_tiny_takes_some_of_each_tag(tmp_path, monkeypatch) -> None:
    from evenspan.evaluation.benchmarks import fineweb

    monkeypatch.setattr(fineweb, "TINY_QUERIES", 1)
    tiny = load_benchmark("fineweb-posq", tiny=True, path=copies.fineweb_posq(tmp_path))
    assert 2 <= len(tiny.queries) <= 3  # one query may stand for two tags
    assert min(tiny.group_counts().values()) >= 1
    assert len(tiny.corpus) == 4, "the corpus stays whole"
    again = load_benchmark("fineweb-posq", tiny=True, path=tmp_path)
    assert again.queries == tiny.queries


def test_squad_posq(tmp_path) -> None:
    benchmark = load_benchmark("squad-posq", path=copies.squad_v2(tmp_path))
    assert len(benchmark.corpus) == 2
    groups = {query.id: query.groups for query in benchmark.queries}
    assert "none" not in groups
    assert groups["t0"] == ("0-100",)
    assert groups["t100"] == ("0-100", "100-200"), "bins are inclusive at both ends"
    assert groups["t300"] == ("200-300", "300-400")
    assert groups["t500"] == ("400-500", "500-3120")
    assert groups["v"] == ("100-200",), "the first answer counts"


def test_posir(tmp_path) -> None:
    copies.posir(tmp_path)
    benchmark = load_benchmark("posir", language="deu-Latn", path=tmp_path)
    assert [collection.name for collection in benchmark.collections] == ["law", "medicine"]
    assert benchmark.collections[0].corpus["d0"].startswith("deu-Latn law")
    assert benchmark.depth == 1000
    assert [query.groups for query in benchmark.collections[0].queries] == [
        (BIN_NAMES[0],),
        (BIN_NAMES[0],),  # a midpoint on an edge belongs to the bin below
        (BIN_NAMES[19],),  # a midpoint at the very end
        (BIN_NAMES[9],),
    ]
    crossed = load_benchmark(
        "posir", language="deu-Latn", corpus_language="eng-Latn", domains="medicine", path=tmp_path
    )
    assert crossed.collections[0].corpus["d0"].startswith("eng-Latn medicine")
    assert crossed.name == "posir-deu-Latn-to-eng-Latn"
    with pytest.raises(ValueError, match="no domain 'physics'"):
        load_benchmark("posir", language="deu-Latn", domains=["physics"], path=tmp_path)
    with pytest.raises(ValueError, match="no language 'xx'"):
        load_benchmark("posir", language="xx", path=tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder fra-Latn"):
        load_benchmark("posir", language="fra-Latn", path=tmp_path)


@pytest.mark.parametrize(("position", "place"), [(0.0, 0), (0.05, 0), (0.0500001, 1), (0.5, 9), (0.95, 18), (1.0, 19)])
def test_posir_bins_are_closed_on_the_right(position, place) -> None:
    assert bin_of(position) == place


def test_nanobeir(tmp_path) -> None:
    copies.nanobeir(tmp_path / "single")
    benchmark = load_benchmark("nanobeir", sets="ArguAna,NFCorpus", path=tmp_path / "single")
    first, second = benchmark.collections
    assert len(first.queries) == 4, "a query without relevant documents is left out"
    assert first.relevance["q1"] == {"d1": 1}
    assert second.name == "NFCorpus"
    listed = load_benchmark("nanobeir", sets=["ArguAna"], path=copies.nanobeir(tmp_path / "lists", listed=True))
    assert listed.relevance["q1"] == {"d1": 1, "d7": 1}
    assert benchmark.groups == ()
    assert len(SETS) == 13
    with pytest.raises(ValueError, match="no set 'Quora'"):
        load_benchmark("nanobeir", sets=["Quora"], path=tmp_path / "single")


def test_nanobeir_shuffled(tmp_path) -> None:
    copies.nanobeir(tmp_path)
    plain = load_benchmark("nanobeir", sets=["ArguAna"], path=tmp_path).corpus
    shuffled = load_benchmark("nanobeir", sets=["ArguAna"], shuffled=True, seed=1, path=tmp_path)
    assert shuffled.options["sentence_splitter"] == "evenspan-regex-1"
    assert shuffled.options["shuffle_seed"] == 1
    for key, text in plain.items():
        assert Counter(shuffled.corpus[key].split()) == Counter(text.split())
    assert any(shuffled.corpus[key] != text for key, text in plain.items())
    assert shuffled.corpus == load_benchmark("nanobeir", sets=["ArguAna"], shuffled=True, seed=1, path=tmp_path).corpus
    assert shuffled.corpus != load_benchmark("nanobeir", sets=["ArguAna"], shuffled=True, seed=2, path=tmp_path).corpus


def test_sentences_keep_their_quotes_and_need_no_spaces_in_chinese() -> None:
    text = 'He said "no." Then left. 你好。再见！'
    parts = {"".join(shuffle_sentences(text, "k", seed).split()) for seed in range(30)}
    assert len(parts) > 5
    assert all(sorted(part) == sorted("".join(text.split())) for part in parts)


def test_squad_files(tmp_path) -> None:
    """Paragraphs of an article are joined in order, and the evidence keeps its place."""

    def paragraph(number: int, words: int = 30) -> dict:
        context = " ".join(f"p{number}w{place}" for place in range(words))
        answer = f"p{number}w{words - 1}"
        qas = [
            {
                "id": f"q{number}",
                "question": f"q{number}?",
                "answers": [{"text": answer, "answer_start": context.index(answer)}],
            }
        ]
        qas.append({"id": f"x{number}", "question": "?", "answers": [], "is_impossible": True})
        return {"context": context, "qas": qas}

    article = {"title": "A", "paragraphs": [paragraph(number) for number in range(6)]}
    file = tmp_path / "questions.json"
    file.write_text(json.dumps({"data": [article, {"title": "B", "paragraphs": [paragraph(9)]}]}))
    benchmark = load_benchmark(file, words=90)
    assert [len(text.split()) for text in benchmark.corpus.values()] == [90, 90, 30]
    for query in benchmark.queries:
        (document,) = benchmark.relevance[query.id]
        text = benchmark.corpus[document]
        place = text.index(f"p{query.id[1:]}w29")
        assert abs(query.position - (place + 3) / len(text)) < 0.01
    assert [query.groups for query in benchmark.queries[:3]] == [("beginning",), ("middle",), ("end",)]
    file.write_text(json.dumps({"nothing": 1}))
    with pytest.raises(ValueError, match="not in SQuAD format"):
        load_benchmark(file)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((0, 10), ("beginning",)),
        ((30, 40), ("beginning", "middle")),
        ((67, 100), ("end",)),
        ((0, 100), ("beginning", "middle", "end")),
        ((100, 100), ("end",)),
    ],
)
def test_thirds(span, expected) -> None:
    assert thirds(*span, 100) == expected


def test_directory(tmp_path) -> None:
    folder = copies.directory(tmp_path / "mine")
    benchmark = load_benchmark(folder)
    assert benchmark.name == "mine"
    assert benchmark.group_counts() == {"beginning": 12, "middle": 12, "end": 12}
    titled = load_benchmark(folder, title=True)
    assert titled.corpus["d3"] == f"w3 {benchmark.corpus['d3']}"
    limited = load_benchmark(folder, limit=5)
    assert len(limited.corpus) == 5
    assert len(limited.queries) == 15
    assert limited.options["limit"] == 5
    (folder / "qrels").mkdir()
    (folder / "qrels.tsv").rename(folder / "qrels" / "test.tsv")
    assert load_benchmark(folder).queries == benchmark.queries


def test_a_compressed_directory(tmp_path) -> None:
    folder = copies.directory(tmp_path / "mine")
    plain = load_benchmark(folder)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        if name == "queries.jsonl":
            with pyarrow.CompressedOutputStream(str(folder / f"{name}.zst"), "zstd") as file:
                file.write(content)
        else:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    assert load_benchmark(folder).digest() == plain.digest()
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(b'{"_id": "a", "text": "fine"}\n{'))
    with pytest.raises(ValueError, match=r"corpus.jsonl.gz, line 2: no valid JSON"):
        load_benchmark(folder)
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(b'{"_id": "a", "text": "fine"}')[:-9])
    with pytest.raises(OSError, match=r"corpus.jsonl.gz, after line \d+: cannot read on"):
        load_benchmark(folder)


def test_directory_without_positions(tmp_path) -> None:
    folder = copies.directory(tmp_path / "mine")
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": row["_id"], "text": row["text"]}) + "\n" for row in rows)
    )
    assert load_benchmark(folder).groups == ()


def change(folder: Path, name: str, line: int, new: str | None) -> None:
    lines = (folder / name).read_text().splitlines()
    if new is None:
        lines.append(lines[line - 1])
    else:
        lines[line - 1] = new
    (folder / name).write_text("\n".join(lines) + "\n")


QUERY = {"_id": "q0-1", "text": "w1"}


@pytest.mark.parametrize(
    ("name", "line", "new", "says"),
    [
        ("qrels.tsv", 3, "q0-1\tnobody\t1", r"qrels.tsv, line 3: document 'nobody' is not in corpus.jsonl"),
        ("qrels.tsv", 3, "nobody\td0\t1", r"qrels.tsv, line 3: query 'nobody' is not in queries.jsonl"),
        ("qrels.tsv", 3, "q0-1 d0 1", r"qrels.tsv, line 3: needs query-id, corpus-id and score between tabs"),
        ("qrels.tsv", 3, "q0-1\td0\tyes", r"qrels.tsv, line 3: score 'yes' is no whole number"),
        ("corpus.jsonl", 4, None, r"corpus.jsonl, line 13: document id 'd3' appears a second time"),
        ("queries.jsonl", 2, None, r"queries.jsonl, line 37: query id 'q0-1' appears a second time"),
        (
            "queries.jsonl",
            2,
            json.dumps({**QUERY, "pos_char_span": [5, 9999]}),
            r"line 2: span \[5, 9999\) lies outside",
        ),
        (
            "queries.jsonl",
            2,
            json.dumps({**QUERY, "pos_char_span": "5-9"}),
            r"line 2: pos_char_span must be \[start, end\]",
        ),
        ("queries.jsonl", 2, json.dumps({**QUERY, "span_class": "top"}), r"line 2: span_class 'top' is none of"),
        ("queries.jsonl", 2, json.dumps({**QUERY, "span_class": 3}), r"line 2: span_class 3 is none of"),
        ("queries.jsonl", 2, json.dumps({"_id": "q0-1"}), r"line 2: needs a text field 'text', has \['_id'\]"),
        ("corpus.jsonl", 5, "{", r"corpus.jsonl, line 5: no valid JSON"),
        ("corpus.jsonl", 5, "[1]", r"corpus.jsonl, line 5: not a JSON object"),
    ],
)
def test_wrong_files_name_the_line(name, line, new, says, tmp_path) -> None:
    folder = copies.directory(tmp_path / "mine")
    change(folder, name, line, new)
    with pytest.raises(ValueError, match=says):
        load_benchmark(folder)


def test_qrels_without_a_header_lose_nothing(tmp_path) -> None:
    folder = copies.directory(tmp_path / "mine")
    lines = (folder / "qrels.tsv").read_text().splitlines()[1:]
    (folder / "qrels.tsv").write_bytes("\r\n".join(lines).encode())
    assert len(load_benchmark(folder).queries) == 36


def test_spans_of_queries_with_several_documents(tmp_path) -> None:
    folder = copies.directory(tmp_path / "mine")
    change(folder, "corpus.jsonl", 6, json.dumps({"_id": "d5", "text": "short"}))
    lines = (folder / "qrels.tsv").read_text().splitlines()
    kept = [line for line in lines if line.split("\t")[1] != "d5"]
    (folder / "qrels.tsv").write_text("\n".join([kept[0], "q0-2\td5\t1", *kept[1:]]) + "\n")
    with pytest.raises(ValueError, match="line 3: several relevant documents: pos_char_length must say which"):
        load_benchmark(folder)
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    text = json.loads((folder / "corpus.jsonl").read_text().splitlines()[0])["text"]
    change(folder, "queries.jsonl", 3, json.dumps({**rows[2], "pos_char_length": len(text)}))
    assert next(query for query in load_benchmark(folder).queries if query.id == "q0-2").groups == ("end",)
    change(folder, "queries.jsonl", 3, json.dumps({**rows[2], "pos_char_length": 7}))
    with pytest.raises(ValueError, match="pos_char_length is 7, but its documents have"):
        load_benchmark(folder)


def test_numbers_as_ids_and_files_that_are_not_utf8(tmp_path) -> None:
    folder = copies.directory(tmp_path / "mine")
    for name in ("corpus.jsonl", "qrels.tsv"):
        (folder / name).write_text((folder / name).read_text().replace('"d0"', "0").replace("\td0\t", "\t0\t"))
    assert "0" in load_benchmark(folder).corpus
    (folder / "corpus.jsonl").write_bytes(b'{"_id": "a", "text": "fine"}\n{"_id": "b", "text": "\xff"}\n')
    with pytest.raises(ValueError, match=r"corpus.jsonl, line 2: invalid UTF-8"):
        load_benchmark(folder)


QUESTION = {"id": "q", "question": "?", "answers": [{"text": "w", "answer_start": 0}]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "the file has no list of 'data'"),
        ({"data": {"a": 1}}, "the file has no list of 'data'"),
        ({"data": ["article"]}, "article 1 has no list of 'paragraphs'"),
        ({"data": [{"paragraphs": [{"context": "w"}]}]}, "a paragraph of article 1 has no list of 'qas'"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "a paragraph of article 1 has no text 'context'"),
        ({"data": [{"paragraphs": [{"context": 3, "qas": []}]}]}, "a paragraph of article 1 has no text 'context'"),
        ({"data": [{"paragraphs": [{"context": "w", "qas": [3]}]}]}, "question 1 of a paragraph has no text 'id'"),
        *(
            ({"data": [{"paragraphs": [{"context": "w", "qas": [{**QUESTION, **wrong}]}]}]}, f"question 'q' {says}")
            for wrong, says in (
                ({"answers": {"text": "w"}}, "has no list of 'answers'"),
                ({"answers": [{"text": "w"}]}, "has no number 'answer_start'"),
                ({"answers": [{"answer_start": 0}]}, "has no text 'text'"),
                ({"question": None}, "has no text 'question'"),
            )
        ),
    ],
)
def test_wrong_squad_files_name_the_file(content, says, tmp_path) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(content))
    with pytest.raises(BenchmarkError, match=rf"wrong\.json: not in SQuAD format: {says}"):
        load_benchmark(file)


def test_a_squad_file_that_is_no_text_is_named(tmp_path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\x80\x81")
    with pytest.raises(BenchmarkError, match=r"binary\.json: not in SQuAD format: no JSON in UTF-8"):
        load_benchmark(tmp_path / "binary.json")


def test_squad_files_in_scripts_without_spaces(tmp_path) -> None:
    def question(name: str, start: int) -> dict:
        return {"id": name, "question": "?", "answers": [{"text": "字", "answer_start": start}]}

    paragraphs = [
        {"context": "字" * 300, "qas": [question(f"a{number}", 9), question(f"b{number}", 280)]} for number in range(10)
    ]
    file = tmp_path / "zh.json"
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    assert len(load_benchmark(file, words=600).corpus) == 5
    file.write_text(json.dumps({"data": [{"title": "no paragraphs"}]}))
    with pytest.raises(ValueError, match="article 1 has no list of 'paragraphs'"):
        load_benchmark(file)


def test_missing_files_and_groups(tmp_path) -> None:
    folder = copies.directory(tmp_path / "mine")
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    early = [row for row in rows if not row["_id"].endswith("2")]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in early))
    keep = [line for line in (folder / "qrels.tsv").read_text().splitlines() if not line.split("\t")[0].endswith("2")]
    (folder / "qrels.tsv").write_text("\n".join(keep) + "\n")
    with pytest.raises(ValueError, match="No query of 'mine' has its evidence in end"):
        load_benchmark(folder)
    (folder / "qrels.tsv").unlink()
    with pytest.raises(ValueError, match=r"qrels.tsv: there is no such file \(the folder holds: corpus.jsonl"):
        load_benchmark(folder)
    with pytest.raises(ValueError, match=r"has no option 'tiny'\. Available: title"):
        load_benchmark(folder, tiny=True)
    with pytest.raises(ValueError, match="Unknown benchmark 'nothing'"):
        load_benchmark("nothing")
    with pytest.raises(ValueError, match="limit must be at least 1"):
        load_benchmark(copies.directory(tmp_path / "other"), limit=0)


@pytest.mark.parametrize("name", ["fineweb-posq", "squad-posq", "nanobeir"])
def test_offline_the_error_says_what_is_needed(name, tmp_path, monkeypatch) -> None:
    with pytest.raises(OSError, match=r"hf download .* --repo-type dataset --local-dir DIR"):
        load_benchmark(name)
    with pytest.raises(FileNotFoundError, match="names a local copy"):
        load_benchmark(name, path=tmp_path / "nowhere")


def test_offline_posir_says_what_is_needed() -> None:
    with pytest.raises(OSError, match="hf download infgrad/PosIR-Benchmark-v1"):
        load_benchmark("posir")


def test_missing_columns_are_named(tmp_path) -> None:
    copies.write(tmp_path / "data" / "train-00000-of-00001.parquet", [{"question": "?", "text": "x"}])
    with pytest.raises(ValueError, match=r"column 'content' is missing\. Available: question, text"):
        load_benchmark("fineweb-posq", path=tmp_path)
