"""Calibrate a model, for good or for a while, and take the calibration back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer
from torch import nn

from evenspan.calibration import Calibration
from evenspan.core.attention import Attachment
from evenspan.core.baskets import PoolingToken
from evenspan.core.calls import CalibratedCalls, every_call_calibrated, is_calibrated_by_itself
from evenspan.core.install import attach, attached, detach
from evenspan.core.layers import AttentionLayers
from evenspan.core.probe import try_out
from evenspan.models.modules import CalibratedSentenceTransformer, CalibratedTransformer, calibrated_module
from evenspan.models.pipeline import Pipeline

Model = TypeVar("Model", bound=nn.Module)


def calibrate(
    model: SentenceTransformer, calibration: Calibration = Calibration(), default_task: str | None = None
) -> SentenceTransformer:
    """Make a `SentenceTransformer` encode documents position-fairly, in place.

    `encode_document` is calibrated, `encode_query` never. A bare `encode` is plain unless `task="document"` is passed
    or `default_task="document"` is set here, for libraries that call nothing else; calls that name the query prompt
    stay plain then too. Calibrating again replaces the calibration and the default task. Pools of processes have
    copies of the model: start them afterwards. Calibration is for encoding: train the plain model.

    Raises:
        UnsupportedModelError, TypeError: if the model cannot be calibrated, saying why; the model is left as it was.
        ValueError: if the calibration names layers that the model does not have, or that do not see the whole passage.

    Example:
        >>> import evenspan
        >>> from sentence_transformers import SentenceTransformer
        >>> model = evenspan.calibrate(SentenceTransformer("BAAI/bge-m3"))  # doctest: +SKIP
        >>> vectors = model.encode_document(passages)  # doctest: +SKIP
    """
    _Prepared.of(model, calibration, default_task).put()
    return model


def restore(model: SentenceTransformer) -> SentenceTransformer:
    """Take the calibration off again, in place: the plain model, bit for bit. A plain model is left alone."""
    module: Any = calibrated_module(_sentence_transformer(model))
    if module is not None:
        detach(module.model.modules())
        for name in CalibratedTransformer.STATE:
            delattr(module, name)
        module.__class__ = module.plain_class
    if isinstance(model, CalibratedSentenceTransformer):
        outer: Any = model
        outer.__class__ = model.plain_class
    return model


def calibration_of(model: SentenceTransformer) -> Calibration | None:
    """The calibration a model has now, or None for a plain one."""
    module = calibrated_module(_sentence_transformer(model))
    return None if module is None else module.calls.calibration


@contextmanager
def calibrated(
    model: Model,
    calibration: Calibration = Calibration(),
    default_task: str | None = None,
    *,
    pooling: PoolingToken | None = None,
) -> Iterator[Model]:
    """Calibrate a model for the length of a `with` block; afterwards it is what it was before, calibrated or plain.

    Takes a `SentenceTransformer` (a `default_task` it already has stays in force unless another is given), or a plain
    transformers model together with `pooling="cls"` or `"last"`: which token of its output you will read. In the block
    every call of a plain transformers model is calibrated: leave queries outside.
    """
    if not isinstance(model, SentenceTransformer):
        with _calibrated_transformer(model, calibration, pooling):
            yield model
        return
    if pooling is not None:
        raise ValueError("A SentenceTransformer knows its pooling: leave `pooling` out.")
    module = calibrated_module(model)
    before = None if module is None else {name: getattr(module, name) for name in module.STATE}
    prepared = _Prepared.of(model, calibration, default_task or (module.default_task if module else None))
    prepared.put()
    try:
        yield model
    finally:
        if before is None:
            restore(model)
        else:
            replace(prepared, state=before).put()


@dataclass(frozen=True)
class _Prepared:
    """A model that was seen to take a calibration: putting it in cannot fail any more."""

    model: SentenceTransformer
    pipeline: Pipeline
    layers: AttentionLayers
    last_layer: nn.Module | None
    state: dict[str, Any]  # of the `CalibratedTransformer`

    @classmethod
    def of(cls, model: SentenceTransformer, calibration: Calibration, default_task: str | None) -> _Prepared:
        """Check everything, and change nothing."""
        if not isinstance(calibration, Calibration):
            raise TypeError(
                f"calibration must be a Calibration, not {type(calibration).__name__}; "
                "read a string with Calibration.parse(...)."
            )
        if default_task not in (None, "document"):
            raise ValueError(f"default_task must be None or 'document', not {default_task!r}.")
        pipeline = Pipeline.of(model)
        if is_calibrated_by_itself(pipeline.transformer.model):
            raise ValueError(
                "This model's transformer is calibrated by itself in a `with` block: leave that block first."
            )
        layers = pipeline.layers()
        calls = CalibratedCalls(calibration, pipeline.pooling_token, layers.chosen_by(calibration))
        state = {"calls": calls, "default_task": default_task, "pooling_reference": (pipeline.pooling,)}
        return cls(model, pipeline, layers, pipeline.last_layer(layers), state)

    def put(self) -> None:
        """Attach our attention wherever it can be used, and say in the module's state what it is used for."""
        attach(self.layers.calibratable, self.last_layer)
        module: Any = self.pipeline.transformer
        module.__dict__.update(self.state)
        module.__class__ = CalibratedTransformer
        outer: Any = self.model
        outer.__class__ = CalibratedSentenceTransformer


@contextmanager
def _calibrated_transformer(model: nn.Module, calibration: Calibration, pooling: PoolingToken | None) -> Iterator[None]:
    if pooling not in ("cls", "last"):
        raise ValueError(
            f"For a plain transformers model say which token you pool: pooling='cls' or 'last', not {pooling!r}."
        )
    layers = AttentionLayers.of(model, pooling)
    try_out(model, layers, pooling)
    if any(map(Attachment.of, layers.modules)) and not is_calibrated_by_itself(model):
        raise ValueError(
            "This model is part of a SentenceTransformer that is calibrated: use evenspan.calibrated(...) on that one."
        )
    calls = CalibratedCalls(calibration, pooling, layers.chosen_by(calibration))
    with attached(layers.calibratable), every_call_calibrated(model, calls):
        yield


@contextmanager
def uncalibrated(model: SentenceTransformer) -> Iterator[None]:
    """The plain model for a while, whatever calibration it has."""
    if calibration_of(model) is None:
        yield
    else:
        with calibrated(model, Calibration(strength=0.0)):
            yield


def _sentence_transformer(model: object) -> SentenceTransformer:
    if not isinstance(model, SentenceTransformer):
        raise TypeError(f"Expected a SentenceTransformer, not {type(model).__name__}.")
    return model
