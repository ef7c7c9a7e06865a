"""Prefill: encodes the prompt into the KV cache by chunks, the last part possibly in the first denoise step.

    prompt   [ held before | chunk | chunk | rest ]
    passes                   one     one     one, together with the first canvas: saves a read of the weights

Knows how a prompt is chunked and which events report it; knows nothing about blocks. The rest counts as read when the
first step is over, and that step's time belongs to both: to the prompt's seconds, and to the seconds from which the
rate of the answer is computed.
"""

from __future__ import annotations

import threading
from collections.abc import Generator

from ..events import Prefilled
from .generation import Generation


def prefill(
    run: Generation, cancel: threading.Event, *, chunk: int, most_left: int
) -> Generator[Prefilled, None, tuple[int, ...]]:
    """Encodes the part of the prompt that the context does not hold.

    Args:
        cancel: checked before each chunk.
        chunk: most ids per pass.
        most_left: most ids that may be left to the first denoise step; 0 leaves none.

    Returns:
        The ids that are left to that step. `read_last` reports when it has read them.
    """
    total = len(run.prompt)
    run.stats.start_prefill()
    if run.held:
        yield Prefilled(done=run.held, total=total, seconds=0.0)
    done = run.held
    while done < total and not cancel.is_set():
        ids = run.prompt[done : done + chunk]
        if total - done <= most_left:
            ids = run.context.before_fork(run.prompt[done:])
            if not ids:
                return tuple(run.prompt[done:])
        run.context.read(ids)
        done += len(ids)
        yield Prefilled(done=done, total=total, seconds=run.stats.prefilled())
    return ()


def read_last(run: Generation) -> Prefilled:
    """The event that the first denoise step has read the rest of the prompt."""
    return Prefilled(done=len(run.prompt), total=len(run.prompt), seconds=run.stats.prefilled())
