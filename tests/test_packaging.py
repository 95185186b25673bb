"""What the package imports is declared, and the files of a public project say what they must."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import tomllib
from importlib.metadata import packages_distributions

from helpers.paths import ROOT

import evenspan

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Comes with torch where there is a CUDA device; the code asks whether it is there.
WITH_TORCH = {"triton"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements: list[str]) -> set[str]:
    """Names of distributions, those of our own extras resolved."""
    found: set[str] = set()
    for requirement in requirements:
        own = re.fullmatch(r"evenspan\[(\w+)\]", requirement)
        found |= declared(EXTRAS[own[1]]) if own else {normal(re.match(r"[\w.-]+", requirement)[0])}
    return found


def imported() -> dict[str, set[str]]:
    """Top-level modules that the source imports, and the files that do, at their top or inside of functions."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for name in names:
                found.setdefault(name.partition(".")[0], set()).add(path.name)
    return {name: files for name, files in found.items() if name not in {*sys.stdlib_module_names, "evenspan"}}


def test_imports_are_declared() -> None:
    users = [extra for name, extra in EXTRAS.items() if name not in ("dev", "docs")]
    known = declared(PROJECT["dependencies"]).union(*map(declared, users))
    of_module = packages_distributions()
    missing = {
        name: files
        for name, files in imported().items()
        if name not in WITH_TORCH and not {normal(one) for one in of_module.get(name, [name])} & known
    }
    assert missing == {}


def test_everything_declared_has_a_floor() -> None:
    for requirement in [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]:
        assert re.search(r">=|==|^evenspan\[", requirement), requirement


def test_every_extra_is_installed_from_the_wheel() -> None:
    checked = runpy.run_path(str(ROOT / ".ci" / "wheel.py"))["COMMANDS"]
    assert {*checked} == {"base", *EXTRAS} - {"dev"}


def test_versions_agree() -> None:
    version = evenspan.__version__
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.MULTILINE)


def test_workflows_call_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    called = {
        target
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for target in re.findall(r"\bmake ([a-z-]+)", path.read_text("utf-8"))
    }
    assert called
    assert called <= targets
