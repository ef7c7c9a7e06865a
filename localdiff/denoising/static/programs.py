"""The programs of one KV cache: what is captured of them holds its addresses, so they are kept and dropped together."""

from __future__ import annotations

import weakref
from functools import partial

from localdiff.denoising.static.cuda_graphs import GraphCapturer
from localdiff.denoising.static.program import Program, Shape
from localdiff.model.cache import KVCache


class Programs:
    """Programs by their shape, each made when it is first asked for.

    Args:
        cache: what they are for; it is not kept alive.
        canvas_length: rows of a canvas, and of a commit that is a whole block.
        make: `Program` with its arguments, without a shape and a capturer.
        capturer: as a `Program` takes it.
    """

    def __init__(
        self,
        cache: KVCache,
        *,
        canvas_length: int,
        make: partial[Program],
        capturer: GraphCapturer | None,
    ) -> None:
        self._cache = weakref.ref(cache)
        self._kept_commits = (0, canvas_length)
        self._make = make
        self._capturer = capturer
        self._by_shape: dict[Shape, Program] = {}

    def are_for(self, cache: KVCache) -> bool:
        """Whether this is their cache."""
        return self._cache() is cache

    def of(self, shape: Shape) -> Program:
        """A program of this shape: kept, and captured on a GPU, except for ends of prompts, which have any length."""
        if shape.commit_rows not in self._kept_commits:
            return self._make(shape)
        program = self._by_shape.get(shape)
        if program is None:
            program = self._by_shape[shape] = self._make(shape, capturer=self._capturer)
        return program
