"""What to do: a `Calibration` is frozen data that says how attention is redistributed."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

Variant = Literal["soft", "uniform", "hard"]
NamedLayers = Literal["half", "last", "all"]
Layers = NamedLayers | int | float | tuple[int, ...]
FirstToken = Literal["keep", "equal"] | float | None
Partition = Literal["paper", "even"]

_DEFAULT_SELF_MASS = 0.3


@dataclass(frozen=True)
class Calibration:
    """How the pooling token's attention is spread over the baskets of a passage.

    Stored in canonical form, so that settings that mean the same are equal, hash alike and print alike: `layers=1`
    becomes `"last"`, `layers=0.5` becomes `"half"`, index tuples are sorted, and a `first_token` that spells out the
    variant's own default becomes `None`. The string is the identity of a setting: it keys caches and names results.

    Args:
        variant: `"soft"` keeps the pooling token's own mass and spreads the rest evenly over the baskets, `"uniform"`
            gives every basket and the pooling token the same, `"hard"` fixes the pooling token's mass at `self_mass`.
        strength: λ in [0, 1]; 0 is the untouched model, 1 the full redistribution.
        layers: `"half"` (the last half), `"last"`, `"all"`, an int (the last n), a float in (0, 1) (the last ⌊f·n⌋, at
            least one) or a tuple of layer indices counted from 0. All but the tuple count full-attention layers only.
        basket_size: tokens in a basket. Shorter passages are not calibrated.
        self_mass: what the pooling token gets under `"hard"`.
        first_token: last-token-pooled models only: whether the first token of the sequence, the attention sink, keeps
            its own mass (`"keep"`, default of soft and hard), gets an equal share (`"equal"`, default of uniform), or
            a fixed mass.
        partition: `"paper"` cuts a passage every `basket_size` tokens, and what is left over is a basket like the others;
            `"even"` makes baskets of the same size, of about `basket_size` tokens, and calibrates passages of at least one
            and a half of them: for chunks and for corpora of mixed lengths.

    Example:
        >>> str(Calibration(strength=1, layers=1))
        'soft,strength=1.0,layers=last,basket_size=128'
        >>> Calibration.parse("hard,self_mass=0.2") == Calibration("hard", self_mass=0.2)
        True
    """

    variant: Variant = "soft"
    strength: float = 0.5
    layers: Layers = "half"
    basket_size: int = 128
    self_mass: float = _DEFAULT_SELF_MASS
    first_token: FirstToken = None
    partition: Partition = "paper"

    def __post_init__(self) -> None:
        for name, kind in (("variant", Variant), ("partition", Partition)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, not {getattr(self, name)!r}.")
        canonical = {
            "strength": _fraction("strength", self.strength),
            "layers": _canonical_layers(self.layers),
            "basket_size": _positive_int("basket_size", self.basket_size),
            "self_mass": _fraction("self_mass", self.self_mass),
            "first_token": _canonical_first_token(self.first_token, self.variant),
        }
        for name, value in canonical.items():
            object.__setattr__(self, name, value)
        if self.variant != "hard" and self.self_mass != _DEFAULT_SELF_MASS:
            raise ValueError(
                f"self_mass={self.self_mass} has no effect with variant={self.variant!r}: only 'hard' fixes the "
                "pooling token's mass. Use variant='hard' or leave self_mass out."
            )

    def __str__(self) -> str:
        # Defaults are spelled out: a string stays true when a later release changes a default.
        parts = [self.variant, f"strength={self.strength!r}", f"layers={_layers_to_text(self.layers)}"]
        parts.append(f"basket_size={self.basket_size}")
        if self.variant == "hard":
            parts.append(f"self_mass={self.self_mass!r}")
        if self.first_token is not None:
            parts.append(f"first_token={self.first_token}")
        if self.partition != "paper":
            parts.append(f"partition={self.partition}")
        return ",".join(parts)

    @classmethod
    def parse(cls, text: str) -> Calibration:
        """Read a calibration from its string; what is left out takes its default, so `"soft"` is enough."""
        if not isinstance(text, str):
            raise TypeError(f"Calibration.parse takes a string such as '{cls()}', not {type(text).__name__}.")
        settings: dict[str, Any] = {}
        for position, part in enumerate(text.split(",")):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if position == 0 and not equals:
                name, value = "variant", name
            if name not in _PARSERS:
                raise ValueError(
                    f"Cannot read {part.strip()!r} in calibration {text!r}. Write it as '{cls()}'; "
                    f"the settings are {', '.join(_PARSERS)}."
                )
            if name in settings:
                raise ValueError(f"Calibration {text!r} sets {name} twice.")
            try:
                settings[name] = _PARSERS[name](value)
            except ValueError:
                raise ValueError(f"Cannot read {name}={value!r} in calibration {text!r}.") from None
        return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON-ready values."""
        values = asdict(self)
        if isinstance(self.layers, tuple):
            values["layers"] = list(self.layers)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """The inverse of `to_dict`; refuses settings it does not know rather than dropping them."""
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(
                f"Unknown calibration settings {sorted(unknown)}: were they written by a newer evenspan? "
                f"The settings are {[field.name for field in fields(cls)]}."
            )
        layers = values.get("layers", cls.layers)
        return cls(**{**values, "layers": tuple(layers) if isinstance(layers, list) else layers})

    @property
    def fewest_tokens(self) -> int:
        """How many content tokens a passage needs to be calibrated: a basket, or one and a half with even baskets."""
        return self.basket_size if self.partition == "paper" else -(-3 * self.basket_size // 2)

    def choose_layers(self, available: Sequence[int], total: int) -> tuple[int, ...]:
        """The layer indices to calibrate, out of the `available` ones of a model with `total` layers."""
        if isinstance(self.layers, tuple):
            for index in self.layers:
                if index >= total:
                    raise ValueError(f"Layer {index} does not exist: the model's layers are 0 to {total - 1}.")
                if index not in available:
                    raise ValueError(
                        f"Layer {index} cannot be calibrated: it does not attend to the whole passage. "
                        f"The model's full-attention layers are {list(available)}."
                    )
            return self.layers
        count = len(available)
        if isinstance(self.layers, str):
            wanted = {"last": 1, "half": max(1, count // 2), "all": count}[self.layers]
        elif isinstance(self.layers, float):
            wanted = max(1, math.floor(self.layers * count + 1e-9))  # 0.29 * 100 is 28.999…
        else:
            wanted = self.layers
        if wanted > count:
            raise ValueError(f"layers={wanted} asks for more layers than the {count} that can be calibrated.")
        return tuple(available[count - wanted :])


def _fraction(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}.")
    number = float(value)
    if not 0.0 <= number <= 1.0:  # NaN fails this too
        raise ValueError(f"{name} must lie in [0, 1], not {number}.")
    return number + 0.0  # -0.0 becomes 0.0


def _positive_int(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, not {value}.")
    return int(value)


def _canonical_layers(layers: object) -> Layers:
    if isinstance(layers, str):
        if layers not in get_args(NamedLayers):
            names = ", ".join(repr(name) for name in get_args(NamedLayers))
            raise ValueError(f"layers must be {names}, a number or a tuple of indices, not {layers!r}.")
        return layers  # type: ignore[return-value]
    if isinstance(layers, (tuple, list)):
        if not layers:
            raise ValueError(
                "layers must not be empty: give at least one layer, or use strength=0 for the plain model."
            )
        for index in layers:
            if isinstance(index, bool) or not isinstance(index, numbers.Integral):
                raise TypeError(f"layers must hold whole numbers, not {index!r}.")
            if index < 0:
                raise ValueError(f"layers counts from 0, not {index}; for the last n layers write layers=n.")
        return tuple(sorted({int(index) for index in layers}))
    if isinstance(layers, numbers.Integral):
        count = _positive_int("layers", layers)
        return "last" if count == 1 else count
    if isinstance(layers, numbers.Real):
        share = float(layers)
        if not 0.0 < share < 1.0:
            raise ValueError(f"layers as a share must lie between 0 and 1, not {share}; for every layer use 'all'.")
        return "half" if share == 0.5 else share
    raise TypeError(f"layers must be a name, a number or a tuple of indices, not {type(layers).__name__}.")


def _canonical_first_token(first_token: object, variant: Variant) -> FirstToken:
    if first_token is None or first_token == ("equal" if variant == "uniform" else "keep"):
        return None
    if first_token == "keep" or first_token == "equal":
        return first_token
    if isinstance(first_token, str):
        raise ValueError(f"first_token must be 'keep', 'equal' or a number, not {first_token!r}.")
    return _fraction("first_token", first_token)


def _layers_to_text(layers: Layers) -> str:
    if isinstance(layers, tuple):
        # A lone index keeps a plus sign, which tells layer 4 from the last 4 layers.
        return "+".join(map(str, layers)) + ("+" if len(layers) == 1 else "")
    return str(layers)


def _layers_from_text(text: str) -> Layers:
    if text in get_args(NamedLayers):
        return text  # type: ignore[return-value]
    if "+" in text and "e" not in text:
        return tuple(int(index) for index in text.removesuffix("+").split("+"))
    return int(text) if text.isdecimal() else float(text)


def _first_token_from_text(text: str) -> FirstToken:
    return text if text in ("keep", "equal") else float(text)  # type: ignore[return-value]


_PARSERS: dict[str, Any] = {
    "variant": str,
    "strength": float,
    "layers": _layers_from_text,
    "basket_size": int,
    "self_mass": float,
    "first_token": _first_token_from_text,
    "partition": str,
}
