"""Turns a checkpoint into a model: built on the meta device, then given its tensors, every one accounted for.

    the plan   config.json ─► DiffusionGemma on `meta` ─► account for names and shapes ─► place, or refuse
                                                                                              │
    loading    hooks, unless all is on one device or streamed ◄─ assign tensors ◄─ quantized modules in place
                  └─► fast modules, for streamed layers one by one ─► the adapter ─► kernels ─► model

Knows the order of these steps; knows nothing about generation. On a CPU, tensors that are stored in the wanted dtype,
and codes and scales, stay mapped from the file, so the weights are never held twice; fast modules that store them in
another layout release theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from localdiff.load.gpu import load_for_gpu
from localdiff.load.kernels import take_kernels
from localdiff.load.memory_plan import MemoryPlan
from localdiff.load.placement import Placement
from localdiff.load_progress import LoadProgress, tell_nobody
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cpu.choice import use_cpu_modules
from quant.cuda.choice import rounds_activations
from quant.cuda.parity import Expectation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model that is ready to compute, and where its layers compute.

    Attributes:
        rounds: whether it rounds activations to int8 on a GPU.
        expectations: plain results to compare its fast modules with; only on a GPU.
    """

    network: DiffusionGemma
    placement: Placement
    rounds: bool = False
    expectations: tuple[Expectation, ...] = ()


def load_model(
    plan: MemoryPlan,
    *,
    names: Sequence[str] = (),
    activations: str = "auto",
    progress: LoadProgress = tell_nobody,
) -> LoadedModel:
    """Loads the text model of a checkpoint, as planned.

    Args:
        plan: can be used once only, as its skeleton becomes the model.
        names: the names that identify the model, `demo` or an id on the Hub, to check whether the adapter is for it.
        activations: what a GPU multiplies stored weights by, in the words of `--activations`.
        progress: receives the stage and the share that is done.

    Raises:
        WeightsError: the checkpoint is damaged, or the adapter is another model's.
        ResourceError: the model does not fit, although the plan said that it would.
        SwitchError: an environment variable has an invalid value.
    """
    skeleton, placement = plan.skeleton, plan.placement
    device = placement.main
    if warning := plan.cost:
        _log.warning("%s", warning)
    skeleton.require_copies()
    skeleton.swap()
    skeleton.assign(placement, progress)
    if device.type == "cpu" and not placement.offloaded:
        # Mapped file pages are not counted as used, but without room for them every pass would read them again.
        spare = None if plan.free is None else max(0, plan.free - plan.needed)
        if warning := use_cpu_modules(
            skeleton.network, spare=spare, progress=lambda done, of: progress("modules", done / of)
        ):
            _log.warning("%s", warning)
    expectations: tuple[Expectation, ...] = ()
    if device.type == "cuda":
        expectations = load_for_gpu(plan, progress, activations)
    network = skeleton.network.requires_grad_(False).eval()
    if plan.adapter is not None:
        plan.adapter.attach(network, (*names, *skeleton.weights.names), placement.layers)
    take_kernels(network, device, placement.residence)
    return LoadedModel(
        network=network, placement=placement, rounds=rounds_activations(network), expectations=expectations
    )
