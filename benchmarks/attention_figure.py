"""Draw docs/attention.svg: where a real model's pooling token looks, plain and calibrated.

    python benchmarks/attention_figure.py MODEL CORPUS.jsonl docs/attention.svg [--basket-size 64] [--baskets 6]

CORPUS.jsonl has a `text` in each line. The figure shows the last layer's attention on the baskets of the passage, the
mean over heads and over the documents that are long enough.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import evenspan
from evenspan import Calibration

COLOURS = ["#9aa5b1", "#4c8dd6", "#1b4f8a"]


@torch.inference_mode()
def masses(model, texts: list[str], setting: Calibration, baskets: int) -> list[float]:
    """Attention mass of each basket in the last layer, in percent."""
    features = model.preprocess(texts)
    inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
    with evenspan.calibrated(model[0].auto_model, setting, pooling="cls") as auto_model:
        rows = auto_model(**inputs, output_attentions=True).attentions[-1][:, :, 0].mean(dim=(0, 1))
    size = setting.basket_size
    return [100 * float(rows[1 + size * place : 1 + size * (place + 1)].sum()) for place in range(baskets)]


def draw(series: dict[str, list[float]], basket_size: int, title: str) -> str:
    """A bar chart as SVG, readable on light and dark pages."""
    width, height, left, bottom = 720, 300, 48, 44
    top = 5 * -(-max(max(values) for values in series.values()) // 5)
    baskets = len(next(iter(series.values())))
    group, plot = (width - left - 12) / baskets, height - bottom - 56

    def y(value: float) -> float:
        return 48 + plot * (1 - value / top)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12"><title>{title}</title>',
        f'<rect width="{width}" height="{height}" rx="6" fill="#ffffff"/>',
        f'<text x="{left}" y="20" font-size="14" font-weight="600" fill="#1f2933">{title}</text>',
    ]
    for tick in range(0, int(top) + 1, 5):
        parts.append(f'<line x1="{left}" x2="{width - 12}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#e4e7eb"/>')
        parts.append(f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#52606d">{tick} %</text>')
    bar = group / (len(series) + 1)
    for number, (name, values) in enumerate(series.items()):
        parts.append(f'<rect x="{left + 150 * number}" y="30" width="10" height="10" fill="{COLOURS[number]}"/>')
        parts.append(f'<text x="{left + 150 * number + 15}" y="39" fill="#1f2933">{name}</text>')
        for place, value in enumerate(values):
            x = left + group * place + bar * (number + 0.5)
            parts.append(
                f'<rect x="{x:.1f}" y="{y(value):.1f}" width="{bar:.1f}" height="{y(0) - y(value):.1f}" '
                f'fill="{COLOURS[number]}"><title>{name}, basket {place + 1}: {value:.1f} %</title></rect>'
            )
    for place in range(baskets):
        words = f"{basket_size * place + 1}–{basket_size * (place + 1)}"
        parts.append(
            f'<text x="{left + group * (place + 0.5):.1f}" y="{height - 24}" text-anchor="middle" '
            f'fill="#52606d">{words}</text>'
        )
    parts.append(
        f'<text x="{(left + width) / 2:.0f}" y="{height - 7}" text-anchor="middle" fill="#52606d">'
        "tokens of the passage</text></svg>"
    )
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--basket-size", type=int, default=64)
    parser.add_argument("--baskets", type=int, default=6)
    parser.add_argument("--documents", type=int, default=64)
    options = parser.parse_args()
    model = evenspan.load(options.model, device="cpu", model_kwargs={"attn_implementation": "eager"})
    texts = [json.loads(line)["text"] for line in options.corpus.open(encoding="utf-8")]
    needed = 1 + options.basket_size * options.baskets
    texts = [text for text in texts if len(model.tokenizer(text).input_ids) >= needed][: options.documents]
    settings = {f"λ = {strength:g}": strength for strength in (0.0, 0.5, 1.0)}
    names = {"λ = 0": "plain", "λ = 0.5": "calibrated, λ = 0.5", "λ = 1": "calibrated, λ = 1"}
    series = {
        names[name]: masses(
            model, texts, Calibration(strength=strength, basket_size=options.basket_size), options.baskets
        )
        for name, strength in settings.items()
    }
    for name, values in series.items():
        print(f"{name:>20}", " ".join(f"{value:5.1f}" for value in values))
    title = f"Attention of the pooling token, last layer ({Path(options.model).name}, {len(texts)} documents)"
    options.output.write_text(draw(series, options.basket_size, title), encoding="utf-8")


if __name__ == "__main__":
    main()
