"""Fast modules on NVIDIA GPUs, and the one log line where they are unavailable.

Knows which layers are where, and when to say something; `quant.cuda` knows what can be done.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from functools import partial

import torch

from localdiff.load.memory_plan import MemoryPlan
from localdiff.load.placement import Placement
from localdiff.load.skeleton import layer_of
from localdiff.load.streaming import LayerStream
from localdiff.load_progress import LoadProgress
from localdiff.machine.children import shielded_children
from localdiff.memory_account import PREFILL_CHUNK
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.sizes import counted
from localdiff.timed_tiles import take_timed_tiles
from quant.cuda.choice import ModelPart, rounds_activations, use_cuda_modules
from quant.cuda.parity import FEWEST, Expectation

_log = logging.getLogger(__name__)

SHORT = 16, 8
"""A canvas is this many times as long as pieces of a prompt with other tiles (`quant.cuda.tiles`): 256 rows, 16, 32."""


def replace_gpu_modules(
    network: DiffusionGemma,
    device: torch.device,
    *,
    activations: str = "auto",
    adapted: Collection[str] = (),
    absent: Collection[str] = (),
    parts: Iterable[ModelPart] = (),
) -> tuple[Expectation, ...]:
    """Replaces modules that have a faster form on their GPU.

    Args:
        device: of everything outside the layers.
        activations: what stored weights are multiplied by, in the words of `--activations`.
        adapted: paths of experts with an adapter hook, which the fused kernels do not support.
        absent: paths of modules whose weights are not on this GPU, or only during their pass; they stay as they are,
            except those that are in `parts`.
        parts: layers on other GPUs, and layers that are streamed, which come after the others, one by one.

    Returns:
        Plain results that the fast modules must reproduce: for a canvas, a canvas with a committed block, a chunk of a
        prompt, and short pieces of a prompt.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    canvas = network.config.canvas_length
    take_timed_tiles(device)
    with shielded_children():  # kernels are compiled, and tried
        choice = use_cuda_modules(
            network,
            device,
            keep=adapted,
            absent=absent,
            parts=parts,
            rows=_compared_rows(canvas),
            canvas=canvas,
            dtype=network.norm.weight.dtype,
            activations="a8" if activations == "int8" else "a16",
        )
    for path in choice.paths:
        _log.info("%s", path)
    if adapted:
        _log.warning(
            "the adapter changes the experts of %s: those are computed one by one, and no step is captured as a CUDA "
            "graph, which is slower",
            counted(len(adapted), "layer"),
        )
    if choice.warning is not None:
        _log.warning("%s", choice.warning)
    elif activations == "int8" and not rounds_activations(network):
        _log.warning("`--activations int8` changes nothing: no weights on that GPU are multiplied from their codes")
    return choice.expectations


def _compared_rows(canvas: int) -> list[int]:
    """Numbers of rows: of pieces of a prompt, and exactly those of steps, whose tiles may be for these alone."""
    pieces = (max(FEWEST, canvas // short) for short in SHORT)
    return list(dict.fromkeys((*pieces, canvas, 2 * canvas, PREFILL_CHUNK)))


def load_for_gpu(plan: MemoryPlan, progress: LoadProgress, activations: str = "auto") -> tuple[Expectation, ...]:
    """Gives a network its fast modules, and loads the layers that are streamed."""
    network, placement = plan.skeleton.network, plan.placement
    stream = LayerStream(placement.main)
    there = {index for index, device in enumerate(placement.layers) if device == placement.main}
    there -= {*placement.offloaded}
    expectations = replace_gpu_modules(
        network,
        placement.main,
        activations=activations,
        adapted=() if plan.adapter is None else plan.adapter.experts,
        absent=[path for path, _ in network.named_modules() if layer_of(path) not in {None, *there}],
        parts=_arriving(plan, stream, progress) if placement.streamed else _elsewhere(network, placement),
    )
    if placement.streamed:
        stream.start(network.layers[0])
    return expectations


def _elsewhere(network: DiffusionGemma, placement: Placement) -> Iterator[ModelPart]:
    """The layers on further GPUs."""
    for index, device in enumerate(placement.layers):
        if device != placement.main:
            take_timed_tiles(device)
            yield ModelPart(path=f"layers.{index}", module=network.layers[index], device=device)


def _arriving(plan: MemoryPlan, stream: LayerStream, progress: LoadProgress) -> Iterator[ModelPart]:
    """The layers that are streamed, each loaded when it is requested, and moved to host memory after that."""
    offloaded, main = plan.placement.offloaded, plan.placement.main
    left = sum(plan.demand.layers[index].weights for index in offloaded)
    for index in offloaded:
        progress("weights", 1 - left / plan.skeleton.nbytes)
        left -= plan.demand.layers[index].weights
        layer = plan.skeleton.assign_layer(index, main)
        yield ModelPart(path=f"layers.{index}", module=layer, device=main, present=partial(stream.present, layer))
        stream.hold(layer)
    progress("weights", 1.0)
