"""Denoises blocks step by step: through static programs where they are supported, on the plain path elsewhere.

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
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quant.cuda.soft import SparseSoft

from ..children import shielded_children
from ..denoising import BlockSettings, Step, denoise_block, not_numbers
from ..diffusion.noise import Noise, SeededNoise
from ..diffusion.schedule import temperature_at
from ..diffusion.settings import SamplerSettings
from ..kernels.decision import NUMBERS, OVERFLOW, RULES, STOP, TAIL, bits_of
from ..loading import LoadProgress, tell_nobody
from ..model.cache import KVCache
from ..model.diffusion_gemma import DiffusionGemma
from .buffers import Exchange, StepBuffers
from .outcome import event_of, may_end
from .path import StepPath, int8_embedding
from .program import Program, Shape, bucket_of
from .reading import Read, read_through_torch, read_through_triton
from .recording import Recorder

_log = logging.getLogger(__name__)


class Denoiser:
    """Denoises the blocks of one model.

    Args:
        path: as `StepPath.prepare` returned it for this model; by default the plain one.
    """

    def __init__(self, model: DiffusionGemma, path: StepPath | None = None) -> None:
        self.path = path or StepPath()
        self._model = model
        self._read: Read = read_through_triton if self.path.logits else read_through_torch
        self._recorder = Recorder(model.norm.weight.device) if self.path.captured else None
        embedding = int8_embedding(model) if self.path.sparse else None
        self._sparse = None if embedding is None else SparseSoft(embedding)
        self._launches_ahead = self.path.ahead and not self.path.sparse
        self._is_busy = self._has_warned = False
        self._cache: weakref.ref[KVCache] | None = None
        self._programs: dict[Shape, Program] = {}
        self._buffers: StepBuffers | None = None

    @classmethod
    def for_device(
        cls, model: DiffusionGemma, device: torch.device, *, one_device: bool = True, stays: bool = True
    ) -> Denoiser:
        """One that takes `StepPath.for_device`, and prepares the model for it.

        Raises:
            SwitchError: an environment variable has an invalid value.
        """
        path = StepPath.for_device(model, device, one_device=one_device, stays=stays).prepare(model)
        if device.type == "cuda":
            _log.info("steps: %s", path)
        return cls(model, path)

    def warm_up(self, progress: LoadProgress = tell_nobody) -> None:
        """Takes a step of each kind that a run has, so that kernels are compiled before its clock starts.

        The rows beside the canvas are none, a committed block, and the end of a prompt, which is another number; ids
        are drawn, or the most probable ones taken.

        Args:
            progress: is told how many of the steps are taken.
        """
        began = time.perf_counter()
        config, weight, noise = self._model.config, self._model.norm.weight, SeededNoise(0)
        length = config.canvas_length
        cache = KVCache(config, 4 * length, weight.dtype, weight.device, canvas=self.canvas_room)
        kinds = ((0, False), (length, False), (2 * length, False), (0, True))
        with shielded_children():
            for done, (rows, greedy) in enumerate(kinds):
                progress("kernels", done / len(kinds))
                block = BlockSettings(
                    number=1,
                    started=began,
                    sampler=SamplerSettings(max_steps=1, greedy=greedy),
                    stop_rule="never",
                    pad_id=config.pad_token_id,
                )
                canvas = noise.canvas(length, config.vocab_size).to(weight.device)
                for _ in self.denoise_block(cache, canvas, noise, block, [config.pad_token_id] * rows):
                    pass
        progress("kernels", 1.0)
        _log.info(
            "a step of each kind took %.1f s, in which kernels that are new were compiled", time.perf_counter() - began
        )

    def without_graphs(self) -> Denoiser:
        """A denoiser of the same path, launched kernel by kernel and never ahead, so that parts can be clocked."""
        return Denoiser(self._model, replace(self.path, captured=False, ahead=False)) if self.path.static else self

    @property
    def canvas_room(self) -> int:
        """Rows that a cache must leave room for, see `KVCache`; Triton attention needs none."""
        return self._model.config.canvas_length if self.path.static and not self.path.attention else 0

    def denoise_block(
        self,
        cache: KVCache,
        canvas: Tensor,
        noise: Noise,
        block: BlockSettings,
        commit_ids: Sequence[int] = (),
    ) -> Iterator[Step]:
        """Denoises `canvas` [L], as `localdiff.denoising.denoise_block` does.

        Args:
            commit_ids: a block, or the end of a prompt, that the first step also writes into the cache.
        """
        fits = cache.canvas >= self.canvas_room and len(canvas) == self._model.config.canvas_length
        if not (self.path.static and fits and isinstance(noise, SeededNoise)) or block.alternatives or self._is_taken():
            commit = torch.tensor(commit_ids, dtype=torch.int64, device=canvas.device) if commit_ids else None
            yield from denoise_block(self._model, cache, canvas, noise, block, commit)
            return
        self._is_busy = True
        try:
            yield from self._statically(cache, canvas, noise, block, commit_ids)
        finally:
            self._is_busy = False

    def _is_taken(self) -> bool:
        """Whether another run is using the buffers, which serve one block at a time; warns once."""
        if self._is_busy and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "another answer of this model is still being generated, or was left unfinished: meanwhile, steps take "
                "the plain path, which is slower"
            )
        return self._is_busy

    @torch.inference_mode()
    def _statically(
        self, cache: KVCache, canvas: Tensor, noise: SeededNoise, block: BlockSettings, commit_ids: Sequence[int]
    ) -> Iterator[Step]:
        buffers, last = self._prepare(cache, canvas), block.sampler.steps
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
            if not outcome[NUMBERS]:
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
            if self._recorder is not None:
                self._recorder.forget()
            self._programs.clear()
            self._cache = weakref.ref(cache)
        return self._buffers

    def _launch(self, shared: _Shared, step: int, commit_ids: Sequence[int] = ()) -> Program:
        """Sends a step, runs it, and asks for its outcome, all without host synchronization."""
        commit_rows = len(commit_ids)
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
        shape = Shape(
            bucket=cache.capacity if self.path.attention else bucket_of(cache.length + commit_rows, cache.capacity),
            commit_rows=commit_rows,
            sampled=not settings.greedy,
        )
        program = self._program(shared, shape)
        if commit_ids:
            program.commit.copy_(torch.tensor(commit_ids, dtype=torch.int64))
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
                attention=self.path.attention,
                sparse=self._sparse,
                recorder=self._recorder if keeps else None,
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
