"""Denoises a block in static steps: each is sent, run and asked for, and may be sent before the last one is over.

    send 1 ─► run 1 ─► ask 1 ─► send 2 ─► run 2 ─► ask 2 ─► …      the device's queue
                          └──── take 1: event, stop? ──┘           the host, a step behind

The next step is sent before the last one's outcome is read, so that the device never waits for the host; where the stop
rule was met meanwhile, that step is discarded and the noise source rewound. Knows events and the order of steps; the
arithmetic is the program's.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quant.cuda.soft import SparseSoft

from ...children import shielded_children
from ...diffusion.noise import SeededNoise
from ...diffusion.schedule import temperature_at
from ...kernels.decision import FINITE, OVERFLOW, RULES, STOP, TAIL, bits_of
from ...model.cache import KVCache
from ...model.diffusion_gemma import DiffusionGemma
from ..plain import BlockSettings, Step, not_numbers
from .buffers import Exchange, StepBuffers
from .cuda_graphs import GraphCapturer
from .outcome import event_of, may_end
from .program import Program, Shape
from .reading import Read

_log = logging.getLogger(__name__)


class StaticSteps:
    """Denoises the blocks of one model, one at a time: the buffers are those of one block.

    Args:
        read, sparse: as a `Program` takes them.
        capturer: captures the steps; None launches them kernel by kernel.
        ahead: whether a step is launched before the outcome of the last one is read.
    """

    def __init__(
        self,
        model: DiffusionGemma,
        *,
        read: Read,
        sparse: SparseSoft | None,
        capturer: GraphCapturer | None,
        ahead: bool,
    ) -> None:
        self._model = model
        self._read = read
        self._sparse = sparse
        self._capturer = capturer
        self._launches_ahead = ahead and sparse is None
        self._cache: weakref.ref[KVCache] | None = None
        self._programs: dict[Shape, Program] = {}
        self._buffers: StepBuffers | None = None

    @property
    def are_captured(self) -> bool:
        """Whether steps are replayed: there is a capturer, and what it was given could be captured."""
        return self._capturer is not None and not self._capturer.has_failed

    @torch.inference_mode()
    def denoise_block(
        self, cache: KVCache, canvas: Tensor, noise: SeededNoise, block: BlockSettings, commit_ids: Sequence[int]
    ) -> Iterator[Step]:
        """Denoises `canvas` [L], as `localdiff.denoising.denoise_block` does.

        Args:
            commit_ids: a block, or the end of a prompt, that the first step also writes into the cache.
        """
        buffers, last = self._prepare(cache, canvas), block.sampler.max_steps
        shared = _Shared(Exchange(buffers), buffers, cache, noise, block)
        near = False
        began = time.perf_counter()
        buffers.canvas.copy_(canvas)
        buffers.soft.zero_()
        program = self._launch(shared, 1, commit_ids)
        cache.advance(len(commit_ids))
        for step in range(1, last + 1):
            mark = noise.mark()
            sent = self._launches_ahead and step < last and not near
            if sent:
                program = self._launch(shared, step + 1)
            outcome = shared.exchange.take(step)
            if not outcome[FINITE]:
                raise not_numbers(step, block.number)
            if self._sparse is not None:
                self._check_tail(program, outcome)
            converged = bool(outcome[STOP])
            if converged and sent:
                noise.return_to(mark)
            now = time.perf_counter()
            near = may_end(outcome, block)
            goes_on = not converged and step < last
            if goes_on and not sent:
                program = self._launch(shared, step + 1)  # before the event, which the device need not wait for
            event = event_of(outcome, step, block, seconds=now - began, now=now)
            began = now
            yield Step(event=event, converged=converged)
            if not goes_on:
                return

    def _prepare(self, cache: KVCache, canvas: Tensor) -> StepBuffers:
        """Makes the buffers once, and drops the programs of another cache, whose addresses they hold."""
        if self._buffers is None:
            norm = self._model.norm.weight
            self._buffers = StepBuffers(len(canvas), self._model.config.hidden_size, norm.dtype, canvas.device)
        if self._cache is None or self._cache() is not cache:
            if self._capturer is not None:
                self._capturer.forget()
            self._programs.clear()
            self._cache = weakref.ref(cache)
        return self._buffers

    def _launch(self, shared: _Shared, step: int, commit_ids: Sequence[int] = ()) -> Program:
        """Sends a step, runs it, and asks for its outcome; the host waits for none of that."""
        cache, noise, block = shared.cache, shared.noise, shared.block
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
        shared.exchange.send(step, controls, uniforms, noise.canvas(config.canvas_length, config.vocab_size))
        shape = Shape(commit_rows=len(commit_ids), sampled=not settings.greedy)
        program = self._program(shared, shape)
        if commit_ids:
            shared.exchange.send_commit(commit_ids, program.commit)
        with shielded_children():
            program.run(cache)
        shared.exchange.ask(step)
        return program

    def _program(self, shared: _Shared, shape: Shape) -> Program:
        """A program of this shape: kept, and captured on a GPU, except for ends of prompts, which have any length."""
        keeps = shape.commit_rows in (0, len(shared.buffers.canvas))
        program = self._programs.get(shape)
        if program is None:
            program = Program(
                self._model,
                shared.buffers,
                shape,
                read=self._read,
                sparse=self._sparse,
                capturer=self._capturer if keeps else None,
            )
        if keeps:
            self._programs[shape] = program
        return program

    def _check_tail(self, program: Program, outcome: Tensor) -> None:
        """Logs the mass that sparse self-conditioning left out, and recomputes it exactly where that was too much."""
        overflow = bool(outcome[OVERFLOW])
        _log.debug(
            "self-conditioning: tail up to %.2e%s", outcome[TAIL].view(torch.float32), ", too many ids" * overflow
        )
        if overflow:
            program.make_soft_exact()


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the steps of one block share."""

    exchange: Exchange
    buffers: StepBuffers
    cache: KVCache
    noise: SeededNoise
    block: BlockSettings
