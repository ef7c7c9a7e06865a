"""Prefill: encodes the prompt into the KV cache in chunks, the last part possibly in the first denoise step.

    prompt   [ cached before | chunk | chunk | rest ]
    passes                     one     one     one, together with the first canvas: saves a read of the weights

Knows how a prompt is chunked and which events report it; knows nothing about blocks. The rest is encoded when the
first step is over, and that step's time counts twice: in the prompt's seconds, and in the seconds from which the rate
of the answer is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Generator

from localdiff.engine.run import Run
from localdiff.events import Prefilled


def prefill(
    run: Run, cancel: threading.Event, *, chunk: int, max_left: int
) -> Generator[Prefilled, None, tuple[int, ...]]:
    """Encodes the part of the prompt that is not cached.

    Args:
        cancel: checked before each chunk.
        chunk: maximum number of ids per pass.
        max_left: maximum number of ids that are left to the first denoise step; 0 leaves none.

    Returns:
        The ids that are left to that step. `last_prefilled` reports when it has encoded them.
    """
    total = len(run.prompt)
    run.stats.start_prefill()
    done = run.cached_tokens
    if done:
        yield _prefilled(run, done, seconds=0.0)
    while done < total and not cancel.is_set():
        ids = run.prompt[done : done + chunk]
        if total - done <= max_left:
            ids = run.prefix_cache.before_fork(run.prompt[done:])
            if not ids:
                return tuple(run.prompt[done:])
        run.prefix_cache.encode(ids)
        done += len(ids)
        yield _prefilled(run, done, seconds=run.stats.prefilled())
    return ()


def last_prefilled(run: Run) -> Prefilled:
    """The event that the first denoise step has encoded the rest of the prompt."""
    return _prefilled(run, len(run.prompt), seconds=run.stats.prefilled())


def _prefilled(run: Run, done: int, *, seconds: float) -> Prefilled:
    return Prefilled(done=done, total=len(run.prompt), cached_tokens=run.cached_tokens, seconds=seconds)
