"""The report: right numbers, plain words, and no harm from what documents contain."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.reports import (
    SOFT,
    Page,
    a_result,
    a_sweep,
    an_audit,
    attention,
    hostile_sources,
    report,
    representation,
    rows,
    write_sources,
)

from evenspan.auditing.audit_result import Audit
from evenspan.auditing.schema import Estimate, Truncation, View
from evenspan.errors import MissingExtraError
from evenspan.report import check_output, read_sources, write_report
from evenspan.report.findings import subject_findings, tiles


def test_everything_is_there_with_the_right_numbers(tmp_path) -> None:
    page, text = report(tmp_path, [an_audit()], a_sweep())
    names = ["m1-audit1-representation", "m1-audit1-self-mass", "m1-audit1-attention"]
    names += [f"m1-evaluation1-{name}" for name in ("positions", "trade-off", "strengths")]
    assert [value for tag, name, value in page.attributes if (tag, name) == ("figure", "id")] == names
    files = {path.name for path in (tmp_path / "report_figures").iterdir()}
    assert files == {f"{name}.{ending}" for name in names for ending in ("svg", "png", "csv")}
    assert all(path.stat().st_size > 60 for path in (tmp_path / "report_figures").iterdir())
    assert 20_000 < len(text.encode()) < 600_000

    curve = rows(tmp_path, names[0])
    assert [float(row["cosine"]) for row in curve[:5]] == [0.80, 0.72, 0.68, 0.64, 0.60]
    assert (curve[5]["view"], float(curve[5]["low"])) == ("calibrated", 0.73)
    heat = rows(tmp_path, names[2])
    assert len(heat) == 2 * 6 * 4
    assert float(heat[1]["mass"]) == an_audit().plain.attention.layers[0].baskets[1]
    assert [row["p50"] for row in rows(tmp_path, names[1])[:2]] == ["0.1", "0.15000000000000002"]
    assert [row["group"] for row in rows(tmp_path, names[3])[:3]] == ["beginning", "middle", "end"]
    change = [row for row in rows(tmp_path, names[5]) if (row["layers"], row["figure"]) == ("half", "end")]
    assert [round(float(row["change"]), 6) for row in change] == [0, 0.05, 0.1, 0.2]
    assert sum(row["pareto"] == "yes" for row in rows(tmp_path, names[4])) >= 1
    for words in ("24,000 (30 %)", "evenspan sweep miniature:cls", "torch", "Once upon a time", "Only 80 documents"):
        assert words in page.text


def test_models_side_by_side(tmp_path) -> None:
    for name, look in (("one", attention()), ("two", attention(layers=4))):
        replace(
            an_audit(), model=name, plain=View(look, representation()), intact=attention(0.5, len(look.layers))
        ).write(tmp_path / "in" / name / "audit.json")
    page = write_report(tmp_path / "in", tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Models side by side" in page
    data = rows(tmp_path, "models-self-mass")
    assert [(row["model"], row["view"]) for row in data[::6]] == [
        ("one", "shuffled"),
        ("two", "shuffled"),
        ("one", "intact"),
        ("two", "intact"),
    ]
    assert {row["view"] for row in rows(tmp_path, "m1-audit1-self-mass")} == {
        "plain",
        "calibrated",
        "plain, intact text",
    }


def test_document_text_does_no_harm(tmp_path) -> None:
    target = write_report(hostile_sources(tmp_path / "in"), tmp_path / "report.html")
    page = Page(target.read_text(encoding="utf-8"))
    assert not {"script", "img", "iframe", "link", "object", "base", "form"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "<script>window.hacked = 1; alert(1)</script>" in page.text
    assert "\x00" not in target.read_text(encoding="utf-8")
    assert "$x_1$" in page.text  # not typeset as a formula
    # What turns the direction of text stands in an element of its own.
    outside = re.sub(
        r'<bdi dir="auto">[^<]*</bdi>|="[^"]*"|<(title|text|desc|caption)[^>]*>[^<]*<', "", str(target.read_text())
    )
    assert "\u202e" not in outside
    (subject,) = read_sources([tmp_path / "in"]).subjects
    assert not any(
        "\u202e" in one.lead + one.text for one in subject_findings(subject)
    )  # in a sentence it would turn the rest
    assert (tmp_path / "report_figures" / "m1-evaluation1-positions.png").exists()


def test_characters_that_nothing_can_show_are_replaced(tmp_path) -> None:
    bad = "x\ud800\x01\u202ey"
    for place, method in enumerate(("none", "BAD", SOFT)):
        text = a_result(method, {"BAD": 0.8, "end": 0.4}, benchmark="BAD", notes=("BAD",)).to_json()
        (tmp_path / f"{place}.json").write_text(text.replace("BAD", json.dumps(bad)[1:-1]))
    text = write_report(tmp_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "\x01" not in text
    assert '<bdi dir="auto">x\ufffd\ufffd\u202ey</bdi>' in text
    assert "x\ufffd\ufffdy 80.0" in text  # in a sentence, without what would turn the rest of it
    assert rows(tmp_path, "m1-evaluation1-positions")[1]["group"] == "x?\x01\u202ey"


def test_one_file_that_asks_for_nothing(tmp_path) -> None:
    page, text = report(
        tmp_path, [an_audit(), an_audit(calibrated=None, calibration=None, slope_change=None)], a_sweep()
    )
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    references = [
        value for _, name, value in page.attributes if name in ("src", "href", "xlink:href", "data", "action")
    ]
    assert all(value.startswith(("#", "data:image/png;base64,")) for value in references)
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", text))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    used = {value[1:] for value in references if value.startswith("#")} | set(re.findall(r"url\(#([^)]*)\)", text))
    used |= {value for _, name, value in page.attributes if name in ("aria-labelledby", "aria-describedby")}
    assert used <= set(ids)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("meta", "content", policy) in page.attributes


def test_accessible(tmp_path) -> None:
    page, text = report(tmp_path, [an_audit()], a_sweep())
    assert ("html", "lang", "en") in page.attributes
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.tags.count("figure") == page.tags.count("figcaption") == 6
    assert len([1 for tag, name, value in page.attributes if (tag, name, value) == ("svg", "role", "img")]) == 8
    assert page.tags.count("desc") == 8
    assert "0.800 at the first of 5 positions, 0.600 at the last" in text
    assert all(re.search(r'scope="(col|row)"', tag) for tag in re.findall(r"<th\b[^>]*>", text))
    for words in ("prefers-color-scheme:dark", "@media print", 'name="viewport"'):
        assert words in text


def test_same_sources_same_files(tmp_path) -> None:
    source = write_sources(tmp_path / "in", [an_audit()], a_sweep())
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_report([source], tmp_path / name / "report.html")
    for path in [*(tmp_path / "one").rglob("*.*")]:
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes(), path.name


def leads(tmp_path: Path, *audits: Audit, results=()) -> list[str]:
    (subject,) = read_sources([write_sources(tmp_path, audits, results)]).subjects
    return [f"{finding.lead} {finding.text}" for finding in subject_findings(subject)]


@pytest.mark.parametrize(
    ("bias", "degree", "words"),
    [
        (
            "primacy",
            "strong",
            "Strong primacy bias: positions do not count equally. In the part that is read, text at the beginnin",
        ),
        (
            "recency",
            "mild",
            "Mild recency bias: positions do not count equally. In the part that is read, text at the end of a",
        ),
        ("both ends", "mild", "Mild bias towards both ends: positions do not count equally."),
        ("none found", None, "No position bias was found."),
    ],
)
def test_what_is_never_read_is_said_first_then_the_verdict(tmp_path, bias, degree, words) -> None:
    audit = an_audit(plain=View(None, representation(bias=bias, degree=degree)))
    first, second, *_ = leads(tmp_path, audit)
    assert first.startswith(
        "30 % of the text is never read. The model stops after 510 tokens of text. Past the cut: 24,000 of 80,000 tokens"
    )
    assert second.startswith(words)
    assert "slope −0.200" in second


def test_nothing_cut(tmp_path) -> None:
    whole = Truncation(100, 0, 8_000, 0, 510, 400)
    first = leads(tmp_path, an_audit(truncation=whole))[0]
    assert first == "Nothing is cut off. The model reads 510 tokens of text; the longest document has 400."


@pytest.mark.parametrize(
    ("values", "change", "words"),
    [
        ((0.75, 0.65), (0.05, 0.15), "Calibration reduces the slope by 50 %."),
        ((0.75, 0.65), (-0.05, 0.15), "Calibration changes nothing beyond noise."),
        ((0.6, 0.7), (0.2, 0.4), "Calibration reverses the slope"),
        ((0.9, 0.6), (-0.2, -0.05), "Calibration makes the representation less even."),
    ],
)
def test_what_calibration_changes(tmp_path, values, change, words) -> None:
    after = View(None, representation(values, "primacy", "mild"))
    said = leads(tmp_path, an_audit(calibrated=after, slope_change=Estimate(sum(change) / 2, change)))
    assert said[2].startswith(words)


@pytest.mark.parametrize(
    ("change", "calibration", "longest", "words"),
    [
        (0.0, SOFT, 400, "the slope stays −0.200."),
        (3e-5, SOFT, 400, "the slope stays −0.200."),  # what rounding leaves, though its interval lies beside 0
        (
            0.0,
            SOFT,
            100,
            "The model reads at most 100 tokens of each document, and documents shorter than a basket of 128",
        ),
        (0.0, "soft,strength=0.0", 400, "Strength 0 is the plain model."),
    ],
)
def test_an_audit_in_which_nothing_changed_claims_no_change(tmp_path, change, calibration, longest, words) -> None:
    before, after = representation(), representation((0.80, 0.72, 0.68, 0.64, 0.60 + change))
    audit = an_audit(
        calibration=calibration,
        truncation=Truncation(100, 0, 8_000, 0, 510, longest),
        plain=View(None, before),
        calibrated=View(None, after),
        slope_change=Estimate(change, (change / 2, change * 2)),
    )
    (subject,) = read_sources([write_sources(tmp_path, [audit])]).subjects
    finding = subject_findings(subject)[2]
    assert (finding.lead, finding.tone) == ("Calibration changes nothing here.", "neutral")
    assert words in finding.text
    assert "Calibration changes nothing here." in str(audit)
    assert "verdict is now" not in str(audit)
    assert (tiles(subject)[2].note, tiles(subject)[2].tone) == ("slope −0.200: nothing changes", "neutral")


def test_a_change_within_noise_is_called_that_everywhere(tmp_path) -> None:
    after = View(None, representation((0.75, 0.65), "none found", None))
    audit = an_audit(calibrated=after, slope_change=Estimate(0.05, (-0.05, 0.15)))
    (subject,) = read_sources([write_sources(tmp_path, [audit])]).subjects
    assert "verdict is now" not in subject_findings(subject)[2].text
    assert (tiles(subject)[2].note, tiles(subject)[2].tone) == (
        "slope −0.100 instead of −0.200, within noise",
        "neutral",
    )


def test_gains_and_costs_by_position(tmp_path) -> None:
    said = leads(tmp_path, an_audit(), results=a_sweep())
    assert "90.0 for answers at the beginning and 40.0 for those at the end" in said[3]
    assert said[4].startswith("Calibration helps overall.")
    assert "(the calibration that was audited)" in said[4]
    assert "Gains: middle +2.5 and end +10.0." in said[4]
    assert said[5].startswith("Some positions lose.")
    assert "beginning −10.0 points of nDCG@10" in said[5]


def test_what_is_missing_is_left_out(tmp_path) -> None:
    mean_pooled = an_audit(plain=View(None, representation()), calibrated=None, calibration=None, slope_change=None)
    page, _ = report(tmp_path, [mean_pooled])
    assert page.tags.count("figure") == 1
    assert "calibrated" not in " ".join(page.texts[page.texts.index("What the audit shows") :])
    bare = replace(mean_pooled, plain=View(None, None), truncation=replace(mean_pooled.truncation, worst=()))
    page, _ = report(tmp_path / "bare", [bare])
    assert page.tags.count("figure") == 0
    without_positions = a_result(
        "none", {"a": 0.5, "b": 0.6}, harmonic_mean=None, psi=None, scoring="average", per_query=()
    )
    page, _ = report(tmp_path / "sets", [], [without_positions, replace(without_positions, method=SOFT)])
    assert page.tags.count("figure") == 1
    assert "nDCG@10 by data set" in page.text
    page, _ = report(tmp_path / "baseline", [], [a_result("bm25", {"beginning": 0.5, "end": 0.6})])
    assert page.tags.count("figure") == 1


def test_many_layers_and_baskets(tmp_path) -> None:
    many = attention(layers=28)
    layers = tuple(replace(layer, baskets=(0.01,) * 64) for layer in many.layers)
    view = View(replace(many, basket_documents=tuple(range(64, 0, -1)), layers=layers), representation())
    _, text = report(tmp_path, [an_audit(plain=view, calibrated=view)])
    assert len(text.encode()) < 400_000
    assert "m1-audit1-self-mass-1-title" in text  # a panel each


def test_two_models_and_results_of_several_folders(tmp_path) -> None:
    write_sources(tmp_path / "a", [an_audit()], a_sweep()[:2])
    write_sources(tmp_path / "b", [an_audit(model="other")], a_sweep()[1:])
    material = read_sources([tmp_path / "a", tmp_path / "b", tmp_path])  # the same files twice
    assert [subject.model for subject in material.subjects] == ["miniature:cls", "other"]
    (evaluation,) = material.subjects[0].evaluations
    assert evaluation.results[0].method == "none"
    assert {result.method for result in evaluation.results} == {result.method for result in a_sweep()}
    assert len(evaluation.results) == len(a_sweep())
    assert len(tiles(material.subjects[0])) == 6


def test_foreign_and_damaged_files_are_named_and_skipped(tmp_path) -> None:
    write_sources(tmp_path, [an_audit()])
    contents = {"config.json": '{"a": 1}', "broken.json": "{", "list.json": "[1]", "half.json": '{"kind": "audit"}'}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    values = a_result("none", {"beginning": 0.5}).to_dict()
    (tmp_path / "text.json").write_text(json.dumps({**values, "ndcg": "high"}))
    material = read_sources([tmp_path])
    reasons = {path.name: reason for path, reason in material.skipped}
    assert set(reasons) == {*contents, "bytes.json", "text.json"}
    assert reasons["config.json"] == "not written by audit, evaluate, sweep, tune or advise"
    assert reasons["broken.json"].startswith("not valid JSON")
    assert reasons["text.json"].startswith("damaged, or of another version")


def test_the_answer_of_tuning_is_said_also_on_short_texts(tmp_path) -> None:
    answer = {"kind": "tuning", "calibration": None, "answer": "Leave it off: all texts are short.", "truncation": None}
    (tmp_path / "tuning.json").write_text(json.dumps(answer))
    text = write_report(tmp_path, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Leave it off: all texts are short." in text
    assert "Made from 1 tuning." in text


def test_nothing_found_says_what_makes_such_files(tmp_path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"nothing to report in .*`evenspan audit MODEL.*(?s:.*)config.json"):
        read_sources([tmp_path])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_sources([tmp_path / "nowhere"])


def test_matplotlib_missing_names_the_extra_before_anything_is_read(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("evenspan.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'evenspan\[report\]'"):
        write_report(tmp_path / "nowhere", tmp_path / "report.html")


def test_a_report_that_fails_leaves_nothing_behind(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "config.json").write_text("{}")
    for source, error in (("in", ValueError), ("nowhere", FileNotFoundError)):
        with pytest.raises(error):
            write_report(tmp_path / source, tmp_path / "new" / "folder" / "report.html")
        assert [path.name for path in tmp_path.iterdir()] == ["in"]
    write_sources(tmp_path / "in", [an_audit()])
    assert write_report(tmp_path / "in", tmp_path / "new" / "folder" / "report.html").exists()


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("folder", "is a folder"),
        ("file/report.html", "is a file"),
        ("taken.html", "is a file"),
        ("audit.json", "is not an HTML page"),
    ],
)
def test_where_no_report_can_be_written_is_said_before_anything_is_read(tmp_path, output, error) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("file", "taken_figures", "audit.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises((OSError, ValueError), match=error):
        write_report(tmp_path / "nowhere", tmp_path / output)
    with pytest.raises((OSError, ValueError), match=error):
        check_output(tmp_path / output)


def test_command_line(tmp_path, capsys) -> None:
    from evenspan.cli import main

    write_sources(tmp_path / "in", [an_audit()])
    (tmp_path / "in" / "other.json").write_text("{}")
    assert main(["report", str(tmp_path / "in"), "-o", str(tmp_path / "out.html")]) == 0
    printed = capsys.readouterr()
    assert "other.json: not written by audit" in printed.err
    assert "out_figures" in printed.out
    assert (tmp_path / "out_figures" / "m1-audit1-representation.png").exists()


def test_nothing_but_a_page_is_written_over_and_old_figures_go(tmp_path) -> None:
    source = tmp_path / "audit.json"
    an_audit().write(source)
    with pytest.raises(ValueError, match="is not an HTML page"):
        write_report(source, source)
    (tmp_path / "report_figures").mkdir()
    for name in ("m9-audit9-representation.svg", "mine.svg"):
        (tmp_path / "report_figures" / name).write_text("old")
    write_report(source, tmp_path / "report.html")
    there = {path.name for path in (tmp_path / "report_figures").iterdir()}
    assert "m9-audit9-representation.svg" not in there
    assert "mine.svg" in there
