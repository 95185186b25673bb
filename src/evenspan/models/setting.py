"""What a calibrated model is set to: read once by each call, and replaced as a whole by whoever calibrates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from evenspan.calibration import Calibration
from evenspan.core.calls import CalibratedCalls
from evenspan.core.last_layer import looked_into
from evenspan.models.pipeline import POOLING_TOKENS, reads_pooled_only


@dataclass(frozen=True, eq=False)
class Setting:
    """A calibration and the parts of the model that it was made for."""

    calls: CalibratedCalls
    default_task: str | None
    pooling: Pooling
    last_layer: nn.Module | None  # if it can be run for the pooled rows alone
    around_last_layer: tuple[nn.Module, ...]  # those that see what the last layer returns

    def __str__(self) -> str:
        return f"{self.calls.calibration} {self.default_task}"

    def without_calibration(self) -> Setting:
        """The same, but plain."""
        return replace(self, calls=CalibratedCalls(Calibration(strength=0.0), self.calls.pooling, ()))

    def check_pooling(self, modules: Sequence[nn.Module]) -> None:
        """Refuse modules that pool otherwise than those that were calibrated."""
        if next((module for module in modules if isinstance(module, Pooling)), None) is not self.pooling:
            raise RuntimeError(
                "The model's pooling module was replaced. Call evenspan.calibrate(model) again, or evenspan.restore(model) "
                "before its modules become part of another model."
            )
        self.check_pooling_mode()

    def check_pooling_mode(self) -> None:
        """Refuse a pooling module that was changed since."""
        if POOLING_TOKENS.get(str(self.pooling.pooling_mode)) != self.calls.pooling:
            raise RuntimeError(
                f"The model was calibrated for {self.calls.pooling!r} pooling, but its pooling mode is now "
                f"{self.pooling.pooling_mode!r}. Call evenspan.calibrate(model) again."
            )

    def may_leave_out_rows(self, model: nn.Module, modules: Sequence[nn.Module]) -> bool:
        """Whether nobody would see rows that the last layer leaves out: as the modules, and hooks on them, are now."""
        layer = self.last_layer
        return (
            layer is not None
            and reads_pooled_only(modules)
            and not looked_into([model, *model.children(), *modules, *self.around_last_layer, *layer.modules()])
        )
