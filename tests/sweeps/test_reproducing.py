"""The paper's tables run on small copies of the data: every row is there, beside the paper's figure."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import pytest
from helpers import copies
from helpers.paths import ROOT

from evenspan import Calibration
from evenspan.cli import main
from evenspan.evaluation.methods import SegmentAverage
from evenspan.sweeps import paper_rows
from evenspan.sweeps.paper import claims, paper_table
from evenspan.sweeps.reproducing import TABLES, reproduce
from evenspan.sweeps.reproduction import ReproducedRow

OPTIONS = {
    "segment_average": SegmentAverage(embedder="self"),
    "progress": False,
    "resamples": 0,
}


def test_the_papers_tables_are_in_the_package() -> None:
    assert {name: len(paper_table(name)) for name in ("fineweb_posq", "posir", "posir_by_language", "nanobeir")} == {
        "fineweb_posq": 78,
        "posir": 20,
        "posir_by_language": 200,
        "nanobeir": 448,
    }


def test_fineweb_posq(cls_model, tmp_path) -> None:
    path = copies.fineweb_posq(tmp_path / "data")
    seen: list[str] = []
    options = {**OPTIONS, "paper_model": "bge-m3-dense", "path": path, "output": tmp_path / "results"}
    table = reproduce("fineweb-posq", cls_model, report=seen.append, **options)
    assert len(table.rows) == 26  # plain, segment-average and the 24 settings
    assert len(seen) == 26
    default = next(row for row in table.rows if row.labels["method"] == "soft,strength=0.5,layers=half,basket_size=128")
    assert default.paper == {"begin": 86.62, "mid": 80.55, "end": 75.47, "HM": 80.62, "PSI": 0.129}
    assert default.differences["begin"] == pytest.approx(default.ours["begin"] - 86.62)
    assert f"{default.ours['HM']:.2f} / 80.62 / {default.differences['HM']:+.2f}" in str(table)
    assert len(table.to_frame()) == 26 * 5
    assert default.changes["HM"].value == pytest.approx(default.ours["HM"] - table.rows[0].ours["HM"])
    assert r"\toprule" in table.to_latex()
    assert "of 24 (paper: " in str(table)
    # A second run reads what is there; after one result is lost, that one is computed again.
    again = reproduce("fineweb-posq", cls_model, report=seen.append, **options)
    assert (again, len(seen)) == (table, 26)
    (tmp_path / "results" / "fineweb-posq" / "none.json").unlink()
    assert reproduce("fineweb-posq", cls_model, report=seen.append, **options) == table
    assert seen[26:] == ["fineweb-posq: none"]
    # Results of another setting are not taken for this one.
    reproduce("fineweb-posq", cls_model, report=seen.append, query_prompt="w5 w6 w7 ", **options)
    assert len(seen) == 27 + 26


def test_nanobeir(cls_model, tmp_path, monkeypatch) -> None:
    from evenspan.evaluation.benchmarks import nanobeir

    monkeypatch.setattr(nanobeir, "SETS", ("ArguAna", "NFCorpus"))
    path = copies.nanobeir(tmp_path)
    options = {**OPTIONS, "resamples": 50}
    table = reproduce("nanobeir", cls_model, paper_model="gte-multilingual-base", path=path, **options)
    labels = [tuple(row.labels.values()) for row in table.rows]
    assert len(labels) == 2 * 4 * 3  # documents × methods × (two sets and their average)
    arguana = table.rows[labels.index(("original", "none", "ArguAna"))]
    assert arguana.paper["nDCG@10"] == 58.92
    average = table.rows[labels.index(("shuffled", "soft", "Avg"))]
    sets = [table.rows[labels.index(("shuffled", "soft", name))].ours["nDCG@10"] for name in ("ArguAna", "NFCorpus")]
    assert average.ours["nDCG@10"] == pytest.approx(sum(sets) / 2)
    assert average.paper["nDCG@10"] == 61.46, "the paper's Avg row"
    for row in table.rows:
        assert set(row.changes) == (set() if row.labels["method"] == "none" else {"nDCG@10", "Recall@10"})
        assert set(row.intervals) == {"nDCG@10", "Recall@10"}
    tiny = reproduce("nanobeir", cls_model, paper_model="gte-multilingual-base", tiny=True, path=path, **OPTIONS)
    assert "part of the data only" in tiny.notes[0]


def test_posir(cls_model, tmp_path, monkeypatch) -> None:
    path = copies.posir(tmp_path)
    options = {**OPTIONS, "paper_model": "gte-multilingual-base", "path": path}
    languages = ["deu-Latn", "eng-Latn"]
    table = reproduce("posir", cls_model, languages=languages, **options)
    rows = {tuple(row.labels.values()): row for row in table.rows}
    assert len(rows) == 5 * 3 + 5 * 2  # x-x: two languages and their average; x-en: German alone and the average
    assert ("x-en", "none", "English") not in rows, "the paper's x-en leaves English and Chinese out"
    german = next(row for row in paper_table("posir_by_language") if row["language"] == "German" and row["method"] == "none"
                  and row["model"] == "gte-multilingual-base" and row["setting"] == "x-x")  # fmt: skip
    assert rows["x-x", "none", "German"].paper["nDCG@10"] == german["overall"]
    both = [rows["x-x", "none", name].ours["nDCG@10"] for name in ("German", "English")]
    assert rows["x-x", "none", "average"].ours["nDCG@10"] == pytest.approx(sum(both) / 2), "a macro-average"
    assert "PSI_Q1: ours / paper / difference" in str(table)
    moves = [rows["x-x", "soft", name].changes["nDCG@10"].value for name in ("German", "English", "average")]
    assert moves[2] == pytest.approx(sum(moves[:2]) / 2)
    assert "NaN" not in table.to_json()
    assert rows["x-x", "none", "average"].paper == {}, "two languages are not the paper's ten"
    monkeypatch.setattr(paper_rows, "LANGUAGES", tuple(languages))
    complete = reproduce("posir", cls_model, languages=languages, settings=["x-x"], **options)
    averages = {row.labels["method"]: row for row in complete.rows if row.labels["language"] == "average"}
    assert averages["none"].paper["nDCG@10"] == 47.37
    assert (averages["none"].paper["PSI"], averages["none"].paper["nDCG@10 Q1"]) == (0.4, 61.28), "the paper's Avg rows"
    with pytest.raises(ValueError, match="no language 'de'"):
        reproduce("posir", cls_model, languages=["de"], **options)
    with pytest.raises(ValueError, match="x-x or x-en"):
        reproduce("posir", cls_model, languages=languages, settings=["en-x"], **options)


def test_models_the_paper_does_not_have(cls_model, tmp_path) -> None:
    path = copies.fineweb_posq(tmp_path / "data")
    table = reproduce("fineweb-posq", cls_model, path=path, **{**OPTIONS, "resamples": 100})
    assert len(table.rows) == 26
    assert not any(row.paper for row in table.rows)
    assert "paper / difference" not in str(table)
    assert any("The paper has no figures of" in note and "bge-m3-dense" in note for note in table.notes)
    assert sum("in 0 of" in claim or " of 24" in claim or " of 16" in claim for claim in table.claims) >= 3
    assert "paper:" not in " ".join(table.claims)
    with pytest.raises(ValueError, match=r"it has gte-multilingual-base, bge-m3-dense, Qwen3-Embedding-0\.6B"):
        reproduce("fineweb-posq", cls_model, paper_model="bert")
    with pytest.raises(ValueError, match="Unknown table 'squad'"):
        reproduce("squad", cls_model)


def test_claims_are_counted_in_the_papers_own_rows() -> None:
    def rows(model: str) -> list[ReproducedRow]:
        return [
            ReproducedRow(
                {
                    "method": row["method"]
                    if "layers" not in row
                    else str(Calibration(row["method"], row["strength"], row["layers"], row["basket_size"]))
                },
                {},
                {name: row[name] for name in ("begin", "mid", "end", "HM", "PSI")},
            )
            for row in paper_table("fineweb_posq")
            if row["model"] == model
        ]

    counted = [replace(row, ours=row.paper) for row in rows("bge-m3-dense")]
    (higher, lower, soft, half) = claims("fineweb-posq", counted)
    plain = next(row for row in counted if row.labels["method"] == "none").ours
    settings = [row.ours for row in counted if "," in row.labels["method"]]
    expected = sum(row["HM"] > plain["HM"] for row in settings)
    assert higher == f"HM is higher than without calibration in {expected} of 24 (paper: {expected} of 24)"
    assert " of 24 " in lower
    assert " of 16 " in soft, "against two other variants at eight settings"
    assert " of 12 " in half


def test_last_token_models_name_their_rule(last_model, tmp_path) -> None:
    table = reproduce("fineweb-posq", last_model, path=copies.fineweb_posq(tmp_path / "data"), **OPTIONS)
    assert any("first token of the sequence" in note and "leaves this rule open" in note for note in table.notes)


def test_the_documentation_has_a_command_for_every_table(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    commands = [
        shlex.split(code) for code in re.findall(r"`(evenspan (?:audit|evaluate|report|reproduce|sweep) .*?)`", text)
    ]
    assert {words[2] for words in commands if words[1] == "reproduce"} == set(TABLES)
    for words in commands:
        assert main([words[1], "--help"]) == 0
        known = set(re.findall(r"(?<![\w-])-{1,2}\w[\w-]*", capsys.readouterr().out))
        assert {word for word in words if word.startswith("-")} <= known, words


def test_command_line(cls_model, tmp_path, capsys) -> None:
    cls_model.save_pretrained(str(tmp_path / "bge-m3"))  # found by its name
    arguments = ["--model", str(tmp_path / "bge-m3"), "--path", str(copies.fineweb_posq(tmp_path / "data"))]
    arguments += [
        "--output",
        str(tmp_path / "out"),
        "--segment-embedder",
        "self",
        "--no-cache",
        "--resamples",
        "0",
        "--tiny",
    ]
    assert main(["reproduce", "fineweb-posq", *arguments]) == 0
    assert "ours / paper / difference" in capsys.readouterr().out
    saved = json.loads((tmp_path / "out" / "fineweb-posq.json").read_text())
    assert saved["model"] == "bge-m3-dense"
    assert len(saved["rows"]) == 26
