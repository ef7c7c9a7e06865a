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
from dataclasses import dataclass

import torch
from torch import Tensor

from quant.cuda.soft import SparseSoft
from quant.cuda.support import missing
from quant.cuda.switches import PARTS, check_switches, is_plain, is_sparse
from quant.modules import QuantEmbedding

from ..denoising import BlockContext, Step, denoise_block, not_numbers
from ..diffusion.noise import Noise, SeededNoise
from ..diffusion.schedule import temperature_at
from ..kernels.attention import can_attend
from ..kernels.decision import NUMBERS, OVERFLOW, RULES, STOP, TAIL, bits_of
from ..model.cache import KVCache
from ..model.diffusion_gemma import DiffusionGemma
from ..model.fused_layer_ops import FusedLayerOps
from ..model.layer_ops import set_layer_ops
from ..model.projections import fuse_projections
from ..switches import reading_switches
from .buffers import Exchange, StepBuffers
from .outcome import event_of, may_end
from .program import Program, Shape, bucket_of
from .reading import Read, read_through_torch, read_through_triton
from .recording import Recorder

_log = logging.getLogger(__name__)


class Denoiser:
    """Denoises the blocks of one model.

    Args:
        static: whether steps are static; `for_device` decides by the device and the switches.
        triton: whether statistics and decision run in Triton.
        attention: whether attention runs in Triton, in all of the model's passes; one program then serves every number
            of positions.
        layer_ops: whether the ops between a layer's GEMMs are fused in Triton, in all of the model's passes.
        projections: whether projections of the same rows are fused, where weights allow it, in all of its passes.
        captured: whether static steps are captured as CUDA graphs; their torch ops must then not synchronize.
        fuses_commits: whether a committed block, or the end of a prompt, is written into the cache by the first step
            after it.
        sparse: whether self-conditioning uses only the probable ids, where a step has few enough of them.
        ahead: whether a step is launched before the outcome of the last one is read, unless that one may end the block.

    Attributes:
        is_static, fuses_commits: see above.
        path: how steps are computed, in words.
    """

    def __init__(
        self,
        model: DiffusionGemma,
        *,
        static: bool = False,
        triton: bool = False,
        attention: bool = False,
        layer_ops: bool = False,
        projections: bool = False,
        captured: bool = False,
        fuses_commits: bool = False,
        sparse: bool = False,
        ahead: bool = True,
    ) -> None:
        self._model, self._ahead = model, ahead and not sparse
        self.is_static, self.fuses_commits = static, fuses_commits
        self._read: Read = read_through_triton if triton else read_through_torch
        self._recorder = Recorder(model.norm.weight.device) if captured else None
        self._sparse = _sparse_soft(model) if static and sparse else None
        self._attention = static and attention
        if self._attention:
            model.attends_through_triton = True
        if static and layer_ops:
            set_layer_ops(model, FusedLayerOps())
        are_fused = static and projections and fuse_projections(model) > 0
        self._is_busy = self._has_warned = False
        self._cache: weakref.ref[KVCache] | None = None
        self._programs: dict[Shape, Program] = {}
        self._buffers: StepBuffers | None = None
        words = ["static step" if static else "plain step"]
        words += ["CUDA graph"] * captured + ["logits in Triton"] * (static and triton)
        words += ["attention in Triton"] * self._attention + ["layer ops in Triton"] * (static and layer_ops)
        words += ["fused projections"] * are_fused
        words += ["commit fused"] * fuses_commits + ["sparse self-conditioning"] * (self._sparse is not None)
        self.path = ", ".join(words)

    @classmethod
    def for_device(cls, model: DiffusionGemma, device: torch.device, *, one_device: bool = True) -> Denoiser:
        """The fastest path that works on a device; on anything but one NVIDIA GPU the plain path.

        Raises:
            UsageError: an environment variable has an invalid value.
        """
        experts = (layer.get_submodule("experts") for layer in model.layers)
        can_be_captured = all(getattr(module, "can_be_captured", False) for module in experts)
        with reading_switches():
            plain = {part: is_plain(part) for part in PARTS}
            check_switches()  # a wrong value is an error even without a GPU
            sparse = is_sparse()
        if device.type != "cuda" or not one_device:
            return cls(model)
        static = not plain["step"] and missing(device) is None
        denoiser = cls(
            model,
            static=static,
            triton=static and not plain["logits"],
            attention=static and not plain["attention"] and _can_attend(model),
            layer_ops=static and not plain["layer-ops"],
            projections=static and not plain["projections"],
            captured=static and not plain["graph"] and not plain["logits"] and can_be_captured,
            fuses_commits=not plain["commit"],
            sparse=sparse,
        )
        _log.info("steps: %s", denoiser.path)
        return denoiser

    def without_graphs(self) -> Denoiser:
        """A denoiser that takes the same path, launched kernel by kernel and never ahead, so that parts can be clocked.

        Fused projections and pointwise ops are settings of the model, which it already has.
        """
        if not self.is_static:
            return self
        return Denoiser(
            self._model,
            static=True,
            triton=self._read is read_through_triton,
            attention=self._attention,
            fuses_commits=self.fuses_commits,
            sparse=self._sparse is not None,
            ahead=False,
        )

    @property
    def programs(self) -> tuple[Shape, ...]:
        """Shapes of the programs made so far."""
        return tuple(self._programs)

    @property
    def canvas_room(self) -> int:
        """Rows that a cache must leave room for, see `KVCache`; Triton attention needs none."""
        return self._model.config.canvas_length if self.is_static and not self._attention else 0

    def denoise_block(
        self,
        cache: KVCache,
        canvas: Tensor,
        noise: Noise,
        context: BlockContext,
        commit_ids: Sequence[int] = (),
    ) -> Iterator[Step]:
        """Denoises `canvas` [L], as `localdiff.denoising.denoise_block` does.

        Args:
            commit_ids: a block, or the end of a prompt, that the first step also writes into the cache.
        """
        fits = cache.canvas >= self.canvas_room and len(canvas) == self._model.config.canvas_length
        if not (self.is_static and fits and isinstance(noise, SeededNoise)) or context.alternatives or self._is_taken():
            commit = torch.tensor(commit_ids, dtype=torch.int64, device=canvas.device) if commit_ids else None
            yield from denoise_block(self._model, cache, canvas, noise, context, commit)
            return
        self._is_busy = True
        try:
            yield from self._statically(cache, canvas, noise, context, commit_ids)
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
        self, cache: KVCache, canvas: Tensor, noise: SeededNoise, context: BlockContext, commit_ids: Sequence[int]
    ) -> Iterator[Step]:
        buffers, last = self._prepare(cache, canvas), context.settings.steps
        block = _Block(Exchange(buffers), buffers, cache, noise, context)
        near = False
        began = time.perf_counter()
        buffers.canvas.copy_(canvas)
        buffers.soft.zero_()
        program = self._launch(block, 1, commit_ids)
        cache.advance(len(commit_ids))
        for step in range(1, last + 1):
            mark = noise.mark()
            sent = self._ahead and step < last and not near
            if sent:
                program = self._launch(block, step + 1)
            outcome = block.exchange.take(step)
            if not outcome[NUMBERS]:
                raise not_numbers(step, context.block)
            if self._sparse is not None:
                self._check_tail(program, outcome)
            converged = bool(outcome[STOP])
            if converged and sent:
                noise.return_to(mark)
            now = time.perf_counter()
            near = may_end(outcome, context)
            goes_on = not converged and step < last
            if goes_on and not sent:
                program = self._launch(block, step + 1)  # before the event, which the device need not wait for
            event = event_of(outcome, step, context, seconds=now - began, now=now)
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

    def _launch(self, block: _Block, step: int, commit_ids: Sequence[int] = ()) -> Program:
        """Sends a step, runs it, and asks for its outcome, all without host synchronization."""
        commit_rows = len(commit_ids)
        cache, noise, context = block.cache, block.noise, block.context
        settings, config = context.settings, self._model.config
        controls = (
            bits_of(temperature_at(step, settings)),
            bits_of(settings.entropy_bound),
            bits_of(settings.confidence),
            settings.stability,
            RULES[context.stop_rule],
            context.pad_id,
            step,
            cache.length,
        )
        noise.at(context.block, step)
        uniforms = None if settings.greedy else noise.uniforms(config.canvas_length)
        block.exchange.send(step, controls, uniforms, noise.canvas(config.canvas_length, config.vocab_size))
        shape = Shape(
            bucket=cache.capacity if self._attention else bucket_of(cache.length + commit_rows, cache.capacity),
            commit_rows=commit_rows,
            sampled=not settings.greedy,
        )
        program = self._program(block, shape)
        if commit_ids:
            program.commit.copy_(torch.tensor(commit_ids, dtype=torch.int64))
        program.run(cache)
        block.exchange.ask(step)
        return program

    def _program(self, block: _Block, shape: Shape) -> Program:
        """A program of this shape: kept, and captured on a GPU, except for ends of prompts, which have any length."""
        keeps = shape.commit_rows in (0, len(block.buffers.canvas))
        program = self._programs.get(shape)
        if program is None:
            program = Program(
                self._model,
                block.buffers,
                shape,
                read=self._read,
                attention=self._attention,
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
class _Block:
    """State shared by the steps of one block."""

    exchange: Exchange
    buffers: StepBuffers
    cache: KVCache
    noise: SeededNoise
    context: BlockContext


def _can_attend(model: DiffusionGemma) -> bool:
    return all(can_attend(model.norm.weight.dtype, layer.head_dim) for layer in model.config.layers)


def _sparse_soft(model: DiffusionGemma) -> SparseSoft | None:
    embedding = model.embed_tokens
    if isinstance(embedding, QuantEmbedding) and embedding.weight.codec.name == "int8":
        return SparseSoft(embedding)
    return None
