"""The two sentence-transformers classes that a calibrated model is made of.

`calibrate` gives a model's own objects these classes and `restore` takes them back, so there is one copy of everything.
The class of the first module is also what sentence-transformers writes to `modules.json`: a saved calibrated model is
refused by `SentenceTransformer(path)`, rather than loaded without its calibration, and loaded by `evenspan.load(path)`.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from evenspan.core.calls import CalibratedCalls
from evenspan.core.install import register
from evenspan.models.pipeline import POOLING_TOKENS, document_modules, pooled_behind_prompt, reads_pooled_only

SAVED_CALIBRATION = "evenspan.json"
_NOTE = "> This model carries an [evenspan](https://pypi.org/project/evenspan)"


def without_note(card: str) -> str:
    """A model card without the word that `CalibratedSentenceTransformer.save` puts into it."""
    return "\n".join(line for line in card.split("\n") if not line.startswith(_NOTE))


class CalibratedTransformer(Transformer):
    """A `Transformer` whose document batches are calibrated."""

    # What saved models call this class, for good, whichever file it moves to.
    __module__ = "evenspan.models"

    plain_class = Transformer
    STATE = ("calls", "default_task", "pooling_reference")

    # `calibrate` overrules `task`: encode() uses it for calls that name the query prompt.
    # `pooled_only` allows its last layer to compute the pooled rows alone: for calls that return nothing else.
    forward_kwargs = {"task", "calibrate", "pooled_only"}

    calls: CalibratedCalls
    default_task: str | None
    # In a tuple, so that torch does not list the pooling module as a part of this one.
    pooling_reference: tuple[Pooling]

    def forward(
        self,
        features: dict[str, Any],
        task: str | None = None,
        calibrate: bool | None = None,
        pooled_only: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Encode a batch: calibrated if it is a batch of documents, else exactly as without calibration."""
        if calibrate is None:
            calibrate = (task or self.default_task) == "document"
        plain = functools.partial(super().forward, features, **kwargs)
        if not calibrate:
            return plain()
        (pooling,) = self.pooling_reference
        if POOLING_TOKENS.get(str(pooling.pooling_mode)) != self.calls.pooling:
            raise RuntimeError(
                f"The model was calibrated for {self.calls.pooling!r} pooling, but its pooling mode is now "
                f"{pooling.pooling_mode!r}. Call evenspan.calibrate(model) again."
            )
        pooled = pooled_behind_prompt(features, pooling, self.calls.pooling)
        return self.calls.run(plain, features, pooled=pooled, pooled_only=pooled_only)

    def __repr__(self) -> str:
        plain = super().__repr__().removeprefix("Transformer(")
        return f"CalibratedTransformer({str(self.calls.calibration)!r}, {plain}"

    def state(self) -> str:
        """The calibration and the default task, in words."""
        return f"{self.calls.calibration} {self.default_task}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        register()  # a spawned worker or a copy in another process has a registry of its own

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Save the module, and its calibration beside it."""
        super().save(output_path, *args, **kwargs)
        saved = {"calibration": self.calls.calibration.to_dict(), "default_task": self.default_task}
        text = json.dumps(saved, indent=2) + "\n"
        (Path(output_path) / SAVED_CALIBRATION).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, model_name_or_path: str, *args: Any, **kwargs: Any) -> CalibratedTransformer:  # noqa: ARG003
        """Refuse: the calibration stands beside the modules and only `evenspan.load` reads it."""
        raise ValueError(
            f"{model_name_or_path} is a calibrated model: load it with evenspan.load({str(model_name_or_path)!r})."
        )


class CalibratedSentenceTransformer(SentenceTransformer):
    """A `SentenceTransformer` that tells queries from documents for its `CalibratedTransformer`."""

    plain_class = SentenceTransformer

    @functools.wraps(SentenceTransformer.encode)
    def encode(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # noqa: D102
        given = inspect.signature(SentenceTransformer.encode).bind_partial(self, *args, **kwargs).arguments
        prompt, prompt_name = given.get("prompt"), given.get("prompt_name")
        if prompt is None and prompt_name is None and kwargs.get("task") is None:
            prompt_name = self.default_prompt_name
        # Whatever the task, what carries the query prompt is a query.
        is_query = prompt_name == "query" if prompt is None else self._is_query_prompt(prompt)
        module = calibrated_module(self)
        if module is not None:
            self._check_parts(module, given.get("pool"))
            if is_query:
                kwargs.setdefault("calibrate", False)
            wants_vectors = given.get("output_value", "sentence_embedding") == "sentence_embedding"
            if wants_vectors and reads_pooled_only(document_modules(self)):  # as the modules are now
                kwargs.setdefault("pooled_only", True)
        return super().encode(*args, **kwargs)

    def start_multi_process_pool(self, *args: Any, **kwargs: Any) -> Any:
        """Start a pool, which remembers the calibration its copies of the model have."""
        pool: Any = super().start_multi_process_pool(*args, **kwargs)
        module = calibrated_module(self)
        return pool if module is None else {**pool, "evenspan": module.state()}

    def _check_parts(self, module: CalibratedTransformer, pool: dict[str, Any] | None) -> None:
        """Refuse to encode with parts that are not those that were calibrated."""
        if pool is not None and pool.get("evenspan") != module.state():
            raise RuntimeError(
                "This pool was started before the model was calibrated as it is now, and its processes have copies of the "
                "model as it was then. Stop it and start another."
            )
        if not any(part is module.pooling_reference[0] for part in self.modules()):
            raise RuntimeError("The model's pooling module was replaced. Call evenspan.calibrate(model) again.")

    @classmethod
    def _load_with_module_classes(
        cls, model_name_or_path: str, module_classes: Mapping[str, Any], **kwargs: Any
    ) -> Any:
        """Let a trainer read its checkpoints: it takes the weights of what is loaded, and no more."""
        plain = {
            reference: Transformer if module_class is CalibratedTransformer else module_class
            for reference, module_class in module_classes.items()
        }
        return SentenceTransformer._load_with_module_classes(model_name_or_path, plain, **kwargs)

    def _is_query_prompt(self, prompt: str) -> bool:
        others = {text for name, text in self.prompts.items() if name != "query"}
        return prompt == self.prompts.get("query") and prompt not in {*others, ""}

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Save the model, with a word in its model card on how to load it."""
        super().save(path, *args, **kwargs)
        card, module = Path(path) / "README.md", calibrated_module(self)
        if module is not None and card.exists():
            note = (
                f"{_NOTE} calibration, `{module.calls.calibration}`: documents are encoded position-fairly. "
                "Load it with `evenspan.load(...)` in place of `SentenceTransformer(...)`."
            )
            front, title, rest = without_note(card.read_text(encoding="utf-8")).partition("\n# ")
            card.write_text(f"{front}\n{note}\n{title}{rest}", encoding="utf-8")


def calibrated_module(model: nn.Module) -> CalibratedTransformer | None:
    """The calibrated module of a model, wherever it stands, or None."""
    return next((module for module in model.modules() if isinstance(module, CalibratedTransformer)), None)
