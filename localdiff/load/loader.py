"""Turns a checkpoint into a model: built on the meta device, then given its tensors, every one accounted for.

    config.json ─► DiffusionGemma on `meta` ─► account for names and shapes ─► quantized modules in place
                                                                                    │
                   model ◄─ hooks, where layers are offloaded ◄─ assign tensors ◄─ place, or refuse
                            fast modules

Knows the order of these steps; knows nothing about generation. On a CPU, tensors that are stored in the wanted dtype,
and codes and scales, stay mapped from the file, so the weights are never held twice; fast modules that store them in
another layout release theirs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from quant.cpu.choice import prepare as prepare_cpu
from quant.modules import swap_modules
from quant.planning.memory import SLACK, Held, MemoryAccount, cache_bytes

from ..adapter import Adapter, StoredAdapter
from ..errors import ResourceError, WeightsError
from ..load_progress import LoadProgress, tell_nobody
from ..model.config import ModelConfig
from ..model.diffusion_gemma import DiffusionGemma
from .accounting import account
from .devices import free_bytes
from .gpu import prepare_gpu
from .placement import Budget, Demand, LayerDemand, Placement, cost, place
from .stored import StoredWeights

DEFAULT_CONTEXT = 8192

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model that is ready to compute, and where its layers compute."""

    network: DiffusionGemma
    placement: Placement


def load_model(
    weights: StoredWeights,
    device: torch.device,
    dtype: torch.dtype,
    *,
    further: Sequence[torch.device] = (),
    context: int = DEFAULT_CONTEXT,
    max_memory: int | None = None,
    may_offload: bool | None = None,
    adapter: StoredAdapter | None = None,
    names: Sequence[str] = (),
    progress: LoadProgress = tell_nobody,
) -> LoadedModel:
    """Loads the text model of a checkpoint.

    Args:
        weights: the stored tensors.
        device: where the weights go, as far as they fit.
        dtype: that of activations and of weights that are not quantized.
        further: devices for layers that do not fit the first one.
        context: positions of the KV cache that must fit beside the weights.
        max_memory: most bytes to use on each device, in place of what is free there.
        may_offload: whether layers may stay in host memory; by default where `max_memory` is given.
        adapter: low-rank terms to add beside the weights.
        names: what the model is known as everywhere, `demo` or an id on the Hub, to tell if the adapter is for it.
        progress: is told how far it is.

    Raises:
        WeightsError: the checkpoint or the adapter is incomplete, damaged, or another model's.
        ResourceError: the model does not fit.
        SwitchError: an environment variable has an invalid value.
    """
    config = ModelConfig.from_dict(weights.checkpoint.config())
    with torch.device("meta"):
        network = DiffusionGemma(config)
    accounting = account(network, weights.shapes)
    if skipped := accounting.skipped():
        _log.info("%s: %s", weights.checkpoint.directory, skipped)
    source_of = accounting.source_of
    fitting = None if adapter is None else Adapter(adapter, config, dtype)
    demand = _demand(weights, source_of.values(), config, device, dtype, context, fitting)
    budgets = [_budget(device, max_memory)]
    if not budgets[0].holds(demand.account.total):  # asking a GPU for its memory takes 0.4 GB of it: a context
        budgets += [_budget(there, max_memory) for there in further]
    placement = place(demand, budgets, may_offload=max_memory is not None if may_offload is None else may_offload)
    if warning := cost(demand, budgets, placement, free_bytes(torch.device("cpu"))):
        _log.warning("%s", warning)
    if fitting is not None and placement.offloaded:
        raise ResourceError(
            f"the adapter `{fitting.name}` needs all layers on the device, and {len(placement.offloaded)} of "
            f"{len(config.layers)} do not fit there",
            "use a smaller recipe (`localdiff quantize`) or a smaller `--context`",
        )
    _swap(network, {name: weights.fate(source) for name, source in source_of.items()}, dtype)
    _assign(network, weights, source_of, placement, dtype, progress)
    if device.type == "cpu" and not placement.offloaded:
        # Mapped file pages are not counted as used, but without room for them every pass would read them again.
        wanted = sum(weights.nbytes(source, dtype) for source in source_of.values())
        wanted += demand.account.cache + demand.account.buffers
        free = budgets[0].nbytes
        spare = None if free is None else max(0, free - wanted)
        prepare_cpu(network, spare=spare, progress=lambda done, of: progress("modules", done / of))
    if device.type == "cuda" and placement.is_on_one_device:
        passing = [path for path, _ in network.named_modules() if _layer(path) in placement.offloaded]
        prepare_gpu(network, device, adapted=() if fitting is None else fitting.experts, passing=passing)
    network = network.requires_grad_(False).eval()
    if fitting is not None:
        fitting.attach(network, (*names, *weights.names), placement.layers)
    return LoadedModel(network=network, placement=placement)


