"""Tiles for a GPU, from random weights to the file that later runs read.

Knows the order; knows nothing about options or streams.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from localdiff.bench.step.subject import Make
from localdiff.bench.tuning.candidates import tile_name
from localdiff.bench.tuning.note import Note, note_file
from localdiff.bench.tuning.search import Machine, Outcome, product_name, search
from localdiff.bench.tuning.step_clock import StepClock
from localdiff.denoising import compare_kernels
from localdiff.errors import ResourceError
from localdiff.load import resolve_device
from localdiff.machine.output_lock import locked
from localdiff.timed_tiles import (
    AnyTile,
    StaleTiles,
    keep_timed_tiles,
    read_timed_tiles,
    require_writable,
    tiles_file,
    write_tiles,
)
from quant.cuda.support import why_unsupported
from quant.cuda.tiles import mma_kind
from quant.cuda.timed import Product, use_timed

_ONE_AT_A_TIME = "wait until it ends: one process at a time tunes a GPU"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """What was found for a GPU.

    Attributes:
        earlier: how many tiles were known from a search that had not finished.
        file: where its tiles are kept; None where it keeps none.
    """

    gpu: str
    outcome: Outcome
    earlier: int = 0
    file: Path | None


def tune(make: Make, *, context: int, seconds: float, progress: Callable[[str], None] = lambda _: None) -> Tuning:
    """Searches for faster tiles, and keeps them if steps are faster with all of them.

    Goes on with an unfinished search of the same steps, whether it was interrupted or ran out of time.

    Kept tiles of products that steps of this model do not have, as with another recipe, stay as they were.

    Args:
        context: tokens in the cache before the canvas.
        seconds: within which the last tile is begun.

    Raises:
        ResourceError: there is no GPU that runs kernels, they compute wrong numbers, or the file cannot be written.
        UsageError: another process tunes a GPU of this name.
    """
    device = make.device
    require_gpu(device)
    if (unsupported := why_unsupported(device)) is not None:
        raise ResourceError(unsupported.reason, unsupported.remedy)
    require_writable(device)  # now, not after minutes of searching for what cannot be kept
    ends_at = time.monotonic() + seconds
    with locked(tiles_file(device), hint=_ONE_AT_A_TIME):
        return _tuned(make, context, ends_at, progress)


def _tuned(make: Make, context: int, ends_at: float, progress: Callable[[str], None]) -> Tuning:
    """What `tune` does, while nobody else writes the files of this GPU."""
    device = make.device
    subject = make(progress)
    if not subject.denoiser.path.captured or not subject.denoiser.path.fuses_commits:
        raise ResourceError(
            "tiles are timed in captured steps",
            "unset `LOCALDIFF_CUDA_PLAIN`; where kernels of `experts` or `attention` fail, no step can be captured",
        )
    machine = Machine(
        seconds=StepClock(subject, context=context).seconds,
        mma_kind=mma_kind(device),
        use=lambda tiles: use_timed(device, tiles),
        check=lambda: compare_kernels(subject.denoiser, subject.expectations),
        require=lambda: torch.cuda.synchronize(device),
    )
    note = _note(device, f"{len(subject.built.config.layers)} layers, {context:,} tokens of context")
    known = note.products()
    outcome = search(machine, note, ends_at=ends_at, progress=progress)
    before: dict[Product, AnyTile] = {}
    with suppress(StaleTiles):  # read only now: another recipe may have been tuned meanwhile, on a GPU of this name
        before = read_timed_tiles(device)
    kept = {product: tile for product, tile in before.items() if product not in outcome.tried}
    if outcome.is_faster:
        kept |= {one.product: one.tile for one in outcome.found}
    file = keep_timed_tiles(device, kept)
    if not outcome.left:
        note.drop(outcome.tried)
    earlier = sum(count for product, count in known.items() if product in outcome.tried)
    return Tuning(gpu=torch.cuda.get_device_name(device), outcome=outcome, earlier=earlier, file=file)


def _note(device: torch.device, steps: str) -> Note:
    """What an unfinished search of such steps knows."""
    try:
        note = Note.read(device, steps)
    except StaleTiles as error:
        _log.warning("the tiles of an unfinished search are timed again: %s", error)
        return Note(device, steps)
    if note.killed is not None:
        product, tile = note.killed
        _log.warning(
            "%s is left out (%s): the last search ended while it was timed", tile_name(tile), product_name(product)
        )
    return note


def forget(device: str) -> list[Path]:
    """Deletes the tiles that are kept for a GPU, and what an unfinished search has found; returns the files.

    Raises:
        ResourceError: there is no such GPU, or a file cannot be deleted.
        UsageError: another process tunes a GPU of this name.
    """
    where = resolve_device(device)
    require_gpu(where)
    with locked(tiles_file(where), hint=_ONE_AT_A_TIME):
        files = [file for file in (tiles_file(where), note_file(where)) if file.exists()]
        for file in files:
            write_tiles(file, None)
    return files


def require_gpu(device: torch.device) -> None:
    """Raises a `ResourceError` for a device that is not a GPU; to be called first, before sizes are checked."""
    if device.type != "cuda":
        raise ResourceError(
            f"tiles are for GPU kernels, and `{device}` has none",
            "use an NVIDIA GPU; if there is one here, `localdiff doctor` says why torch does not use it",
        )
