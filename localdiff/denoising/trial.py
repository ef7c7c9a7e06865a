"""The trial of a model's kernels while it loads: what they compute, and then a step of each kind.

    parity     products and kernels against the plain path, on random rows and the model's own weights
    warm-up    steps as a run takes them, so that kernels are compiled before its clock starts

Knows which errors are a kernel's; knows nothing about how a model goes on without them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

import torch

from localdiff.denoising.denoiser import Denoiser
from localdiff.denoising.kernel_comparisons import Comparison
from localdiff.errors import WeightsError
from localdiff.failures import is_out_of_memory
from localdiff.load_progress import LoadProgress, tell_nobody
from localdiff.machine.children import shielded_children
from quant.cuda.parity import Expectation
from quant.cuda.support import exclude, forget_unloaded_kernels, readmit
from quant.cuda.switches import PLAIN, Part, give_up, is_plain, switched_off
from quant.cuda.timed import give_up_timed
from quant.cuda.triton_errors import failure_of
from quant.unsupported import Unsupported

Failures: TypeAlias = Mapping[Part, Unsupported] | Unsupported
"""Part → what is wrong with its kernels; or a failure against which no part's switch helps."""
Remedy: TypeAlias = Literal["switch", "load", "load without kernels"]
"""What has to be done with a model whose kernels fail: let it take its kernels again (`localdiff.load.kernels`), or
load it again, with the kernels of other parts or with none on that device."""

_OF_MODULES: frozenset[Part] = frozenset({"experts", "dense", "decode"})
"""Parts whose kernels belong to modules in the place of plain ones, most of which hold their weights in another order:
without these kernels, the plain modules have to be loaded. A network and its steps can go without those of all other
parts at any time."""

_log = logging.getLogger(__name__)


def try_kernels(
    denoiser: Denoiser,
    device: torch.device,
    progress: LoadProgress = tell_nobody,
    *,
    expectations: Sequence[Expectation] = (),
) -> Remedy | None:
    """Tries whether kernels run and compute what they should, and gives up those that do not, with warnings.

    If they fail with tiles that were timed on the model's GPUs, they are tried again with the usual tiles. All parts
    whose kernels fail while they are compared are given up together. If one fails in the steps after that, or no switch
    helps, the device is excluded from kernels.

    Args:
        progress: called with the share of the trial that is done; its exceptions do not count as a kernel's.
        expectations: plain results that the model's fast modules must give, too.

    Returns:
        What has to be done with the model now; None if nothing failed.

    Raises:
        RuntimeError: the memory is too small, or the failure has left a GPU unusable.
    """
    failed = _failures_in_trial(denoiser, device, progress, expectations)
    if failed and give_up_timed():
        first = failed if isinstance(failed, Unsupported) else [*failed.values()][0]
        _log.warning("%s with the tiles that were timed here: the usual tiles are used instead", first)
        failed = _failures_in_trial(denoiser, device, progress, expectations)
    if not failed:
        return None
    if isinstance(failed, Unsupported):
        exclude(device, failed)
        _log.warning("a GPU kernel failed while it was tried: the model is loaded again, without kernels on that GPU")
        return "load without kernels"
    for part, failure in failed.items():
        give_up(part)
        _log.warning("%s: torch computes that part, which is slower", failure)
    switches = f"`{PLAIN}={switched_off()}` leaves these kernels out from the start"
    if _OF_MODULES.isdisjoint(failed):
        _log.warning("%s", switches)
        return "switch"
    _log.warning("%s; now the model is loaded again without them", switches)
    return "load"


def _failures_in_trial(
    denoiser: Denoiser, device: torch.device, progress: LoadProgress, expectations: Sequence[Expectation]
) -> Failures:
    """What fails in comparisons, and, if nothing does, in steps.

    The share that is done is counted as if comparisons and steps took equally long.
    """
    has_comparisons = bool(expectations or denoiser.has_kernels)
    stages = has_comparisons + denoiser.path.static

    def tell(before: int, share: float) -> None:
        progress("kernels", (before + share) / stages)

    if has_comparisons and (failed := failures(denoiser, device, expectations, partial(tell, 0))):
        return failed
    if denoiser.path.static and (failure := _failure_in_steps(denoiser, device, partial(tell, has_comparisons))):
        return failure
    return {}


