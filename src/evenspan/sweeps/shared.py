"""One batch under many settings, with the work that they have in common done once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from evenspan.calibration import Calibration
from evenspan.core.attention import CalibratedPass
from evenspan.core.calls import baskets_of
from evenspan.core.families import family_of
from evenspan.core.install import overridden
from evenspan.core.last_layer import find_layers, looked_into
from evenspan.core.layers import is_causal
from evenspan.core.verifying import tolerance
from evenspan.models.calibrating import calibrated
from evenspan.models.pipeline import Pipeline
from evenspan.sweeps.rows import Plans, SweptSetting, advance, cut_of

_NOT_REPEATED = ("past_key_values", "use_cache", "calibrated_pass")  # arguments of a layer that is run again


class SharedWorkError(RuntimeError):
    """The layers of a model do not do what their names say, or not now."""


class SharedEncoder:
    """Runs a model once, and for each setting, of which there is at least one, only what that leaves open.

    Rows of settings ride along with the plain pass (see `rows`). For a setting that changes other rows too, the layers
    behind its first calibrated one are run again from there, unless the sweep is detached. In a mean-pooled model it
    changes all rows, and that layer is run again as well.
    """

    def __init__(self, model: SentenceTransformer, calibrations: Sequence[Calibration], *, detached: bool) -> None:
        self.model = model
        self.pipeline = Pipeline.of(model)
        self.every_row = self.pipeline.pooling_token == "mean"
        self.detached = detached and not self.every_row
        self.transformer = self.pipeline.transformer
        layers = self.pipeline.layers()
        self.full = frozenset(layers.full)
        self.layers: list[Any] = find_layers(self.transformer.model, layers.modules)  # None where the family is unknown
        self.settings = [
            SweptSetting(calibration, frozenset(layers.chosen_by(calibration))) for calibration in calibrations
        ]
        self.causal = is_causal(layers.modules[-1]) and self.pipeline.pooling_token == "last"
        last: Any = self.layers[-1]
        family: Any = family_of(last)
        # What follows the last layer, None if that is not known.
        self.final_norm: Any = None if family is None else family.final_norm(self.transformer.model, last)
        # A setting that changes nothing, taken along to see that rows arrive where the plain pass takes them.
        first = min(self.settings, key=lambda setting: setting.first)
        self.control = SweptSetting(replace(first.calibration, strength=0.0), frozenset([first.first]))
        self.checked = False

    @property
    def works(self) -> bool:
        """Whether the layers are of a known family and nothing but the vector is made of them."""
        upper = range(self.control.first, len(self.layers))
        return (
            next(iter(self.model)) is self.transformer
            and self.pipeline.reads_pooled_only
            and (self.every_row or self.full.issuperset(upper))  # rows see no further than a window in the others
            and all(_untouched(self.layers[index]) for index in upper)
            and self.final_norm is not None
        )

    @property
    def approximate(self) -> bool:
        """Whether a sweep is not exact: detached, in a model whose other rows see the pooled ones."""
        return self.detached and not self.causal and self.works

    @contextmanager
    def installed(self) -> Iterator[None]:
        """While this lasts, the model returns the vectors of all settings side by side, the plain ones first."""
        plain = Calibration(strength=0.0, layers="all")
        with calibrated(self.model, plain), overridden(self.model, self._forward):
            yield

    def _forward(self, features: dict[str, Any], calibrate: bool | None = None, **_: Any) -> dict[str, Any]:
        if calibrate is False:  # documents under the query prompt are taken for queries
            features = self._pool(self.transformer(features, calibrate=False))
            features["sentence_embedding"] = features["sentence_embedding"].repeat(1, 1 + len(self.settings))
            return features
        batch = _Batch(self, features)
        with batch.watching():
            features = self.transformer(features, calibrate=False)
        features = self._pool(features)
        plain = features["sentence_embedding"]
        vectors = self._of_every_row(batch, features) if self.every_row else self._of_pooled_rows(batch, features)
        features["sentence_embedding"] = torch.cat([plain, *vectors], dim=1)
        return features

    def _of_pooled_rows(self, batch: _Batch, features: dict[str, Any]) -> Sequence[Tensor]:
        rows = batch.rows()
        if not self.checked:
            batch.check(self.final_norm(rows.pop(self.control)), batch.pooled_rows(features["token_embeddings"]))
            self.checked = True
        tokens = self.final_norm(torch.cat([rows[setting] for setting in self.settings])).unsqueeze(1)
        mask = torch.ones(tokens.shape[:2], dtype=torch.long, device=tokens.device)
        vectors: Tensor = self._pool({"token_embeddings": tokens, "attention_mask": mask})["sentence_embedding"]
        return vectors.chunk(len(self.settings))

    def _of_every_row(self, batch: _Batch, features: dict[str, Any]) -> Sequence[Tensor]:
        vectors = {
            setting: self._pool({**features, "token_embeddings": tokens})["sentence_embedding"]
            for setting, tokens in ((one, self.final_norm(batch.every_row(one))) for one in batch.settings)
        }
        if not self.checked:
            batch.check(vectors[self.control], features["sentence_embedding"])
            self.checked = True
        return [vectors[setting] for setting in self.settings]

    def _pool(self, features: dict[str, Any]) -> dict[str, Any]:
        """What the rest of the pipeline makes of the last layer's rows."""
        for module in list(self.model)[1:]:
            features = module(features)
        return features


