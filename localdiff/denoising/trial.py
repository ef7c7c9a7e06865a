"""The trial of a model's kernels while it loads: what they compute, and then a step of each kind.

    parity     products and kernels against the plain path, on random rows and the model's own weights
    warm-up    steps as a run takes them, so that kernels are compiled before its clock starts

Knows which errors are a kernel's; knows nothing about how a model is loaded without them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Literal

import torch

from localdiff.denoising.denoiser import Denoiser
from localdiff.denoising.parity import Comparison
from localdiff.errors import WeightsError
from localdiff.failures import is_out_of_memory
from localdiff.load_progress import LoadProgress, tell_nobody
from localdiff.machine.children import shielded_children
from quant.cuda.parity import Expectation
from quant.cuda.support import exclude, failure_of, forget_unloaded_kernels, readmit
from quant.cuda.switches import PLAIN, Part, give_up, is_plain, switched_off
from quant.cuda.timed import give_up_timed

_log = logging.getLogger(__name__)


def try_kernels(
    denoiser: Denoiser,
    device: torch.device,
    progress: LoadProgress = tell_nobody,
    *,
    expectations: Sequence[Expectation] = (),
) -> Part | Literal["all"] | None:
    """Tries whether kernels run and compute what they should; if one does not, the model has to be loaded again.

    If they fail with tiles that were timed on the model's GPUs, they are tried again with the usual tiles. If the
    kernels of one part fail while they are compared, models loaded from now on compute that part plainly. If any fails
    in the steps after that, these models use no kernels on this device.

    Args:
        progress: called with the share of the trial that is done; its exceptions do not count as a kernel's.
        expectations: plain results that the model's fast modules must give, too.

    Returns:
        The part that is off now, or `all`; None if nothing failed.

    Raises:
        RuntimeError: the memory is too small, or the failure has left a GPU unusable.
    """
    tries = _trial(denoiser, expectations)
    part: Part | None = None
    while True:
        try:
            tried = next(tries, None)
        except Exception as error:  # from a compiler, a launch, or results that are not finite: no common class
            devices = {device, *(expectation.device for expectation in expectations)}  # of a model on several GPUs
            if is_out_of_memory(error) or not all(map(_still_works, devices)):
                forget_unloaded_kernels()  # the next model may find room for them
                raise
            if give_up_timed():
                _log.warning(
                    "a GPU kernel fails with the tiles that were timed here (%s): the usual tiles are used instead",
                    error,
                )
                tries = _trial(denoiser, expectations)
                continue
            if part is None or is_plain(part) or isinstance(error, OSError):
                exclude(device, error)
                return "all"
            give_up(part)
            _log.warning(
                "%s: the model is loaded again, with `%s` computed through torch, which is slower; `%s=%s` does so "
                "from the start",
                failure_of(error),
                part,
                PLAIN,
                switched_off(),
            )
            return part
        if tried is None:
            return None
        part, share = tried
        progress("kernels", share)


def _trial(denoiser: Denoiser, expectations: Sequence[Expectation]) -> Iterator[tuple[Part | None, float]]:
    """Comparisons, then steps: yields the part that is tried next, and the share that is done.

    The share is counted as if comparisons and steps took equally long.
    """
    has_comparisons = bool(expectations or denoiser.has_kernels)
    stages = has_comparisons + denoiser.path.static
    if has_comparisons:
        for part, share in compared_parts(denoiser, expectations):
            yield part, share / stages
    if denoiser.path.static:
        for share in denoiser.warm_up():
            yield None, (stages - 1 + share) / stages


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
    """Compares the kernels of steps, and a model's fast modules, with the plain path, and logs how close they are.

    Args:
        expectations: plain results that the fast modules must give.

    Raises:
        ParityError: one of them computes other numbers.
    """
    for _ in compared_parts(denoiser, expectations):
        pass


def compared_parts(denoiser: Denoiser, expectations: Sequence[Expectation]) -> Iterator[tuple[Part | None, float]]:
    """What `compare_kernels` does, part by part: yields the part that is compared next, and the share that is done."""
    comparisons = [*map(_comparison, expectations), *denoiser.comparisons()]
    seconds, errors = 0.0, dict[str, float]()
    for done, comparison in enumerate(comparisons):
        yield comparison.part, done / len(comparisons)
        began = time.perf_counter()
        with shielded_children():  # kernels are compiled by child processes, which Ctrl-C must not reach
            found = comparison.errors()
        errors |= {name: max(error, errors.get(name, 0.0)) for name, error in found.items()}
        seconds += time.perf_counter() - began
    if errors:
        worst = max(errors, key=errors.__getitem__)
        _log.info(
            "%d kernels agree with the plain path in %.1f s; furthest from it by %.2g %%: %s",
            len(errors),
            seconds,
            100 * errors[worst],
            worst,
        )
    yield None, 1.0


def _comparison(expectation: Expectation) -> Comparison:
    return Comparison(expectation.part, lambda: {expectation.name: expectation.check()})


def _still_works(device: torch.device) -> bool:
    """Whether this process can still use a device: after an illegal access, every CUDA call fails."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            return False
    return True
