"""Encode texts under many settings at a fraction of the cost of encoding them again and again."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.models.calibrating import calibrated
from evenspan.sweeps.shared import SharedEncoder, SharedWorkError

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweptVectors(Mapping[Calibration, NDArray[np.float32]]):
    """The vectors of each setting, in the order of the texts.

    Attributes:
        plain: the vectors without calibration.
        detached: whether the vectors are approximate: other rows than the pooled ones were left as in the plain pass.
        shared: whether common work was done once; if not, every setting was encoded by itself.
    """

    vectors: Mapping[Calibration, NDArray[np.float32]]
    plain: NDArray[np.float32]
    detached: bool
    shared: bool

    def __getitem__(self, calibration: Calibration) -> NDArray[np.float32]:
        return self.vectors[calibration]

    def __iter__(self) -> Iterator[Calibration]:
        return iter(self.vectors)

    def __len__(self) -> int:
        return len(self.vectors)


def encode(
    model: SentenceTransformer,
    texts: Sequence[str],
    calibrations: Sequence[Calibration],
    *,
    detached: bool = False,
    batch_size: int = 32,
    **options: Any,
) -> SweptVectors:
    """The vectors of documents under many settings, and without any.

    Exact: what `encode_document` gives under each setting, up to rounding. A causal model takes one plain pass and a few
    tokens for all settings together; others run the layers behind a setting's first calibrated one again. A model whose
    layers are of no known kind is encoded once for each setting.

    However many settings there are, memory is that of a plain pass, one layer's keys and values, and one layer's output for
    each different first layer among the settings.

    Args:
        model: the model; it is left as it was.
        texts: the documents.
        calibrations: the settings.
        detached: take only the pooling token's own way through the layers, in the context of the plain pass, for models
            that are not causal too: one pass for all settings, approximately.
        batch_size: of encoding; halved when memory runs out.
        options: of `encode_document`: `prompt`, `prompt_name`, `normalize_embeddings`, `truncate_dim`, `show_progress_bar`.

    Example:
        >>> vectors = encode(model, texts, paper_grid())  # doctest: +SKIP
        >>> vectors[Calibration()].shape, vectors.plain.shape  # doctest: +SKIP
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a list of documents, not one string.")
    for name in ("output_value", "precision", "convert_to_tensor", "convert_to_numpy", "pool", "chunk_size"):
        if name in options:
            raise TypeError(f"A sweep returns float32 vectors as arrays: it does not take {name!r}.")
    wanted = list(dict.fromkeys(calibrations))
    check_calibrations(wanted)
    active = [one for one in wanted if one.strength > 0.0]
    shared = SharedEncoder(model, active, detached=detached)
    if not active or not len(texts) or not shared.works:
        if active and len(texts):
            _logger.info("The layers of this model are of no known kind: %d settings, one by one.", len(active))
        return _one_by_one(model, texts, wanted, batch_size, **options)
    rest = dict(options)
    truncate = rest.pop("truncate_dim", None) or model.truncate_dim
    normalize = rest.pop("normalize_embeddings", False)
    before, model.truncate_dim = model.truncate_dim, None
    try:
        with shared.installed():
            everything = _encode(model, texts, batch_size, **rest)
    except SharedWorkError as error:
        warnings.warn(f"{error} The settings are encoded one by one.", stacklevel=2)
        model.truncate_dim = before
        return _one_by_one(model, texts, wanted, batch_size, **options)
    finally:
        model.truncate_dim = before
    parts = [np.ascontiguousarray(part[:, :truncate]) for part in np.split(everything, len(active) + 1, axis=1)]
    if normalize:
        parts = [part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), np.float32(1e-12)) for part in parts]
    found = dict(zip(active, parts[1:], strict=True))
    approximate = detached and not shared.causal
    return SweptVectors({one: found.get(one, parts[0]) for one in wanted}, parts[0], approximate, shared=True)


def check_calibrations(calibrations: Sequence[Calibration]) -> None:
    """Raise a `TypeError` unless these are calibrations."""
    for one in calibrations:
        if not isinstance(one, Calibration):
            raise TypeError(
                f"calibrations must hold Calibrations, not {type(one).__name__}; read a string with Calibration.parse(...)."
            )


def _one_by_one(
    model: SentenceTransformer,
    texts: Sequence[str],
    calibrations: Sequence[Calibration],
    batch_size: int,
    **options: Any,
) -> SweptVectors:
    def under(calibration: Calibration) -> NDArray[np.float32]:
        with calibrated(model, calibration):
            return _encode(model, texts, batch_size, **options)

    plain = under(Calibration(strength=0.0))
    return SweptVectors({one: under(one) for one in calibrations}, plain, detached=False, shared=False)


def _encode(model: SentenceTransformer, texts: Sequence[str], batch_size: int, **options: Any) -> NDArray[np.float32]:
    while True:
        try:
            tensor: torch.Tensor = model.encode_document(
                list(texts), batch_size=batch_size, convert_to_tensor=True, **options
            )
            array: NDArray[np.float32] = tensor.float().cpu().numpy()
            return array
        except torch.OutOfMemoryError:
            if batch_size == 1:
                raise
            batch_size = max(1, batch_size // 2)
            _logger.warning("Out of memory: going on in batches of %d.", batch_size)
