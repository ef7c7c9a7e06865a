"""A denoise step of fixed shape, and its capture.

The first run of a program is an ordinary one: it loads and compiles what the step needs, and what it computes is used.
On a card the second one begins with recording the step, which computes nothing; it and all later ones are replays.
Shape letters: C commit rows, L canvas rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quant.cuda.soft import SparseSoft

from ..kernels.decision import LENGTH, OVERFLOW, TAIL
from ..model.attention import Attend
from ..model.cache import KVCache, LayerCache
from ..model.diffusion_gemma import DiffusionGemma
from ..model.static_attention import attend_static, attend_through_triton
from .buffers import StepBuffers
from .reading import Read

LEAST_BUCKET = 256

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a program is made for.

    Attributes:
        bucket: most positions in the cache that its canvas rows see; attention in Triton asks the device for that.
        commit_rows: rows of a committed block, or of the end of a prompt, that it writes first; it is then the first
            step of the block behind them.
        sampled: whether ids are drawn, rather than the most probable ones taken.
    """

    bucket: int
    commit_rows: int
    sampled: bool


def bucket_of(length: int, capacity: int) -> int:
    """The bucket for a number of positions: a power of 2, or all there is room for."""
    return min(capacity, max(LEAST_BUCKET, 1 << max(length - 1, 0).bit_length()))


class Recorded:
    """Work that is run once as it stands, and on a card replayed from then on.

    It is recorded ahead of the second run and not behind the first one: what it leaves behind in memory of its own is,
    after either, what that run has computed.

    Args:
        pool: memory that all recordings of a model share; None where nothing is recorded.
    """

    def __init__(self, work: Callable[[KVCache], None], pool: Any | None) -> None:
        self._work, self._pool = work, pool
        self._graph: torch.cuda.CUDAGraph | None = None
        self._has_run = False

    @property
    def is_recorded(self) -> bool:
        """Whether the last run was a replay."""
        return self._graph is not None

    def __call__(self, cache: KVCache) -> None:
        """Runs or replays; the cache must be the same every time."""
        if self._has_run and self._graph is None and self._pool is not None:
            self._record(cache)
        if self._graph is not None:
            self._graph.replay()
        else:
            self.plainly(cache)

    def plainly(self, cache: KVCache) -> None:
        """Runs as it stands, whether it is recorded or not."""
        self._work(cache)
        self._has_run = True

    def _record(self, cache: KVCache) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                self._work(cache)
        except RuntimeError as error:
            # Nothing is lost: it goes on being computed launch by launch.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            _log.warning("a denoise step could not be recorded as a CUDA graph (%s)", reason)
            self._pool = None
        else:
            self._graph = graph


class Program:
    """One denoise step over given buffers.

    Args:
        read: statistics and decision.
        attention: whether attention is Triton's.
        sparse: the sparse form of self-conditioning; None takes the exact one.
        pool: see `Recorded`.

    Attributes:
        commit: int64 [C], the ids that it writes.
        run: computes a step, its soft embedding included.
    """

    def __init__(
        self,
        model: DiffusionGemma,
        buffers: StepBuffers,
        shape: Shape,
        *,
        read: Read,
        attention: bool = False,
        sparse: SparseSoft | None = None,
        pool: Any | None = None,
    ) -> None:
        self._model, self._buffers, self._shape, self._read, self._sparse = model, buffers, shape, read, sparse
        self._attention = attention
        if shape.commit_rows == len(buffers.commit):
            self.commit = buffers.commit
        else:
            self.commit = torch.zeros(shape.commit_rows, dtype=torch.int64, device=buffers.commit.device)
        self._kept: tuple[Tensor, Tensor] | None = None
        self.run = Recorded(self._step, pool)
        self._replace_soft = Recorded(self._exact_soft, pool)

    def make_soft_exact(self, cache: KVCache) -> None:
        """Computes the soft embedding of the last `run` again, exactly, where that made a sparse one.

        Raises:
            RuntimeError: it made none.
        """
        if self.run.is_recorded:
            self._replace_soft(cache)
        else:  # the logits of every run lie somewhere else
            self._replace_soft.plainly(cache)

    def _step(self, cache: KVCache) -> None:
        model, buffers, shape = self._model, self._buffers, self._shape
        length = buffers.controls[LENGTH]
        rows = shape.commit_rows + len(buffers.canvas)
        hidden = model.rows(
            self.commit,
            buffers.canvas,
            None if shape.commit_rows else buffers.soft,
            length + torch.arange(rows, device=length.device),
            (self._attend(layer, length) for layer in cache.layers),
        )
        logits = model.embed_tokens.logits(hidden)
        normalizer = self._read(logits, buffers, model.config.softcap, shape.sampled)
        if self._sparse is None:
            buffers.soft.copy_(model.soft_embedding(logits, normalizer))
            return
        self._kept = logits, normalizer  # recorded memory that is referred to is not given to what comes next
        soft = self._sparse(logits, normalizer)
        buffers.soft.copy_(model.scale(soft.embedding))
        buffers.outcome[OVERFLOW] = soft.overflow.any()
        buffers.outcome[TAIL] = soft.tail.max().view(torch.int32)

    def _attend(self, layer: LayerCache, length: Tensor) -> Attend:
        if self._attention:
            return attend_through_triton(layer, length, self._shape.commit_rows)
        return attend_static(layer, length, self._shape.commit_rows, self._shape.bucket)

    def _exact_soft(self, cache: KVCache) -> None:
        del cache
        if self._kept is None:
            raise RuntimeError("a soft embedding is made exact after a step that made a sparse one")
        self._buffers.soft.copy_(self._model.soft_embedding(*self._kept))
