"""Calibrate a model, for good or for a while, and take the calibration back.

Calls that are on their way keep the setting they began with: what is changed here holds for calls that begin later, and
what running calls need is taken away when they have ended.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

from sentence_transformers import SentenceTransformer
from torch import nn

from evenspan.calibration import Calibration
from evenspan.core.attention import Attachment
from evenspan.core.baskets import PoolingToken
from evenspan.core.calls import CalibratedCalls, calibrated_forward
from evenspan.core.install import attach, detach, override
from evenspan.core.layers import AttentionLayers
from evenspan.core.probe import try_out
from evenspan.core.usage import TURN, block_of, usage_of
from evenspan.models.modules import (
    CalibratedSentenceTransformer,
    CalibratedTransformer,
    calibrated_module,
    calibrated_modules,
    put,
)
from evenspan.models.prepared import Prepared, setting_of
from evenspan.models.reading import document_module
from evenspan.models.setting import Setting

Model = TypeVar("Model", bound=nn.Module)


def calibrate(
    model: SentenceTransformer, calibration: Calibration = Calibration(), default_task: str | None = None
) -> SentenceTransformer:
    """Make a `SentenceTransformer` encode documents position-fairly, in place.

    `encode_document` is calibrated, `encode_query` never. A bare `encode` is plain unless `task="document"` is passed
    or `default_task="document"` is set here, for libraries that call nothing else; calls with a prompt that is not one
    of the document's (`document`, `passage`, `corpus`) stay plain then too. Calibrating again replaces the calibration
    and the default task, for calls that begin later. Pools of processes have copies of the model: start them
    afterwards. Calibration is for encoding: train the plain model.

    Raises:
        UnsupportedModelError, TypeError: if the model cannot be calibrated, saying why; the model is left as it was.
        ValueError: if the calibration asks for layers, or for a first token, that the model does not have.
        RuntimeError: if another thread or task has the model in a `calibrated` block.

    Example:
        >>> import evenspan
        >>> from sentence_transformers import SentenceTransformer
        >>> model = evenspan.calibrate(SentenceTransformer("BAAI/bge-m3"))  # doctest: +SKIP
        >>> vectors = model.encode_document(passages)  # doctest: +SKIP
    """
    prepared = Prepared.of(model, calibration, default_task)
    if default_task is not None and not _has_query_prompt(model):
        warnings.warn(
            "This model has no query prompt, so a bare encode() cannot tell queries from documents and calibrates both. "
            'Encode queries with encode_query, or with encode(..., task="query").',
            stacklevel=2,
        )
    put(prepared)
    return model


def restore(model: SentenceTransformer) -> SentenceTransformer:
    """Take the calibration off again, in place: the plain model, bit for bit. A plain model is left alone.

    Raises:
        RuntimeError: if another thread or task has the model in a `calibrated` block.
    """
    with TURN:
        modules = calibrated_modules(_sentence_transformer(model))
        for module in modules:
            usage_of(module).refuse_others()
        for module in modules:
            _set(model, module, None)
        if not modules:
            _give_classes_back(model)
    return model


def calibration_of(model: SentenceTransformer) -> Calibration | None:
    """The calibration a model has now, or None for a plain one."""
    setting = setting_of(calibrated_module(_sentence_transformer(model)))
    return None if setting is None else setting.calls.calibration


@contextmanager
def calibrated(
    model: Model,
    calibration: Calibration = Calibration(),
    default_task: str | None = None,
    *,
    pooling: PoolingToken | None = None,
    closing_token: bool | None = None,
) -> Iterator[Model]:
    """Calibrate a model for the length of a `with` block; afterwards it is what it was before, calibrated or plain.

    Takes a `SentenceTransformer` (a `default_task` it already has stays in force unless another is given), or a plain
    transformers model together with `pooling="cls"`, `"last"` or `"mean"`: which token of its output you will read, or the
    mean of all. For a mean say also whether your tokenizer ends texts with a special token, which is then left alone:
    `closing_token=True` for BERT and XLM-R. In the block every call of a plain transformers model is calibrated: leave
    queries outside.

    The calibration is the model's: work that is handed to other threads in the block is calibrated too. Blocks nest
    within a thread or asyncio task; generators that hold blocks open must not take turns.

    Raises:
        RuntimeError: if another thread or task has the model in such a block, or, at the end of the block, if one that was
            opened later in the same thread or task is still open; otherwise as `calibrate`.
    """
    if not isinstance(model, SentenceTransformer):
        with _calibrated_transformer(model, calibration, pooling, closing_token):
            yield model
        return
    if pooling is not None or closing_token is not None:
        raise ValueError("A SentenceTransformer knows its pooling: leave `pooling` and `closing_token` out.")
    current = setting_of(calibrated_module(model))
    prepared = Prepared.of(model, calibration, default_task or (current.default_task if current else None))
    module = prepared.pipeline.transformer
    with block_of(module, functools.partial(put, prepared), functools.partial(_set, model, module)):
        yield model


@contextmanager
def uncalibrated(model: SentenceTransformer) -> Iterator[None]:
    """The plain model for a while, whatever calibration it has. Such blocks of several threads or tasks may overlap."""
    module = document_module(model)

    def enter() -> Setting | None:
        setting = setting_of(module)
        if setting is not None:
            module.setting = setting.without_calibration()
        return setting

    with block_of(module, enter, functools.partial(_set, model, module), is_plain=True):
        yield


def _set(model: SentenceTransformer, module: nn.Module, setting: Setting | None) -> None:
    """Let later calls of a model have another setting than it was prepared for last, or none."""
    if isinstance(module, CalibratedTransformer):
        module.setting = setting
        if setting is None:
            usage_of(module).when_idle(functools.partial(_take_off, model, module))


def _take_off(model: SentenceTransformer, module: CalibratedTransformer) -> None:
    """Make everything what it was, unless the model was calibrated again or a block will do so when it ends."""
    if usage_of(module).blocks or setting_of(module) is not None:
        return
    if isinstance(module, CalibratedTransformer):
        detach(module.attached)
        for name in module.STATE:
            delattr(module, name)
        module.__class__ = module.plain_class
    _give_classes_back(model)


def _give_classes_back(model: SentenceTransformer) -> None:
    """To a model, and to models that it has as modules."""
    for part in model.modules():
        if isinstance(part, CalibratedSentenceTransformer):
            outer: Any = part
            outer.__class__ = part.plain_class


def _has_query_prompt(model: SentenceTransformer) -> bool:
    return any(text and "query" in name.lower() for name, text in model.prompts.items())


@contextmanager
def _calibrated_transformer(
    model: nn.Module, calibration: Calibration, pooling: PoolingToken | None, closing_token: bool | None
) -> Iterator[None]:
    if pooling is None or pooling not in get_args(PoolingToken):
        raise ValueError(
            f"For a plain transformers model say which token you pool: pooling='cls', 'last' or 'mean', not {pooling!r}."
        )
    if (pooling == "mean") != isinstance(closing_token, bool):
        raise ValueError(
            "closing_token=True or False is for pooling='mean', and needed there: whether the tokenizer ends texts with a "
            f"special token, as BERT's [SEP]. It is {closing_token!r} with pooling={pooling!r}."
        )
    layers = AttentionLayers.of(model, pooling)
    try_out(model, layers, pooling)
    calls = CalibratedCalls(calibration, pooling, layers.chosen_by(calibration), closing_token=closing_token)
    forward = calibrated_forward(model, calls)

    def enter() -> object:
        if any(attachment is not None and attachment.for_good for attachment in map(Attachment.of, layers.modules)):
            raise ValueError(
                "This model is part of a SentenceTransformer that is calibrated: use evenspan.calibrated(...) on that one."
            )
        return override(model, forward)

    modules = attach(layers.calibratable)
    try:
        with block_of(model, enter, functools.partial(override, model)):
            yield
    finally:
        with TURN:
            usage_of(model).when_idle(functools.partial(detach, modules))


def _sentence_transformer(model: object) -> SentenceTransformer:
    if not isinstance(model, SentenceTransformer):
        raise TypeError(f"Expected a SentenceTransformer, not {type(model).__name__}.")
    return model
