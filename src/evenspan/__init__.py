"""Position-fair dense retrieval: spread a pooling token's attention evenly over long documents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evenspan.calibration import Calibration
from evenspan.errors import UnsupportedModelError

if TYPE_CHECKING:
    from evenspan.advising import advise
    from evenspan.auditing.audit_result import Audit
    from evenspan.auditing.auditing import audit
    from evenspan.encoding.documents import encode_documents
    from evenspan.indexing.run import index
    from evenspan.indexing.search import open_index
    from evenspan.models import (
        Inspection,
        calibrate,
        calibrated,
        calibration_of,
        inspect_model,
        load,
        miniature,
        restore,
    )
    from evenspan.sweeps import tune

__version__ = "0.1.0"
__all__ = [
    "Audit",
    "Calibration",
    "Inspection",
    "UnsupportedModelError",
    "advise",
    "audit",
    "calibrate",
    "calibrated",
    "calibration_of",
    "encode_documents",
    "index",
    "inspect_model",
    "load",
    "miniature",
    "open_index",
    "restore",
    "tune",
]

# What needs torch and sentence-transformers is imported when it is first used: `evenspan --help` stays instant.
_HOME = {
    "advise": "advising",
    "Audit": "auditing.audit_result",
    "audit": "auditing.auditing",
    "encode_documents": "encoding.documents",
    "Inspection": "models",
    "index": "indexing.run",
    "inspect_model": "models",
    "load": "models",
    "miniature": "models",
    "open_index": "indexing.search",
    "calibrate": "models",
    "calibrated": "models",
    "calibration_of": "models",
    "restore": "models",
    "tune": "sweeps",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evenspan' has no attribute {name!r}")
    value = getattr(import_module(f"evenspan.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
