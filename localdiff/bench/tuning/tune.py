"""Tiles for a GPU, from random weights to the file that later runs read.

Knows the order; knows nothing about options or streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from localdiff.bench.step.subject import Make
from localdiff.bench.tuning.search import Machine, Outcome, search
from localdiff.bench.tuning.step_clock import StepClock
from localdiff.denoising import ParityError, compare_kernels
from localdiff.errors import ResourceError
from localdiff.load import resolve_device
from localdiff.timed_tiles import (
    AnyTile,
    StaleTiles,
    keep_timed_tiles,
    read_timed_tiles,
    require_writable,
    tiles_file,
)
from quant.cuda.support import why_unsupported
from quant.cuda.tiles import mma_kind
from quant.cuda.timed import Product, timed_count, use_timed


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """What was found for a GPU.

    Attributes:
        file: where its tiles are kept; None where it keeps none.
    """

    gpu: str
    outcome: Outcome
    file: Path | None


def tune(make: Make, *, context: int, seconds: float, progress: Callable[[str], None] = lambda _: None) -> Tuning:
    """Searches for faster tiles, and keeps them if steps are faster with all of them.

    Tiles of products that a step of this model does not have, as with another recipe, stay as they were.

    Args:
        context: tokens in the cache before the canvas.
        seconds: within which the last product is begun.

    Raises:
        ResourceError: there is no GPU that runs kernels, they compute wrong numbers, or the file cannot be written.
    """
    device = make.device
    _require_gpu(device)
    if (unsupported := why_unsupported(device)) is not None:
        raise ResourceError(unsupported.reason, unsupported.remedy)
    require_writable(device)  # what is found in minutes could not be kept
    ends_at = time.monotonic() + seconds
    try:
        subject = make(progress)
    except ParityError as error:
        hint = "`localdiff tune --forget` goes back to the usual tiles" if timed_count(device) else None
        raise ResourceError(f"kernels compute wrong numbers here: {error}", hint) from error
    if not subject.denoiser.path.captured or not subject.denoiser.path.fuses_commits:
        raise ResourceError("tiles are timed in captured steps", "unset `LOCALDIFF_CUDA_PLAIN`")
    machine = Machine(
        clock=StepClock(subject, context=context),
        mma_kind=mma_kind(device),
        use=lambda tiles: use_timed(device, tiles),
        check=lambda: compare_kernels(subject.denoiser, subject.expectations),
        require=lambda: torch.cuda.synchronize(device),
    )
    outcome = search(machine, ends_at=ends_at, progress=progress)
    before: dict[Product, AnyTile] = {}
    with suppress(StaleTiles):  # read only now: another recipe may have been tuned meanwhile, on a GPU of this name
        before = read_timed_tiles(device)
    kept = {product: tile for product, tile in before.items() if product not in outcome.tried}
    if outcome.is_faster:
        kept |= {one.product: one.tile for one in outcome.found}
    return Tuning(gpu=torch.cuda.get_device_name(device), outcome=outcome, file=keep_timed_tiles(device, kept))


def forget(device: str) -> Path | None:
    """Deletes the tiles that are kept for a GPU; returns their file, or None where there was none.

    Raises:
        ResourceError: there is no such GPU, or the file cannot be deleted.
    """
    where = resolve_device(device)
    _require_gpu(where)
    file = tiles_file(where)
    was_there = file.exists()
    keep_timed_tiles(where, {})
    return file if was_there else None


def _require_gpu(device: torch.device) -> None:
    if device.type != "cuda":
        raise ResourceError(f"tiles are those of GPU kernels, and `{device}` has none", "use an NVIDIA GPU")
