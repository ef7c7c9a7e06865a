"""The search for tiles, over steps whose time is known: what is taken, and what is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from localdiff.bench.tuning import search as module
from localdiff.bench.tuning.candidates import divisions_of, tile_name, tiles_for
from localdiff.bench.tuning.search import LEAST_GAIN, TILES_PER_BASE, TURNS, Outcome, product_name
from localdiff.bench.tuning.step_clock import Step
from quant.cuda.tiles import Tile
from quant.cuda.timed import Product
from tests.localdiff.bench.tuning.steps import (
    BEST,
    COMMITTED,
    NARROW,
    OF_STEP,
    SECOND,
    SUMMED,
    USUAL,
    WIDE,
    Steps,
    product,
)


def test_the_fastest_tile_of_each_product_is_taken() -> None:
    steps = Steps({(WIDE, BEST): 0.1, (WIDE, SECOND): 0.05, (COMMITTED, SECOND): 0.2})
    outcome = steps.search()
    assert [(one.product, one.usual, one.tile) for one in outcome.found] == [
        (WIDE, USUAL, BEST),
        (COMMITTED, USUAL, SECOND),
    ]
    assert [one.share for one in outcome.found] == pytest.approx([0.9, 0.9])
    assert outcome.tried == [WIDE, NARROW, COMMITTED] and outcome.left == 0, "the largest first, and each once"
    assert outcome.usual == {"step": 1.0, "commit": 2.0}
    assert outcome.tuned == pytest.approx({"step": 0.9, "commit": 1.8})
    assert outcome.is_faster


def test_every_tile_is_timed_beside_those_that_were_taken_before() -> None:
    steps = Steps({(WIDE, BEST): 0.1})
    steps.search()
    of_narrow = [tiles for tiles in steps.timed if NARROW in tiles]
    assert {tiles[NARROW] for tiles in of_narrow} >= {*tiles_for(NARROW, USUAL, "mma.sync"), USUAL}
    assert all(tiles[WIDE] == BEST for tiles in of_narrow)
    count = len(tiles_for(WIDE, USUAL, "mma.sync"))
    # What changes comes first: the end of a line may be cut off.
    assert f"step, product 1 of 2, tile {count} of {count} ({product_name(WIDE)})" in steps.told
    assert f"step, product 1 of 2, by turns: {tile_name(BEST)} ({product_name(WIDE)})" in steps.told


def test_the_parts_of_the_fastest_are_tried_in_turn() -> None:
    three = divisions_of(BEST, summed=True)[2]
    steps = Steps({(WIDE, BEST): 0.1, (WIDE, three): 0.15, (WIDE, divisions_of(USUAL, summed=True)[1]): 0.5})
    (found,) = steps.search().found
    assert found.tile == three and found.share == pytest.approx(0.85)


def test_parts_that_nothing_sums_are_not_tried() -> None:
    steps = Steps({(of, BEST): 0.1 for of in (WIDE, NARROW)})
    steps.search()
    divided = {
        of: {tile for tiles in steps.timed if isinstance(tile := tiles.get(of), Tile) and tile.parts} for of in SUMMED
    }
    assert {len(tiles) for tiles in divided.values()} == {4}
    assert not any(tile.parts for tiles in steps.timed if isinstance(tile := tiles.get(NARROW), Tile))


def test_what_saves_less_than_steps_differ_by_is_not_taken() -> None:
    outcome = Steps({(WIDE, BEST): LEAST_GAIN / 2}).search()
    assert not outcome.found and not outcome.is_faster


@pytest.mark.parametrize("slow", [range(2, 99), [1 + TURNS]], ids=["after the first time", "in one turn of five"])
def test_luck_is_not_taken(slow: Sequence[int]) -> None:
    """A tile that was fast once is not fast every time that it is timed again."""
    steps = Steps({(WIDE, BEST): 0.1, (WIDE, SECOND): 0.05})
    right, seen = steps.seconds, []

    def seconds(step: Step) -> float:
        seen.append(steps.tiles.get(WIDE) == BEST)
        return right(step) + (0.2 if seen[-1] and seen.count(True) in slow else 0)

    steps.seconds = seconds  # type: ignore[method-assign]
    assert [one.tile for one in steps.search().found] == [SECOND]


def test_turns_are_begun_by_either_tile() -> None:
    steps = Steps({(WIDE, BEST): 0.1})
    steps.search()
    by_turns = [BEST, USUAL, USUAL, BEST] * 2 + [BEST, USUAL]
    timed = [tiles.get(WIDE, USUAL) for tiles in steps.timed]
    assert any(timed[start : start + len(by_turns)] == by_turns for start in range(len(timed)))


def test_a_gpu_that_gets_slower_meanwhile_hides_no_tile() -> None:
    steps = Steps({(WIDE, SECOND): 0.01})
    right = steps.seconds
    steps.seconds = lambda step: right(step) * 1.003 ** len(steps.timed)  # type: ignore[method-assign]
    tiles = tiles_for(WIDE, USUAL, "mma.sync")
    assert tiles.index(SECOND) == TILES_PER_BASE, "four have been timed since the usual one"
    assert SECOND in [one.tile for one in steps.search().found]


def test_a_tile_that_computes_wrong_numbers_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    outcome = Steps({(WIDE, BEST): 0.1, (WIDE, SECOND): 0.05}, wrong=(BEST,)).search()
    assert [one.tile for one in outcome.found] == [SECOND]
    assert caplog.messages == ["64 × 64, 4 warps, 3 stages is left out: numbers differ"]


def test_a_tile_that_does_not_run_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps({(WIDE, BEST): None, (WIDE, SECOND): 0.05})
    with caplog.at_level("INFO"):
        assert [one.tile for one in steps.search().found] == [SECOND]
    assert caplog.messages == ["64 × 64, 4 warps, 3 stages does not run here: out of resource: shared memory"]


def test_a_tile_that_does_not_run_a_second_time_is_left_out() -> None:
    steps = Steps({(WIDE, BEST): 0.1, (WIDE, SECOND): 0.05})
    right, seen = steps.seconds, []

    def seconds(step: Step) -> float:
        seen.append(steps.tiles.get(WIDE))
        if steps.tiles.get(WIDE) == BEST and seen.count(BEST) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(step)

    steps.seconds = seconds  # type: ignore[method-assign]
    assert [one.tile for one in steps.search().found] == [SECOND]


def test_where_the_gpu_computes_nothing_any_more_the_search_ends() -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"):
        Steps({(WIDE, BEST): None}, dead=True).search()


def test_without_time_products_are_left_to_their_usual_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Steps({(WIDE, BEST): 0.1}).search(ends_at=0).left == 3
    steps = Steps({(WIDE, BEST): 0.1, (COMMITTED, BEST): 0.1})
    is_over = lambda: any(NARROW in tiles for tiles in steps.timed)  # noqa: E731
    monkeypatch.setattr(module, "time", type("Clock", (), {"monotonic": lambda: 10.0 * is_over()}))
    outcome = steps.search(ends_at=5)
    assert outcome.tried == [WIDE] and outcome.left == 2, "what was begun is left, too"
    assert [one.product for one in outcome.found] == [WIDE] and outcome.is_faster


@pytest.mark.parametrize(
    ("tuned", "is_faster"),
    [((0.9, 2.0), True), ((1.0, 1.9), True), ((0.9, 2.1), False), ((1.0, 2.0), False), ((1.001, 1.9), True)],
)
def test_in_the_end_a_step_is_faster_and_the_other_no_slower(tuned: tuple[float, float], is_faster: bool) -> None:
    found = Steps({(WIDE, BEST): 0.1}).search().found
    outcome = Outcome(
        found=found, tried=[WIDE], left=0, usual={"step": 1, "commit": 2}, tuned=dict(zip(OF_STEP, tuned, strict=True))
    )
    assert outcome.is_faster is is_faster


def test_the_end_is_timed_by_turns() -> None:
    steps = Steps({(WIDE, BEST): 0.1})
    steps.search()
    assert steps.timed[-12:] == [{}, {}, {WIDE: BEST}, {WIDE: BEST}] * 3


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (product(256), "linear layer, w8a16, 704 to 2,816, 256 rows"),
        (
            Product(kind="head", weights="w8a16", dtype="bf16", rows=256, columns=262_144, inputs=2816),
            "head, w8a16, 2,816 to 262,144, 256 rows",
        ),
        (
            Product(kind="experts", weights="w4a16", dtype="bf16", rows=2048, columns=2816, inputs=704),
            "experts, w4a16, 2,048 pairs",
        ),
        (
            Product(kind="attention", weights="", dtype="bf16", rows=256, columns=256, inputs=1024),
            "attention over the last 1,024 positions, 256 rows",
        ),
        (
            Product(kind="attention", weights="", dtype="bf16", rows=512, columns=512, inputs=0),
            "attention over all positions, 512 rows",
        ),
        (
            Product(kind="soft", weights="w8a16", dtype="bf16", rows=256, columns=2816, inputs=262_144),
            "soft embedding, w8a16, 262,144 to 2,816, 256 rows",
        ),
    ],
)
def test_a_product_has_a_name(of: Product, name: str) -> None:
    assert product_name(of) == name
