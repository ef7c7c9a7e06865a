"""The statistics of a run, kept while it runs: every rate is computed here and nowhere else."""

from __future__ import annotations

import time

import torch

from localdiff.events import BlockCommitted, BlockStats, RunStats


class StatsKeeper:
    """Counts passes and seconds of one run.

    The clock of `tok_per_s` starts with the first denoise step, after loading and prefill, so the rate is committed,
    visible tokens over denoising and commit time. Where the first step also reads the end of the prompt, its time
    counts for both, so that neither figure is flattered.
    """

    def __init__(self, *, prompt_tokens: int, device: torch.device) -> None:
        self._prompt_tokens = prompt_tokens
        self._device = device
        self._prompt_began: float  # set by `start_prefill`
        self._prompt_seconds = 0.0
        self._started: float | None = None
        self._denoise_passes = 0
        self._commit_passes = 0
        self._blocks: list[BlockStats] = []
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def start_prefill(self) -> None:
        """Starts the clock of the prefill."""
        self._prompt_began = time.perf_counter()

    def prefilled(self) -> float:
        """Notes that more of the prompt is encoded; returns the seconds that the prefill has taken so far."""
        self._prompt_seconds = time.perf_counter() - self._prompt_began
        return self._prompt_seconds

    def start_clock(self) -> float:
        """The time at which the first denoise step of the run began; the first call sets it."""
        if self._started is None:
            self._started = time.perf_counter()
        return self._started

    def block_done(self, event: BlockCommitted) -> None:
        """Counts the steps of a finished block."""
        self._denoise_passes += event.steps
        self._blocks.append(BlockStats(steps=event.steps, seconds=event.seconds, reason=event.reason))

    def commit_done(self) -> None:
        """Counts a commit pass."""
        self._commit_passes += 1

    def finish(self, tokens: int) -> RunStats:
        """The statistics of a run that has ended with `tokens` committed, visible tokens."""
        seconds = 0.0 if self._started is None else time.perf_counter() - self._started
        return RunStats(
            prompt_tokens=self._prompt_tokens,
            prompt_seconds=self._prompt_seconds,
            tokens=tokens,
            seconds=seconds,
            tok_per_s=tokens / seconds if seconds else 0.0,
            denoise_passes=self._denoise_passes,
            commit_passes=self._commit_passes,
            tokens_per_step=tokens / self._denoise_passes if self._denoise_passes else 0.0,
            # The memory of replayed CUDA graphs is reserved, but allocated only in the run that captured them.
            peak_bytes=torch.cuda.max_memory_reserved(self._device) if self._device.type == "cuda" else None,
            blocks=tuple(self._blocks),
        )
