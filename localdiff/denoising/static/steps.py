"""Denoises a block in static steps, each of which may be launched before the previous one is over.

    send 1 ─► run 1 ─► ask 1 ─► send 2 ─► run 2 ─► ask 2 ─► …      the device's queue
                          └──── take 1: event, stop? ──┘           the host, a step behind

While a block seems far from its end, the next step is launched before the last one's outcome is read, so that the
device does not wait for the host; if that outcome meets the stop rule after all, the step is discarded and the noise
source rewound. Nearer to the end (`NEAR`), and with sparse self-conditioning, whose overflow decides the next step's
input, the host reads the outcome first. Knows events and the order of steps; the arithmetic is the program's.
Shape letters: L canvas.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from localdiff.denoising.static.cuda_graphs import GraphCapturer
from localdiff.denoising.static.exchange import Exchange
from localdiff.denoising.static.program import Program, Shape
from localdiff.denoising.static.reading import ReadAndDecide
from localdiff.denoising.step import BlockSettings, Step, not_numbers, step_of
from localdiff.diffusion.noise import SeededNoise
from localdiff.diffusion.sampler import temperature_at
from localdiff.diffusion.stopping import Verdict
from localdiff.kernels.decision import StepBuffers
from localdiff.kernels.decision_layout import (
    CONFIDENT,
    FINITE,
    HEADER,
    MEAN_ENTROPY,
    OVERFLOW,
    ROWS,
    RULES,
    STABLE,
    STOP,
    TAIL,
    bits_of,
)
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cuda.soft import SparseSoft

NEAR = 20.0
"""Mean entropy, in multiples of the stop threshold, below which the next step may end a block. A step that is launched
and discarded costs as much as the host's share of some hundred steps, so this errs on the side of waiting."""

_log = logging.getLogger(__name__)


