"""From a user's name for a model to everything that an engine needs of it.

Knows the order in which a reference becomes files, weights, a network and a tokenizer; each step is another package's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from localdiff.adapter import open_adapter
from localdiff.checkpoints.model_reference import ModelSource
from localdiff.checkpoints.verification_record import recorded_damage
from localdiff.config import KEYS
from localdiff.denoising import Denoiser, try_kernels, try_plainly
from localdiff.download_plan import ConfirmDownload
from localdiff.engine.arguments import check_callable, check_flag, device_of, positive, reference_of, string_of
from localdiff.engine.loadable import TextFiles, open_text
from localdiff.engine.run import adapter_may_be_at_fault
from localdiff.errors import UsageError
from localdiff.fetching.source import find_source
from localdiff.identity import ModelIdentity
from localdiff.load import (
    LoadedModel,
    MemoryPlan,
    StoredWeights,
    further_devices,
    limit_threads,
    load_model,
    open_weights,
    plan_memory,
    release_cached_memory,
    resolve_device,
    resolve_dtype,
    unused_gpu,
)
from localdiff.load.kernels import take_kernels
from localdiff.load_progress import LoadProgress
from quant.dtypes import short_name
from quant.switch import SwitchError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedModel:
    """What `Engine` takes, and where its layers compute."""

    loaded: LoadedModel
    denoiser: Denoiser
    texts: TextFiles
    identity: ModelIdentity


def open_model(
    model: str | os.PathLike[str],
    *,
    device: str | torch.device,
    dtype: str,
    activations: str,
    revision: str | None,
    offline: bool,
    context_size: int,
    max_memory: int | None,
    adapter: str | os.PathLike[str] | None,
    confirm: ConfirmDownload,
    progress: LoadProgress,
) -> OpenedModel:
    """Opens a model; arguments and errors are those of `Engine.load`."""
    model, device = reference_of("model", model), device_of(device)
    dtype = string_of("dtype", dtype, "text such as `bf16`")
    activations = string_of("activations", activations, "text such as `int8`")
    KEYS["activations"].checked(activations)
    adapter = None if adapter is None else reference_of("adapter", adapter)
    revision = None if revision is None else string_of("revision", revision)
    check_flag("offline", offline)
    check_callable("confirm", confirm)
    check_callable("progress", progress)
    max_memory = None if max_memory is None else positive("max_memory", max_memory)
    stored_adapter = None if adapter is None else open_adapter(adapter)
    where = resolve_device(device)

    def plan(weights: StoredWeights) -> MemoryPlan:
        return plan_memory(
            weights,
            where,
            resolve_dtype(dtype, where, weights),
            further=further_devices(device),
            context=context_size,
            max_memory=max_memory,
            may_offload=max_memory is not None or (device == "auto" and where.type == "cuda"),
            adapter=stored_adapter,
        )

    source = find_source(
        model, revision=revision, offline=offline, plan_memory=plan, confirm=confirm, progress=progress
    )
    _warn_of_damage(source)
    weights = open_weights(source.directory)
    resolved_dtype = resolve_dtype(dtype, where, weights)
    if device == "auto" and (warning := unused_gpu(weights.text_parameters())):
        _log.warning("%s", warning)
    limit_threads(weights.text_parameters(), where)
    texts = open_text(weights)
    names = () if source.is_private else (source.name,)
    try:
        loaded, denoiser = _load_and_try(
            lambda: load_model(plan(weights), names=names, activations=activations, progress=progress),
            adapter,
            progress,
        )
    except SwitchError as error:
        raise UsageError(error.message, error.hint) from error
    return OpenedModel(
        loaded=loaded,
        denoiser=denoiser,
        texts=texts,
        identity=ModelIdentity(
            model=source.name,
            recipe=weights.recipe,
            revision=source.revision,
            device=str(loaded.placement.main),
            dtype=short_name(resolved_dtype),
            activations="int8" if loaded.rounds else "auto",
            directory=source.directory,
            adapter=adapter,
            adapter_directory=None if stored_adapter is None else stored_adapter.directory,
        ),
    )


def _warn_of_damage(source: ModelSource) -> None:
    if (damage := recorded_damage(source.directory)) is not None:
        remedy = "the `localdiff quantize` that made it rebuilds what is damaged"
        _log.warning("`%s` was damaged when it was last verified: %s; %s", source.name, damage, remedy)


def _load_and_try(
    load: Callable[[], LoadedModel], adapter: str | None, progress: LoadProgress
) -> tuple[LoadedModel, Denoiser]:
    """Loads a model and tries its kernels; where some fail, the model does without these.

    Raises:
        WeightsError: the model computes NaN or infinity without kernels, too.
    """
    loaded, failed = load(), set[torch.device]()
    denoiser, device = _denoiser(loaded), loaded.placement.main
    while device not in failed and (
        remedy := try_kernels(denoiser, device, progress, expectations=loaded.expectations)
    ):
        if remedy == "switch":
            take_kernels(loaded.network, device, loaded.placement.residence)
        else:
            if remedy == "load without kernels":
                # If the next model is placed on another GPU, which may have more free memory by now, its kernels are
                # tried, too.
                failed.add(device)
            del loaded, denoiser  # there is no memory for a second model
            release_cached_memory()
            loaded = load()
        denoiser, device = _denoiser(loaded), loaded.placement.main
    if device in failed:
        with adapter_may_be_at_fault(adapter):
            try_plainly(denoiser, device, loaded.placement.layers)
    return loaded, denoiser


def _denoiser(loaded: LoadedModel) -> Denoiser:
    return Denoiser.for_device(loaded.network, loaded.placement.main, loaded.placement.residence)
