"""See calibration work on a tiny random model: attention mass per basket, before and after.

python examples/demo.py
"""

from __future__ import annotations

import torch
from transformers import BertConfig, BertModel

import evenspan
from evenspan import Calibration

BASKET = 32


def masses(model: BertModel, tokens: torch.Tensor) -> list[float]:
    """The share of the first token's attention on itself and on each basket, last layer, mean over heads."""
    with torch.inference_mode():
        row = model(input_ids=tokens, output_attentions=True).attentions[-1][0, :, 0].mean(dim=0)
    return [float(row[0]), *row[1:].split(BASKET)]


def show(title: str, values: list[float]) -> None:
    print(f"\n{title}")
    for place, value in enumerate(values):
        share = float(torch.as_tensor(value).sum())
        name = "itself" if place == 0 else f"tokens {BASKET * (place - 1) + 1}–{BASKET * place}"
        print(f"  {name:<16}{share:6.1%} {'█' * round(share * 100)}")


def main() -> None:
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        initializer_range=0.12,
    )
    config._attn_implementation = "eager"  # only because eager attention can show its weights
    model = BertModel(config).eval()
    # Trained models are front-loaded; make this one so: tokens attend to what is like them, and early positions are
    # like the first token.
    with torch.no_grad():
        early = torch.linspace(1, 0, 6 * BASKET + 1).unsqueeze(1)
        positions = model.embeddings.position_embeddings.weight
        positions[: len(early)] += 2 * early * model.embeddings.word_embeddings.weight[1]
        for layer in model.encoder.layer:
            layer.attention.self.query.weight.copy_(layer.attention.self.key.weight)
    tokens = torch.cat([torch.ones(1, 1, dtype=torch.long), torch.randint(2, 1000, (1, 6 * BASKET))], dim=1)

    show("plain", masses(model, tokens))
    for strength in (0.5, 1.0):
        setting = Calibration(strength=strength, basket_size=BASKET)
        with evenspan.calibrated(model, setting, pooling="cls"):
            show(f"calibrated: {setting}", masses(model, tokens))


if __name__ == "__main__":
    main()
