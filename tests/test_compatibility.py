"""What earlier code wrote is read as before: models, results, caches, indexes, settings, names and options.

`fixtures/compatibility/README.md` says which code wrote it, and how.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import pkgutil
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT
from sentence_transformers import SentenceTransformer

import evenspan
from evenspan import Audit, Calibration
from evenspan.cli import main
from evenspan.evaluation import EvaluationResult, compare, evaluate, load_benchmark
from evenspan.evaluation.scores import current_name
from evenspan.report import read_sources, write_report
from evenspan.sweeps import read_grid, sweep

# Relative to the root, as the files were made: results and indexes hold the paths that they were given.
HERE = Path("tests/fixtures/compatibility")
ORACLE = Path("tests/fixtures/oracle")
BENCHMARK, RESULTS, SWEEP = HERE / "benchmark", HERE / "results", HERE / "sweep"
SETTING = Calibration("soft", 0.75, "half", 16)
NOISE = 2e-6  # other kernels of a CPU give 6e-7; calibration changes these vectors by at least 3e-3


def stored(path: str | Path) -> Any:
    return json.loads((ROOT / HERE / path).read_text(encoding="utf-8"))


IDENTITIES = stored("identities.json")
INTERFACE: dict[str, Any] = stored("interface.json")
COMMANDS: dict[str, list[str]] = stored("command_line.json")
RESULT_FILES = sorted(
    path.relative_to(ROOT / HERE).as_posix()
    for folder in (RESULTS, SWEEP)
    for path in (ROOT / folder).glob("*.json")
    if path.name not in ("run.json", "comparison.json")
)


def needs_versions(*packages: str) -> pytest.MarkDecorator:
    """Skip where a key or a digest cannot be the stored one, because it depends on packages that are others here."""
    others = [
        f"{name} {now}, not {then}"
        for name, then in IDENTITIES["versions"].items()
        if name in packages and (now := metadata.version(name)) != then
    ]
    return pytest.mark.skipif(bool(others), reason=f"made with other packages: {', '.join(others)}")


@pytest.fixture(autouse=True)
def _in_the_root(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    return evenspan.load(ROOT / ORACLE / "qwen3", device="cpu")


def assert_holds(now: Any, then: Any, where: str = "") -> None:
    """Everything that was there is there with the same value; something more may be."""
    if isinstance(then, Mapping):
        for name, value in then.items():
            assert name in now, f"{where}.{name} is gone"
            assert_holds(now[name], value, f"{where}.{name}")
    elif isinstance(then, list):
        assert len(now) == len(then), where
        for place, (value, before) in enumerate(zip(now, then, strict=True)):
            assert_holds(value, before, f"{where}[{place}]")
    elif isinstance(then, float):
        assert now == pytest.approx(then, rel=1e-6, abs=1e-6, nan_ok=True), where
    else:
        assert now == then, where


def without_setting(result: Mapping[str, Any]) -> dict[str, Any]:
    """What comes out again: not the settings, nor what was resampled by query and is now by document."""
    return {name: value for name, value in result.items() if name not in ("setting", "intervals", "notes")}


def saved_folder(name: str, target: Path) -> Path:
    """A model as it was saved: the stored small files, with weights and tokenizer of the oracle's model."""
    shutil.copytree(HERE / "saved" / name, target)
    places = ("query_0_Transformer", "document_0_CalibratedTransformer") if name == "router" else ("",)
    for place in places:
        for file in (ORACLE / ("qwen3" if name == "qwen3" else "xlmr")).iterdir():
            if file.is_file() and not (target / place / file.name).exists() and file.name != "modules.json":
                shutil.copyfile(file, target / place / file.name)
    return target


@pytest.mark.parametrize("name", ["xlmr", "qwen3", "router", "xlmr-hidden"])
def test_saved_models_load(name, tmp_path) -> None:
    expected = np.load(HERE / "vectors.npz")
    texts = list(load_benchmark(BENCHMARK).collections[0].corpus.values())
    folder = saved_folder(name, tmp_path / name)
    (file,) = folder.rglob("evenspan.json")
    loaded = evenspan.load(folder, device="cpu")
    assert evenspan.calibration_of(loaded) == Calibration.from_dict(json.loads(file.read_text())["calibration"])
    model = name.removesuffix("-hidden")  # the same, by later code
    for key in (key for key in expected if key.startswith(f"{model}_")):
        vectors = getattr(loaded, key.removeprefix(f"{model}_"))(texts)
        np.testing.assert_allclose(vectors, expected[key], atol=NOISE, rtol=0, err_msg=key)
    # Saved again, by today's code, it is the same model still.
    loaded.save_pretrained(str(tmp_path / "again"))
    again = evenspan.load(tmp_path / "again", device="cpu")
    np.testing.assert_allclose(again.encode_document(texts), loaded.encode_document(texts), atol=NOISE, rtol=0)