def try_plainly(denoiser: Denoiser, device: torch.device, layer_devices: Sequence[torch.device]) -> None:
    """Takes a step of a model that was loaded without kernels, because `try_kernels` found that they fail.

    Args:
        device: the one that `try_kernels` was given.

    Raises:
        WeightsError: the model computes NaN or infinity without kernels, too. So no kernel is at fault, and models
            loaded from now on may use them again.
    """
    try:
        denoiser.try_step(layer_devices)
    except WeightsError:
        readmit(device)
        raise


def compare_kernels(denoiser: Denoiser, expectations: Sequence[Expectation]) -> None:
    """Compares the kernels of steps, and a model's fast modules, with the plain path.

    Args:
        expectations: plain results that the fast modules must give.

    Raises:
        ParityError: one of them computes other numbers.
    """
    for comparison in _comparisons(denoiser, expectations):
        _errors(comparison)


def failures(
    denoiser: Denoiser,
    device: torch.device,
    expectations: Sequence[Expectation],
    progress: Callable[[float], None] = lambda _: None,
) -> Failures:
    """Compares the kernels of all parts, as `compare_kernels` does; if none fails, logs how close they are.

    Once a kernel has failed, others of its part are not tried, and neither are those that need that part.

    Args:
        progress: called with the share that is done.

    Raises:
        RuntimeError: the memory is too small, or the failure has left a GPU unusable.
    """
    comparisons = _comparisons(denoiser, expectations)
    devices = {device, *(expectation.device for expectation in expectations)}  # of a model on several GPUs
    began, errors, failed = time.perf_counter(), dict[str, float](), dict[Part, Unsupported]()
    for done, comparison in enumerate(comparisons):
        progress(done / len(comparisons))
        part = comparison.part
        if failed.keys() & {part, *comparison.needs}:
            continue
        try:
            found = _errors(comparison)
        except Exception as error:  # from a compiler, a launch, or a comparison: no common class
            failure = _failure(error, part, devices)
            if part is None or is_plain(part) or isinstance(error, OSError):
                return failure
            failed[part] = failure
        else:
            errors |= {name: max(relative, errors.get(name, 0.0)) for name, relative in found.items()}
    progress(1.0)
    if errors and not failed:
        worst = max(errors, key=errors.__getitem__)
        _log.info(
            "%d kernels agree with the plain path in %.1f s; furthest from it by %.2g %%: %s",
            len(errors),
            time.perf_counter() - began,
            100 * errors[worst],
            worst,
        )
    return failed


def _failure_in_steps(
    denoiser: Denoiser, device: torch.device, progress: Callable[[float], None]
) -> Unsupported | None:
    """What is wrong with the kernels of a step, which says nothing about whose they are; None if all steps work."""
    steps = denoiser.warm_up()
    while True:
        try:
            share = next(steps, None)
        except Exception as error:  # the same, or results that are not finite
            return _failure(error, None, {device})
        if share is None:
            return None
        progress(share)


def _failure(error: Exception, part: Part | None, devices: Collection[torch.device]) -> Unsupported:
    """What is wrong with a kernel that raised this.

    It has the words only: an error holds the frames that it came through, and so tensors of a model that may have to be
    loaded again.

    Raises:
        RuntimeError: the error, if it is no kernel's, or has left a device unusable.
    """
    if is_out_of_memory(error):
        forget_unloaded_kernels()  # the next model may find room for them
        raise error
    if not all(map(_still_works, devices)):
        if part is not None:
            what = "the GPU failed while kernels of `%s` were compared; `%s=%s` leaves these kernels out"
            _log.warning(what, part, PLAIN, switched_off(part))
        raise error
    return failure_of(error, part)


def _comparisons(denoiser: Denoiser, expectations: Sequence[Expectation]) -> list[Comparison]:
    """Those of the modules come first: kernels of steps may need them."""
    of_modules = [Comparison(expectation.part, partial(_error_by_name, expectation)) for expectation in expectations]
    return [*of_modules, *denoiser.comparisons()]


def _error_by_name(expectation: Expectation) -> dict[str, float]:
    return {expectation.name: expectation.check()}


def _errors(comparison: Comparison) -> dict[str, float]:
    with shielded_children():  # kernels are compiled by child processes, which Ctrl-C must not reach
        return comparison.errors()


def _still_works(device: torch.device) -> bool:
    """Whether this process can still use a device: after an illegal access, every CUDA call fails."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            return False
    return True
