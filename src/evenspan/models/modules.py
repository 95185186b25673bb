"""The two sentence-transformers classes that a calibrated model is made of.

`calibrate` gives a model's own objects these classes and `restore` takes them back, so there is one copy of everything.
The class of the first module is also what sentence-transformers writes to `modules.json`: a saved calibrated model is
refused by `SentenceTransformer(path)`, rather than loaded without its calibration, and loaded by `evenspan.load(path)` or by
`SentenceTransformer(path, trust_remote_code=True)`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Transformer
from torch import nn

from evenspan.calibration import Calibration
from evenspan.core.install import register
from evenspan.core.usage import call_of
from evenspan.models.card import write_card
from evenspan.models.fast import usual_vectors
from evenspan.models.pipeline import DOCUMENT_PROMPTS, document_modules, pooled_behind_prompt, query_route
from evenspan.models.pools import CalibratedQueue
from evenspan.models.prepared import Prepared
from evenspan.models.reading import document_module
from evenspan.models.reloading import ReloadedTransformer
from evenspan.models.saved import hide, make_room, saving_over, write_calibration
from evenspan.models.setting import Setting

_SAVE = inspect.signature(SentenceTransformer.save)
_DOCUMENTS = (*DOCUMENT_PROMPTS, "text")  # the last is what LlamaIndex calls the prompt of documents
_ENCODE = inspect.signature(SentenceTransformer.encode)
# What runs the batches of an `encode`; until sentence-transformers 6.1 it did so itself.
_BATCHES = inspect.unwrap(getattr(SentenceTransformer, "_inference", SentenceTransformer.encode)).__code__


class CalibratedTransformer(Transformer):
    """A `Transformer` whose document batches are calibrated."""

    # What saved models call this class, for good, whichever file it moves to.
    __module__ = "evenspan.models"

    plain_class = Transformer
    STATE = ("setting", "attached")

    # `setting` is that of the call, whatever the module's is by now. `calibrate` overrules `task`.
    # `pooled_only` allows the last layer to compute the pooled rows alone: for calls that return nothing else.
    forward_kwargs = {"task", "calibrate", "pooled_only", "setting"}

    setting: Setting | None  # None: restored, but calls or blocks that began before are not over yet
    attached: tuple[nn.Module, ...]

    @property
    def default_task(self) -> str | None:
        """What a bare `encode` encodes: documents, or None for nothing in particular."""
        return None if self.setting is None else self.setting.default_task

    # The methods name `Transformer` in place of super(): whoever looked one up may call it when the class is plain again.
    def forward(
        self,
        features: dict[str, Any],
        task: str | None = None,
        calibrate: bool | None = None,
        pooled_only: bool = False,
        setting: Setting | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Encode a batch: calibrated if it is a batch of documents, else exactly as without calibration."""
        plain: Callable[..., dict[str, Any]] = functools.partial(Transformer.forward, self, features, **kwargs)
        if calibrate is False:
            return plain()
        if setting is None:  # called by itself, or by a model that knows nothing of calibration
            with call_of(self):
                setting = getattr(self, "setting", None)
                if setting is None:
                    return plain()
                return self.forward(features, task, calibrate, pooled_only, setting, **kwargs)
        if calibrate is None:  # behind a prompt there may be a query
            task = task or (None if "prompt_length" in features else setting.default_task)
            calibrate = task == "document"
        if not calibrate:
            return plain()
        setting.check_pooling_mode()
        pooled = pooled_behind_prompt(features, setting.pooling, setting.calls.pooling)
        return setting.calls.run(plain, features, pooled=pooled, pooled_only=pooled_only)

    def __repr__(self) -> str:
        calibration = None if self.setting is None else str(self.setting.calls.calibration)
        return f"CalibratedTransformer({calibration!r}, {Transformer.__repr__(self).removeprefix('Transformer(')}"

    def on_model_ready(self, model: BaseModel) -> None:
        """Give a model that is built around this module the class that tells queries from documents."""
        outer: Any = model
        if self.setting is None or document_module(outer) is not self:
            return
        if type(model) is SentenceTransformer:
            outer.__class__ = CalibratedSentenceTransformer
        else:
            self.setting.check_pooling(document_modules(outer))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        register()  # a spawned worker or a copy in another process has a registry of its own

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Save the module, and its calibration beside it."""
        setting = self.setting
        if setting is None:
            raise RuntimeError(
                "This model was restored while calls or blocks that need its calibration are not over yet: save it "
                "afterwards. If there are none, it is a copy from that time: call evenspan.restore(model) first."
            )
        folder = Path(output_path)
        make_room(folder, self.model)
        super().save(output_path, *args, **kwargs)
        hide(folder)
        write_calibration(folder, setting.calls.calibration, setting.default_task)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Any:  # type: ignore[override]
        """Load what `save` wrote; the module is calibrated when the model around it is ready."""
        return ReloadedTransformer.read(model_name_or_path, subfolder, kwargs, calibrate_as_saved)


class CalibratedSentenceTransformer(SentenceTransformer):
    """A `SentenceTransformer` that tells queries from documents for its `CalibratedTransformer`."""

    plain_class = SentenceTransformer
    forward_kwargs = CalibratedTransformer.forward_kwargs  # where it is a module of another model

    @functools.wraps(SentenceTransformer.encode)
    def encode(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]  # noqa: D102
        modules = document_modules(self)
        with call_of(modules[0]):
            setting = _setting_of_call(self, modules)
            if setting is None:
                return SentenceTransformer.encode(self, *args, **kwargs)
            given = _ENCODE.bind_partial(self, *args, **kwargs).arguments
            if kwargs.get("calibrate") is None:
                kwargs["calibrate"] = self._are_documents(given, kwargs.get("task"), setting.default_task)
            wants_vectors = given.get("output_value", "sentence_embedding") == "sentence_embedding"
            if _leaves_out_rows(self, modules, setting, kwargs["calibrate"]) and wants_vectors:
                kwargs.setdefault("pooled_only", True)
            pool = given.get("pool")
            if pool is not None:
                CalibratedQueue.check(pool)
            # Pools have the setting already; they are told its name, to see that it is the same one.
            in_processes = pool is not None or isinstance(given.get("device"), list)
            kwargs["setting"] = str(setting) if in_processes else setting
            options = {name: value for name, value in kwargs.items() if name in CalibratedTransformer.forward_kwargs}
            vectors = None if in_processes else usual_vectors(self, given, options)
            return SentenceTransformer.encode(self, *args, **kwargs) if vectors is None else vectors

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a batch by itself, or one of a call of `encode`."""
        if "setting" not in kwargs and "calibrate" not in kwargs and sys._getframe(1).f_code is _BATCHES:
            kwargs["calibrate"] = False  # of a call that began when the model was plain
        if "setting" in kwargs or kwargs.get("calibrate") is False:
            return SentenceTransformer.__call__(self, *args, **kwargs)
        modules = document_modules(self)
        with call_of(modules[0]):
            setting = _setting_of_call(self, modules)
            if setting is None:
                kwargs["calibrate"] = False
            else:
                setting.check_pooling(modules)
                kwargs["setting"] = setting
            return SentenceTransformer.__call__(self, *args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What `__call__` runs, and does if it is called by itself."""
        if "setting" in kwargs or kwargs.get("calibrate") is False:
            return SentenceTransformer.forward(self, *args, **kwargs)
        return self(*args, **kwargs)

    def _are_documents(self, given: Mapping[str, Any], task: str | None, default_task: str | None) -> bool:
        """Whether a call of `encode` says clearly enough that it encodes documents."""
        if task is not None or default_task is None:
            return task == "document"
        prompt, name = given.get("prompt"), given.get("prompt_name")
        if prompt is None:
            name = self.default_prompt_name if name is None else name
            return name is None or name in _DOCUMENTS
        names = {name for name, text in self.prompts.items() if text == prompt}
        return prompt == "" or (names != set() and names.issubset(_DOCUMENTS))

    def preprocess(self, *args: Any, **kwargs: Any) -> Any:
        """Tokenize texts: without what is said of their calibration, which tokenizers keep as keys of caches."""
        for name in CalibratedTransformer.forward_kwargs - {"task"}:
            kwargs.pop(name, None)
        return SentenceTransformer.preprocess(self, *args, **kwargs)

    def start_multi_process_pool(self, *args: Any, **kwargs: Any) -> Any:
        """Start a pool, which takes work of the setting that its copies of the model have, and no other."""
        module = document_modules(self)[0]
        with call_of(module):
            before = _setting_of_call(self, [module])
            pool: Any = SentenceTransformer.start_multi_process_pool(self, *args, **kwargs)
            if str(before) != str(_setting_of_call(self, [module])):
                self.stop_multi_process_pool(pool)
                raise RuntimeError("The calibration was changed while the pool was being started. Start it again.")
        # Also if it was restored in the meantime: a call that began before may have started this pool.
        return {**pool, "input": CalibratedQueue(pool["input"], None if before is None else str(before))}

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Save the model, with a card that says what it is and how to load it."""
        if path is None:
            return  # as sentence-transformers does
        with saving_over(Path(path)):
            super().save(path, *args, **kwargs)
        module = calibrated_module(self)
        if module is not None and module.setting is not None:
            write_card(module.setting, str(module.model.config._name_or_path), _SAVE.bind(self, path, *args, **kwargs))


@contextmanager
def call_options(model: SentenceTransformer, task: str) -> Iterator[dict[str, Any]]:
    """A call of a model, and what its batches are run with: the setting is that of now, until the call is over."""
    is_calibrated = isinstance(model, CalibratedSentenceTransformer)
    modules = document_modules(model) if is_calibrated else [document_module(model)]
    with call_of(modules[0]):
        setting = _setting_of_call(model, modules)
        if setting is None:
            yield {"task": task, **_of_plain_model(model, modules[0], task)}
            return
        options: dict[str, Any] = {"task": task, "calibrate": task == "document", "setting": setting}
        if _leaves_out_rows(model, modules, setting, task == "document"):
            options["pooled_only"] = True
        yield options


def _of_plain_model(model: SentenceTransformer, module: nn.Module, task: str) -> dict[str, Any]:
    """What a call of a plain model says to its module, which may be that of a calibrated model as well."""
    if "forward" in vars(model):  # somebody else's, which may know no other word
        return {}
    if not isinstance(module, CalibratedTransformer):  # a calibrated model that is a module of this one knows by itself
        return {} if calibrated_modules(model) else {"calibrate": False}
    if module.setting is None or task != "document":
        return {"calibrate": False}
    module.setting.check_pooling(document_modules(model))
    return {"calibrate": True, "setting": module.setting}


def _leaves_out_rows(
    model: SentenceTransformer, modules: Sequence[nn.Module], setting: Setting, calibrate: bool
) -> bool:
    """Whether a call that is calibrated, which its modules must allow, may leave out rows that nobody sees."""
    if calibrate:
        setting.check_pooling(modules)
    return calibrate and setting.may_leave_out_rows(model, modules)


def _setting_of_call(model: SentenceTransformer, modules: Sequence[nn.Module]) -> Setting | None:
    """The setting of a call that begins now; None if the model was restored."""
    if not isinstance(model, CalibratedSentenceTransformer):
        return None
    if not isinstance(modules[0], CalibratedTransformer):
        raise RuntimeError(
            f"This model was calibrated, but the {type(modules[0]).__name__} that reads its documents now is not: it was "
            "replaced or wrapped, or restored as part of another model. Call evenspan.calibrate(model) to calibrate it "
            "again, or evenspan.restore(model) to have it plain."
        )
    setting: Setting | None = modules[0].setting
    if setting is not None and query_route(model) is not None:
        return replace(setting, default_task=None)  # a bare call is for queries
    return setting


def calibrated_module(model: SentenceTransformer) -> CalibratedTransformer | None:
    """The calibrated module of a model, wherever it stands, or None; that of documents if there are several."""
    modules, reader = calibrated_modules(model), document_module(model)
    return reader if reader in modules else next(iter(modules), None)


def calibrated_modules(model: nn.Module) -> list[CalibratedTransformer]:
    """All calibrated modules of a model: one, unless it was built from several models that were calibrated."""
    return [module for module in model.modules() if isinstance(module, CalibratedTransformer)]


def put(prepared: Prepared) -> Setting | None:
    """Put a calibration in; returns the setting until now."""
    return prepared.put(CalibratedTransformer, CalibratedSentenceTransformer)


def calibrate_as_saved(model: SentenceTransformer, calibration: Calibration, default_task: str | None) -> None:
    """Calibrate with what a model was saved with, also if it would be refused by now because it has no effect."""
    put(Prepared.of(model, calibration, default_task, as_saved=True))
