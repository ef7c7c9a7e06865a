"""Python's garbage collector, and objects that live until the process ends, such as torch's quarter of a million.

It would scan them again and again while they are created, and once more at any moment of a chat, which would then
freeze for a tenth of a second. In somebody else's process the collector is left alone.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_claimed = False


def claim() -> None:
    """Says that the process is ours: it runs one command and ends."""
    global _claimed
    _claimed = True


@contextmanager
def importing() -> Iterator[None]:
    """Nothing is collected in the block; objects that exist at its end are never scanned again.

    Only the first time: later there may be a model, whose streamed layers are freed by the collector.
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
