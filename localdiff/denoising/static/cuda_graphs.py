"""Capture and replay of CUDA graphs.

Knows streams, graphs and their memory; knows nothing about what is captured. Nothing here keeps a reference to the
work, so that it is freed as soon as its owner is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import torch

Work: TypeAlias = Callable[[], None]

_log = logging.getLogger(__name__)
_capturing = threading.Lock()
"""One capture at a time: to wait for a device, as each does first, breaks those that others have begun on it."""
_broken_off: list[torch.cuda.CUDAGraph] = []
"""Graphs that torch may still point at, as long as the process runs."""


class GraphCapturer:
    """Captures graphs on one GPU, on a stream of its own, into a memory pool that they share.

    The stream is its own because libraries keep workspaces per stream, in the pool of whoever captured on it.

    Args:
        device: the GPU; it need not be the current one.

    Attributes:
        has_failed: whether something could not be captured.
    """

    def __init__(self, device: torch.device) -> None:
        self.has_failed = False
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def capture(self, work: Work) -> torch.cuda.CUDAGraph | None:
        """Captures work without doing it; None, with a warning, where it cannot be captured."""
        graph = torch.cuda.CUDAGraph()
        try:
            with (
                _capturing,
                torch.cuda.device(self._device),
                # Comes back to it if Ctrl-C breaks off the way to the other one.
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                torch.cuda.stream(self._stream),
            ):
                # A thread's first product makes a cuBLAS handle, which allocates: within a capture it would break it.
                torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()
                torch.cuda.empty_cache()  # memory that others have cached is none that a capture could take
                self._capture(graph, work)
        except BaseException as error:
            self._give_up(graph)
            if not isinstance(error, RuntimeError):  # Ctrl-C
                raise
            self.has_failed = True
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            _log.warning("a denoise step could not be captured as a CUDA graph (%s)", reason)
            return None
        self._graphs.append(graph)
        return graph

    def _capture(self, graph: torch.cuda.CUDAGraph, work: Work) -> None:
        """Captures on the current stream; raises what went wrong first.

        `torch.cuda.graph` would raise what the end of a broken capture says, that it is broken, even over Ctrl-C.
        """
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            work()
            graph.capture_end()
        except BaseException:
            with suppress(RuntimeError):  # of a capture that is broken, over, or had not begun
                graph.capture_end()  # the stream would go on capturing
            raise

    def _give_up(self, graph: torch.cuda.CUDAGraph) -> None:
        """Makes torch's allocator end a capture that broke off, and takes another memory pool.

        `capture_end` of torch fails before it tells the allocator. That one would refuse from then on to give back
        cached memory, even where memory runs out, and to capture into this pool again.
        """
        pool, self._pool = self._pool, torch.cuda.graph_pool_handle()
        device = self._device.index or 0
        try:
            torch._C._cuda_endAllocateToPool(device, pool)
        except RuntimeError:  # not recording: this was over, or had not begun
            graph.reset()
        else:
            torch._C._cuda_releasePool(device, pool)
            _broken_off.append(graph)

    def forget(self) -> None:
        """Resets all graphs, whoever still has them, and begins again with a new memory pool."""
        if not self._graphs:
            return
        with _capturing:
            torch.cuda.synchronize(self._device)  # one of them may still be running
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()
        self._pool = torch.cuda.graph_pool_handle()


class CapturedWork:
    """Work that runs eagerly once, and from then on as a CUDA graph.

    It is captured before the second run and not after the first: what it leaves in memory of its own is, after
    either, what that run computed.

    Args:
        capturer: None where nothing is captured.
    """

    def __init__(self, capturer: GraphCapturer | None) -> None:
        self._capturer = capturer
        self._graph: torch.cuda.CUDAGraph | None = None
        self._has_run = False

    @property
    def is_captured(self) -> bool:
        """Whether the last run was a replay."""
        return self._graph is not None

    def __call__(self, work: Work) -> None:
        """Runs or replays; the work must be the same every time."""
        if self._has_run and self._graph is None and self._capturer is not None:
            self._graph = self._capturer.capture(work)
            if self._graph is None:
                self._capturer = None  # it goes on running eagerly
        if self._graph is not None:
            self._graph.replay()
        else:
            self.plainly(work)

    def plainly(self, work: Work) -> None:
        """Runs eagerly, whether captured or not."""
        work()
        self._has_run = True