class StaticSteps:
    """Denoises the blocks of one model, one at a time: the buffers are those of one block.

    Args:
        read, sparse: as a `Program` takes them.
        capturer: captures the steps; None launches them kernel by kernel.
        ahead: whether a step may be launched before the outcome of the last one is read; with `sparse` none is.
    """

    def __init__(
        self,
        model: DiffusionGemma,
        *,
        read: ReadAndDecide,
        sparse: SparseSoft | None,
        capturer: GraphCapturer | None,
        ahead: bool,
    ) -> None:
        self._model = model
        self._read = read
        self._sparse = sparse
        self._capturer = capturer
        self._launches_ahead = ahead and sparse is None
        config, weight = model.config, model.norm.weight
        self._buffers = StepBuffers(config.canvas_length, config.hidden_size, weight.dtype, weight.device)
        self._exchange: Exchange
        self._cache: weakref.ref[KVCache] | None = None
        self._programs: dict[Shape, Program] = {}  # for that cache: their graphs hold its addresses

    @property
    def are_captured(self) -> bool:
        """Whether steps are replayed: there is a capturer, and for this cache it has captured all that it was given."""
        return self._capturer is not None and not self._capturer.has_failed

    @property
    def graphs(self) -> int:
        """Number of captured steps, each of a different shape."""
        return 0 if self._capturer is None else len(self._capturer.graphs)

    @torch.inference_mode()
    def denoise(
        self, cache: KVCache, canvas: Tensor, noise: SeededNoise, block: BlockSettings, commit_ids: Sequence[int]
    ) -> Iterator[Step]:
        """Denoises `canvas` [L], as `Denoiser.denoise_block` does."""
        cache.require(len(commit_ids))
        self._start(cache, canvas)
        launch = partial(self._launch, cache, noise, block)
        last, near_end = block.sampler.max_steps, False
        began = time.perf_counter()
        program = launch(1, commit_ids)
        cache.length += len(commit_ids)
        for step in range(1, last + 1):
            mark = noise.mark()
            is_ahead = self._launches_ahead and step < last and not near_end
            if is_ahead:
                program = launch(step + 1)
            outcome = self._exchange.take(step)
            top = self._exchange.top(step)
            if not outcome[FINITE]:
                raise not_numbers(step, block.number, by_kernels=True)
            if self._sparse is not None:
                self._check_tail(program, outcome)
            verdict = _verdict(outcome)
            if verdict.stop and is_ahead:
                noise.return_to(mark)
            now = time.perf_counter()
            near_end = _may_end_next(verdict.mean_entropy, block)
            goes_on = not verdict.stop and step < last
            if goes_on and not is_ahead:
                # Before the event is made: the device need not wait for it.
                program = launch(step + 1)
            rows = outcome[HEADER:].view(ROWS, -1)
            taken = step_of(rows, step, block, verdict, began=began, now=now, top=top)
            began = now
            yield taken
            if not goes_on:
                return

    def forget(self) -> None:
        """Drops all programs and their graphs: the next steps are made anew."""
        # First, so that no program is run without its graph, even if this method is interrupted.
        self._cache, self._programs = None, {}
        if self._capturer is not None:
            self._capturer.forget()

    def _start(self, cache: KVCache, canvas: Tensor) -> None:
        """Prepares the buffers, and drops the programs of another cache."""
        if self._cache is None or self._cache() is not cache:
            self.forget()
            self._cache = weakref.ref(cache)
        # New host memory for each block: the device may still be copying the inputs of a discarded step.
        self._exchange = Exchange(self._buffers)
        self._buffers.canvas.copy_(canvas)
        self._buffers.soft.zero_()

    def _program(self, shape: Shape) -> Program:
        """A program of this shape; it is kept, and captured on a GPU, unless it commits the end of a prompt."""
        if shape in self._programs:
            return self._programs[shape]
        is_kept = shape.commit_rows in (0, len(self._buffers.canvas))
        program = Program(
            self._model,
            self._buffers,
            shape,
            read=self._read,
            sparse=self._sparse,
            capturer=self._capturer if is_kept else None,
        )
        if is_kept:
            self._programs[shape] = program
        return program

    def _launch(
        self,
        cache: KVCache,
        noise: SeededNoise,
        block: BlockSettings,
        step: int,
        commit_ids: Sequence[int] = (),
    ) -> Program:
        """Sends a step, runs it, and asks for its outcome; the host does not wait for any of these."""
        settings, config = block.sampler, self._model.config
        controls = (
            bits_of(temperature_at(step, settings)),
            bits_of(settings.entropy_bound),
            bits_of(settings.confidence),
            settings.stability,
            RULES[block.stop_rule],
            block.pad_id,
            step,
            cache.length,
        )
        noise.at(block.number, step)
        uniforms = None if settings.greedy else noise.uniforms(config.canvas_length)
        self._exchange.send(step, controls, uniforms, noise.canvas(config.canvas_length, config.vocab_size))
        top_k = min(block.record_top_k, config.vocab_size)
        program = self._program(Shape(commit_rows=len(commit_ids), sampled=not settings.greedy, top_k=top_k))
        if commit_ids:
            self._exchange.send_commit(commit_ids, program.commit)
        program.run(cache)
        self._exchange.ask(step, program.top)
        return program

    def _check_tail(self, program: Program, outcome: Tensor) -> None:
        """Logs the mass that sparse self-conditioning left out; on overflow, recomputes the soft embedding exactly."""
        overflow = bool(outcome[OVERFLOW])
        _log.debug(
            "self-conditioning: tail up to %.2e%s", outcome[TAIL].view(torch.float32), ", too many ids" * overflow
        )
        if overflow:
            program.make_soft_exact()


def _verdict(outcome: Tensor) -> Verdict:
    return Verdict(
        mean_entropy=float(outcome[MEAN_ENTROPY].view(torch.float32)),
        stable=bool(outcome[STABLE]),
        confident=bool(outcome[CONFIDENT]),
        stop=bool(outcome[STOP]),
    )


def _may_end_next(mean_entropy: float, block: BlockSettings) -> bool:
    """Whether the step after this one may well be its block's last, judging by the mean entropy.

    Args:
        mean_entropy: in nats, of a step that does not end the block.
    """
    if block.stop_rule in ("never", "stable"):
        return block.stop_rule == "stable"
    return mean_entropy < NEAR * block.sampler.confidence