def _demand(
    weights: StoredWeights,
    sources: Iterable[str],
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    context: int,
    adapter: Adapter | None = None,
) -> Demand:
    """The memory that the model needs. On a CPU only what is not mapped counts: the rest stays in the file."""
    on_cpu = device.type == "cpu"
    held = [
        Held(
            name=source,
            shape=weights.shapes[source],
            nbytes=0 if on_cpu and weights.is_mapped(source, dtype) else weights.nbytes(source, dtype),
        )
        for source in sources
    ]
    context = min(context, config.max_positions or context)
    beside = {layer: 0 if adapter is None else adapter.nbytes(layer) for layer in (None, *range(len(config.layers)))}
    memory = MemoryAccount.of(
        [*held, Held(name="adapter", shape=(), nbytes=sum(beside.values()))],
        context=context,
        window=config.sliding_window,
        canvas=config.canvas_length,
        activation_bytes=dtype.itemsize,
        slack=0 if on_cpu else SLACK,
    )
    layers = [[tensor for tensor in held if _layer(tensor.name) == index] for index in range(len(config.layers))]
    return Demand(
        name=weights.recipe,
        context=context,
        account=memory,
        layers=tuple(
            LayerDemand(
                weights=sum(tensor.nbytes for tensor in layer) + beside[index],
                cache=cache_bytes(layer, context=context, window=config.sliding_window, itemsize=dtype.itemsize),
            )
            for index, layer in enumerate(layers)
        ),
    )


def _budget(device: torch.device, max_memory: int | None) -> Budget:
    free = free_bytes(device)
    limits = [limit for limit in (free, max_memory) if limit is not None]
    return Budget(device=device, nbytes=min(limits, default=None))


def _swap(network: DiffusionGemma, fates: Mapping[str, str], dtype: torch.dtype) -> None:
    try:
        with torch.device("meta"):
            swap_modules(network, fates, dtype)
    except ValueError as error:
        raise WeightsError(
            f"the weights are quantized in a way that localdiff cannot run ({error})",
            "quantize them with one of the recipes of `localdiff quantize`",
        ) from error
    for parameter in network.parameters():
        parameter.data = parameter.data.to(dtype)


def _assign(
    network: DiffusionGemma,
    weights: StoredWeights,
    source_of: Mapping[str, str],
    placement: Placement,
    dtype: torch.dtype,
    progress: LoadProgress,
) -> None:
    """Gives every module its tensors, except in offloaded layers, which get theirs for each pass."""
    state: dict[str, Tensor] = {}
    later: dict[str, tuple[str, str]] = {}
    done, total = 0, sum(weights.nbytes(source, dtype) for source in source_of.values())
    try:
        for name, source in source_of.items():
            progress("weights", done / total)
            done += weights.nbytes(source, dtype)
            index = _layer(name)
            if index in placement.offloaded:
                suffixes = _suffixes(network, name)
                later |= {name + suffix: (source, suffix) for suffix in suffixes}
                continue
            device = placement.main if index is None else placement.layers[index]
            parts = weights.parts(source, dtype)
            state |= {name + suffix: part.to(device) for suffix, part in parts.items()}
        progress("weights", 1.0)
    except torch.OutOfMemoryError as error:
        raise ResourceError(
            f"the weights do not fit `{placement.main}`, although by estimate they should",
            "`--max-memory` with a smaller amount keeps some layers in host memory",
        ) from error
    network.load_state_dict(state, strict=not later, assign=True)
    if not placement.is_whole:
        from .offload import FileWeights, dispatch

        dispatch(network, placement, FileWeights(weights, later, dtype))


def _suffixes(network: DiffusionGemma, name: str) -> tuple[str, ...]:
    """Suffixes of the entries that a parameter has in the model's state: none, or those of codes and scales."""
    owner = network.get_submodule(name.rpartition(".")[0])
    held = getattr(owner, name.rpartition(".")[2])
    if not isinstance(held, nn.Module):
        return ("",)
    return tuple(f".{buffer}" for buffer, _ in held.named_buffers())


def _layer(name: str) -> int | None:
    """Number of the layer that a parameter or tensor belongs to."""
    match = _LAYER.search(name)
    return None if match is None else int(match[1])
