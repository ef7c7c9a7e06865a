"""A denoise step of static shape, captured as a CUDA graph on a GPU.

The first run of a program is eager: it loads and compiles what the step needs, and its results are used.
On a GPU the second run begins by capturing the step, which computes nothing; this run and all later ones are replays.
Shape letters: C commit rows, L canvas rows, K most probable ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from localdiff.denoising.static.cuda_graphs import GraphCapturer
from localdiff.denoising.static.reading import ReadAndDecide
from localdiff.diffusion.reading import top_probabilities
from localdiff.kernels.decision import StepBuffers
from localdiff.kernels.decision_layout import HEADER, LENGTH, OVERFLOW, PROBABILITY, ROWS, TAIL
from localdiff.model.attention import attend_through_triton
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cuda.soft import SparseSoft


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a program is specialized for.

    Attributes:
        commit_rows: rows of a committed block, or of the end of a prompt, that the step writes into the cache first;
            above 0 only in the first step of the block after them.
        sampled: whether ids are drawn, rather than the most probable ones taken.
        top_k: how many of the most probable ids of each position it reports.
    """

    commit_rows: int
    sampled: bool
    top_k: int = 0


class Program:
    """One denoise step over given buffers.

    Args:
        sparse: the sparse form of self-conditioning; None takes the exact one.
        capturer: captures it; None where it always runs eagerly.

    Attributes:
        commit: int64 [C], the ids that it writes.
        top: int32 [2, L, K], the most probable ids and the bits of their probabilities; None where K is 0.
    """

    def __init__(
        self,
        model: DiffusionGemma,
        buffers: StepBuffers,
        shape: Shape,
        *,
        read: ReadAndDecide,
        sparse: SparseSoft | None = None,
        capturer: GraphCapturer | None = None,
    ) -> None:
        self._model, self._buffers, self._shape, self._read, self._sparse = model, buffers, shape, read, sparse
        length, device = len(buffers.canvas), buffers.canvas.device
        self.commit = torch.zeros(shape.commit_rows, dtype=torch.int64, device=device)
        self.top = torch.zeros(2, length, shape.top_k, dtype=torch.int32, device=device) if shape.top_k else None
        self._capturer = capturer
        self._graph: torch.cuda.CUDAGraph | None = None
        self._has_run = False
        self._soft_inputs: tuple[Tensor, Tensor] | None = None

    def run(self, cache: KVCache) -> None:
        """Computes a step, its soft embedding included; the cache must be the same every time."""
        # Captured just before its first replay, not just after the eager run: `make_soft_exact` reads tensors that the
        # last call of `_step` made, and those that a capture makes hold no numbers until it is replayed.
        if self._has_run and self._graph is None and self._capturer is not None:
            self._graph = self._capturer.capture(partial(self._step, cache))
            if self._graph is None:
                self._capturer = None  # it goes on running eagerly
        if self._graph is not None:
            self._graph.replay()
        else:
            self._step(cache)
        self._has_run = True

    def make_soft_exact(self) -> None:
        """Recomputes the soft embedding of the last `run`, which was sparse, exactly."""
        assert self._soft_inputs is not None
        self._buffers.soft.copy_(self._model.soft_embedding(*self._soft_inputs))

    def _step(self, cache: KVCache) -> None:
        model, buffers, shape = self._model, self._buffers, self._shape
        length = buffers.controls[LENGTH]
        rows = shape.commit_rows + len(buffers.canvas)
        hidden = model.rows(
            self.commit,
            buffers.canvas,
            None if shape.commit_rows else buffers.soft,
            length + torch.arange(rows, device=length.device),
            (attend_through_triton(layer, length, shape.commit_rows) for layer in cache.layers),
        )
        logits = model.embed_tokens.logits(hidden)
        top = logits.topk(shape.top_k, dim=-1) if shape.top_k else None  # before they are overwritten
        softcap, is_exact = model.config.softcap, self._sparse is None
        normalizer = self._read(logits, buffers, softcap=softcap, sampled=shape.sampled, as_probabilities=is_exact)
        if top is not None and self.top is not None:
            argmax_prob = buffers.outcome[HEADER:].view(ROWS, -1)[PROBABILITY].view(torch.float32)
            probs = top_probabilities(top.values, argmax_prob, softcap=softcap, temperature=buffers.temperature)
            self.top[0], self.top[1] = top.indices, probs.view(torch.int32)
        if self._sparse is None:
            buffers.soft.copy_(model.mean_embedding(logits))
            return
        self._soft_inputs = logits, normalizer  # captured memory is not reused while it is referenced
        soft = self._sparse(logits, normalizer)
        buffers.soft.copy_(model.scale(soft.embedding))
        buffers.outcome[OVERFLOW] = soft.overflow.any()
        buffers.outcome[TAIL] = soft.tail.max().view(torch.int32)
