"""A stand-in for CUDA graphs on a CPU: work is recorded without being done, and replayed into the same memory.

As on a card, a recorded operation reads and writes the addresses it was recorded with, its allocations stay where they
are, and numbers that it has not computed yet mean nothing: here they are NaN, or 0 for integers. Whatever a card
refuses while it records (a number on the host, a shape that depends on numbers) is refused here. Recordings of one pool
do not share memory here, as they would on a card: each has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn, TypeAlias
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from localdiff.denoising.static import cuda_graphs

Launch: TypeAlias = Callable[[], None]

REFUSED = {"_local_scalar_dense", "item", "nonzero", "masked_select", "unique", "_unique2", "equal", "is_nonzero"}
ALLOCATIONS = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}


class Graph:
    """The part of `torch.cuda.CUDAGraph` that its users see.

    Args:
        card: where the graph is recorded.
    """

    def __init__(self, card: Recorder) -> None:
        self.launches: list[Launch] = []
        self.used_pool: object = None
        self.replays = 0
        self.is_reset = False
        self.has_ended = False
        self.card = card
        self._mode = _Recording(self)

    def capture_begin(self, *, pool: object, capture_error_mode: str) -> None:
        """Records what follows, in a memory pool that no other recording uses."""
        assert capture_error_mode == "thread_local", "another thread may allocate meanwhile"
        self.used_pool = pool
        self.card.begin(self)
        self.card.draws_for_graph = self.card.marks_generator
        self._mode.__enter__()

    def capture_end(self) -> None:
        """Ends the recording; after a refused operation only the stream learns of it, not allocator and generator."""
        if self.card.recording is not self:
            raise RuntimeError("operation failed: the stream is not capturing")
        self._mode.__exit__(None, None, None)
        self.card.recording = None
        if self._mode.is_broken:
            if self.card.is_told_of_broken_ones:
                self.card.end_allocating(0, self.used_pool)
            raise RuntimeError("operation failed due to a previous error during capture")
        self.card.end_allocating(0, self.used_pool)
        self.card.draws_for_graph = False
        self.has_ended = True

    def pool(self) -> object:
        """The memory pool of a finished recording."""
        if not self.has_ended:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self.used_pool

    def break_off(self, what: str) -> NoReturn:
        """Refuses what cannot be recorded; after that, ending the recording fails, too."""
        self._mode.is_broken = True
        raise RuntimeError(f"operation not permitted when stream is capturing\n{what}")

    def reset(self) -> None:
        """Gives up what was recorded."""
        self.launches.clear()
        self.is_reset = True

    def replay(self) -> None:
        """Does what was recorded."""
        assert not self.is_reset, "a graph is replayed that was given up"
        assert self.card.recording is None, "a graph is replayed while another is recorded"
        self.card.assert_draws()
        self.replays += 1
        with torch._C.DisableTorchFunction():
            for launch in self.launches:
                launch()


class Recorder:
    """What a card, its streams and torch's allocator know of recordings.

    Attributes:
        graphs: all graphs that were made.
        recording: the graph that is being recorded.
        released: pools that were given back after their recording broke off.
        draws_for_graph: whether the default generator is marked as drawing for a recording.
        is_told_of_broken_ones: whether the allocator learns of the end of a broken recording, as since torch 2.13.
        marks_generator: whether the generator is marked, as up to torch 2.11; a broken recording leaves the mark.
    """

    is_told_of_broken_ones = False
    marks_generator = True

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.recording: Graph | None = None
        self.released: list[object] = []
        self.draws_for_graph = False
        self._allocating: list[object] = []

    def graph(self) -> Graph:
        """`torch.cuda.CUDAGraph()`."""
        self.graphs.append(Graph(self))
        return self.graphs[-1]

    def begin(self, graph: Graph) -> None:
        """Begins a recording; the stream refuses a second one, and the allocator a second one in a pool."""
        if self.recording is not None or graph.used_pool in self._allocating:
            raise RuntimeError("a recording is under way already")
        self._allocating.append(graph.used_pool)
        self.recording = graph

    def end_allocating(self, _device: int, pool: object) -> None:
        """`torch._C._cuda_endAllocateToPool`."""
        if pool not in self._allocating:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self._allocating.remove(pool)

    def release(self, _device: int, pool: object) -> None:
        """`torch._C._cuda_releasePool`."""
        self.released.append(pool)

    def wait(self, *_: Any) -> None:
        """`torch.cuda.synchronize`, which breaks any thread's recording."""
        if self.recording is not None:
            self.recording.break_off("synchronize")

    def assert_idle(self) -> None:
        """Nothing is being recorded, and the allocator no longer allocates for a recording."""
        assert self.recording is None, "the stream is still recording"
        assert not self._allocating, "the allocator is still recording"
        self.assert_draws()

    def assert_draws(self) -> None:
        """Random numbers may be drawn outside recordings."""
        assert not self.draws_for_graph, "Offset increment outside graph capture encountered unexpectedly."


