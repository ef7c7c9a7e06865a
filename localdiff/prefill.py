"""Reading the prompt: chunk by chunk into the cache, the last of it perhaps beside the first denoise step.

    prompt   [ held before | chunk | chunk | rest ]
    passes                   one     one     one, together with the first canvas: a read of the weights less

Knows how a prompt is cut up and what is told of it; knows nothing about blocks. The rest counts as read when the first
step is over, and that step's time belongs to both: to the prompt's seconds, and to the seconds that the rate of the
answer is reckoned from.
"""

from __future__ import annotations

import threading
from collections.abc import Generator

from .events import Prefilled
from .generation import Generation


def prefill(
    run: Generation, cancel: threading.Event, *, chunk: int, left: int
) -> Generator[Prefilled, None, tuple[int, ...]]:
    """Reads what the context does not hold of the prompt.

    Args:
        cancel: looked at before each chunk.
        chunk: most ids of a pass.
        left: most ids that may be left to the first denoise step; 0 leaves none.

    Returns:
        The ids that are left to that step. `read_last` tells when it has read them.
    """
    total = len(run.prompt)
    run.stats.start_prefill()
    if run.held:
        yield Prefilled(done=run.held, total=total, seconds=0.0)
    done = run.held
    while done < total and not cancel.is_set():
        ids = run.prompt[done : done + chunk]
        if total - done <= left:
            ids = run.context.before_fork(run.prompt[done:])
            if not ids:
                return tuple(run.prompt[done:])
        run.context.read(ids)
        done += len(ids)
        yield Prefilled(done=done, total=total, seconds=run.stats.prefilled())
    return ()


def read_last(run: Generation) -> Prefilled:
    """Says that the first denoise step has read the rest of the prompt."""
    return Prefilled(done=len(run.prompt), total=len(run.prompt), seconds=run.stats.prefilled())
