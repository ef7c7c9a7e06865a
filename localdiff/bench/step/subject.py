"""The model that is measured: a real one, or random weights at the released size.

Knows how to get a model and whether it fits; knows nothing about clocks except how long loading took.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import TypeAlias, TypeVar

import torch

from localdiff.bench.step.layers import Layers
from localdiff.bench.step.random_weights import random_model, stored_as
from localdiff.bench.step.released import released_config
from localdiff.bench.step.work import weight_bytes
from localdiff.denoising import Denoiser, failures
from localdiff.download_plan import ConfirmDownload, confirm_silently
from localdiff.errors import ResourceError, UsageError
from localdiff.fetching.source import find_source
from localdiff.load import (
    MemoryPlan,
    StoredWeights,
    further_devices,
    limit_threads,
    load_model,
    open_weights,
    plan_memory,
    resolve_device,
    resolve_dtype,
    unused_gpu,
)
from localdiff.load.devices import dtype_named, free_bytes
from localdiff.load.gpu import replace_gpu_modules
from localdiff.load.kernels import take_kernels
from localdiff.load.matching import checkpoint_name
from localdiff.memory_account import SLACK_BESIDES_CONTEXT, HeldTensor, MemoryAccount
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.sizes import shown_size
from quant.cpu.choice import use_cpu_modules
from quant.cuda.choice import activations_of_codes, rounds_activations
from quant.cuda.parity import Expectation
from quant.cuda.switches import PLAIN, switched_off
from quant.cuda.timed import timed_count
from quant.gpus import gpu_memory
from quant.recipe import RECIPES, Recipe, recipe_named
from quant.released import LAYERS, MIN_LAYERS, MODEL
from quant.unsupported import Unsupported

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A model's configuration, and how each of its parameters is stored."""

    config: ModelConfig
    schemes: Mapping[str, str]

    @property
    def layers(self) -> Layers:
        """Its layers, as far as times depend on them."""
        return [
            (layer.kind, ", ".join(self.schemes[f"layers.{index}.experts.{name}_proj"] for name in ("gate_up", "down")))
            for index, layer in enumerate(self.config.layers)
        ]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model that is ready to be measured.

    Attributes:
        name: what it is, in words.
        recipe: how its weights are stored.
        denoiser: takes its steps. Its kernels have been checked against the plain path: a wrong one may well be fast.
        built: the model that exists.
        stands_for: the model that the figures are about; the same, unless layers were left out.
        load_seconds: how long it took to load or generate it.
        expectations: plain results that its fast modules have reproduced.
    """

    name: str
    recipe: str
    network: DiffusionGemma
    denoiser: Denoiser
    dtype: torch.dtype
    device: torch.device
    built: Blueprint
    stands_for: Blueprint
    load_seconds: float
    expectations: Sequence[Expectation] = ()

    @property
    def rounds(self) -> bool:
        """Whether it rounds activations to int8 on a GPU."""
        return rounds_activations(self.network)

    @property
    def may_round(self) -> bool:
        """Whether it does not round, but would if asked to: its kernels multiply codes by unrounded activations."""
        return activations_of_codes(self.network) == {"a16"}

    @property
    def is_cut(self) -> bool:
        """Whether layers were left out, whose times are extrapolated from those of the others."""
        return len(self.built.layers) != len(self.stands_for.layers)


Progress: TypeAlias = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Make:
    """Makes or loads a model and reports progress; errors in the request have been found before.

    The call raises a `ResourceError` if kernels fail or compute wrong numbers.

    Attributes:
        device: where the model will be.
        subject: makes it, once.
    """

    device: torch.device
    subject: Callable[[Progress], Subject]

    def __call__(self, progress: Progress) -> Subject:
        return self.subject(progress)


def random_subject(
    *,
    recipe: str,
    layers: int,
    context: int,
    device: str,
    dtype: str,
    activations: str = "auto",
    configure: Callable[[int], ModelConfig] = released_config,
    all_layers: int = LAYERS,
) -> Make:
    """Random weights at the released size.

    Args:
        layers: how many of the `all_layers` layers are made.
        context: positions to reserve memory for.
        activations: in the words of `--activations`.
        configure: returns the configuration with a number of layers.

    Raises:
        RecipeError: no such recipe.
        UsageError: an unsupported dtype.
        ResourceError: it does not fit.
    """
    chosen = recipe_named(recipe)
    kind = torch.bfloat16 if dtype == "auto" else dtype_named(dtype)
    built, stands_for = (_blueprint(configure(count), chosen) for count in (layers, all_layers))
    where = _where_it_fits(_devices(device), partial(_with_room, built, chosen.name, context, kind))

    def make(progress: Progress) -> Subject:
        weights = sum(parameter.numel() for parameter in _sketch(built.config).parameters())
        _tell_of_unused_gpu(device, weights)
        limit_threads(weights, where)
        began = time.perf_counter()
        network, expectations = _random_network(built.config, chosen, kind, where, activations, progress)
        denoiser = Denoiser.for_device(network, where)
        _require_kernels(denoiser, where, expectations)
        return Subject(
            name=f"random weights in the shapes of {MODEL}",
            recipe=chosen.name,
            network=network,
            denoiser=denoiser,
            dtype=kind,
            device=where,
            built=built,
            stands_for=stands_for,
            load_seconds=time.perf_counter() - began,
            expectations=expectations,
        )

    return Make(where, make)


def real_subject(
    *,
    model: str,
    revision: str | None,
    offline: bool,
    context: int,
    device: str,
    dtype: str,
    activations: str = "auto",
    confirm: ConfirmDownload = confirm_silently,
    progress: Progress = lambda _: None,
) -> Make:
    """A model from the Hub, a directory, or `demo`.

    Args:
        activations: in the words of `--activations`.
        confirm: may refuse to download it.
        progress: called with how far the download is.

    Raises:
        WeightsError: no usable model was found.
        UsageError: it was made for less context.
        ResourceError: there is no such device, or the model does not fit.
    """

    devices = _devices(device)

    def plan(weights: StoredWeights) -> MemoryPlan:
        try:
            return _where_it_fits(
                devices,
                lambda where: plan_memory(weights, where, resolve_dtype(dtype, where, weights), context=context),
            )
        except ResourceError as error:  # its hint may be to keep layers in host memory, whose copies would be measured
            hint = "free memory of the device; a smaller recipe or `--context` takes less"
            raise ResourceError(error.message, hint) from error

    source = find_source(
        model,
        revision=revision,
        offline=offline,
        plan_memory=plan,
        confirm=confirm,
        progress=lambda stage, share: progress(f"{stage} of {model}: {int(100 * share)} %"),
    )
    weights = open_weights(source.directory)
    most = weights.config().max_positions
    if most is not None and context > most:
        raise UsageError(f"`--context {context}` must be from 1 to {most:,}", "that is the most that this model takes")
    planned = plan(weights)
    where = planned.placement.main

    def make(progress: Progress) -> Subject:
        _tell_of_unused_gpu(device, weights.text_parameters())
        progress(f"loading {source.name}")
        limit_threads(weights.text_parameters(), where)
        began = time.perf_counter()
        loaded = load_model(planned, activations=activations)
        denoiser = Denoiser.for_device(loaded.network, where)
        _require_kernels(denoiser, where, loaded.expectations)
        schemes = {name: weights.scheme(stored) for name, stored in planned.skeleton.source_of.items()}
        built = Blueprint(loaded.network.config, schemes)
        return Subject(
            name=source.name,
            recipe=weights.recipe,
            network=loaded.network,
            denoiser=denoiser,
            dtype=planned.skeleton.dtype,
            device=where,
            built=built,
            stands_for=built,
            load_seconds=time.perf_counter() - began,
        )

    return Make(where, make)


def _tell_of_unused_gpu(device: str, weights: int) -> None:
    """Warns if `auto` means the CPU despite a GPU: the measurement takes minutes, and is not the one wanted."""
    if device == "auto" and (warning := unused_gpu(weights)):
        _log.warning("%s", warning)


def _require_kernels(denoiser: Denoiser, device: torch.device, expectations: Sequence[Expectation]) -> None:
    """Compares the kernels with the plain path.

    Raises:
        ResourceError: some compute other numbers, or fail, for instance because a compiler refuses them.
        RuntimeError: the memory is too small, or the failure has left the GPU unusable.
    """
    failed = failures(denoiser, device, expectations)
    if not failed:
        return
    if isinstance(failed, Unsupported):
        message, hint = failed.reason, failed.remedy
    else:
        message = "; ".join(map(str, failed.values()))
        switches = f"`{PLAIN}={switched_off(*failed)}` turns these kernels off"
        hint = f"{switches}; please report it with `localdiff doctor --report`"
    if timed_count(device):
        hint = f"`localdiff tune --forget` goes back to the usual tiles; {hint}"
    raise ResourceError(message, hint)


def _devices(name: str) -> tuple[torch.device, ...]:
    """The device of `--device NAME`, and those that may take its place."""
    return resolve_device(name), *further_devices(name)


def _where_it_fits(devices: Sequence[torch.device], attempt: Callable[[torch.device], T]) -> T:
    """The result of an attempt on the first device, or, if that is too small, on the one with most free memory.

    Raises:
        ResourceError: the attempt says that the device is too small.
    """
    try:
        return attempt(devices[0])
    except ResourceError:
        roomiest = max(devices, key=lambda device: free_bytes(device) or 0)
        if roomiest == devices[0]:
            raise
        return attempt(roomiest)


def _random_network(
    config: ModelConfig,
    recipe: Recipe,
    dtype: torch.dtype,
    device: torch.device,
    activations: str,
    progress: Progress,
) -> tuple[DiffusionGemma, Sequence[Expectation]]:
    """A network as the loader leaves it, and plain results that its fast modules must reproduce."""
    network = random_model(
        config,
        recipe,
        dtype,
        device,
        progress=lambda done, of: progress(f"making random weights, {done} of {of} tensors"),
    )
    if device.type == "cpu":
        warning = use_cpu_modules(
            network, progress=lambda done, of: progress(f"preparing weights for this CPU, {done} of {of}")
        )
        if warning is not None:
            _log.warning("%s", warning)
    expectations = replace_gpu_modules(network, device, activations=activations) if device.type == "cuda" else ()
    take_kernels(network, device)
    return network, expectations


def _blueprint(config: ModelConfig, recipe: Recipe) -> Blueprint:
    return Blueprint(config, stored_as(_sketch(config), recipe))


@lru_cache(maxsize=2)  # one of what is built, one of what it stands for; every recipe asks for both
def _sketch(config: ModelConfig) -> DiffusionGemma:
    """A network of shapes alone; nobody may change it."""
    with torch.device("meta"):
        return DiffusionGemma(config)


def _with_room(built: Blueprint, recipe: str, context: int, dtype: torch.dtype, device: torch.device) -> torch.device:
    """The device, if random weights fit it."""
    account, free = _account(built, context, dtype, device), free_bytes(device)
    if free is None or account.total <= free:
        return device
    blueprints = ((name, _blueprint(built.config, other)) for name, other in RECIPES.items())
    fitting = (name for name, other in blueprints if _account(other, context, dtype, device).total <= free)
    ways = [f"`--recipe {name}` fits" for name in islice(fitting, 1)]
    if device.type == "cuda" and account.total <= gpu_memory(device)[1]:
        ways.insert(0, "close other programs that use it (`nvidia-smi` lists them)")
    if len(built.layers) > MIN_LAYERS:
        ways.append(f"`--layers {MIN_LAYERS}` takes less")
    raise ResourceError(
        f"random `{recipe}` weights take {shown_size(account.total)} at a context of {context:,} tokens, and "
        f"`{device}` has {shown_size(free)} free",
        "; ".join(ways) or "a smaller `--context` takes less",
    )


def _account(built: Blueprint, context: int, dtype: torch.dtype, device: torch.device) -> MemoryAccount:
    """What random weights need of the free memory of a device."""
    tensors = []
    for name, tensor in _sketch(built.config).state_dict().items():
        shape = tuple(tensor.shape)
        nbytes = weight_bytes(built.schemes[name], shape, dtype.itemsize)
        tensors.append(HeldTensor(name=checkpoint_name(name), shape=shape, nbytes=nbytes))
    return MemoryAccount.of(
        tensors,
        context=context,
        window=built.config.sliding_window,
        canvas=built.config.canvas_length,
        activation_bytes=dtype.itemsize,
        slack=SLACK_BESIDES_CONTEXT if device.type == "cuda" else 0,
    )
