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


def test_few_variants_are_compiled_for_texts_of_all_lengths(monkeypatch) -> None:
    """Compiling takes seconds: what a kernel is compiled for must not grow with lengths and sizes of batches."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from evenspan.core.triton import every_row, geometry, launch, rows

    keys = set()

    def remember(kernel, _, tensors, strides, __, constants, **___) -> None:
        keys.add(launch.launch_key(kernel, tensors, strides, constants))

    monkeypatch.setattr(geometry, "relaunch", remember)
    monkeypatch.setattr(rows, "relaunch", remember)
    monkeypatch.setattr(every_row, "relaunch", remember)
    heads, size, basket_size = 2, 16, 128
    for texts in (1, 2, 3, 5, 8, 31):
        for longest in (130, 200, 257, 500, 513, 1000, 2000, 4097, 8192):
            baskets = -(-(longest - 1) // basket_size)
            mask = torch.ones(texts, longest, dtype=torch.long)
            cumulative = torch.arange(0, texts * longest + 1, longest, dtype=torch.int32)
            for layout in (mask, cumulative):
                batch, columns = mask.shape if layout is mask else (1, mask.numel())
                parts = geometry.launch(
                    layout, None, last=False, even=False, basket_size=basket_size, baskets=baskets, slots_each=128
                )
                output = torch.empty(batch, columns, heads, size, dtype=torch.float16)
                states = output.transpose(1, 2)
                rows.launch(states, states, states, parts, (0.5,) * 7, 0.125, None, output)
                alone = torch.empty(texts, heads, 1, size, dtype=torch.float16)
                rows.launch(alone, states, states, parts, (0.5,) * 7, 0.125, None, None)
                spans, kind = torch.zeros(texts, 3, dtype=torch.int64), (longest, layout is cumulative, True)
                every_row.launch(states, states, states, spans, (basket_size, False), kind, 0.5, 0.125, None)
    assert len(keys) == 8, (
        "the geometry and the kernel for every row in both layouts, two kernels for all rows and for the pooled ones alone"
    )
