"""Encode texts under many settings at a fraction of the cost of encoding them again and again."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding import Encoder, unit_length
from evenspan.models.calibrating import calibrated
from evenspan.progress import ProgressBar
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
    prompt: str | None = None,
    prompt_name: str | None = None,
    normalize_embeddings: bool = False,
    truncate_dim: int | None = None,
    show_progress_bar: bool | None = None,
) -> SweptVectors:
    """The vectors of documents under many settings, and without any.

    Exact: what `encode_document` gives under each setting, up to rounding. A causal model takes one plain pass and a few
    tokens for all settings together; others run the layers behind a setting's first calibrated one again, unless `detached`
    takes only the pooling token's own way through the layers, in the context of the plain pass: one pass for all settings,
    approximately. In a mean-pooled model a setting's first calibrated layer is run again, too, and `detached` changes nothing.
    A model whose layers are of no known kind is encoded once for each setting.

    However many settings there are, memory is that of a plain pass, one layer's keys and values, and one layer's output for
    each different first layer among the settings. `batch_size` is as in `evaluate`, the options after it as in
    `encode_document`. The model is left as it was.

    Example:
        >>> vectors = encode(model, texts, paper_grid())  # doctest: +SKIP
        >>> vectors[Calibration()].shape, vectors.plain.shape  # doctest: +SKIP
    """
    check_calibrations(calibrations)
    if prompt is None and prompt_name is not None:
        if prompt_name not in model.prompts:
            raise ValueError(f"The model has no prompt {prompt_name!r}. Available: {', '.join(model.prompts)}.")
        prompt = model.prompts[prompt_name]
    encoder = Encoder(model, prompt=prompt, batch_size=batch_size, unit=False, check_finite=False)
    bar = ProgressBar(bar_label(len(calibrations)), len(texts), shown=bool(show_progress_bar))
    with bar, _truncated(model, truncate_dim or model.truncate_dim):
        swept = encode_settings(encoder, texts, calibrations, detached=detached, bar=bar)
    if not normalize_embeddings:
        return swept
    unit = {key: unit_length(vectors) for key, vectors in swept.items()}
    return replace(swept, vectors=unit, plain=unit_length(swept.plain))


def encode_settings(
    encoder: Encoder,
    texts: Sequence[str],
    calibrations: Sequence[Calibration],
    *,
    detached: bool,
    bar: ProgressBar | None = None,
) -> SweptVectors:
    """What `encode` gives, through an encoder that is there already; it leaves vectors the length they have."""
    model, wanted = encoder.model, list(dict.fromkeys(calibrations))
    active = [calibration for calibration in wanted if calibration.strength > 0.0]
    shared = SharedEncoder(model, active, detached=detached) if active and len(texts) else None
    if shared is None or not shared.works:
        if shared is not None:
            _logger.info("The layers of this model are of no known kind: %d settings, one by one.", len(active))
        return _one_by_one(encoder, texts, wanted, bar)
    width, approximate = model.truncate_dim, shared.approximate
    try:
        with shared.installed(), _truncated(model, None):  # the vectors stand side by side
            together = encoder.encode(texts, bar=bar)
    except SharedWorkError as error:
        warnings.warn(f"{error} The settings are encoded one by one.", stacklevel=2)
        return _one_by_one(encoder, texts, wanted, bar)
    plain, *others = (np.ascontiguousarray(part[:, :width]) for part in np.split(together, len(active) + 1, axis=1))
    vectors = dict(zip(active, others, strict=True))
    return SweptVectors({key: vectors.get(key, plain) for key in wanted}, plain, approximate, shared=True)


def bar_label(settings: int) -> str:
    """What a progress bar over so many settings is called."""
    return f"Encoding documents (plain and {settings} {'setting' if settings == 1 else 'settings'})"


def check_calibrations(calibrations: Sequence[Calibration]) -> None:
    """Raise a `TypeError` unless these are calibrations."""
    for calibration in calibrations:
        if not isinstance(calibration, Calibration):
            raise TypeError(
                f"calibrations must hold Calibrations, not {type(calibration).__name__}; read a string with "
                "Calibration.parse(...)."
            )


def _one_by_one(
    encoder: Encoder, texts: Sequence[str], calibrations: Sequence[Calibration], bar: ProgressBar | None
) -> SweptVectors:
    if bar is not None and bar.total is not None:
        bar.refresh(bar.total + len(texts) * len(calibrations))

    def under(calibration: Calibration) -> NDArray[np.float32]:
        with calibrated(encoder.model, calibration):
            return encoder.encode(texts, bar=bar)

    plain = under(Calibration(strength=0.0))
    return SweptVectors({key: under(key) for key in calibrations}, plain, detached=False, shared=False)


@contextmanager
def _truncated(model: SentenceTransformer, dimensions: int | None) -> Iterator[None]:
    """A model whose vectors are cut to so many dimensions for a while, or not at all."""
    before, model.truncate_dim = model.truncate_dim, dimensions
    try:
        yield
    finally:
        model.truncate_dim = before
