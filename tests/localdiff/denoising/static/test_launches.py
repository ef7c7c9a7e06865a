"""Launches of a layer: the numbers in `docs/gpu-kernels.md`, so that nobody adds a launch without noticing."""

from __future__ import annotations

import pytest

from tests.gpu.kernels import needs_interpreter

pytestmark = needs_interpreter


@pytest.mark.parametrize(
    ("recipe", "dense", "projections", "sliding", "full"),
    [
        ("bf16", "a16", True, 15, 15),
        ("4bit", "a16", True, 14, 14),
        ("4bit-small", "a16", True, 14, 14),
        ("4bit", "a8", True, 18, 18),
        ("4bit", "plain", True, 19, 19),
        ("4bit-small", "plain", True, 19, 19),
        ("bf16", "a16", False, 18, 17),
        ("4bit", "a16", False, 18, 17),
        ("4bit", "plain", False, 25, 23),
    ],
)
def test_of_a_layer_on_a_card(recipe: str, dense: str, projections: bool, sliding: int, full: int) -> None:
    from tests.gpu.launches import count

    found = count(recipe, dense=dense, projections=projections)
    assert [layer.total() for layer in found] == [sliding, full]
    if recipe != "bf16" and dense != "plain":
        assert "mm" not in found[0], "torch may make two launches of a product, as of a router's"


@pytest.mark.parametrize(("recipe", "projections"), [("4bit", True), ("bf16", False)])
def test_a_step_that_commits_takes_one_more(recipe: str, projections: bool) -> None:
    from tests.gpu.launches import count

    plain, committed = (count(recipe, projections=projections, commit=commit) for commit in (False, True))
    assert [layer.total() for layer in committed] == [layer.total() + 1 for layer in plain]


def test_they_are_counted_where_torch_makes_them() -> None:
    """Plain layer ops are many operations, which shows that torch's operations are counted at all."""
    from tests.gpu.launches import count

    sliding, _ = count("bf16", layer_ops=False, projections=False)
    assert sliding["rms_norm"] == 11 and sliding["attention_kernel"] == 1
    assert sliding["mm"] == 8 and sliding["topk"] == 1
    assert sliding.total() == 81
