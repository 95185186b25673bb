"""Every code block of README and docs runs, every link leads somewhere, and every table is what its result file says."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest
from helpers import copies, indexes, tiny
from helpers.paths import DOCS, ROOT

import evenspan
from evenspan.cli import main
from evenspan.demonstration import demonstrate

PAGES = {path.name: path for path in (ROOT / "README.md", *sorted(DOCS.glob("*.md")))}
# Pages with tables of figures, from the root on.
FILLED = [*(path.relative_to(ROOT) for path in PAGES.values()), Path("recipes/miniature/README.md")]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
# Pages whose blocks are run by tests that look at what they do.
ELSEWHERE = {
    "frameworks.md": "test_frameworks.py",
    "mteb.md": "integrations/test_mteb.py",
    "serving.md": "serving/test_snippets.py",
}
# Lines that need more than one machine or a server; `indexing/` tests what they do.
NOT_HERE = re.compile(r"postgresql://|--engine ray|^evenspan demo")
# What the hub has is given as a local copy.
MORE = {"reproduce": ["--path", "fineweb", "--segment-embedder", "self"]}
SHOWN = {
    "inspect": "calibratable:    yes",
    "audit": "Nothing is cut off",
    "report": "report.html",
    "evaluate": "none",
    "tune": "eave it off",
    "advise": "evenspan index",
    "sweep": "soft,strength=0.05,layers=last,basket_size=128",
    "save": "Saved ",
    "index": "20 documents",
    "search": "  1. ",
    "delete": " removed",
    "verify": "no damage",
    "reproduce": "ours / paper",
}


def blocks(page: str, *kinds: str) -> list[tuple[str, str]]:
    return [found for found in BLOCK.findall(PAGES[page].read_text("utf-8")) if found[0] in kinds]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with everything that the pages name; a tiny model of bge-m3's architecture and pooling stands in for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "base", prompts={"query": "w1 w2 "})
    model.save_pretrained("bge-m3")
    copies.directory(tmp_path / "my-data", documents=40)
    copies.fineweb_posq(tmp_path / "fineweb")
    indexes.write_jsonl(tmp_path / "corpus.jsonl", indexes.rows(20))
    (tmp_path / "passages.txt").write_text("w1 w2 w3\nw4 w5\n", encoding="utf-8")
    return tmp_path


def names() -> dict[str, object]:
    """What the pages take for granted."""
    import itertools

    from transformers import AutoModel, AutoTokenizer

    import evenspan
    from evenspan import Calibration

    passages, model = [tiny.text(200), tiny.text(20)], evenspan.load("bge-m3")
    texts = [" ".join(f"W{tiny.text(8, seed=30 * number + place)}." for place in range(20)) for number in range(40)]
    inputs = AutoTokenizer.from_pretrained("bge-m3")(passages, padding=True, truncation=True, return_tensors="pt")
    return {
        "Calibration": Calibration, "auto_model": AutoModel.from_pretrained("bge-m3"), "evenspan": evenspan, "inputs": inputs,
        "itertools": itertools, "model": model, "passages": passages, "questions": [tiny.text(5)], "store": [].append,
        "stored": 1, "texts": texts,
    }  # fmt: skip


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and blocks(page, "python")])
def test_python_blocks_run_one_after_the_other(page, here, capsys) -> None:
    known = names()
    indexes.write_jsonl(here / "corpus.jsonl", indexes.rows(60))
    code = "".join(code for _, code in blocks(page, "python"))
    exec(compile(code.replace("BAAI/bge-m3", "bge-m3"), page, "exec"), known)
    # What a comment promises to be printed is printed.
    printed = capsys.readouterr().out.splitlines()
    for promised in re.findall(r"^print\(.*\) +# (soft,.*)", code, re.MULTILINE):
        assert promised in printed


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and blocks(page, "bash")])
def test_shell_blocks_run(page, here, capsys) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for line in "".join(code for _, code in blocks(page, "bash")).replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True) or ["#"]
        if program == "pip":
            assert re.fullmatch(r"pip install (evenspan|'evenspan\[(\w+)\]')", line), line
            assert set(re.findall(r"\[(\w+)\]", line)) <= set(extras), line
        elif program == "make":
            assert arguments[0] in targets, line
        elif not NOT_HERE.search(line):
            assert program == "evenspan", line
            command = [argument.replace("BAAI/bge-m3", "bge-m3") for argument in arguments]
            assert main([*command, *MORE.get(command[0], [])]) == 0, line
            assert SHOWN[command[0]] in capsys.readouterr().out, line


def test_pages_that_are_tested_elsewhere_are() -> None:
    for page, test in ELSEWHERE.items():
        assert f'"{page}"' in (ROOT / "tests" / test).read_text("utf-8")


def test_the_table_of_commands_names_options_that_exist(capsys) -> None:
    """Commands in tables are not run, so at least their names and options are looked up."""
    for page, path in PAGES.items():
        for command, rest in re.findall(r"`evenspan (\w+)([^`]*)`", path.read_text("utf-8")):
            assert main([command, "--help"]) == 0, (page, command)
            shown = capsys.readouterr().out
            assert all(option in shown for option in re.findall(r"--[a-z][\w-]*", rest)), (page, command, rest)


def anchors(path: Path) -> set[str]:
    """The headings of a page as GitHub and the site name them."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