@pytest.mark.parametrize("entry", stored("calibrations.json"), ids=lambda entry: entry["string"])
def test_settings_keep_their_strings(entry) -> None:
    setting = Calibration(*entry["arguments"], **entry["options"])
    assert str(setting) == entry["string"]
    assert_holds(setting.to_dict(), entry["values"])
    assert Calibration.parse(entry["string"]) == Calibration.from_dict(entry["values"]) == setting


@pytest.mark.parametrize("file", RESULT_FILES)
def test_results_are_read(file) -> None:
    result = EvaluationResult.read(HERE / file)
    then = stored(file)
    assert result.method == current_name(then.pop("method"))
    assert_holds(json.loads(result.to_json()), then)
    assert len(result.to_frame()) == 36


def test_results_are_compared() -> None:
    then = stored("results/comparison.json")
    results = {result.method: result for result in map(EvaluationResult.read, (HERE / file for file in RESULT_FILES))}
    for row in then["rows"]:
        row["method"] = current_name(row["method"])
    comparison = compare([results[row["method"]] for row in then["rows"]])
    for row in then["rows"][1:]:  # their intervals are others now: percentiles that were biased, or did not cover
        now = next(each for each in comparison.rows if each.method == row["method"]).differences
        for name in ("HM", "PSI"):
            assert now[name].value == pytest.approx(row["differences"].pop(name)["value"])
    # Of results in memory: the order of the groups, on which the bootstrap depends, is the same when they are read.
    assert_holds(json.loads(comparison.to_json()), then)
    assert list(comparison.rows[0].figures) == list(then["rows"][0]["figures"])


def test_an_audit_is_read() -> None:
    audit = Audit.read(HERE / "audit" / "audit.json")
    assert_holds(json.loads(audit.to_json()), stored("audit/audit.json"))
    assert "position" in str(audit)


def test_a_report_is_written(tmp_path) -> None:
    material = read_sources([HERE / "audit", RESULTS, SWEEP])
    assert material.skipped == ()
    assert set(material.runs) == {HERE / "audit", RESULTS, SWEEP}
    (subject,) = material.subjects  # the audit names no weights, and is of the same model as the results all the same
    assert (subject.model, subject.weights) == ("tests/fixtures/oracle/qwen3", IDENTITIES["weights_sha256"])
    (evaluation,) = subject.evaluations
    assert (len(subject.audits), len(evaluation.results)) == (1, 9)
    page = write_report(material, tmp_path / "report.html").read_text(encoding="utf-8")
    for result in evaluation.results:
        assert f"{100 * result.ndcg:.1f}" in page


def test_evaluating_again_gives_the_same(model) -> None:
    result = evaluate(model, load_benchmark(BENCHMARK), SETTING, resamples=200, progress=False)
    then = stored(f"results/{SETTING}.json")
    assert_holds(without_setting(result.to_dict()), without_setting(then))
    for name in ("weights_sha256", "data_sha256"):
        assert result.setting[name] == then["setting"][name] == IDENTITIES[name]


def test_sweeping_again_gives_the_same(model) -> None:
    result = sweep(model, load_benchmark(BENCHMARK), read_grid(str(HERE / "grid.txt")), resamples=200, progress=False)
    for found in (result.plain, *result.results.values()):
        assert_holds(without_setting(found.to_dict()), without_setting(stored(f"sweep/{found.method}.json")))
    assert len(result.results) == 3


