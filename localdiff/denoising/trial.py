"""The trial of a model's kernels while it loads: what they compute, and then a step of each kind.

    parity     products and kernels against the plain path, on random rows and the model's own weights
    warm-up    steps as a run takes them, so that kernels are compiled before its clock starts

Knows which errors are a kernel's; knows nothing about how a model is loaded without them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from localdiff.children import shielded_children
from localdiff.denoising.denoiser import Denoiser
from localdiff.errors import WeightsError
from localdiff.failures import is_out_of_memory
from localdiff.load_progress import LoadProgress, tell_nobody
from quant.cuda.parity import Expectation
from quant.cuda.support import exclude, forget_unloaded_kernels, readmit
from quant.cuda.timed import give_up_timed

_log = logging.getLogger(__name__)


def try_kernels(
    denoiser: Denoiser,
    device: torch.device,
    progress: LoadProgress = tell_nobody,
    *,
    expectations: Sequence[Expectation] = (),
) -> bool:
    """Whether kernels run and compute what they should; if not, models loaded from now on use none on this device.

    If they fail with tiles that were timed on the model's GPUs, they are tried again with the usual tiles.

    Args:
        progress: called with the share of the trial that is done; its exceptions do not count as a kernel's.
        expectations: plain results that the model's fast modules must give, too.

    Raises:
        RuntimeError: the memory is too small, or the failure has left a GPU unusable.
    """
    shares = _trial(denoiser, expectations)
    while True:
        try:
            share = next(shares, None)
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
                shares = _trial(denoiser, expectations)
                continue
            exclude(device, error)
            return False
        if share is None:
            return True
        progress("kernels", share)


def _trial(denoiser: Denoiser, expectations: Sequence[Expectation]) -> Iterator[float]:
    """The parts of the trial, one after the other; yields the share that is done, as if parts took equally long."""
    parts = [_compared(denoiser, expectations)] if expectations or denoiser.has_kernels else []
    if denoiser.path.static:
        parts.append(denoiser.warm_up())
    for number, part in enumerate(parts):
        for share in part:
            yield (number + share) / len(parts)


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
    for _ in _compared(denoiser, expectations):
        pass


def _compared(denoiser: Denoiser, expectations: Sequence[Expectation]) -> Iterator[float]:
    """What `compare_kernels` does, in parts; yields the share that is done."""
    seconds, errors = 0.0, dict[str, float]()
    for done, compare in enumerate((*map(_checked, expectations), denoiser.parity)):
        yield done / (len(expectations) + 1)
        began = time.perf_counter()
        with shielded_children():  # kernels are compiled by child processes, which Ctrl-C must not reach
            errors |= {name: max(error, errors.get(name, 0.0)) for name, error in compare().items()}
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
    yield 1.0


def _checked(expectation: Expectation) -> Callable[[], dict[str, float]]:
    return lambda: {expectation.name: expectation.check()}


def _still_works(device: torch.device) -> bool:
    """Whether this process can still use a device: after an illegal access, every CUDA call fails."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError:
            return False
    return True
