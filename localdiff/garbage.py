"""Python's garbage collector, and what stays until the process ends, such as the quarter of a million objects of torch.

It would look at them again and again while they are made, and once more at any moment of a chat, which then stands
still for a tenth of a second. In somebody else's process it is left alone.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_claimed = False


def claim() -> None:
    """The process is ours: it runs one command and ends."""
    global _claimed
    _claimed = True


@contextmanager
def importing() -> Iterator[None]:
    """Nothing is collected inside it; what is there at its end is never looked at again.

    Only the first time: the next time there may be a model, whose streamed layers are freed by collecting them.
    """
    global _claimed
    if not _claimed:
        yield
        return
    _claimed = False
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
