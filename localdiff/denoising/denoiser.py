"""Denoises blocks step by step: in static steps where they are supported, in dynamic ones elsewhere.

Knows which blocks can be denoised in static steps; `static` and `dynamic` know how.
Shape letters: L canvas.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from localdiff.denoising.dynamic import dynamic_steps
from localdiff.denoising.kernel_comparisons import Comparison, comparisons
from localdiff.denoising.native_reading import read_natively
from localdiff.denoising.path import StepPath, int8_embedding, native_logits_kernel
from localdiff.denoising.static.cuda_graphs import GraphCapturer
from localdiff.denoising.static.reading import read_through_torch, read_through_triton
from localdiff.denoising.static.steps import StaticSteps
from localdiff.denoising.step import BlockSettings, Step
from localdiff.diffusion.noise import Noise, SeededNoise
from localdiff.diffusion.reading import ReadLogits, read_logits
from localdiff.diffusion.settings import SamplerSettings
from localdiff.machine.children import shielded_children
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.residence import Residence
from quant.cuda.soft import SparseSoft

_log = logging.getLogger(__name__)


class Denoiser:
    """Denoises the blocks of one model.

    Args:
        path: one that this model can take; by default dynamic steps.
    """

    def __init__(self, model: DiffusionGemma, path: StepPath | None = None) -> None:
        self.path = path or StepPath()
        self._model = model
        self._read = self._reader()
        self._static = self._static_steps() if self.path.static else None
        self._busy = threading.Lock()
        self._has_warned = False

    @classmethod
    def for_device(cls, model: DiffusionGemma, device: torch.device, residence: Residence = "whole") -> Denoiser:
        """A denoiser on the path of `StepPath.for_device`.

        Raises:
            SwitchError: an environment variable has an invalid value.
        """
        denoiser = cls(model, StepPath.for_device(model, device, residence))
        if device.type == "cuda":
            _log.info("steps: %s", denoiser)
        return denoiser

    def warm_up(self) -> Iterator[float]:
        """Takes steps that launch all kernels of a run, so that these are compiled before the run's clock starts.

        A step of a run commits nothing, a whole block, or the end of a prompt, which has any number of rows. It draws
        ids or takes the most probable ones; the latter is another kernel, whatever the step commits.

        Yields:
            The share of these steps that is done.
        """
        began = time.perf_counter()
        config, weight = self._model.config, self._model.norm.weight
        length = config.canvas_length
        cache = KVCache(config, 4 * length, weight.dtype, weight.device)
        kinds = ((0, False), (length, False), (2 * length, False), (0, True))  # commit rows, whether greedy
        for done, (commit_rows, greedy) in enumerate(kinds):
            yield done / len(kinds)
            self._take_step(cache, commit_rows, greedy=greedy)
        yield 1.0
        _log.info(
            "a step of each kind took %.1f s, in which kernels that are new were compiled", time.perf_counter() - began
        )

    def try_step(self, layer_devices: Sequence[torch.device]) -> None:
        """Takes one step and discards its outcome.

        Raises:
            WeightsError: the capped logits are NaN or infinite.
        """
        config = self._model.config
        self._take_step(KVCache(config, config.canvas_length, self._model.norm.weight.dtype, layer_devices))

    def comparisons(self) -> list[Comparison]:
        """What compares the kernels of its steps with the plain path."""
        return comparisons(self._model, self.path)

    @property
    def has_kernels(self) -> bool:
        """Whether a step uses kernels, apart from those of modules over stored weights."""
        return bool(self._model.kernels)

    def __str__(self) -> str:
        """How a step is taken and computed, in words."""
        return ", ".join((str(self.path_taken), *self._model.kernels))

    def forget_graphs(self) -> None:
        """Has the next steps captured anew, after a change in how kernels are launched."""
        if self._static is not None:
            self._static.forget()

    def without_graphs(self) -> Denoiser:
        """A denoiser of the same path, launched kernel by kernel and never ahead, so that parts can be clocked."""
        return Denoiser(self._model, replace(self.path, captured=False, ahead=False)) if self.path.static else self

    @property
    def path_taken(self) -> StepPath:
        """The path, without graphs where one could not be captured: such steps are launched kernel by kernel."""
        return self.path if self._static is None else replace(self.path, captured=self._static.are_captured)

    @property
    def graphs(self) -> int:
        """Number of steps captured as CUDA graphs for the cache of the last block, each of a different shape."""
        return 0 if self._static is None else self._static.graphs

    def denoise_block(
        self,
        cache: KVCache,
        canvas: Tensor,
        noise: Noise,
        block: BlockSettings,
        commit_ids: Sequence[int] = (),
    ) -> Iterator[Step]:
        """Denoises a canvas step by step, until the stop rule is met or the steps run out.

        The draft of the last step yielded is what the block would commit; acceptance is decided anew in each step.

        Args:
            canvas: [L], on any device.
            commit_ids: a block, or the end of a prompt, that the first step also writes into the cache.

        Raises:
            WeightsError: the capped logits are NaN or infinite.
        """
        canvas = canvas.to(self._model.norm.weight.device)
        # Kernels for new shapes are compiled by child processes, which Ctrl-C must not reach.
        shield = shielded_children if canvas.is_cuda else nullcontext
        with closing(self._steps(cache, canvas, noise, block, commit_ids)) as steps:
            while True:
                with shield():
                    step = next(steps, None)
                if step is None:
                    return
                yield step

    def _take_step(self, cache: KVCache, commit_rows: int = 0, *, greedy: bool = False) -> None:
        """The first step of a block, from a canvas of noise."""
        config, noise = self._model.config, SeededNoise(0)
        block = BlockSettings(
            number=1,
            started=time.perf_counter(),
            sampler=SamplerSettings(schedule_steps=1, greedy=greedy),
            stop_rule="never",
            pad_id=config.pad_token_id,
        )
        canvas = noise.canvas(config.canvas_length, config.vocab_size)
        # Id 0 is in every vocabulary. The padding id need not be; looking up an id out of range makes a GPU unusable.
        for _ in self.denoise_block(cache, canvas, noise, block, [0] * commit_rows):
            pass

    def _steps(
        self, cache: KVCache, canvas: Tensor, noise: Noise, block: BlockSettings, commit_ids: Sequence[int]
    ) -> Generator[Step, None, None]:
        if self._static is not None and isinstance(noise, SeededNoise):
            if self._busy.acquire(blocking=False):
                try:
                    yield from self._static.denoise(cache, canvas, noise, block, commit_ids)
                finally:
                    self._busy.release()
                return
            self._warn_busy()
        commit = torch.tensor(commit_ids, dtype=torch.int64, device=canvas.device) if commit_ids else None
        yield from dynamic_steps(self._model, cache, canvas, noise, block, commit, self._read)

    def _warn_busy(self) -> None:
        """Warns once that another run is using the buffers, which serve one block at a time."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "another answer of this model is still being generated, or was left unfinished: meanwhile, steps are "
                "not static, which is slower"
            )

    def _reader(self) -> ReadLogits:
        """The function that reads the logits of dynamic steps."""
        kernel = native_logits_kernel(self._model) if self.path.native_logits else None
        return read_logits if kernel is None else partial(read_natively, kernel)

    def _static_steps(self) -> StaticSteps:
        path = self.path
        embedding = int8_embedding(self._model) if path.sparse else None
        return StaticSteps(
            self._model,
            read=read_through_triton if path.logits else read_through_torch,
            sparse=None if embedding is None else SparseSoft(embedding),
            capturer=GraphCapturer(self._model.norm.weight.device) if path.captured else None,
            ahead=path.ahead,
        )
