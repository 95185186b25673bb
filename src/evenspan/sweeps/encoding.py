"""Encode texts under many settings at a fraction of the cost of encoding them again and again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.models import calibrated
from evenspan.sweeps.shared import SharedEncoder

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweptVectors(Mapping[Calibration, NDArray[np.float32]]):
    """The vectors of each setting, in the order of the texts.

    Attributes:
        plain: the vectors without calibration.
        detached: whether other rows than the pooled ones were left as in the plain pass.
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
        options: of `encode_document`, such as `prompt` and `show_progress_bar`.

    Example:
        >>> vectors = encode(model, texts, paper_grid())  # doctest: +SKIP
        >>> vectors[Calibration()].shape, vectors.plain.shape  # doctest: +SKIP
    """
    wanted = list(dict.fromkeys(calibrations))
    for one in wanted:
        if not isinstance(one, Calibration):
            raise TypeError(f"calibrations must hold Calibrations, not {type(one).__name__}.")
    active = [one for one in wanted if one.strength > 0.0]
    shared = SharedEncoder(model, active, detached=detached)
    if not active or not len(texts) or not shared.works:
        if active and len(texts):
            _logger.info("The layers of this model are of no known kind: %d settings, one by one.", len(active))
        return _one_by_one(model, texts, wanted, batch_size, **options)
    truncate = options.pop("truncate_dim", None) or model.truncate_dim
    before, model.truncate_dim = model.truncate_dim, None
    try:
        with shared.installed():
            everything = _encode(model, texts, batch_size, **options)
    finally:
        model.truncate_dim = before
    parts = np.split(everything, len(active) + 1, axis=1)
    parts = [np.ascontiguousarray(part[:, :truncate]) for part in parts]
    found = dict(zip(active, parts[1:], strict=True))
    return SweptVectors({one: found.get(one, parts[0]) for one in wanted}, parts[0], detached, shared=True)


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
