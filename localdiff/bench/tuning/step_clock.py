"""Times whole denoise steps, captured anew each time, so that a tile is judged by what it does to a step.

Knows steps and the clock; knows no tiles.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch

from localdiff.bench.step.measure import Stopwatch
from localdiff.bench.step.subject import Subject
from localdiff.diffusion.noise import SeededNoise
from localdiff.errors import ResourceError

Step: TypeAlias = Literal["step", "commit"]
"""An ordinary step, or the first step of a block, which also commits the block before."""
STEP_NAMES: dict[Step, str] = {"step": "step", "commit": "step with a commit"}

WARM_UP = 32
"""Steps that are replayed before any is timed: a GPU that waited for the compiler may have lowered its clock."""
TIMED = 32
_NEW = 2
"""Runs that are not timed: the first is launched kernel by kernel, and compiles; the second captures the step."""


class StepClock:
    """The clock of a loaded model's steps.

    Args:
        context: tokens in the cache before the canvas.
    """

    def __init__(self, subject: Subject, *, context: int) -> None:
        self.denoiser = subject.denoiser
        self._context = context
        self._stopwatch = Stopwatch(subject, context=context)
        config = subject.network.config
        self._committed: Sequence[int] = SeededNoise(1).canvas(config.canvas_length, config.vocab_size).tolist()
        with torch.inference_mode():
            self._stopwatch.prefill()
        self._stopwatch.cache.snapshot()

    @torch.inference_mode()
    def seconds(self, step: Step) -> float:
        """The median of some replays, after capturing anew.

        Raises:
            RuntimeError: a kernel does not run.
            ResourceError: the step could not be captured.
            WeightsError: the capped logits are NaN or infinite.
        """
        self.denoiser.forget_graphs()
        took = self._steps() if step == "step" else self._first_steps()
        if not self.denoiser.path_taken.captured:  # launched kernel by kernel, it would be compared with replays
            raise ResourceError("a step could not be captured as a CUDA graph, and is not timed without")
        return statistics.median(took[_NEW + WARM_UP :])

    def _steps(self) -> list[float]:
        took, began = [], time.perf_counter()
        for _ in self._stopwatch.block_of(self.denoiser, _NEW + WARM_UP + TIMED):
            now = time.perf_counter()
            took.append(now - began)
            began = now
        return took

    def _first_steps(self) -> list[float]:
        took = []
        for _ in range(_NEW + WARM_UP + TIMED):
            began = time.perf_counter()
            try:
                for _ in self._stopwatch.block_of(self.denoiser, 1, self._committed):
                    pass
                took.append(time.perf_counter() - began)
            finally:  # even after a tile whose logits are NaN: the next one must commit after the same context
                self._stopwatch.cache.rewind(self._context)
        return took
