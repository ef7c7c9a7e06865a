"""Capture and replay of CUDA graphs.

Knows streams, graphs and their memory; knows nothing about what is captured. Nothing here keeps a reference to the
work, so that it is freed as soon as its owner is.
"""

from __future__ import annotations

import gc
import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

import torch

Work: TypeAlias = Callable[[], None]

_log = logging.getLogger(__name__)
_capturing = threading.Lock()
"""One capture at a time: each first waits for the device, which would break a capture there by another thread."""
_MARKS_GENERATOR = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12)
"""Whether an aborted capture leaves the default generator of its GPU marked as drawing for a graph. Since torch 2.12
the generator has a state for each capture."""
_KEEPS_MEMORY = torch.__version__.split("+")[0] == "2.13.0"
"""Whether a graph whose capture was aborted keeps the memory of its pool. Releasing a pool twice breaks the allocator,
so this is True for one version only, not for all later ones."""
_broken_off: list[torch.cuda.CUDAGraph] = []
"""Graphs kept alive because torch may hold pointers to them for as long as the process runs."""


class GraphCapturer:
    """Captures graphs on one GPU, on a stream of its own, into a memory pool that they share.

    The stream is its own because libraries keep workspaces per stream, in the pool of whoever captured on it.

    Args:
        device: the GPU; it need not be the current one.

    Attributes:
        has_failed: whether something could not be captured since the last `forget`.
        graphs: all that it has captured since then.
    """

    def __init__(self, device: torch.device) -> None:
        self.has_failed = False
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self.graphs: list[torch.cuda.CUDAGraph] = []

    def capture(self, work: Work) -> torch.cuda.CUDAGraph | None:
        """Captures work without doing it; None, with a warning, where it cannot be captured."""
        try:
            with (
                _capturing,
                _nothing_collected(),
                torch.cuda.device(self._device),
                # Returns to this stream even if Ctrl-C comes while the other one is being entered.
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                torch.cuda.stream(self._stream),
            ):
                # A thread's first matmul makes a cuBLAS handle, and what that allocates would break a capture.
                torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
                torch.cuda.synchronize()
                torch.cuda.empty_cache()  # a capture cannot use memory that the allocator has cached
                graph = torch.cuda.CUDAGraph()  # asks the current device for its stream
                self._capture(graph, work)
        except RuntimeError as error:
            self.has_failed = True
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            _log.warning("a denoise step could not be captured as a CUDA graph (%s)", reason)
            return None
        self.graphs.append(graph)
        return graph

    def _capture(self, graph: torch.cuda.CUDAGraph, work: Work) -> None:
        """Captures on the current stream; raises the first error.

        `torch.cuda.graph` would raise the last one instead, even after Ctrl-C: that a broken capture cannot be ended.
        """
        has_begun = False
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            has_begun = True
            work()
            graph.capture_end()
        except BaseException:
            with suppress(RuntimeError):  # of a capture that is broken, over, or had not begun
                graph.capture_end()  # otherwise the stream would go on capturing
            self._give_up(graph, has_begun=has_begun)
            if _MARKS_GENERATOR:
                _unmark_generator()
            raise

    def _give_up(self, graph: torch.cuda.CUDAGraph, *, has_begun: bool) -> None:
        """Makes torch's allocator end an aborted capture and give back its memory, and takes another pool.

        Up to torch 2.12, `capture_end` fails before it tells the allocator. From then on, the allocator would refuse to
        give back cached memory, even when memory runs out, and to capture into this pool again. In torch 2.13.0 the
        allocator is told, but keeps the memory (since pytorch#190348, `reset` gives it back). Up to 2.12 the allocator
        of pinned memory is not told either (pytorch#180395), and this code cannot tell it. That does no harm: it asks
        the graph, which is kept alive, whether a stream is in this very capture, and none ever is again.
        """
        pool, self._pool = self._pool, torch.cuda.graph_pool_handle()
        device = self._device.index or 0
        try:
            torch._C._cuda_endAllocateToPool(device, pool)
        except RuntimeError:  # not recording: the allocator was told, or the capture had not begun
            keeps_memory = has_begun and _KEEPS_MEMORY and not _has_ended(graph)
            graph.reset()
            if not keeps_memory:
                return
        torch._C._cuda_releasePool(device, pool)
        _broken_off.append(graph)

    def forget(self) -> None:
        """Resets all graphs, even those still referenced elsewhere, and starts over with a new memory pool."""
        self.has_failed = False
        if not self.graphs:
            return
        with _capturing:
            torch.cuda.synchronize(self._device)  # one of them may still be running
        for graph in self.graphs:
            graph.reset()
        self.graphs.clear()
        self._pool = torch.cuda.graph_pool_handle()


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Python collects no garbage inside: if torch destroyed a graph in it, a capture of this thread would break.

    Not every version of torch allows for that (https://github.com/pytorch/pytorch/pull/161037 shows the failure).
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()


def _unmark_generator() -> None:
    """Lets the default generator of the current device draw again, after a capture was aborted.

    Each capture marks it, and `capture_end` removes the mark, but not if the capture is broken: that line comes after
    the one that fails. Then every operation that draws on the GPU fails ("offset increment outside graph capture"), and
    in some versions every replay. So one more capture, an empty one, is begun and ended.
    """
    graph = torch.cuda.CUDAGraph()
    # Where this one cannot begin either, the generator was not marked, or nothing works on this GPU any more.
    with suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the graph is empty
        try:
            graph.capture_begin(pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
        finally:
            with suppress(RuntimeError):
                graph.capture_end()


def _has_ended(graph: torch.cuda.CUDAGraph) -> bool:
    """Whether a graph was captured to its end, in which case resetting it releases its pool."""
    try:
        graph.pool()
    except RuntimeError:
        return False
    return True