@needs_versions("evenspan", "sentence-transformers", "tokenizers", "transformers")
def test_vectors_are_found_in_the_cache(tmp_path, capsys) -> None:
    """By the stored command, with a copy of the cache: whatever were encoded again would be written again."""
    cache = Path(shutil.copytree(HERE / "cache", tmp_path / "cache"))
    for file in cache.rglob("*.npz"):
        os.utime(file, (0, 0))
    command = stored("results/run.json")["command"][1:]
    command[command.index("--cache") + 1] = str(cache)
    # What was called late chunking is the average of all tokens, and the size of segments is now Chonkie's.
    command[command.index("late-chunking")] = "token-average"
    assert run_command([*command[: command.index("--output")], "--segment-size", "512", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    printed["results"] = {result["method"]: result for result in printed["results"]}
    for then in (stored(file) for file in RESULT_FILES if file.startswith("results/")):
        result = printed["results"].pop(current_name(then.pop("method")))
        del then["per_query"], then["setting"]["versions"], then["intervals"], then["notes"]
        assert_holds(result, then)
    both = f"chunks-max,window=32+{SETTING}"
    assert list(printed["results"]) == [both], "chunks are calibrated as well"
    rows = {row["method"]: row["figures"] for row in printed["comparison"]["rows"]}
    then = {current_name(row["method"]): row["figures"] for row in stored("results/comparison.json")["rows"]}
    assert_holds(rows, then)
    vectors = {file.relative_to(cache).as_posix(): file.stat().st_mtime for file in cache.rglob("*.npz")}
    new = {file for file, time in vectors.items() if time}
    assert set(vectors) - new == set(IDENTITIES["cache"])
    assert {json.loads((cache / file).parents[1].joinpath("setting.json").read_text())["method"] for file in new} == {
        both
    }


@needs_versions("sentence-transformers", "tokenizers", "transformers")
@pytest.mark.parametrize("store", ["parquet", "lance"])
def test_an_index_is_searched_and_kept_up(store, tmp_path) -> None:
    copy = shutil.copytree(HERE / "index" / store, tmp_path / store)
    name = f"parquet:{copy}" if store == "parquet" else str(copy)
    with evenspan.open_index(name, device="cpu") as index:  # with the model that the index names
        assert_holds(index.settings.to_dict(), IDENTITIES["index_settings"])
        assert (len(index), index.columns) == (20, {"year": "int", "lang": "str"})
        for entry in stored("index/hits.json"):
            hits = index.search(entry["query"], 5, entry["where"], parts=True)
            assert_holds([asdict(hit) for hit in hits], entry["hits"])
        model = index.model
    source, options = HERE / "index" / "documents.jsonl", {"metadata": ["year:int", "lang"], "progress": False}
    summary = evenspan.index(model, source, name, SETTING, **options)
    assert (summary.total, summary.unchanged, summary.documents, summary.skipped) == (20, 20, 0, 0)
    changed = [{"id": "d3", "text": "w1 w2 w3", "year": 2000, "lang": "de"}]
    summary = evenspan.index(model, changed, name, SETTING, **options)
    assert (summary.total, summary.added, summary.replaced) == (20, 0, 1)


@pytest.mark.parametrize("name", INTERFACE)
def test_public_names_take_their_parameters(name) -> None:
    owner, _, field = name.rpartition(".")
    if INTERFACE[name] is None and field in getattr(pkgutil.resolve_name(owner), "__dataclass_fields__", ()):
        return  # what was a property is read from an object as before
    value = pkgutil.resolve_name(name)
    if INTERFACE[name] is None:
        return
    positional, named = INTERFACE[name]["positional"], INTERFACE[name]["named"]
    now = inspect.signature(value).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in now.values()):
        named = []
    assert {*positional, *named} <= set(now)
    if not inspect.isclass(value):  # what a result holds may come in another order
        assert list(now)[: len(positional)] == positional


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_their_options(command, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run_command([*([command] if command else []), "--help"]) == 0
    words = set(re.findall(r"(?<![\w-])-{1,2}\w[\w-]*", capsys.readouterr().out))
    assert set(COMMANDS[command]) <= words


def run_command(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as stopped:
        return int(stopped.code or 0)


@pytest.mark.parametrize("folder", ["benchmarks", "recipes", "examples"])
def test_scripts_import_what_there_is(folder) -> None:
    code = [path.read_text(encoding="utf-8") for path in Path(folder).rglob("*.py")]
    for path in Path(folder).rglob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    imports = [node for text in code for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}:{name.name}" for node in imports for name in node.names}
    ours = sorted(name for name in names if name.startswith("evenspan"))
    assert ours
    for name in ours:
        pkgutil.resolve_name(name)
