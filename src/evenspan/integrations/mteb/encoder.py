"""A model for mteb with one calibration, under which mteb stores its results."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mteb.models import CachedEmbeddingWrapper, ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ScoringFunction
from mteb.types import PromptType
from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.identity import weights_digest
from evenspan.models import calibrated, calibration_of, load
from evenspan.models.calibrating import uncalibrated

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader

PLAIN = "none"


class CalibratedEncoder(AbsEncoder):
    """An mteb encoder with one calibration, fixed when it is made.

    mteb knows a `SentenceTransformer` by name and revision alone: scored, calibrated and scored again, it gets its plain
    scores back from mteb's cache. This encoder adds its calibration to both keys (`ModelMeta.experiment_kwargs`), and
    encodes with that calibration whatever happens to the model in the meantime.

    Documents (mteb's `prompt_type`) are calibrated. Everything else is plain: queries, and the texts of tasks that know
    neither, such as STS, classification and clustering. Prompts are the model's own, chosen by mteb's rules.

    Args:
        model: a `SentenceTransformer`, which is left as it was, or what `evenspan.load` takes.
        calibration: a `Calibration`, its string, or `"none"`; by default the one that the model has.
        name: what results are stored under, `"organisation/model"`; by default the model's name on the hub, or
            `local/` and the name of its folder.
        revision: likewise, and which one to load from the hub; by default the hub's commit, or a digest of the weights.
        **kwargs: passed on to `evenspan.load`.

    Example:
        >>> import mteb
        >>> tasks = mteb.get_tasks(["NanoSciFactRetrieval"])  # doctest: +SKIP
        >>> mteb.evaluate(CalibratedEncoder("BAAI/bge-m3", "soft,strength=0.5"), tasks)  # doctest: +SKIP
    """

    model: SentenceTransformer
    mteb_model_meta: ModelMeta

    def __init__(
        self,
        model: SentenceTransformer | str | os.PathLike[str],
        calibration: Calibration | str | None = None,
        *,
        name: str | None = None,
        revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        if name is not None and not re.fullmatch(r"[^/]+/[^/]+", name):
            raise ValueError(f"mteb expects model names like 'organisation/model', not {name!r}.")
        if not isinstance(model, SentenceTransformer):
            from_hub = revision is not None and not os.path.isdir(model)
            model = load(model, **kwargs, **({"revision": revision} if from_hub else {}))
        elif kwargs:
            raise TypeError(f"{', '.join(kwargs)}: options for loading, but this model is already loaded.")
        self.model = model
        self.model_prompts = {key: text for key, text in model.prompts.items() if text is not None}
        if isinstance(calibration, str):
            self.calibration = None if calibration == PLAIN else Calibration.parse(calibration)
        else:
            self.calibration = calibration_of(model) if calibration is None else calibration
        if self.calibration is not None:
            with self._setting(PromptType.document):
                pass  # a model that cannot be calibrated is refused now, not after the first task's data are loaded
        known = {
            "name": name or _name(model),
            "revision": revision or getattr(model.config, "_commit_hash", None) or weights_digest(model),
            "experiment_kwargs": {"calibration": str(self.calibration or PLAIN)},
            "n_parameters": sum(parameter.numel() for parameter in model.parameters()),
            "max_tokens": model.max_seq_length,
            "embed_dim": model.get_embedding_dimension(),
            "similarity_fn_name": ScoringFunction.from_str(str(model.similarity_fn_name)),
            "framework": ["Sentence Transformers", "PyTorch"],
        }
        # It has no loader, since the name does not always say where the model came from.
        self.mteb_model_meta = ModelMeta.create_empty(overwrites=known)

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,  # noqa: ARG002
        hf_subset: str,  # noqa: ARG002
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> Array:
        """Encode texts as mteb asks; `kwargs` are those of `SentenceTransformer.encode`."""
        texts = [text for batch in inputs for text in batch["text"]]
        options = {"prompt_name": self.get_prompt_name(task_metadata, prompt_type), **kwargs}
        method = "encode" if prompt_type is None else f"encode_{prompt_type.value}"
        with self._setting(prompt_type):  # which changes the model's class, and with it perhaps its methods
            vectors: Array = getattr(self.model, method)(texts, **options)
        return vectors

    def _setting(self, prompt_type: PromptType | None) -> AbstractContextManager[object]:
        """The model as this encoder wants it, whatever calibration it has otherwise."""
        if self.calibration is None or prompt_type != PromptType.document:
            return uncalibrated(self.model)
        return calibrated(self.model, self.calibration)

    def cached(self, folder: str | os.PathLike[str]) -> CachedEmbeddingWrapper:
        """This encoder with mteb's embedding cache, in a folder that any number of encoders may share.

        mteb's cache keeps calibrations apart but not models: it looks up the text alone.
        """
        meta = self.mteb_model_meta
        return CachedEmbeddingWrapper(self, Path(folder, meta.model_name_as_path(), str(meta.revision)))


def _name(model: SentenceTransformer) -> str:
    source = str(getattr(model.config, "_name_or_path", None) or "unnamed")
    kind, _, miniature = source.partition(":")
    if kind == "miniature":
        return f"evenspan/miniature-{miniature}"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", source) and not os.path.isdir(source):
        return source
    return f"local/{Path(source).resolve().name}"
