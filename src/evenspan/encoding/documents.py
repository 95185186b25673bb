"""`evenspan.encode_documents`: any number of documents to vectors, on one device or several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.encoding.encoder import Encoder
from evenspan.encoding.processes import ProcessPool
from evenspan.encoding.truncation import OnTruncate, TruncationWatch
from evenspan.models.calibrating import calibration_of
from evenspan.models.windows import WINDOW_TEXTS, text_windows
from evenspan.progress import ProgressBar

Vectors = NDArray[np.float32]


@overload
def encode_documents(
    model: SentenceTransformer,
    texts: Sequence[str],
    *,
    prompt: str | None = None,
    normalize_embeddings: bool = False,
    batch_tokens: int | None = None,
    devices: Sequence[str] | None = None,
    on_truncate: OnTruncate = "warn",
    progress: bool = True,
) -> Vectors: ...


@overload
def encode_documents(
    model: SentenceTransformer,
    texts: Iterator[str],
    *,
    prompt: str | None = None,
    normalize_embeddings: bool = False,
    batch_tokens: int | None = None,
    devices: Sequence[str] | None = None,
    on_truncate: OnTruncate = "warn",
    progress: bool = True,
) -> Iterator[Vectors]: ...


def encode_documents(
    model: SentenceTransformer,
    texts: Iterable[str],
    *,
    prompt: str | None = None,
    normalize_embeddings: bool = False,
    batch_tokens: int | None = None,
    devices: Sequence[str] | None = None,
    on_truncate: OnTruncate = "warn",
    progress: bool = True,
) -> Vectors | Iterator[Vectors]:
    """The vectors of documents, as `model.encode_document` gives them, at the speed of the device.

    A list gives one array; an iterator gives an iterator of arrays, each with the vectors of the next few thousand texts.
    They come in the order of the texts, and no more than a few windows are held: to go on after an interruption, skip as
    many texts as rows were received. Take the first in the `with` block that they were asked for in.

    Args:
        model: what encodes, calibrated or not, on the device where it is.
        texts: documents.
        prompt: in front of them; None for the model's own.
        normalize_embeddings: whether vectors get length 1.
        batch_tokens: most tokens in a batch; by default 4,096, on a GPU more as far as it helps. Less when memory runs out.
        devices: such as `["cuda:0", "cuda:1"]`: a process for each, with a copy of the model. One that dies is logged as an
            error, and the others do its work. Scripts need `if __name__ == "__main__":` then.
        on_truncate: what to do about documents that are longer than what the model reads: `"warn"` once, saying how many there
            are and how much of the text is never read (of an iterator: so far), `"raise"` an error, or `"ignore"` them.
        progress: whether a bar shows how far it is, in a terminal.

    Example:
        >>> model = evenspan.calibrate(SentenceTransformer("BAAI/bge-m3"))  # doctest: +SKIP
        >>> evenspan.encode_documents(model, passages).shape  # doctest: +SKIP
        >>> for vectors in evenspan.encode_documents(model, map(str.strip, file)):  # doctest: +SKIP
        ...     store(vectors)
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a list or an iterator of texts, not one string.")
    if not isinstance(model, SentenceTransformer):
        raise TypeError(
            f"Expected a SentenceTransformer, not {type(model).__name__}; load one with evenspan.load(...)."
        )
    if isinstance(devices, str):
        raise TypeError(f"devices must be a list of devices, such as [{devices!r}], not one string.")
    watch = TruncationWatch(model, prompt, on_truncate)
    options: dict[str, Any] = {"prompt": prompt, "unit": normalize_embeddings, "batch_tokens": batch_tokens}
    options["grows"] = True
    encoder = Encoder(model, counted=watch, **options)
    now = calibration_of(model)
    if not isinstance(texts, Sized):
        return _stream(encoder, _checked(texts), None, now, devices, options, watch, progress=progress)
    texts = list(_checked(texts))
    if devices is None:
        with ProgressBar("Encoding documents", len(texts), shown=progress) as bar:
            vectors = encoder.encode(texts, bar=bar)
        watch.tell()
        return vectors
    arrays = list(_stream(encoder, texts, len(texts), now, devices, options, watch, progress=progress))
    return np.concatenate(arrays) if arrays else encoder.encode([])


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """The same texts; raises a `TypeError` that names the first that is none."""
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts must be strings, but the one at {place} is of type {type(text).__name__}.")
        yield text


def _stream(
    encoder: Encoder,
    texts: Iterable[str],
    total: int | None,
    calibration: Calibration | None,
    devices: Sequence[str] | None,
    options: dict[str, Any],
    watch: TruncationWatch,
    *,
    progress: bool,
) -> Iterator[Vectors]:
    now = calibration_of(encoder.model)
    if now != calibration:
        raise RuntimeError(
            f"These vectors were requested when the model had {calibration or 'no calibration'}, and it now has "
            f"{now or 'no calibration'}: take them in the same `with` block."
        )
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(ProgressBar("Encoding documents", total, shown=progress))
        if devices is None:
            for vectors in encoder.stream(texts, bar=bar):
                watch.tell()
                yield vectors
            return
        pool = stack.enter_context(contextlib.closing(ProcessPool(encoder.model, devices, options, watch)))
        most = total and min(WINDOW_TEXTS, -(-total // len(devices)))  # of a short list everybody gets a part
        for vectors in pool.encode(text_windows(texts, most)):
            watch.tell()
            bar.advance(len(vectors))
            yield vectors
