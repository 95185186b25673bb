"""Calibrate a model, for good or for a while, and take the calibration back."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import nn

from evenspan.calibration import Calibration
from evenspan.core.attention import attach, detach
from evenspan.core.baskets import PoolingToken
from evenspan.core.calls import CalibratedCalls, try_out
from evenspan.core.last_layer import attach_pooled, detach_pooled
from evenspan.core.layers import AttentionLayers
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
        ValueError, TypeError: if the model cannot be calibrated, saying why; the model is left as it was.

    Example:
        >>> import evenspan
        >>> from sentence_transformers import SentenceTransformer
        >>> model = evenspan.calibrate(SentenceTransformer("BAAI/bge-m3"))  # doctest: +SKIP
        >>> vectors = model.encode_document(passages)  # doctest: +SKIP
    """
    if not isinstance(calibration, Calibration):
        raise TypeError(
            f"calibration must be a Calibration, not {type(calibration).__name__}; "
            "read a string with Calibration.parse(...)."
        )
    if default_task not in (None, "document"):
        raise ValueError(f"default_task must be None or 'document', not {default_task!r}.")
    pipeline = Pipeline.of(model)
    if hasattr(pipeline.transformer.model.forward, "evenspan_plain_forward"):
        raise ValueError("This model's transformer is calibrated by itself in a `with` block: leave that block first.")
    layers = pipeline.layers()
    chosen = calibration.choose_layers(layers.full, len(layers.modules))
    pooled_layer = pipeline.pooled_layer(layers, chosen)
    # Nothing was changed up to here, and nothing below can fail.
    detach(pipeline.transformer.model)
    detach_pooled(pipeline.transformer.model.modules())
    attach(layers.modules[index] for index in chosen)
    if pooled_layer is not None:
        attach_pooled(pooled_layer)
    module: Any = pipeline.transformer
    module.__class__ = CalibratedTransformer
    module.calls = CalibratedCalls(calibration, pipeline.pooling_token, len(chosen))
    module.calibrated_layers = chosen
    module.default_task = default_task
    module.pooling_reference = (pipeline.pooling,)
    outer: Any = model
    outer.__class__ = CalibratedSentenceTransformer
    return model


def restore(model: SentenceTransformer) -> SentenceTransformer:
    """Take the calibration off again, in place: the plain model, bit for bit. A plain model is left alone."""
    module: Any = calibrated_module(_sentence_transformer(model))
    if module is not None:
        detach(module.model)
        detach_pooled(module.model.modules())
        for name in CalibratedTransformer.STATE:
            delattr(module, name)
        module.__class__ = Transformer
    if isinstance(model, CalibratedSentenceTransformer):
        outer: Any = model
        outer.__class__ = SentenceTransformer
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
    previous = calibrated_module(model)
    state = None if previous is None else (previous.calls.calibration, previous.default_task)
    calibrate(model, calibration, default_task or (state and state[1]))
    try:
        yield model
    finally:
        restore(model)
        if state is not None:
            calibrate(model, *state)


@contextmanager
def _calibrated_transformer(model: nn.Module, calibration: Calibration, pooling: PoolingToken | None) -> Iterator[None]:
    if pooling not in ("cls", "last"):
        raise ValueError(
            f"For a plain transformers model say which token you pool: pooling='cls' or 'last', not {pooling!r}."
        )
    layers = AttentionLayers.of(model, pooling)
    try_out(model, [layers.modules[index] for index in layers.full], pooling)
    chosen = calibration.choose_layers(layers.full, len(layers.modules))
    calls = CalibratedCalls(calibration, pooling, len(chosen))
    # An attribute of the object, not a hook: it also serves callers that use model.forward(...) directly.
    before = model.__dict__.get("forward")
    plain = getattr(before, "evenspan_plain_forward", model.forward)
    outer = detach(model)
    if outer and before is None:
        attach(outer)
        raise ValueError(
            "This model is part of a SentenceTransformer that is calibrated: use evenspan.calibrated(...) on that one."
        )

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        named = dict(zip(("input_ids", "attention_mask"), args, strict=False))
        return calls.run(plain, {**named, **kwargs}, *args, **kwargs)

    forward.evenspan_plain_forward = plain  # type: ignore[attr-defined]
    attach(layers.modules[index] for index in chosen)
    model.__dict__["forward"] = forward
    try:
        yield
    finally:
        detach(model)
        attach(outer)
        if before is None:
            del model.__dict__["forward"]
        else:
            model.__dict__["forward"] = before


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
