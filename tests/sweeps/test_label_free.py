"""Tuning on texts alone: models with and without bias by construction, short texts, and what is saved."""

from __future__ import annotations

import json

import pytest
from helpers import readers

import evenspan
from evenspan import Calibration
from evenspan.cli import main
from evenspan.evaluation.benchmarks.texts import TooShortError
from evenspan.report import write_report

SETTINGS = [
    Calibration(strength=strength, layers="last", basket_size=size) for strength in (0.5, 1.0) for size in (32, 64)
]
SEEDS = range(10)


def tuned(model, texts, seed: int = 0, objective: str = "balanced"):
    options = {"seed": seed, "objective": objective, "resamples": 200, "progress": False}
    return evenspan.tune(model, texts, SETTINGS, **options)


def test_a_model_without_bias_is_left_alone_whatever_the_seed(tmp_path) -> None:
    model = readers.reader(tmp_path)
    answers = [tuned(model, readers.documents(seed=seed), seed) for seed in SEEDS]
    assert [answer.calibration for answer in answers] == [None] * len(SEEDS)
    assert all(answer.answer.startswith("Leave it off: ") for answer in answers)
    assert answers[0].in_words().endswith("Use the model as it is: model.encode_document(texts)")


def test_a_front_loaded_model_is_calibrated(tmp_path) -> None:
    model = readers.reader(tmp_path, bias=3.0)
    answers = [tuned(model, readers.documents(seed=seed), seed, "hm") for seed in range(3)]
    assert all(answer.calibration is not None for answer in answers)
    assert all(answer.gain.value > 0.03 for answer in answers)
    first = answers[0]
    plain = first.sweep.plain
    assert plain.groups["beginning"].ndcg > plain.groups["end"].ndcg + 0.1
    assert "stand-in queries" in first.rests_on
    assert any("not real questions" in note for note in plain.notes)
    assert f'Calibration.parse("{first.calibration}")' in first.in_words()
    assert evenspan.calibration_of(model) is None


def test_short_texts_are_left_alone_without_any_work(tmp_path) -> None:
    model = readers.reader(tmp_path, bias=3.0)
    for texts in (readers.documents(20, sentences=3), ["W1 W2.", "W3."]):  # with stand-ins, and without
        answer = tuned(model, texts)
        assert answer.calibration is None
        assert answer.answer.startswith("Leave it off: all texts are shorter than")
    with pytest.raises(TooShortError, match="stand-in queries need longer texts"):  # long enough to be calibrated
        tuned(model, [" ".join(["W1 W2."] * 50)] * 5)


def test_too_few_documents_are_told_how_to_be_more(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"use more documents \(--sample\), or another share or seed"):
        tuned(readers.reader(tmp_path), readers.documents(5))


def test_an_answer_is_saved_and_every_command_takes_it(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("evenspan.cli.tune.find_spec", lambda _: None)  # without matplotlib there are no figures
    model = readers.reader(tmp_path / "model", bias=3.0)
    model.save_pretrained(str(tmp_path / "model"))
    rows = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(readers.documents())]
    (tmp_path / "corpus.jsonl").write_text("\n".join(rows))
    (tmp_path / "grid.txt").write_text("\n".join(map(str, SETTINGS)))
    folder, corpus = str(tmp_path / "model"), str(tmp_path / "corpus.jsonl")
    line = ["tune", folder, "--texts", corpus, "--grid", str(tmp_path / "grid.txt"), "--no-cache", "--resamples", "200"]
    line += ["--objective", "hm"]
    assert main([*line, "--output", str(tmp_path / "out"), "--quiet"]) == 0
    assert (tmp_path / "out" / "sweep.csv").exists()
    assert list((tmp_path / "out").glob("*.png")) == []
    saved = tmp_path / "out" / "tuning.json"
    found = json.loads(saved.read_text())["calibration"]
    shown, answer = capsys.readouterr().out, f"Use {found}: the best of 4 settings"
    assert answer in shown
    assert answer in write_report(tmp_path / "out", tmp_path / "report.html").read_text("utf-8")
    own = tmp_path / "out" / f"{SETTINGS[1]}.json"  # with a name that a result had, but none
    own.write_text('{"method": "mine"}')
    with_short = [*line[:3], str(tmp_path / "short.jsonl"), *line[4:], "--output", str(tmp_path / "out"), "--quiet"]
    (tmp_path / "short.jsonl").write_text('{"text": "W1 W2."}')
    assert main(with_short) == 0
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {"tuning.json", "tuning.txt", "run.json", own.name}  # nothing of the former run
    capsys.readouterr()
    saved.write_text(json.dumps({"kind": "tuning", "calibration": found}))
    assert main(["inspect", folder, "--calibration", str(saved), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calibration"] == found
    saved.write_text(json.dumps({"kind": "tuning", "calibration": None}))
    assert main(["save", folder, str(tmp_path / "fair"), "--calibration", str(saved), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["calibration"] is None
