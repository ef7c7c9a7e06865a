"""The layout of the two small tensors that a step exchanges with the host, one copy each way.

    controls   int32 [8]        temperature, entropy bound, confidence (bits of fp32), stability, rule, pad id,
                                number of the step, positions in the cache
    outcome    int32 [8 + 6 L]  stable, confident, stop, all entropies finite, mean entropy (bits), overflow, tail
                                (bits), 0; then [L] each: argmax, its probability (bits), entropy (bits), accepted,
                                sampled, shown

The constants below are places in these tensors, on the host, in torch and in the kernel; the last six number the rows
[6, L] after the header.

Shape letters: L canvas.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final

CONTROLS = 8
HEADER = 8
ROWS = 6

TEMPERATURE, BOUND, CONFIDENCE, STABILITY, RULE, PAD, STEP, LENGTH = range(CONTROLS)
STABLE, CONFIDENT, STOP, FINITE, MEAN_ENTROPY, OVERFLOW, TAIL = range(HEADER - 1)
ARGMAX, PROBABILITY, ENTROPY, ACCEPTED, SAMPLED, SHOWN = range(ROWS)

NEEDS_STABLE, NEEDS_CONFIDENT, NEVER = 1, 2, 4
RULES: Final[Mapping[str, int]] = {
    "both": NEEDS_STABLE | NEEDS_CONFIDENT,
    "stable": NEEDS_STABLE,
    "confident": NEEDS_CONFIDENT,
    "never": NEVER,
}
"""Stop rules as bits."""


def bits_of(number: float) -> int:
    """The bits of a number in fp32, as a signed integer; a number too large for fp32 becomes infinite, as in torch."""
    return ctypes.c_int32.from_buffer(ctypes.c_float(number)).value


def outcome_size(length: int) -> int:
    """Elements of the outcome of a canvas of this length."""
    return HEADER + ROWS * length
