"""Placement of layers on devices, so that a model fits the memory that it is given.

Knows bytes; moves nothing. The first device holds everything outside the layers (embedding and head, which are one
matrix, self-conditioning, the last norm), the step's buffers, and as many of the first layers as fit. Further devices
take the last layers, in order, and as few of them as possible. Where all of them are full, the layers in between stay
where they are stored and compute on the first device, which must then have room for one such layer at a time, and for
the keys and values of all of them:

    layers   0 … k-1          k … m-1                       m … last
             first device     host memory ─► first device   further devices
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from localdiff.errors import ResourceError
from localdiff.memory_account import MemoryAccount
from localdiff.model.residence import Residence
from localdiff.sizes import shown_size

FILE_BYTES_PER_SECOND, HOST_BYTES_PER_SECOND = 10e9, 20e9
"""Assumed rates of copies to a GPU, from the pages of a file and from page-locked memory, for estimates of their time:
PCI Express 4.0 with 16 lanes carries up to 32e9."""
HOST_SHARE = 0.8
"""Share of the free host memory that streamed layers may take. torch rounds page-locked tensors up to powers of two: a
tenth more in all for the released model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The memory that a model may use on a device; None where it is unknown how much there is."""

    device: torch.device
    nbytes: int | None

    def holds(self, nbytes: int) -> bool:
        """Whether this many bytes fit, as far as is known."""
        return self.nbytes is None or nbytes <= self.nbytes


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerDemand:
    """Bytes of a layer: its weights, and its KV cache at the requested context."""

    weights: int
    cache: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """The memory that a model needs.

    Attributes:
        name: its recipe.
        context: positions that the KV cache is made for.
        account: all of it on one device.
        mapped: bytes of all other weights, which a CPU uses in place, in the mapped pages of their files.
        layers: the part of `account` that belongs to each layer.
    """

    name: str
    context: int
    account: MemoryAccount
    mapped: int = 0
    layers: tuple[LayerDemand, ...]

    @property
    def outside(self) -> int:
        """Bytes that the first device needs for everything but the layers."""
        return self.account.total - sum(layer.weights + layer.cache for layer in self.layers)

    @property
    def working(self) -> int:
        """Bytes that a further device needs besides its layers."""
        return self.account.buffers + self.account.slack


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """The device of each part of a model.

    Attributes:
        main: device of everything outside the layers, and of the model's inputs and outputs.
        layers: device that each layer computes on.
        offloaded: layers that are copied to their device for every pass, and not kept there.
        streamed: whether the offloaded layers are held in host memory, ready to compute; if not, they are read from
            their files.
    """

    main: torch.device
    layers: tuple[torch.device, ...]
    offloaded: tuple[int, ...] = ()
    streamed: bool = False

    @property
    def residence(self) -> Residence:
        """Where the layers' weights are while they compute."""
        if set(self.layers) != {self.main}:
            return "spread"
        if not self.offloaded:
            return "whole"
        return "streamed" if self.streamed else "from files"


def place(demand: Demand, budgets: Sequence[Budget], *, may_offload: bool, host_free: int | None = None) -> Placement:
    """Finds a place for every layer.

    If all GPUs together are too small, the first one is used alone, provided that it can stream and the copies then
    take no longer: with several, layers that do not fit are read from files, and attention runs through torch.

    Args:
        budgets: the devices that may be used, the first one first.
        may_offload: whether layers may stay in host memory.
        host_free: free bytes of host memory, or None where they are unknown.

    Raises:
        ResourceError: it does not fit, with the numbers.
    """
    placement = streamed_if_it_fits(demand, _place(demand, budgets, may_offload=may_offload), host_free)
    try:
        alone = streamed_if_it_fits(demand, _place(demand, budgets[:1], may_offload=may_offload), host_free)
    except ResourceError:  # the layers, or the keys and values of all of them, do not fit the first device
        return placement
    return min(alone, placement, key=partial(_copy_seconds, demand))  # `alone` if they are equal


def place_in_best_order(
    demand: Demand, orders: Iterable[Sequence[Budget]], *, may_offload: bool, host_free: int | None = None
) -> tuple[Sequence[Budget], Placement]:
    """The order of devices in which least is copied (the earlier one if equal), and the place of every layer in it.

    Raises:
        ResourceError: the model fits in no order; the error has the numbers of the first order.
    """
    found, refused = [], []
    for budgets in orders:
        try:
            found.append((budgets, place(demand, budgets, may_offload=may_offload, host_free=host_free)))
        except ResourceError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return min(found, key=lambda budgets_and_placement: _copy_seconds(demand, budgets_and_placement[1]))


def _place(demand: Demand, budgets: Sequence[Budget], *, may_offload: bool) -> Placement:
    """Keeps as many layers as fit on the devices, and streams none."""
    main, *further = budgets
    if main.holds(demand.account.total):
        return Placement(main=main.device, layers=(main.device,) * len(demand.layers))
    last: tuple[torch.device, ...] = ()
    for count in range(1, len(demand.layers) + 1):
        spread = _spread(demand, demand.layers[-count:], further)
        if spread is None:
            break
        last = spread
        head = demand.layers[:-count]
        if main.holds(_on_main(demand, head, len(head))):
            return Placement(main=main.device, layers=(main.device,) * len(head) + last)
    head = demand.layers[: len(demand.layers) - len(last)]
    for resident in range(len(head) - 1, -1, -1) if may_offload else ():
        if main.holds(_on_main(demand, head, resident)):
            return Placement(
                main=main.device,
                layers=(main.device,) * len(head) + last,
                offloaded=tuple(range(resident, len(head))),
            )
    raise _too_large(demand, main, _on_main(demand, head, 0), may_offload)


