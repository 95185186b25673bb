"""Importing evenspan changes nothing and costs next to nothing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import evenspan


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_everything_public_can_be_imported() -> None:
    for name in evenspan.__all__:
        assert getattr(evenspan, name) is not None
    assert set(evenspan.__all__) <= set(dir(evenspan))


def test_import_changes_nothing() -> None:
    script = """
        import logging, warnings, sentence_transformers, transformers
        from transformers.modeling_utils import AttentionInterface
        def state():
            classes = sentence_transformers.SentenceTransformer, transformers.PreTrainedModel
            return (
                dict(AttentionInterface._global_mapping),
                [dict(vars(one)) for one in classes],
                list(logging.getLogger().handlers),
                list(warnings.filters),
            )
        before = state()
        import evenspan, evenspan.models.calibrating, evenspan.models.loading, evenspan.models.inspecting
        assert state() == before
    """
    assert run(script) == ""


def test_import_alone_does_not_load_torch() -> None:
    assert run("import sys, evenspan; print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize("line", ["audit m --texts nowhere.jsonl", "tune m", "evaluate m"])
def test_what_is_missing_is_said_before_torch_is_loaded(line) -> None:
    script = "import sys; from evenspan.cli import main; print(main({!r}), 'torch' in sys.modules)"
    assert run(script.format(line.split())) == "2 False"
