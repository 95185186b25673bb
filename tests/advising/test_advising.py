"""Advice: its figures are those of `evaluate`, its marks follow from them, and its command is one that works."""

from __future__ import annotations

import io
import json
import shlex
import sys
from dataclasses import replace

import pytest
from helpers import readers

import evenspan
from evenspan import Calibration
from evenspan.advising.advice import Advice, AdviceRow
from evenspan.advising.choosing import FLATTERED, LEFT_OFF, NOISE, Limits, choice, marked
from evenspan.advising.layouts import layouts
from evenspan.cli import main
from evenspan.corpus.texts import index_options, read_texts
from evenspan.evaluation import evaluate, load_benchmark
from evenspan.evaluation.benchmarks.texts import from_texts
from evenspan.evaluation.methods import Calibrated, ChunksMax, Plain
from evenspan.report import write_report
from evenspan.report.figures.advice import advice_figures

SETTING = Calibration(layers="last", strength=1.0, basket_size=32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return readers.reader(tmp_path_factory.mktemp("front-loaded"), bias=3.0)


@pytest.fixture(scope="module")
def advice(model) -> Advice:
    return evenspan.advise(model, from_texts(readers.documents(), seed=1), SETTING, resamples=100, progress=False)


def test_former_advice_leaves_nothing_in_the_folder(advice, tmp_path) -> None:
    advice.write(tmp_path)
    (tmp_path / "chunks.json").write_text('{"method": "mine"}')
    replace(advice, rows=advice.rows[:1], results=advice.results[:1]).write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"none.json", "advice.json", "advice.txt", "chunks.json"}


def test_figures_are_those_of_evaluate(model, advice) -> None:
    benchmark = from_texts(readers.documents(), seed=1)
    chunked = ChunksMax(128, cut="sentences", calibration=replace(SETTING, partition="even"))
    known = {row.method: row for row in advice.rows}
    for method in (Plain(), Calibrated(SETTING), chunked):
        row, result = known[method.name], evaluate(model, benchmark, method=method, resamples=0, progress=False)
        assert row.positions == {name: group.ndcg for name, group in result.groups.items()}
        assert (row.ndcg, row.harmonic_mean, row.psi) == (result.ndcg, result.harmonic_mean, result.psi)
        assert (row.vectors, row.bytes) == (result.vectors_per_document, result.bytes_per_document)
    assert known["none"].cost == 1.0
    assert all(row.cost > 0 for row in advice.rows)
    assert evenspan.calibration_of(model) is None


def test_what_a_front_loaded_model_is_advised(advice) -> None:
    plain, calibrated = advice.rows[:2]
    assert calibrated.harmonic_mean > plain.harmonic_mean + 0.05
    assert ("best at one vector" in calibrated.marks) == (calibrated.remark is None)
    assert all(row.remark == FLATTERED for row in advice.rows if row.name.startswith("hybrid"))
    assert any("late chunking" in row.name and row.remark for row in advice.rows)
    assert str(advice).startswith("Nothing is cut off")
    words = shlex.split(advice.command)
    assert words[:2] == ["evenspan", "index"]
    assert words[words.index("--calibration") + 1] == str(advice.calibration or "none")
    again = Advice.from_dict(json.loads(advice.to_json()))
    assert replace(again, results=advice.results) == advice


@pytest.mark.parametrize("setting", [SETTING, None], ids=["given", "tuned"])
def test_a_model_without_bias_gets_the_same_advice_whatever_the_seed(tmp_path_factory, setting) -> None:
    cache = tmp_path_factory.getbasetemp() / "even"  # documents are the same every time
    model, texts = readers.reader(cache / "model"), readers.documents(30, sentences=60)
    options = {"resamples": 100, "progress": False, "cache": cache}
    given = [evenspan.advise(model, texts, setting, seed=seed, **options) for seed in range(10)]
    assert {each.calibration for each in given} == {None}
    assert len({each.command for each in given}) == 1
    assert given[0].command.endswith("--calibration none --chunk-tokens 128")
    assert all("Leave calibration off" in each.sentence for each in given)
    assert all(row.remark for each in given for row in each.rows if row.calibrated)
    tuned = {row.remark for each in given for row in each.rows if row.name.endswith("tokens, calibrated")}
    assert setting or tuned == {LEFT_OFF}