class _Recording(TorchDispatchMode):
    """Writes down operations of torch without doing them."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph
        self.is_broken = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in REFUSED:
            self._graph.break_off(name)
        if func._schema.is_mutable:
            self._graph.launches.append(lambda: func(*args, **kwargs))
            returned = _written(func, args, kwargs)
            return returned[0] if len(func._schema.returns) == 1 else returned
        result = func(*args, **kwargs)
        made = [tensor for tensor in tree_leaves(result) if isinstance(tensor, Tensor)]
        if _shares_memory(made, [*tree_leaves(args), *tree_leaves(kwargs)]):
            return result  # a view, for which a card does nothing
        for tensor in made:
            tensor.fill_(torch.nan if tensor.is_floating_point() else 0)
        if name not in ALLOCATIONS:
            self._graph.launches.append(lambda: _copy(tree_leaves(func(*args, **kwargs)), made))
        return result


def _written(func: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """The arguments that an operation writes, which are also what it returns."""
    written = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.append(args[place] if place < len(args) else kwargs[argument.name])
    return tuple(written)


def _shares_memory(made: list[Tensor], given: list[Any]) -> bool:
    theirs = {tensor.untyped_storage().data_ptr() for tensor in given if isinstance(tensor, Tensor)} - {0}
    return any(tensor.untyped_storage().data_ptr() in theirs for tensor in made)


def _copy(found: list[Any], into: list[Tensor]) -> None:
    for new, old in zip([leaf for leaf in found if isinstance(leaf, Tensor)], into, strict=True):
        old.copy_(new)


@contextmanager
def launched_through(wrap: Callable[[Callable[..., None]], Callable[..., None]]) -> Iterator[None]:
    """Has kernels run by what this makes of whatever runs them: interpreted, and compiled, as on the emulated GPU."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    kinds = (InterpretedFunction, JITFunction)
    interpreted, compiled = (mock.patch.object(kind, "run", wrap(kind.run)) for kind in kinds)
    with interpreted, compiled:
        yield


@contextmanager
def recorded_by(card: Recorder) -> Iterator[None]:
    """Torch makes this card's graphs, and the card records launches of kernels."""

    def recorded(launch: Callable[..., None]) -> Callable[..., None]:
        def run(kernel: Any, *args: Any, **kwargs: Any) -> None:
            if card.recording is not None:
                card.recording.launches.append(lambda: launch(kernel, *args, **kwargs))
            else:
                launch(kernel, *args, **kwargs)

        return run

    with (
        launched_through(recorded),
        mock.patch.multiple(torch.cuda, CUDAGraph=card.graph, graph_pool_handle=object),
        # The allocator of a real card knows neither these pools nor, perhaps, this device.
        mock.patch.object(torch._C, "_cuda_endAllocateToPool", card.end_allocating),
        mock.patch.object(torch._C, "_cuda_releasePool", card.release),
        mock.patch.object(cuda_graphs, "_MARKS_GENERATOR", card.marks_generator),
    ):
        yield


@contextmanager
def imitated() -> Iterator[list[Graph]]:
    """Graphs on the CPU, kernels of Triton's interpreter included; yields the list of graphs."""

    def nothing(*_: Any) -> AbstractContextManager[None]:
        return nullcontext()

    card = Recorder()
    names = "Stream", "current_stream", "stream", "device", "empty_cache", "current_blas_handle"
    with recorded_by(card), mock.patch.multiple(torch.cuda, synchronize=card.wait, **dict.fromkeys(names, nothing)):
        yield card.graphs
    card.assert_idle()
