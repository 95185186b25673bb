"""How many tokens a batch has: as many as a device likes, and fewer when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import nn

BATCH_TOKENS = 4096  # a CPU's caches like small batches, and whoever else uses it likes them more still
_MOST_TOKENS = 131_072
_GPU_BATCH_TOKENS = 32_768  # for the largest models: half would keep a GPU busy, if nothing else ran in Python beside
_LARGE_MODEL = 300_000_000  # weights, those of embeddings apart
_GAIN = 1.03  # what a larger batch must bring to be kept
_FEW_BATCHES = 4  # whose time says nothing
_logger = logging.getLogger(__name__)


@dataclass
class TokenBudget:
    """Most tokens in a batch, padding included.

    Attributes:
        tokens: for the batches that are made next.
        grows: whether it is doubled as long as that makes the device faster.
        most: what has room in memory, as far as is known; larger batches that were made before are cut in halves.
    """

    tokens: int = BATCH_TOKENS
    grows: bool = False
    most: int = 2**31
    _rate: float = 0.0  # tokens a second with half as many

    def halve(self, tokens: int) -> None:
        """Memory ran out with a batch of so many tokens."""
        self.grows = False
        self.most = max(1, tokens // 2)
        if self.most < self.tokens:
            self.tokens = self.most
            _logger.warning("Out of memory: going on with at most %d tokens in a batch.", self.tokens)

    def learn(self, budget: int, batches: Sequence[int], seconds: float) -> None:
        """See how fast a window was whose batches, of so many tokens, were made for a budget."""
        if not self.grows or budget != self.tokens or len(batches) < _FEW_BATCHES or seconds <= 0:
            return
        rate = sum(batches) / seconds
        if rate < self._rate * _GAIN:
            self.tokens //= 2
            self.grows = False
        elif self.tokens * 2 > _MOST_TOKENS or not _has_room():
            self.grows = False
        else:
            self._rate = rate
            self.tokens *= 2
        _logger.debug("%d tokens in a batch: %.0f tokens a second; going on with %d.", budget, rate, self.tokens)


# What was found out about a model on its GPU holds for later calls.
_shared: WeakKeyDictionary[nn.Module, TokenBudget] = WeakKeyDictionary()


def budget_for(
    model: nn.Module, device: torch.device, tokens: int | None = None, *, grows: bool = False
) -> TokenBudget:
    """A budget of so many tokens; by default what the size of the model asks for, and if it grows, what was found best."""
    if tokens is not None or not grows or device.type != "cuda":
        return TokenBudget(tokens or usual_tokens(model, device))
    if model not in _shared:
        _shared[model] = TokenBudget(usual_tokens(model, device), grows=True)
    return _shared[model]


def usual_tokens(model: nn.Module, device: torch.device) -> int:
    """Tokens in a batch: more on a GPU, and more still for small models, whose layers are done before the next is launched."""
    if device.type == "cpu":
        return BATCH_TOKENS
    if device.type != "cuda":
        return _GPU_BATCH_TOKENS // 2  # on Apple's and other GPUs nothing was measured
    inner = (module for module in model.modules() if not isinstance(module, nn.Embedding))
    weights = sum(parameter.numel() for module in inner for parameter in module.parameters(recurse=False))
    times = _LARGE_MODEL // max(weights, 1)
    return min(_MOST_TOKENS, _GPU_BATCH_TOKENS << max(0, times.bit_length() - 1))


def _has_room() -> bool:
    """Whether a GPU has room for batches twice as large as the largest so far, and as much again to spare."""
    if not torch.cuda.is_available():
        return False
    held, used, largest = torch.cuda.memory_reserved(), torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    free = torch.cuda.mem_get_info()[0] + held - used
    return 4 * (largest - used) < free
