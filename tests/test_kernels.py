"""The fused kernels, in Triton's interpreter where there is no GPU, against the PyTorch path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def test_agree_with_pytorch() -> None:
    """In a process of its own: the interpreter is chosen by an environment variable when Triton is imported."""
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = dict(os.environ)
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, str(HERE / "kernel_check.py")], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cases agree" in done.stdout
