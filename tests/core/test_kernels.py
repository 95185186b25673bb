"""The fused kernels, in Triton's interpreter where there is no GPU, against the PyTorch path."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from helpers.paths import TESTS


def test_agree_with_pytorch() -> None:
    """In a process of its own: the interpreter is chosen by an environment variable when Triton is imported."""
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = dict(os.environ)
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, str(TESTS / "helpers" / "kernel_check.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cases agree" in done.stdout


def test_a_triton_that_cannot_build_is_done_without(monkeypatch) -> None:
    """Slim images have Triton, but no compiler; some devices it does not know."""
    from evenspan.core import triton as kernels

    def fail(*args: object) -> None:
        raise RuntimeError("Failed to find C compiler.")

    pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.setattr("evenspan.core.triton.geometry.launch", fail)
    monkeypatch.setattr(kernels, "_working", {})
    device = torch.device("cpu")
    with pytest.warns(UserWarning, match="Failed to find C compiler.*runs in PyTorch"):
        assert not kernels._works_on(device)
    assert not kernels._works_on(device), "and is not tried again"
