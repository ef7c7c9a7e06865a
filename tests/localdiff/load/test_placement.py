"""Where each layer goes, by arithmetic, for budgets from plenty to nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.errors import ResourceError
from localdiff.load.placement import (
    Budget,
    Demand,
    LayerDemand,
    Placement,
    cost,
    place,
    place_in_best_order,
    streamed_if_it_fits,
)
from localdiff.memory_account import MemoryAccount
from localdiff.model.residence import Residence

CARD, SECOND, THIRD, CPU = (torch.device(name) for name in ("cuda:0", "cuda:1", "cuda:2", "cpu"))
MB = 10**6


def demand(
    *weights: int, cache: int = 1 * MB, outside: int = 20 * MB, buffers: int = 5 * MB, slack: int = 2 * MB
) -> Demand:
    layers = tuple(LayerDemand(weights=size * MB, cache=cache) for size in weights)
    account = MemoryAccount(
        weights={"experts": sum(weights) * MB, "embedding and head": outside},
        cache=cache * len(layers),
        buffers=buffers,
        slack=slack,
    )
    return Demand(name="int8", context=8192, account=account, layers=layers)


def budgets(*megabytes: int | None) -> list[Budget]:
    devices = (CARD, SECOND, THIRD)
    return [
        Budget(device=device, nbytes=None if size is None else size * MB)
        for device, size in zip(devices, megabytes, strict=False)
    ]


FOUR = demand(10, 10, 10, 10)  # 71 MB: 20 outside, 40 of layers, 4 of cache, 5 of buffers, 2 of slack


def test_what_fits_lies_on_the_first_device() -> None:
    assert place(FOUR, budgets(71, 500), may_offload=True) == Placement(main=CARD, layers=(CARD,) * 4)


def test_nobody_can_say_how_much_there_is() -> None:
    assert place(FOUR, budgets(None), may_offload=False) == Placement(main=CARD, layers=(CARD,) * 4)


@pytest.mark.parametrize("others", [(50,), (50, 50)])
def test_what_the_first_card_does_not_hold_goes_to_the_second(others: tuple[int, ...]) -> None:
    placement = place(FOUR, budgets(60, *others), may_offload=False)
    assert placement == Placement(main=CARD, layers=(CARD, CARD, CARD, SECOND))


def test_three_cards() -> None:
    placement = place(FOUR, budgets(40, 20, 29), may_offload=False)
    assert placement == Placement(main=CARD, layers=(CARD, SECOND, THIRD, THIRD))


def test_all_layers_go_to_a_second_card_that_has_the_room() -> None:
    given_ = budgets(27, 51)
    placement = place(FOUR, given_, may_offload=False)
    assert placement == Placement(main=CARD, layers=(SECOND,) * 4)
    assert "it is spread over 2 devices" in str(cost(FOUR, given_, placement, None))


def test_one_byte_too_little_leaves_a_layer_outside() -> None:
    placement = place(FOUR, [Budget(device=CARD, nbytes=71 * MB - 1)], may_offload=True)
    assert placement.layers == (CARD,) * 4
    # one layer passes through the room that is kept for it
    assert placement.offloaded == (2, 3)


def test_offloaded_layers_need_room_for_the_largest_of_them() -> None:
    uneven = demand(10, 10, 30, 10)
    placement = place(uneven, budgets(27 + 4 + 10 + 30), may_offload=True)
    assert placement.offloaded == (1, 2, 3)


def test_everything_outside() -> None:
    placement = place(FOUR, budgets(27 + 4 + 10), may_offload=True)
    assert placement.offloaded == (0, 1, 2, 3)


def test_a_second_card_helps_an_offload_too() -> None:
    placement = place(FOUR, budgets(40, 18), may_offload=True)
    assert placement == Placement(main=CARD, layers=(CARD, CARD, CARD, SECOND), offloaded=(0, 1, 2))


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        pytest.param((38, 40), CARD, id="one layer and three, not two copied"),
        pytest.param((40, 44), SECOND, id="no layer is copied in either order"),
        pytest.param((30, 71), SECOND, id="all fits the larger one"),
        pytest.param((10, 41), SECOND, id="refused in one order"),
    ],
)
def test_devices_come_in_the_order_in_which_least_is_copied(sizes: tuple[int, int], first: torch.device) -> None:
    both = budgets(*sizes)
    order, placement = place_in_best_order(FOUR, (both[::-1], both), may_offload=True)
    assert placement.main == order[0].device == first
    assert not placement.offloaded or sizes == (10, 41)


def test_what_fits_in_no_order_is_refused_with_the_first_one_s_numbers() -> None:
    both = budgets(20, 25)
    with pytest.raises(ResourceError, match="`cuda:1` has 25 MB"):
        place_in_best_order(FOUR, (both[::-1], both), may_offload=True)


@pytest.mark.parametrize(
    ("layers", "sizes", "host_free", "streamed_layers"),
    [
        pytest.param(4, (41, 18), 50, 4, id="4 at twice the rate, not 3 of files"),
        pytest.param(4, (41, 29), 50, 4, id="4 at twice the rate, as long as 2 of files"),
        pytest.param(4, (41, 18), 49, 0, id="no room in host memory"),
        pytest.param(4, (40, 18), 50, 0, id="no room for the keys and values of all layers"),
        pytest.param(6, (43, 51), 75, 0, id="2 of files, not 6 at twice the rate"),
        pytest.param(4, (41, 40), 50, 0, id="they fit on two"),
    ],
)
def test_of_cards_that_are_too_small_together_the_first_one_may_stream(
    layers: int, sizes: tuple[int, int], host_free: int, streamed_layers: int
) -> None:
    several = demand(*[10] * layers)
    found = place(several, budgets(*sizes), may_offload=True, host_free=host_free * MB)
    if streamed_layers:
        assert found.residence == "streamed" and len(found.offloaded) == streamed_layers
        assert set(found.layers) == {CARD}
    else:
        assert found == place(several, budgets(*sizes), may_offload=True)
        assert found.residence == "spread"


def test_refused_with_the_numbers() -> None:
    with pytest.raises(ResourceError) as caught:
        place(FOUR, budgets(60), may_offload=False)
    assert caught.value.exit_code == 4
    assert caught.value.message == (
        "`int8` takes 71 MB at a context of 8,192 tokens (60 MB weights, 4 MB keys and values, 5 MB buffers, "
        "2 MB slack), and `cuda:0` has 60 MB available"
    )
    assert "`--max-memory 60MB`" in (caught.value.hint or "")
    with pytest.raises(ResourceError) as caught:
        place(demand(5_000, 5_000), budgets(5_990), may_offload=False)
    assert "`--max-memory 5.9GB`" in (caught.value.hint or "")


def test_refused_although_everything_may_lie_outside() -> None:
    with pytest.raises(ResourceError, match="it needs 41 MB there") as caught:
        place(FOUR, budgets(40), may_offload=True)
    assert "`--context`" in (caught.value.hint or "")
    assert str(caught.value.hint).endswith("; otherwise use `--device cpu`"), "on a GPU of a laptop, say"
    with pytest.raises(ResourceError, match="it needs 40 MB there"):  # without the keys of the layer on the other GPU
        place(FOUR, budgets(39, 18), may_offload=True)


def test_refused_without_a_way_out() -> None:
    with pytest.raises(ResourceError) as caught:
        place(FOUR, budgets(30), may_offload=False)
    hint = "free memory of the device, or use a smaller recipe, a smaller `--context`, or another device"
    assert caught.value.hint == hint


def test_the_cost_is_told() -> None:
    given_ = budgets(50)
    big = demand(10_000, 10_000, 10_000, outside=20_000 * MB)
    placement = Placement(main=CARD, layers=(CARD,) * 3, offloaded=(1, 2))
    expected = (
        "`int8` takes 50.0 GB at a context of 8,192 tokens, and `cuda:0` has 50 MB available: 2 of 3 layers (20.0 GB) "
        "stay in host memory and are copied to `cuda:0` in every pass, which takes about 2 s each time at 10 GB/s"
    )
    slower = "; these layers also compute their experts one by one"
    assert cost(big, given_, placement, None) == cost(big, given_, placement, 20_000 * MB) == expected + slower
    little = "; only 5.0 GB of it is free, so the rest is read from the disk every time"
    assert cost(big, given_, placement, 5_000 * MB) == expected + little + slower


def test_the_cost_of_a_stream_is_that_of_faster_copies() -> None:
    big = demand(10_000, 10_000, 10_000, outside=20_000 * MB)
    placement = Placement(main=CARD, layers=(CARD,) * 3, offloaded=(1, 2), streamed=True)
    sentence = cost(big, budgets(50), placement, 30_000 * MB)
    assert sentence is not None
    assert sentence.endswith("in every pass, which takes about 1 s each time at 20 GB/s")


@pytest.mark.parametrize(
    ("layers", "how", "residence"),
    [
        ((CARD, CARD), {}, "whole"),
        ((CARD, CARD), {"offloaded": (1,), "streamed": True}, "streamed"),
        ((CARD, CARD), {"offloaded": (1,)}, "from files"),
        ((CARD, SECOND), {}, "spread"),
        ((CARD, SECOND), {"offloaded": (0,)}, "spread"),
    ],
    ids=str,
)
def test_where_the_layers_are(layers: tuple[torch.device, ...], how: dict[str, Any], residence: Residence) -> None:
    assert Placement(main=CARD, layers=layers, **how).residence == residence


@pytest.mark.parametrize(("free", "is_streamed"), [(25 * MB, True), (25 * MB - 1, False), (None, False)])
def test_layers_are_streamed_where_host_memory_has_the_room_and_some_to_spare(
    free: int | None, is_streamed: bool
) -> None:
    placement = Placement(main=CARD, layers=(CARD,) * 4, offloaded=(2, 3))
    assert streamed_if_it_fits(FOUR, placement, free) == replace(placement, streamed=is_streamed)


@pytest.mark.parametrize(
    "placement",
    [
        Placement(main=CPU, layers=(CPU,) * 4, offloaded=(2, 3)),
        Placement(main=CARD, layers=(CARD, CARD, CARD, SECOND), offloaded=(2,)),
        Placement(main=CARD, layers=(CARD,) * 4),
    ],
    ids=["on a CPU", "on two GPUs", "nothing offloaded"],
)
def test_nothing_else_is_streamed(placement: Placement) -> None:
    assert streamed_if_it_fits(FOUR, placement, 10**12) == placement


def test_the_cost_on_a_cpu() -> None:
    placement = Placement(main=CPU, layers=(CPU,) * 4, offloaded=(3,))
    sentence = cost(FOUR, [Budget(device=CPU, nbytes=60 * MB)], placement, 1)
    assert sentence is not None
    assert sentence.endswith("1 of 4 layers (10 MB) are read from their files again in every pass")


def test_the_cost_on_a_gpu_of_a_mac() -> None:
    mac = torch.device("mps")
    sentence = cost(
        FOUR, [Budget(device=mac, nbytes=60 * MB)], Placement(main=mac, layers=(mac,) * 4, offloaded=(3,)), 0
    )
    assert sentence is not None
    assert sentence.endswith("only 0 bytes of it is free, so the rest is read from the disk every time")


def test_the_cost_of_a_spread_is_told() -> None:
    sentence = cost(FOUR, budgets(50, 50), Placement(main=CARD, layers=(CARD, CARD, SECOND, SECOND)), None)
    assert sentence is not None
    slower = "which is slower: attention runs through torch, and no step is captured as a CUDA graph"
    assert sentence.endswith(f": it is spread over 2 devices, {slower}")


def test_what_costs_nothing_is_not_told() -> None:
    assert cost(FOUR, budgets(71), Placement(main=CARD, layers=(CARD,) * 4), 1) is None


@settings(deadline=None)
@given(
    weights=st.lists(st.integers(1, 40), min_size=3, max_size=8),
    cache=st.integers(0, 3),
    shares=st.lists(st.integers(20, 90), min_size=1, max_size=3),
    may_offload=st.booleans(),
    host_free=st.none() | st.integers(0, 400 * MB),
)
def test_no_budget_is_exceeded(
    weights: list[int], cache: int, shares: list[int], may_offload: bool, host_free: int | None
) -> None:
    """Each GPU has room for a share of the layers, in percent, and for what it needs besides."""
    wanted = demand(*weights, cache=cache * MB)
    layers = sum(weights) + cache * len(weights)
    given_ = budgets(*(30 + layers * share // 100 for share in shares))
    try:
        placement = place(wanted, given_, may_offload=may_offload, host_free=host_free)
    except ResourceError:
        return
    assert may_offload or not placement.offloaded
    for budget in given_:
        here = [index for index, device in enumerate(placement.layers) if device == budget.device]
        if not here and budget.device != placement.main:
            continue
        resident = [index for index in here if index not in placement.offloaded]
        passing = [wanted.layers[index].weights for index in placement.offloaded if index in here]
        taken = sum(wanted.layers[index].weights for index in resident) + max(passing, default=0)
        taken += sum(wanted.layers[index].cache for index in here)
        taken += wanted.outside if budget.device == placement.main else wanted.working
        assert budget.nbytes is not None
        assert taken <= budget.nbytes
    order = [device.index for device in placement.layers]
    assert all(before <= after for before, after in pairwise(order)), "a canvas crosses to each card once"