@pytest.mark.parametrize("texts", [readers.documents(12), readers.documents(1) * 10], ids=["twelve", "the same"])
def test_nothing_is_told_from_few_documents(model, texts) -> None:
    """Among ten documents every one is found, and each is the best."""
    few = evenspan.advise(model, texts, SETTING, resamples=100, progress=False)
    assert few.sentence.startswith("There are too few documents to tell anything: ")
    assert not any(each.marks for each in few.rows)
    assert (few.calibration, few.command.endswith("my-index --calibration none")) == (None, True)
    assert "".join(figure.description for figure in advice_figures(few, "a")).endswith(" bytes.")


def row(name: str, mean: float, vectors: float, remark: str | None = None) -> AdviceRow:
    return AdviceRow(name, name, {}, mean, mean, 0.0, vectors, 100 * vectors, 1.0, 0.0, remark=remark)


def test_marks_and_choice_follow_from_the_figures() -> None:
    tried = list(layouts(SETTING, 512, 1000))[:4]  # whole documents and chunks of 128 tokens, plain and calibrated
    rows = [row("whole", 0.60, 1), row("whole+", 0.65, 1), row("chunks", 0.80, 8), row("chunks+", 0.805, 8, NOISE)]
    marks = [each.marks for each in marked(rows, tried, Limits())]
    assert marks == [(), ("best at one vector",), ("best eligible", "smallest within a point of the best"), ()]
    assert choice(rows, Limits()) == 2
    assert choice(rows, Limits(vectors=4)) == 1
    assert choice(rows, Limits(bytes=50)) == 0 or rows[choice(rows, Limits(bytes=50))].vectors == 1
    assert "best within 4 vectors" in marked(rows, tried, Limits(vectors=4))[1].marks
    as_small = [rows[0], rows[1], rows[2], replace(rows[3], remark=None)]  # of chunks that are as many, the better ones
    assert "smallest within a point of the best" in marked(as_small, tried, Limits())[choice(as_small, Limits())].marks
    assert "best within 400 bytes" in marked(rows, tried, Limits(bytes=400))[1].marks
    assert [str(Limits(1)), str(Limits(4, 2048))] == ["1 vector", "4 vectors and 2,048 bytes"]
    rows[1] = replace(rows[1], remark=NOISE)  # calibration must not be advised where it is noise
    assert choice(rows, Limits(vectors=4)) == 0
    with pytest.raises(ValueError, match="budget must be at least 1, not 0"):
        Limits(vectors=0)


