"""The calibrated module of a folder, as sentence-transformers loads it by its class: calibrated once the model is whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Transformer

from evenspan.calibration import Calibration
from evenspan.models.files import ModelFiles
from evenspan.models.prepared import setting_of
from evenspan.models.reading import document_module
from evenspan.models.saved import as_plain, calibrated_places, plain_card, read_calibration
from evenspan.models.views import building, rename, view

Calibrate = Callable[[SentenceTransformer, Calibration, str | None], None]
_PASSED_ON = ("model_kwargs", "processor_kwargs", "config_kwargs")


class ReloadedTransformer(Transformer):
    """A module that waits for its model, on whose pooling its calibration depends. Until then it encodes nothing."""

    when_ready: Callable[[SentenceTransformer], None]

    @classmethod
    def read(cls, name: str, subfolder: str, options: Mapping[str, Any], calibrate: Calibrate) -> ReloadedTransformer:
        """Load a module with the options of `Transformer.load`, without remote code whatever they say."""
        files = ModelFiles(name, options)
        calibrated_places(files)  # refuses what is not in the model's own folder: before 6.2 nothing else does
        folder = files.download()
        calibration, default_task = read_calibration(folder / subfolder)
        plain = {key: _without_trust(options.get(key)) for key in _PASSED_ON}
        with view(folder, as_plain(folder, [subfolder])) as shown, building(files, str(shown)):
            chosen = {**options, **plain, "trust_remote_code": False, "revision": None}
            module: Any = Transformer.load(str(shown), subfolder=subfolder, **chosen)
        rename(module, name)
        card = plain_card(folder)

        def when_ready(model: SentenceTransformer) -> None:
            reader = document_module(model)
            if reader is not module and (isinstance(reader, ReloadedTransformer) or setting_of(reader) is not None):
                return  # of the route of queries, which is plain whatever its calibration is
            if reader is not module:
                raise ValueError(f"{name} has a calibrated module that does not read its documents: save it again.")
            calibrate(model, calibration, default_task)
            model._model_card_text = card  # type: ignore[assignment]

        module.__class__, module.when_ready = cls, when_ready
        return module  # type: ignore[no-any-return]

    def on_model_ready(self, model: BaseModel) -> None:
        """Calibrate the model."""
        module: Any = self
        when_ready = module.__dict__.pop("when_ready")
        module.__class__ = Transformer
        when_ready(model)

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        """Refuse, rather than encode plain."""
        raise RuntimeError(
            "This module was loaded by itself, and its calibration needs the modules behind it: load the whole model with "
            "evenspan.load(...), or build a SentenceTransformer around it."
        )


def _without_trust(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (options or {}).items() if name != "trust_remote_code"}