ABOVE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md", "recipes/miniature/README.md")


@pytest.mark.parametrize("name", [*PAGES, *ABOVE])
def test_links_lead_somewhere(name) -> None:
    page = PAGES.get(name, ROOT / name)
    for link in LINK.findall(BLOCK.sub("", page.read_text("utf-8"))):
        path, _, anchor = link.partition("#")
        if path.startswith(("https:", "mailto:")):
            continue
        target = page.parent / path if path else page
        assert target.exists(), f"{name} links to {link}"
        assert not anchor or anchor in anchors(target), f"{name} links to {link}"


def test_every_page_is_in_the_contents_and_in_llms_txt() -> None:
    contents, listed = PAGES["index.md"].read_text("utf-8"), (DOCS / "llms.txt").read_text("utf-8")
    pages = {page.removesuffix(".md") for page in PAGES} - {"README", "index"}
    assert pages == set(re.findall(r"^(\w+)$", contents, re.MULTILINE))
    # The source of the reference is a list of modules: its page alone has the docstrings.
    assert pages == {*re.findall(r"\(_sources/(\w+)\.md\)", listed), *re.findall(r"\((\w+)\.html\)", listed)}


def test_sources_that_llms_txt_offers_are_whole(tmp_path) -> None:
    """Sphinx copies them as they are: with directives in place of included files, and with links to files beside the site."""
    (tmp_path / "_sources").mkdir()
    for page in DOCS.glob("*.md"):
        (tmp_path / "_sources" / page.name).write_text(page.read_text("utf-8"), encoding="utf-8")
    configuration = runpy.run_path(str(DOCS / "conf.py"))
    configuration["_complete_sources"](SimpleNamespace(srcdir=DOCS, outdir=tmp_path), None)
    for source in (tmp_path / "_sources").glob("*.md"):
        text = source.read_text("utf-8")
        assert "{include}" not in text, source.name
        assert re.findall(r"\]\(\.\./(?!_images/)[^)]*\)", text) == [], source.name
    assert "## The map" in (tmp_path / "_sources" / "contributing.md").read_text("utf-8")


def test_the_reference_has_what_public_functions_return() -> None:
    """Its modules are described by their `__all__`."""
    modules = [
        importlib.import_module(name) for name in re.findall(r"automodule:: (.*)", PAGES["api.md"].read_text("utf-8"))
    ]
    described = {id(getattr(module, name)) for module in modules for name in module.__all__}
    public = [getattr(evenspan, name) for name in evenspan.__all__]
    returned = [get_type_hints(one).get("return") for one in public if inspect.isfunction(one)]
    own = [one for one in returned if inspect.isclass(one) and one.__module__.startswith("evenspan.")]
    assert own
    assert [one for one in own if id(one) not in described] == []


def test_results_are_all_shown() -> None:
    """A result file that no page shows is a figure that nobody reads."""
    shown = PAGES["measurements.md"].read_text("utf-8")
    assert [path.name for path in (ROOT / "benchmarks" / "results").glob("*.md") if path.name not in shown] == []


@pytest.fixture
def fill_tables(monkeypatch):
    spec = importlib.util.spec_from_file_location("fill_tables", ROOT / "benchmarks" / "fill_tables.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "fill_tables", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", FILLED, ids=str)
def test_tables_are_those_of_the_result_files(page, fill_tables) -> None:
    assert ROOT / page in fill_tables.PAGES
    text = (ROOT / page).read_text("utf-8")
    assert fill_tables.filled(text) == text, "run `make tables`"


@pytest.mark.parametrize("page", FILLED, ids=str)
def test_no_table_of_figures_is_typed_by_hand(page, fill_tables) -> None:
    """One whose columns are aligned as figures are lies between the marks that have it made from a result file."""
    assert re.findall(r"^\|.*---:.*$", fill_tables.BLOCK.sub("", (ROOT / page).read_text("utf-8")), re.MULTILINE) == []


def test_a_changed_figure_is_noticed(fill_tables) -> None:
    text = PAGES["limits.md"].read_text("utf-8")
    assert fill_tables.filled(text.replace("88.8", "88.9")) == text


def test_the_demo_prints_what_the_pages_show() -> None:
    """Its figures do not depend on the machine beyond the last digit shown; its timing does."""
    shown = "".join(code for _, code in blocks("get_started.md", "text"))
    found = demonstrate(progress=False)
    for value in (found.before.psi, found.after.psi):
        assert f"{value:.3f}" in shown
    assert found.example.question in shown
