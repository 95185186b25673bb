"""A SentenceTransformer that is calibrated: the only room that knows sentence-transformers' internals."""

from evenspan.models.calibrating import calibrate, calibrated, calibration_of, restore
from evenspan.models.inspecting import Inspection, inspect_model
from evenspan.models.loading import load
from evenspan.models.miniatures import miniature
from evenspan.models.modules import CalibratedSentenceTransformer, CalibratedTransformer

__all__ = [
    "CalibratedSentenceTransformer",
    "CalibratedTransformer",
    "Inspection",
    "calibrate",
    "calibrated",
    "calibration_of",
    "inspect_model",
    "load",
    "miniature",
    "restore",
]
