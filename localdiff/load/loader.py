"""Turns a checkpoint into a model: built on the meta device, then given its tensors, every one accounted for.

    config.json ─► DiffusionGemma on `meta` ─► account for names and shapes ─► quantized modules in place
                                                                                    │
                   model ◄─ hooks, where layers are offloaded ◄─ assign tensors ◄─ place, or refuse
                            fast modules, for streamed layers one by one

Knows the order of these steps; knows nothing about generation. On a CPU, tensors that are stored in the wanted dtype,
and codes and scales, stay mapped from the file, so the weights are never held twice; fast modules that store them in
another layout release theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from localdiff.adapter import Adapter, StoredAdapter
from localdiff.errors import ResourceError
from localdiff.load.cpu import prepare_cpu
from localdiff.load.devices import free_bytes
from localdiff.load.gpu import prepare_gpu
from localdiff.load.placement import Budget, Demand, Placement, cost, place, streamed
from localdiff.load.skeleton import Skeleton, layer_of
from localdiff.load.stored import StoredWeights
from localdiff.load.streaming import LayerStream
from localdiff.load_progress import LoadProgress, tell_nobody
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cuda.choice import Part
from quant.cuda.parity import Expectation

DEFAULT_CONTEXT = 8192

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model that is ready to compute, and where its layers compute.

    Attributes:
        expectations: plain results that its fast modules are to be held against; only on a GPU.
    """

    network: DiffusionGemma
    placement: Placement
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Where a model would be held, before any of its weights is read.

    Attributes:
        adapter: low-rank terms that are added, if any.
        budgets: the memory of each device that was considered.
        host_free: free bytes of host memory; None where they are unknown.
    """

    skeleton: Skeleton
    adapter: Adapter | None
    demand: Demand
    budgets: Sequence[Budget]
    host_free: int | None
    placement: Placement

    @property
    def needed(self) -> int:
        """Bytes of memory that it takes; on a CPU with the files that are mapped."""
        account = self.demand.account
        if self.skeleton.device.type == "cpu":
            return self.skeleton.nbytes + account.cache + account.buffers
        return account.total

    @property
    def free(self) -> int | None:
        """Bytes of memory that are free on the first device; None where that is unknown."""
        return self.budgets[0].nbytes

    @property
    def cost(self) -> str | None:
        """What it costs that the model is not on one device as a whole, as a sentence; None where it is."""
        return cost(self.demand, self.budgets, self.placement, self.host_free)


def plan_memory(
    weights: StoredWeights,
    device: torch.device,
    dtype: torch.dtype,
    *,
    further: Sequence[torch.device] = (),
    context: int = DEFAULT_CONTEXT,
    max_memory: int | None = None,
    may_offload: bool = False,
    adapter: StoredAdapter | None = None,
) -> MemoryPlan:
    """Where a model would be held: from names, shapes and dtypes alone. Arguments are those of `load_model`.

    Raises:
        WeightsError: the checkpoint or the adapter is incomplete, or another model's.
        ResourceError: the model does not fit.
    """
    skeleton = Skeleton.of(weights, device, dtype)
    config = skeleton.network.config
    fitting = None if adapter is None else Adapter(adapter, config, dtype)
    demand = skeleton.demand(context, fitting)
    budgets = [_budget(device, max_memory)]
    if not budgets[0].holds(demand.account.total):  # asking a GPU for its memory takes 0.4 GB of it: a context
        budgets += [_budget(there, max_memory) for there in further]
    placement = place(demand, budgets, may_offload=may_offload)
    if fitting is not None and placement.offloaded:
        raise ResourceError(
            f"the adapter `{fitting.name}` needs all layers on the device, and {len(placement.offloaded)} of "
            f"{len(config.layers)} do not fit there",
            "use a smaller recipe (`localdiff quantize`) or a smaller `--context`",
        )
    host_free = free_bytes(torch.device("cpu"))
    return MemoryPlan(
        skeleton=skeleton,
        adapter=fitting,
        demand=demand,
        budgets=budgets,
        host_free=host_free,
        placement=streamed(demand, placement, host_free),
    )


def load_model(
    weights: StoredWeights,
    device: torch.device,
    dtype: torch.dtype,
    *,
    further: Sequence[torch.device] = (),
    context: int = DEFAULT_CONTEXT,
    max_memory: int | None = None,
    may_offload: bool = False,
    adapter: StoredAdapter | None = None,
    names: Sequence[str] = (),
    progress: LoadProgress = tell_nobody,
) -> LoadedModel:
    """Loads the text model of a checkpoint.

    Args:
        weights: the stored tensors.
        device: where the weights go, as far as they fit.
        dtype: type of activations and of weights that are not quantized.
        further: devices for layers that do not fit the first one.
        context: positions of the KV cache that must fit beside the weights.
        max_memory: maximum bytes to use on each device, and never more than is free there.
        may_offload: whether layers may stay in host memory.
        adapter: low-rank terms to add beside the weights.
        names: the names that identify the model, `demo` or an id on the Hub, to check whether the adapter is for it.
        progress: receives the stage and the share that is done.

    Raises:
        WeightsError: the checkpoint or the adapter is incomplete, damaged, or another model's.
        ResourceError: the model does not fit.
        SwitchError: an environment variable has an invalid value.
    """
    plan = plan_memory(
        weights,
        device,
        dtype,
        further=further,
        context=context,
        max_memory=max_memory,
        may_offload=may_offload,
        adapter=adapter,
    )
    skeleton, fitting, placement = plan.skeleton, plan.adapter, plan.placement
    if warning := plan.cost:
        _log.warning("%s", warning)
    skeleton.swap()
    skeleton.assign(placement, progress)
    if device.type == "cpu" and not placement.offloaded:
        # Mapped file pages are not counted as used, but without room for them every pass would read them again.
        spare = None if plan.free is None else max(0, plan.free - plan.needed)
        prepare_cpu(skeleton.network, spare=spare, progress=lambda done, of: progress("modules", done / of))
    expectations: tuple[Expectation, ...] = ()
    if device.type == "cuda":
        expectations = load_for_gpu(plan, progress)
    network = skeleton.network.requires_grad_(False).eval()
    if fitting is not None:
        fitting.attach(network, (*names, *weights.names), placement.layers)
    return LoadedModel(network=network, placement=placement, expectations=expectations)


def load_for_gpu(plan: MemoryPlan, progress: LoadProgress) -> tuple[Expectation, ...]:
    """Gives a network its fast modules, and loads the layers that are streamed."""
    skeleton, placement = plan.skeleton, plan.placement
    network, main = skeleton.network, placement.main
    stream = LayerStream(main)

    def elsewhere() -> Iterator[Part]:
        for index, device in enumerate(placement.layers):
            if device != main:
                yield Part(path=f"layers.{index}", module=network.layers[index], device=device)

    def arriving() -> Iterator[Part]:
        left = sum(plan.demand.layers[index].weights for index in placement.offloaded)
        for index in placement.offloaded:
            progress("weights", 1 - left / skeleton.nbytes)
            left -= plan.demand.layers[index].weights
            layer = skeleton.assign_layer(index, main)
            yield Part(path=f"layers.{index}", module=layer, device=main, present=partial(stream.present, layer))
            stream.hold(layer)
        progress("weights", 1.0)

    there = {index for index, device in enumerate(placement.layers) if device == main} - {*placement.offloaded}
    expectations = prepare_gpu(
        network,
        main,
        adapted=() if plan.adapter is None else plan.adapter.experts,
        absent=[path for path, _ in network.named_modules() if layer_of(path) not in {None, *there}],
        parts=arriving() if placement.streamed else elsewhere(),
    )
    if placement.streamed:
        stream.start()
    return expectations


def _budget(device: torch.device, max_memory: int | None) -> Budget:
    free = free_bytes(device)
    limits = [limit for limit in (free, max_memory) if limit is not None]
    return Budget(device=device, nbytes=min(limits, default=None))
