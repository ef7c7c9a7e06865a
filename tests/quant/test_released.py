"""The built-in description against the list of the checkpoint's tensors."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

from quant.released import released_shapes

LIST = Path(__file__).parents[1] / "data" / "released_tensors.txt"
FULL = {5, 11, 17, 23, 29}
LAYERS = {"all": set(range(30)), "full": FULL, "sliding": set(range(30)) - FULL, "vision": set(range(27))}


def listed() -> dict[str, tuple[int, ...]]:
    tensors: dict[str, tuple[int, ...]] = {}
    for line in LIST.read_text().splitlines():
        if line.startswith("#"):
            continue
        pattern, sizes = line.split()
        shape = tuple(int(size) for size in sizes.split("x"))
        group = re.search(r"\{(\w+)\}", pattern)
        numbers = LAYERS[group[1]] if group else {0}
        tensors |= {re.sub(r"\{\w+\}", str(number), pattern): shape for number in numbers}
    return tensors


def test_names_and_shapes_are_the_published_ones() -> None:
    assert released_shapes() == listed()


def test_counts_are_the_published_ones() -> None:
    shapes = released_shapes()
    assert len(shapes) == 1047
    assert sum(prod(shape) for shape in shapes.values()) == 25_823_781_228


def test_fewer_layers_keep_the_widths() -> None:
    few = released_shapes(layers=2)
    assert few.items() <= released_shapes().items()
    assert not any(".layers.2." in name for name in few if "vision" not in name)
