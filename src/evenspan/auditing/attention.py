"""See where pooling tokens look while a model encodes, from their own rows: no matrix of attention is ever made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from transformers import AttentionInterface

from evenspan.auditing.masses import Totals
from evenspan.auditing.schema import Attention
from evenspan.calibration import Calibration
from evenspan.core.attention import attach, detach, not_compiled, plain_attention, refuse_unknown_scores
from evenspan.core.baskets import Baskets
from evenspan.core.calls import baskets_of
from evenspan.core.redistribute import basket_log_masses, calibrated_masses, plan_of
from evenspan.core.rows import pooled_query, pooled_scores, replace_rows
from evenspan.models.modules import pooled_behind_prompt
from evenspan.models.pipeline import Pipeline, overridden

_NAME = "evenspan_observed"


@dataclass
class ObservedPass:
    """One forward call under observation: which layers it calibrates, and the masses that its pooling tokens spread."""

    baskets: Baskets
    calibration: Calibration
    calibrated: frozenset[nn.Module]
    masses: dict[nn.Module, Tensor] = field(default_factory=dict)  # (heads, rows, 2 + baskets) each


def observed_attention(
    module: nn.Module,
    query: Tensor,  # (batch, heads, queries, head_dim)
    key: Tensor,  # (batch, key_value_heads, keys, head_dim)
    value: Tensor,
    attention_mask: Tensor | None,
    observed_pass: ObservedPass | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The model's own attention, calibrated where the pass says so, with the masses written down."""
    output, weights = plain_attention(module, query, key, value, attention_mask, **kwargs)
    if observed_pass is None:
        return output, weights
    return _observed(module, output, query, key, value, observed_pass, kwargs), weights


@not_compiled
def _observed(
    module: nn.Module,
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    observed_pass: ObservedPass,
    kwargs: dict[str, Any],
) -> Tensor:
    baskets, calibration = observed_pass.baskets, observed_pass.calibration
    refuse_unknown_scores(key, baskets, kwargs)
    scaling, softcap = kwargs.get("scaling"), kwargs.get("softcap")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    with torch.autocast(query.device.type, enabled=False):
        scores = pooled_scores(pooled_query(query, baskets), key, baskets, scale, softcap)
        masses = torch.softmax(basket_log_masses(scores, baskets), dim=-1)
        if module in observed_pass.calibrated:
            masses = calibrated_masses(masses, plan_of(calibration, baskets))
            output = replace_rows(output, query, key, value, baskets, calibration, scale, softcap)
    observed_pass.masses[module] = masses
    return output


class Observer:
    """Adds up what the pooling tokens of many batches look at, layer by layer.

    Only layers whose pooling token sees the whole passage are looked at. Raises as `Pipeline.of` does for a model that
    has no pooling token or no attention that is known.
    """

    def __init__(self, model: SentenceTransformer, calibration: Calibration | None, basket_size: int) -> None:
        self.pipeline = Pipeline.of(model)
        layers = self.pipeline.layers()
        self.layers = {index: layers.modules[index] for index in layers.full}
        self.calibration = calibration or Calibration(strength=0.0, basket_size=basket_size)
        chosen = () if calibration is None else calibration.choose_layers(layers.full, len(layers.modules))
        self.calibrated = frozenset(chosen)
        self.seen = Totals(list(self.layers))
        self._part = Totals(list(self.layers))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While this lasts, every document that the model encodes is looked at, and calibrated if that was asked for.

        What was seen counts if it ends well: who runs out of memory begins again.
        """
        self._part = Totals(list(self.layers))
        AttentionInterface.register(_NAME, observed_attention)
        inner = self.pipeline.transformer.model
        attached = detach(inner)
        attach(self.layers.values(), _NAME)
        try:
            with overridden(self.pipeline.transformer, self._forward):
                yield
            self.seen.join(self._part)
        finally:
            detach(inner)
            attach(attached)

    def _forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        pipeline = self.pipeline
        pooled = pooled_behind_prompt(features, pipeline.pooling, pipeline.pooling_token)
        baskets = baskets_of(features, pipeline.pooling_token, self.calibration.basket_size, pooled)
        calibrated = frozenset(self.layers[index] for index in self.calibrated)
        observed = ObservedPass(baskets, self.calibration, calibrated)
        output: dict[str, Any] = Transformer.forward(pipeline.transformer, features, observed_pass=observed)
        missing = [index for index, module in self.layers.items() if module not in observed.masses]
        if missing:
            raise RuntimeError(f"The attention of layers {missing} was not seen: this model drops keyword arguments.")
        self._add(observed)
        return output

    def _add(self, observed: ObservedPass) -> None:
        present = observed.baskets.present.cpu().numpy()
        masses = {index: observed.masses[module].float().cpu().numpy() for index, module in self.layers.items()}
        self._part.add(masses, present)

    def found(self) -> Attention | None:
        """What was seen; None if nothing was."""
        return self.seen.attention(self.calibration.basket_size, self.calibrated)