def test_the_command_line_and_the_report(model, tmp_path, capsys) -> None:
    folder, corpus = tmp_path / "model", tmp_path / "corpus.jsonl"
    model.save_pretrained(str(folder))
    texts = [*readers.documents(24), *readers.documents(6, sentences=60, seed=1)]  # some longer than the model reads
    corpus.write_text("\n".join(json.dumps({"id": str(n), "text": text}) for n, text in enumerate(texts)))
    line = ["advise", str(folder), "--texts", str(corpus), "--calibration", str(SETTING), "--budget", "1", "--no-cache"]
    assert main([*line, "--resamples", "100", "--output", str(tmp_path / "out"), "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Truncated after 318 tokens of text: 6 of 30 documents (20 %);")
    assert "stand-in queries, not real questions" in shown
    assert "best within 1 vector" in shown
    assert shown.rstrip().splitlines()[-1].startswith("evenspan index ")
    saved = json.loads((tmp_path / "out" / "advice.json").read_text())
    assert next(each for each in saved["rows"] if each["method"] == "none")["unread"] > 0.1
    page = write_report([tmp_path / "out"], tmp_path / "report.html").read_text()
    assert "What quality costs" in page
    assert saved["command"].partition(" my-index")[0].split()[0] in page
    assert (tmp_path / "report_figures" / "m1-advice1-sizes.csv").is_file()


def test_short_texts_need_no_advice(model, tmp_path, capsys) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"text": "W1 W2."}\n{"text": "W3."}\n')
    model.save_pretrained(str(tmp_path / "model"))
    line = ["advise", str(tmp_path / "model"), "--texts", str(tmp_path / "corpus.jsonl"), "--no-cache", "--quiet"]
    assert main([*line, "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "Leave it off: all texts are shorter than" in shown
    assert shown.rstrip().endswith("--calibration none --id @line")
    short = evenspan.advise(model, readers.documents(20, sentences=3), resamples=100, progress=False)  # with stand-ins
    assert "Leave calibration off" in short.sentence
    assert short.calibration is None
    assert any(note.startswith("Leave it off: all texts are shorter than") for note in short.notes)
    with pytest.raises(ValueError, match="has no positions"):
        evenspan.advise(model, load_benchmark("generated", documents=3).__class__("x", (_unplaced(),)), progress=False)


def test_the_command_runs_as_printed(model, tmp_path, capsys) -> None:
    corpus = tmp_path / "corpus.jsonl"  # no ids, and a field of its own: `index` takes neither unasked
    corpus.write_text("".join(json.dumps({"body": f"W1 W{n}."}) + "\n" for n in range(3)))
    model.save_pretrained(str(tmp_path / "model"))
    line = ["advise", str(tmp_path / "model"), "--texts", str(corpus), "--no-cache", "--quiet"]
    assert main([*line, "--query-prompt", "W7 ", "--document-prompt", "W8 W9 "]) == 0
    words = shlex.split(capsys.readouterr().out.rstrip().splitlines()[-1])
    assert words[words.index("--query-prompt") + 1] == "W7 "
    assert words[words.index("--document-prompt") + 1] == "W8 W9 "
    words[words.index("my-index")] = f"parquet:{tmp_path / 'index'}"
    assert main([*words[1:], "--quiet"]) == 0
    assert "3 documents" in capsys.readouterr().out


def test_the_command_of_standard_input_and_of_bad_rows_runs_too(model, tmp_path, capsys, monkeypatch) -> None:
    model.save_pretrained(str(tmp_path / "model"))
    rows = [{"body": f"W1 W{n}.", "title": "W2"} for n in range(5)] + [{"body": ""}, {"title": "W3"}]

    def run(*line: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(map(json.dumps, rows)).encode())))
        assert main([*line, "--quiet"]) == 0
        return capsys.readouterr().out

    shown = run("advise", str(tmp_path / "model"), "--texts", "-", "--field", "body", "--no-cache")
    words = shlex.split(shown.rstrip().splitlines()[-1])
    assert words[-6:] == ["--field", "body", "--id", "@line", "--max-rejects", "0.3"]
    words[words.index("my-index")] = f"parquet:{tmp_path / 'index'}"
    assert "5 documents" in run(*words[1:])


def test_the_command_names_documents_by_lines_where_ids_do_not_tell_them_apart(tmp_path) -> None:
    def fields(location) -> dict[str, str]:
        return index_options(str(location), read_texts(location))

    corpus = tmp_path / "corpus.jsonl"
    for ids, options in (
        (["a", 2, "c"], {}),
        (["a", "a", "a"], {"--id": "@line"}),
        (["a", None, None], {"--id": "@line"}),
        (["", "", 3], {"--id": "@line"}),
    ):
        corpus.write_text("".join(json.dumps({"id": name, "text": "W1."}) + "\n" for name in ids))
        assert fields(corpus) == options
    corpus.write_text("".join(f'{{"id": {n}, "text": "{"W1" * (n > 1)}"}}\n' for n in range(10)))
    assert fields(corpus) == {"--max-rejects": "0.3"}
    for name, rows in (("a", '{"id": 1, "text": "W1."}\n' * 3), ("b", '{"_id": 1, "text": "W2."}\n' * 3)):
        (tmp_path / f"{name}.jsonl").write_text(rows)
    assert fields(tmp_path / "[ab].jsonl") == {"--id": "@line"}
    corpus.write_text('{"id": "W1."}\n{"id": "W2."}\n')  # a text is no id, too
    assert fields(corpus) == {"--field": "id", "--id": "@line"}


def test_the_command_of_hybrid_search_builds_both_indexes() -> None:
    for layout in layouts(SETTING, 512, 1000):
        assert ("--full-text" in layout.command("m", "corpus.jsonl", {})) == layout.is_hybrid


def _unplaced():
    from evenspan.evaluation import Collection, Query

    return Collection("x", {"a": "W1"}, (Query("q", "W1"),), {"q": {"a": 1}})
