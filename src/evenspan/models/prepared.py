"""Find out that a model takes a calibration, and put it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import nn

from evenspan.calibration import Calibration
from evenspan.core.calls import CalibratedCalls, is_calibrated_by_itself
from evenspan.core.install import attach
from evenspan.core.last_layer import modules_around
from evenspan.core.layers import AttentionLayers
from evenspan.core.usage import TURN, usage_of
from evenspan.models.pipeline import Pipeline, query_route
from evenspan.models.setting import Setting


@dataclass(frozen=True)
class Prepared:
    """A model that was seen to take a calibration: putting it in cannot fail any more."""

    model: SentenceTransformer
    pipeline: Pipeline
    layers: AttentionLayers
    setting: Setting

    @classmethod
    def of(
        cls, model: SentenceTransformer, calibration: Calibration, default_task: str | None, *, as_saved: bool = False
    ) -> Prepared:
        """Check everything, and change nothing."""
        if not isinstance(calibration, Calibration):
            raise TypeError(
                f"calibration must be a Calibration, not {type(calibration).__name__}; "
                "read a string with Calibration.parse(...)."
            )
        if default_task not in (None, "document"):
            raise ValueError(f"default_task must be None or 'document', not {default_task!r}.")
        pipeline = Pipeline.of(model)
        transformer = pipeline.transformer
        if default_task is not None and not as_saved:
            _refuse_query_route(model)
        _refuse_users(transformer)
        layers = pipeline.layers()
        current = setting_of(transformer)
        if as_saved or (current is not None and current.calls.calibration == calibration):
            layers.refuse_for_mean(calibration)
            chosen = calibration.choose_layers(layers.full, len(layers.modules))
        else:
            chosen = layers.chosen_by(calibration)
        last_layer = pipeline.last_layer(layers)
        around = () if last_layer is None else modules_around(transformer.model, last_layer)
        calls = CalibratedCalls(calibration, pipeline.pooling_token, chosen, closing_token=pipeline.closing_token)
        return cls(model, pipeline, layers, Setting(calls, default_task, pipeline.pooling, last_layer, around))

    def put(self, module_class: type[nn.Module], model_class: type[nn.Module]) -> Setting | None:
        """Attach our attention wherever it can be used, and say in the module's state what it is used for.

        Returns:
            The setting until now.
        """
        module: Any = self.pipeline.transformer
        with TURN:
            _refuse_users(module)
            before = setting_of(module)
            attached: tuple[nn.Module, ...] = getattr(module, "attached", ())
            layers = {number: layer for number, layer in self.layers.calibratable.items() if layer not in attached}
            last_layer = None if self.setting.last_layer in attached else self.setting.last_layer
            new = attach(layers, last_layer, for_good=True)
            module.__dict__.update(setting=self.setting, attached=(*attached, *new))
            module.__class__ = module_class
            outer: Any = self.model
            outer.__class__ = model_class
        return before


def setting_of(module: nn.Module | None) -> Setting | None:
    """The setting of a module that is calibrated, None for others and for none."""
    setting = getattr(module, "setting", None)
    return setting if isinstance(setting, Setting) else None


def _refuse_users(transformer: Transformer) -> None:
    """Raise if somebody has the model in a block that a calibration would reach into."""
    if is_calibrated_by_itself(transformer.model):
        raise ValueError("This model's transformer is calibrated by itself in a `with` block: leave that block first.")
    usage_of(transformer).refuse_others()


def _refuse_query_route(model: SentenceTransformer) -> None:
    route = query_route(model)
    if route is not None:
        raise ValueError(
            f"default_task='document' is not for this Router model: a bare encode() takes its {route!r} "
            "route. Build the Router with default_route='document', or leave default_task out and use encode_document."
        )
