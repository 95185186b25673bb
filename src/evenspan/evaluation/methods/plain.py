"""The model as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evenspan.evaluation.methods.base import Method


@dataclass(frozen=True)
class Plain(Method):
    """No calibration: the model as it is published."""

    kind: ClassVar[str] = "none"
