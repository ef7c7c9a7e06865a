"""Where a model would be held, before any of its weights is read.

Knows names, shapes and dtypes of a checkpoint, and how much memory devices have free; loads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from localdiff.adapter import Adapter, StoredAdapter
from localdiff.errors import ResourceError
from localdiff.load.devices import free_bytes
from localdiff.load.placement import Budget, Demand, Placement, cost, place_in_best_order
from localdiff.load.skeleton import Skeleton
from localdiff.load.stored import StoredWeights
from localdiff.options import CONTEXT_SIZE
from quant.gpus import shares_host_memory


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Where a model would be held, before any of its weights is read.

    Attributes:
        adapter: low-rank terms that are added, if any.
        budgets: the memory of each device that was considered.
        host_free: free bytes of host memory, less what a GPU would take of it; None where they are unknown.
    """

    skeleton: Skeleton
    adapter: Adapter | None
    demand: Demand
    budgets: Sequence[Budget]
    host_free: int | None
    placement: Placement

    @property
    def needed(self) -> int:
        """Bytes of memory that it takes; on a CPU, mapped files included."""
        return self.demand.account.total + self.demand.mapped

    @property
    def free(self) -> int | None:
        """Bytes of memory that it may use on the first device; None where it is unknown how many are free."""
        return self.budgets[0].nbytes

    @property
    def cost(self) -> str | None:
        """The cost of the model not being on one device as a whole, as a sentence; None where it is."""
        return cost(self.demand, self.budgets, self.placement, self.host_free)


def plan_memory(
    weights: StoredWeights,
    device: torch.device,
    dtype: torch.dtype,
    *,
    further: Sequence[torch.device] = (),
    context: int = CONTEXT_SIZE,
    max_memory: int | None = None,
    may_offload: bool = False,
    adapter: StoredAdapter | None = None,
) -> MemoryPlan:
    """Where a model would be held: from names, shapes and dtypes alone.

    Args:
        device: where the weights go, if they fit.
        dtype: type of activations and of weights that are not quantized.
        further: devices that may be used as well if the weights do not fit. The device with most free memory then comes
            first, unless less is copied in the given order.
        context: positions of the KV cache that must fit beside the weights.
        max_memory: maximum bytes to use on each device, and never more than is free there.
        may_offload: whether layers may stay in host memory.
        adapter: low-rank terms to add beside the weights.

    Raises:
        WeightsError: the checkpoint or the adapter is incomplete, or another model's.
        ResourceError: the model does not fit.
    """
    skeleton = Skeleton.of(weights, dtype)
    config = skeleton.network.config
    fitting = None if adapter is None else Adapter(adapter, config, dtype)
    demand = skeleton.demand(device, context, fitting)
    devices = [_budget(device, max_memory)]
    if not devices[0].holds(demand.account.total):  # asking a GPU for its free memory makes a context: half a GB
        devices += [_budget(there, max_memory) for there in further]
    # The first device holds everything if it can, and what is outside of the layers in any case, so it should be the
    # largest. But where layers only just fit, the order decides how much is lost to gaps smaller than a layer.
    orders = sorted(devices, key=lambda budget: budget.nbytes or 0, reverse=True), devices
    host_free = free_bytes(torch.device("cpu"))
    if host_free is not None and device.type == "cuda" and shares_host_memory(device):
        host_free = max(0, host_free - (devices[0].nbytes or 0))  # the GPU takes its part of the same memory
    budgets, placement = place_in_best_order(demand, orders, may_offload=may_offload, host_free=host_free)
    if fitting is not None and placement.offloaded:
        raise ResourceError(
            f"the adapter `{fitting.name}` needs all layers on the device, and {len(placement.offloaded)} of "
            f"{len(config.layers)} do not fit there",
            "use a smaller recipe (`localdiff quantize`) or a smaller `--context`",
        )
    return MemoryPlan(
        skeleton=skeleton,
        adapter=fitting,
        demand=demand,
        budgets=budgets,
        host_free=host_free,
        placement=placement,
    )


def _budget(device: torch.device, max_memory: int | None) -> Budget:
    free = free_bytes(device)
    limits = [limit for limit in (free, max_memory) if limit is not None]
    return Budget(device=device, nbytes=min(limits, default=None))