class _Batch:
    """One batch on its way."""

    def __init__(self, encoder: SharedEncoder, features: Mapping[str, Any]) -> None:
        self.encoder = encoder
        pipeline = encoder.pipeline
        pooled, baskets_for = pipeline.pooled_places(features), encoder.transformer.setting.calls.baskets_for
        self.settings = [*encoder.settings, *([] if encoder.checked else [encoder.control])]
        self.baskets = {
            cut_of(setting): baskets_of(features, baskets_for, setting.calibration, pooled)
            for setting in {cut_of(setting): setting for setting in self.settings}.values()
        }
        self.pooled = next(iter(self.baskets.values())).pooled
        self.last = len(encoder.layers) - 1
        self.plans: Plans = {}
        self.riding: dict[SweptSetting, Tensor] = {}
        self.forks: dict[SweptSetting, Tensor] = {}
        self.inputs: dict[int, Tensor] = {}  # of layers that begin a mean-pooled model's settings
        self.outputs: dict[int, Tensor] = {}
        self.calls: dict[int, tuple[Any, dict[str, Any]]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See the layers of a plain pass at work, and take rows along."""
        with ExitStack() as stack:
            for index, layer in enumerate(self.encoder.layers):
                if index >= self.encoder.control.first:
                    stack.enter_context(overridden(layer, functools.partial(self._watch, index, layer.forward)))
            yield

    def _watch(self, index: int, forward: Any, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        self.calls[index] = (args, {name: value for name, value in kwargs.items() if name not in _NOT_REPEATED})
        starting = [setting for setting in self.settings if setting.first == index]
        if self.encoder.every_row:
            if starting:
                self.inputs[index] = hidden
            return forward(hidden, *args, **kwargs)
        if starting:
            self.riding |= dict.fromkeys(starting, self.pooled_rows(hidden))
        if self.riding:
            layer = self.encoder.layers[index]
            self.riding = advance(layer, index, hidden, kwargs, self.riding, self.baskets, self.plans)
        output = forward(hidden, *args, **kwargs)
        rides_on = self.encoder.causal or self.encoder.detached or index == self.last
        for setting in starting:
            if not (rides_on or setting is self.encoder.control):
                self.forks[setting] = self.riding.pop(setting)
                self.outputs[index] = output
        return output

    def pooled_rows(self, hidden: Tensor) -> Tensor:
        return hidden.flatten(0, 1)[self.pooled]

    def rows(self) -> dict[SweptSetting, Tensor]:
        """The pooled rows behind the last layer, of every setting."""
        return {**self.riding, **{setting: self._fork(setting, own) for setting, own in self.forks.items()}}

    def every_row(self, setting: SweptSetting) -> Tensor:
        """All rows behind the last layer of a mean-pooled model."""
        return self._again(setting, self.inputs[setting.first], range(setting.first, self.last + 1))

    def _fork(self, setting: SweptSetting, own: Tensor) -> Tensor:
        """Run the layers behind a setting's first one again, with its pooled rows in place of the plain ones."""
        output = self.outputs[setting.first]
        hidden = output.flatten(0, 1).index_copy(0, self.pooled, own.to(output.dtype)).view(output.shape)
        hidden = self._again(setting, hidden, range(setting.first + 1, self.last))
        rows, (_, kwargs) = {setting: self.pooled_rows(hidden)}, self.calls[self.last]
        layer = self.encoder.layers[self.last]
        return advance(layer, self.last, hidden, kwargs, rows, self.baskets, self.plans)[setting]

    def _again(self, setting: SweptSetting, hidden: Tensor, layers: Iterable[int]) -> Tensor:
        for index in layers:
            args, kwargs = self.calls[index]
            calibrated_pass = CalibratedPass(
                setting.calibration, setting.layers, self.baskets[cut_of(setting)], every_row=self.encoder.every_row
            )
            hidden = self.encoder.layers[index](hidden, *args, **{**kwargs, "calibrated_pass": calibrated_pass})
        return hidden

    def check(self, control: Tensor, expected: Tensor) -> None:
        """Rows that nothing was done to must arrive where the plain pass takes them."""
        off = (control.float() - expected.float()).norm() / expected.float().norm().clamp(min=1e-12)
        kind = expected.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else expected.dtype
        if not off <= tolerance(dtype):
            raise SharedWorkError(
                f"Rows taken through this model's layers by themselves are off by {off:.1%} from its own."
            )


def _untouched(layer: Any) -> bool:
    """Whether a layer is of a known family and does what it always does."""
    return family_of(layer) is not None and not looked_into(layer.modules())
