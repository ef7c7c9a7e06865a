"""Work that is recorded as CUDA graphs and replayed.

Knows streams, graphs and the memory they lie in; knows nothing about what is recorded. None of it holds on to the work,
so that what is recorded goes as soon as its owner does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

import torch

Work: TypeAlias = Callable[[], None]

_log = logging.getLogger(__name__)


class Recorder:
    """Records on one card, on a stream of its own, into memory that all its recordings share.

    The stream is its own because libraries keep workspaces a stream, which lie in the memory of whoever recorded on it.

    Args:
        device: the card; it need not be the current one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._failed: list[torch.cuda.CUDAGraph] = []

    def record(self, work: Work) -> torch.cuda.CUDAGraph | None:
        """Records work without doing it; None, and a warning, where it cannot be recorded."""
        graph = torch.cuda.CUDAGraph()
        try:
            # A recording that breaks off leaves its thread on the stream of the recording: the outer one takes it back.
            with (
                torch.cuda.device(self._device),
                torch.cuda.stream(torch.cuda.current_stream(self._device)),
                torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"),
            ):
                work()
        except RuntimeError as error:
            self._failed.append(graph)  # torch may go on pointing at it
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            _log.warning("a denoise step could not be recorded as a CUDA graph (%s)", reason)
            return None
        self._graphs.append(graph)
        return graph

    def forget(self) -> None:
        """Takes all recordings back, whoever still has them, and begins again with other memory."""
        if not self._graphs:
            return
        torch.cuda.synchronize(self._device)  # one of them may still be replayed
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()
        self._pool = torch.cuda.graph_pool_handle()


class Recorded:
    """Work that is run once as it stands, and from then on replayed.

    It is recorded ahead of the second run and not behind the first one: what it leaves behind in memory of its own is,
    after either, what that run has computed.

    Args:
        recorder: None where nothing is recorded.
    """

    def __init__(self, recorder: Recorder | None) -> None:
        self._recorder = recorder
        self._graph: torch.cuda.CUDAGraph | None = None
        self._has_run = False

    @property
    def is_recorded(self) -> bool:
        """Whether the last run was a replay."""
        return self._graph is not None

    def __call__(self, work: Work) -> None:
        """Runs or replays; the work must be the same every time."""
        if self._has_run and self._graph is None and self._recorder is not None:
            self._graph = self._recorder.record(work)
            if self._graph is None:
                self._recorder = None  # it goes on being computed, launch by launch
        if self._graph is not None:
            self._graph.replay()
        else:
            self.plainly(work)

    def plainly(self, work: Work) -> None:
        """Runs as it stands, whether it is recorded or not."""
        work()
        self._has_run = True