def streamed_if_it_fits(demand: Demand, placement: Placement, host_free: int | None) -> Placement:
    """The same placement, with offloaded layers of one GPU streamed from host memory if that has room for them.

    Args:
        host_free: free bytes of host memory, or None where they are unknown.
    """
    fits = host_free is not None and 0 < _copied(demand, placement) <= HOST_SHARE * host_free
    return replace(placement, streamed=placement.main.type == "cuda" and placement.residence != "spread" and fits)


def cost(demand: Demand, budgets: Sequence[Budget], placement: Placement, host_free: int | None) -> str | None:
    """The cost of a model not being on one device as a whole, as a sentence to print before anything is loaded.

    Args:
        host_free: free bytes of host memory, or None where they are unknown.
    """
    if placement.residence == "whole":
        return None
    if not placement.offloaded:
        devices = len({placement.main, *placement.layers})
        return (
            f"{_needs(demand, budgets)}: it is spread over {devices} devices, which is slower: attention runs through "
            "torch, and no step is captured as a CUDA graph"
        )
    nbytes = _copied(demand, placement)
    what = f"{len(placement.offloaded)} of {len(demand.layers)} layers ({shown_size(nbytes)})"
    if placement.main.type == "cpu":
        how = "are read from their files again in every pass"
    else:
        how = (
            f"stay in host memory and are copied to `{placement.main}` in every pass, which takes about "
            f"{_copy_seconds(demand, placement):.2g} s each time at {_copy_rate(placement) / 1e9:.0f} GB/s"
        )
        if host_free is not None and nbytes > host_free:
            how += f"; only {shown_size(host_free)} of it is free, so the rest is read from the disk every time"
        if placement.main.type == "cuda" and not placement.streamed:
            how += "; these layers also compute their experts one by one"
    return f"{_needs(demand, budgets)}: {what} {how}"


def _copied(demand: Demand, placement: Placement) -> int:
    """Bytes that are copied in every pass."""
    return sum(demand.layers[layer].weights for layer in placement.offloaded)


def _copy_rate(placement: Placement) -> float:
    """Assumed bytes per second of these copies."""
    return HOST_BYTES_PER_SECOND if placement.streamed else FILE_BYTES_PER_SECOND


def _copy_seconds(demand: Demand, placement: Placement) -> float:
    return _copied(demand, placement) / _copy_rate(placement)


def _needs(demand: Demand, budgets: Sequence[Budget]) -> str:
    total, available = shown_size(demand.account.total), " and ".join(map(_budget_text, budgets))
    return f"`{demand.name}` takes {total} at a context of {demand.context:,} tokens, and {available}"


def _spread(
    demand: Demand, layers: Sequence[LayerDemand], budgets: Sequence[Budget]
) -> tuple[torch.device, ...] | None:
    """A device for each of these layers, one device filled after the other; None where they do not all fit."""
    devices: list[torch.device] = []
    for budget in budgets:
        nbytes = demand.working
        for layer in layers[len(devices) :]:
            nbytes += layer.weights + layer.cache
            if not budget.holds(nbytes):
                break
            devices.append(budget.device)
    return tuple(devices) if len(devices) == len(layers) else None


def _on_main(demand: Demand, head: Sequence[LayerDemand], resident: int) -> int:
    """Bytes on the first device with `head` computing there and only its first `resident` layers kept there."""
    passing = max((layer.weights for layer in head[resident:]), default=0)
    weights = sum(layer.weights for layer in head[:resident])
    return demand.outside + sum(layer.cache for layer in head) + weights + passing


def _budget_text(budget: Budget) -> str:
    return f"`{budget.device}` has {shown_size(budget.nbytes or 0)} available"


def _size_argument(nbytes: int) -> str:
    """A size as a user would type it, rounded down."""
    return f"{nbytes // 10**8 / 10:.1f}GB" if nbytes >= 10**9 else f"{nbytes // 10**6}MB"


def _too_large(demand: Demand, main: Budget, min_bytes: int, may_offload: bool) -> ResourceError:
    account = demand.account
    parts = {
        "weights": sum(account.weights.values()),
        "keys and values": account.cache,
        "buffers": account.buffers,
        "slack": account.slack,
    }
    sizes = ", ".join(f"{shown_size(size)} {label}" for label, size in parts.items() if size)
    message = (
        f"`{demand.name}` takes {shown_size(account.total)} at a context of {demand.context:,} tokens "
        f"({sizes}), and {_budget_text(main)}"
    )
    if may_offload:
        without = "; otherwise use `--device cpu`" if main.device.type == "cuda" else ""
        return ResourceError(
            f"{message}; even with every layer offloaded, it needs {shown_size(min_bytes)} there",
            "free memory of the device, lower `--context`, use a smaller recipe, or raise `--max-memory` if it is set"
            f"{without}",
        )
    if main.holds(min_bytes):
        return ResourceError(
            message,
            f"`--max-memory {_size_argument(main.nbytes or 0)}` offloads some layers, which is slower; "
            "a smaller recipe or `--context` takes less",
        )
    return ResourceError(
        message, "free memory of the device, or use a smaller recipe, a smaller `--context`, or another device"
    )
