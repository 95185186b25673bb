"""torch: does a compiled causal model give the rows of the eager one, if some of them are written over? For a report upstream.

    python benchmarks/upstream/inductor_rows.py

Needs nothing but torch and a CUDA device. `README.md` beside it has the figures, and what they do not show.
"""

from __future__ import annotations

import torch
import torch._inductor.config
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention

HEADS, SIZE, BASKET, LAYERS = 4, 8, 16, 2
WIDTH = HEADS * SIZE
LENGTHS = (3, 200, 40, 1, 97, 15, 130)


def numbers(count: int) -> Tensor:
    return torch.arange(count, device="cuda")


def slots_of(mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For each sequence its last token and the keys of its baskets, as flat positions, from a mask padded at the right."""
    rows, columns = mask.shape
    valid = mask.flatten()
    last = numbers(rows) * columns + columns - 1 - mask.flip(1).int().argmax(1)
    count = mask.sum(1)
    row_of_key = numbers(rows).repeat_interleave(columns, output_size=rows * columns)
    rank = valid.long().cumsum(0) - 1 - (count.cumsum(0) - count)[row_of_key]
    baskets = -(-columns // BASKET)
    width = baskets * BASKET
    place = torch.where(valid, row_of_key * width + rank, rows * width)
    slots = torch.zeros(rows * width + 1, dtype=torch.long, device="cuda").scatter(0, place, numbers(rows * columns))
    filled = numbers(width).expand(rows, width) < count[:, None]
    return last, slots[:-1].view(rows, baskets, BASKET), filled.view(rows, baskets, BASKET)


def with_last_rows(output: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """The attention output with the last token's row of each sequence computed again, basket by basket, and written over."""
    rows, columns = mask.shape
    keys = rows * columns
    last, slots, filled = slots_of(mask)
    own = (query[last // columns, :, last % columns] * SIZE**-0.5)[:, :, None]
    scores = (own @ key.transpose(-1, -2)).reshape(rows, HEADS, columns).transpose(0, 1).reshape(HEADS, keys)
    log_masses = scores[:, slots].masked_fill(~filled, -3e38).logsumexp(-1)  # (heads, rows, baskets)
    masses = log_masses.masked_fill(~filled.any(-1), -torch.inf).softmax(-1)
    number = numbers(slots[..., 0].numel()).view(rows, -1, 1).expand_as(slots)
    of_key = torch.zeros(keys + 1, dtype=torch.long, device="cuda")
    of_key = of_key.scatter(0, torch.where(filled, slots, keys).flatten(), number.flatten())[:-1]
    inside = torch.exp(torch.where(mask.flatten(), scores - log_masses.flatten(1)[:, of_key], -torch.inf))
    weights = inside * torch.where(mask.flatten(), masses.flatten(1)[:, of_key], 0.0)
    written = (weights.view(HEADS, rows, columns).transpose(0, 1)[:, :, None] @ value).reshape(rows, HEADS, SIZE)
    flat = output.reshape(-1, HEADS, SIZE)
    flat.index_copy_(0, last, written)
    return flat.view(output.shape)


def model(embedding: Tensor, projections: Tensor, ids: Tensor, mask: Tensor, write: bool) -> Tensor:
    rows, columns = ids.shape
    seen = torch.ones(columns, columns, dtype=torch.bool, device="cuda").tril() & mask[:, None, None]
    states = embedding[ids]
    for projection in projections:
        mixed = (rms_norm(states, (WIDTH,)) @ projection).view(rows, columns, 3, HEADS, SIZE)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        output = scaled_dot_product_attention(query, key, value, attn_mask=seen).transpose(1, 2).contiguous()
        if write:
            output = with_last_rows(output, query, key, value, mask)
        states = states + output.reshape(rows, columns, WIDTH)
    return states


@torch.inference_mode()
def largest_error(*, write: bool, padding: bool) -> float:
    """Between a compiled and an eager pass, over all valid rows."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    embedding = torch.randn(99, WIDTH, device="cuda")
    projections = torch.randn(LAYERS, WIDTH, 3 * WIDTH, device="cuda") / 6
    mask = numbers(max(LENGTHS)) < torch.tensor(LENGTHS, device="cuda")[:, None]
    ids = torch.randint(0, 99, mask.shape, device="cuda")
    expected = model(embedding, projections, ids, mask, write)
    with torch._inductor.config.patch(comprehensive_padding=padding):
        compiled = torch.compile(model)(embedding, projections, ids, mask, write)
    return (compiled - expected).abs().amax(-1).masked_fill(~mask, 0).max().item()


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("This needs a CUDA device.")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, float32")
    for write, padding in ((True, True), (True, False), (False, True)):
        error = largest_error(write=write, padding=padding)
        print(f"  rows written: {write!s:5}  comprehensive_padding: {padding!s:5}  largest error {error:.1e}")


if __name__ == "__main__":
    main()
