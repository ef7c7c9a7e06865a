"""The built-in description against the list of the checkpoint's tensors."""

from __future__ import annotations

from math import prod

from quant.released import released_shapes
from tests.checkpoints.released import released_tensors


def test_names_and_shapes_are_the_published_ones() -> None:
    assert released_shapes() == released_tensors()


def test_counts_are_the_published_ones() -> None:
    shapes = released_shapes()
    assert len(shapes) == 1047
    assert sum(prod(shape) for shape in shapes.values()) == 25_823_781_228


def test_fewer_layers_keep_the_widths() -> None:
    few = released_shapes(layers=2)
    assert few.items() <= released_shapes().items()
    assert not any(".layers.2." in name for name in few if "vision" not in name)
