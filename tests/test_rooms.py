"""The house: every module has a room, the map says what is there, and functions can be seen at a glance."""

from __future__ import annotations

import ast
import re
import tomllib

from helpers.paths import ROOT, TESTS

SOURCE = ROOT / "src" / "evenspan"
MAP = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_every_module_is_in_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    listed = [name.strip() for layer in contracts[0]["layers"] for name in layer.split("|")]
    rooms = [f"evenspan.{path.stem}" for path in SOURCE.iterdir() if path.is_dir() or path.suffix == ".py"]
    assert sorted(listed) == sorted(room for room in rooms if "__" not in room)


def test_what_the_map_names_is_there() -> None:
    for room in SOURCE.iterdir():
        if "__" not in room.name and room.name != "py.typed":
            assert f"`{room.name}/`" in MAP or f"`{room.name}`" in MAP, f"{room.name} is not on the map"
    named = [name for name in re.findall(r"`([\w/]+\.py)`", MAP) if "/" in name]
    assert len(named) > 20
    for name in named:
        assert any((place / name).exists() for place in (SOURCE, TESTS, ROOT)), name
    # `file.py`, `function`: what the two walks pass.
    for name, function in re.findall(r"`([\w/]+\.py)`, `((?!\w+\.py)[\w.]+)`", MAP):
        if (SOURCE / name).exists():
            assert re.search(rf"(def|class) {function.split('.')[-1]}\b", (SOURCE / name).read_text("utf-8")), function


def test_no_function_is_longer_than_sixty_lines() -> None:
    long = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 60
    ]
    assert long == []
