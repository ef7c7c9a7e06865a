"""Tiles that were timed on a GPU, and are used there instead of those of the tables.

Tiles are requested for products, and a timed tile is used only for a product of exactly the shape that was timed. Knows
neither clocks nor files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar, cast

import torch

Kind: TypeAlias = Literal["experts", "linear", "head", "gated", "soft", "attention"]
TileT = TypeVar("TileT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """A product that a tile is requested for.

    Attributes:
        kind: `head` is a linear layer that shares the codes of the embedding, in the order in which they are stored.
        weights: how they are stored and multiplied, such as `w4a16`, or `w4a16, no table` where the table of bytes
            that the GPU would use is left out; empty for attention.
        dtype: of the activations, such as `bf16`.
        rows: of the activations; of experts, pairs of a row and an expert.
        columns: of the result; of attention, the size of a head.
        inputs: summed over; of attention, the positions that a row sees, or 0 for all.
    """

    kind: Kind
    weights: str
    dtype: str
    rows: int
    columns: int
    inputs: int


_timed: dict[torch.device, Mapping[Product, object]] = {}


class Asked(dict[Product, object]):
    """Products that a tile was requested for, and the usual tile of each.

    Attributes:
        summed: those whose parts of K the next kernel sums; for others, the `parts` of a tile have no meaning.
    """

    def __init__(self) -> None:
        super().__init__()
        self.summed: set[Product] = set()


_listening: list[Asked] = []


def tile_of_product(product: Product, device: torch.device, usual: TileT, *, summed: bool = False) -> TileT:
    """The tile that was timed for a product on a device, or the usual one.

    Args:
        summed: whether the product may be left in parts of K.
    """
    for asked in _listening:
        asked[product] = usual
        if summed:
            asked.summed.add(product)
    tile = _timed[device].get(product) if device in _timed else None
    return usual if tile is None else cast(TileT, tile)


def use_timed(device: torch.device, tiles: Mapping[Product, object]) -> None:
    """Makes a device use these tiles from now on, each of the class for its kind of product; no timed ones if empty."""
    _timed[_indexed(device)] = tiles


def timed_count(device: torch.device) -> int:
    """How many timed tiles a device uses."""
    return len(_timed.get(_indexed(device), {}))


def give_up_timed() -> bool:
    """Makes every device use its usual tiles from now on; returns whether any of them used others."""
    took_others = any(_timed.values())
    _timed.clear()
    return took_others


@contextmanager
def asked_for() -> Iterator[Asked]:
    """Records the products that a tile is requested for while the context is open, on any device."""
    asked = Asked()
    _listening.append(asked)
    try:
        yield asked
    finally:
        _listening.remove(asked)


def _indexed(device: torch.device) -> torch.device:
    """The device as tensors name it, with an index."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
