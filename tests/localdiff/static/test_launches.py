"""Launches of a layer: the numbers that `docs/gpu.md` gives, so that nobody adds one without seeing it."""

from __future__ import annotations

import pytest

from tests.kernels import needs_interpreter

pytestmark = needs_interpreter


@pytest.mark.parametrize(
    ("recipe", "dense", "sliding", "full"),
    [("bf16", "plain", 19, 18), ("4bit", "plain", 26, 24), ("4bit", "a16", 19, 18)],
)
def test_of_a_layer_on_a_card(recipe: str, dense: str, sliding: int, full: int) -> None:
    from tests.launches import count

    found = count(recipe, dense=dense)
    assert [layer.total() for layer in found] == [sliding, full]
    assert [layer.total() for layer in count(recipe, dense=dense, commit=True)] == [sliding + 1, full + 1]


def test_they_are_counted_where_torch_makes_them() -> None:
    """Joints that are plain are an operation after the other, which shows that operations are seen at all."""
    from tests.launches import count

    sliding, _ = count("bf16", joints=False)
    assert sliding["rms_norm"] == 11 and sliding["attention_kernel"] == 1
    assert sliding["mm"] == 8 and sliding["topk"] == 1
    assert sliding.total() == 81
