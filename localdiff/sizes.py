"""Numbers and amounts as people type and read them. A GB is 10⁹ bytes, here and everywhere."""

from __future__ import annotations

import operator
import re
import sys

from localdiff.errors import UsageError

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d+)?)\s*([KMGT]i?B)", re.IGNORECASE)


def whole(value: object) -> int | None:
    """A whole number of Python, numpy or torch as an `int`; None for any other value, and for `True` and `False`."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def is_finite(number: float) -> bool:
    """Whether a float can hold a number; `math.isfinite` raises for a whole number that is larger than any float."""
    return abs(number) <= sys.float_info.max


def parse_size(text: str, option: str) -> int:
    """Bytes of a size such as `10GB`, `1.5 GB` or `16GiB`.

    Args:
        text: what was typed.
        option: where it was typed, for the message.

    Raises:
        UsageError: it is not a size, or not above zero.
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < 1:
        raise UsageError(
            f"`{option} {text}` is not an amount of memory", "give a number and a unit, for example `10GB` or `16GiB`"
        )
    return size


def shown_size(nbytes: float) -> str:
    """A size for display: `15.4 GB`, `380 MB`, `12 KB` or `400 bytes`."""
    scale, decimals, unit = _unit(nbytes)
    return f"{nbytes / scale:.{decimals}f} {unit}"


def shown_part(done: float, total: float) -> str:
    """How much of an amount is done: `38.1/52.0 GB`, both in the unit of the whole."""
    scale, decimals, unit = _unit(total)
    return f"{done / scale:.{decimals}f}/{total / scale:.{decimals}f} {unit}"


def _unit(nbytes: float) -> tuple[float, int, str]:
    """The unit in which an amount is shown: its bytes, the decimals, and its name."""
    for scale, decimals, unit in ((1e9, 1, "GB"), (1e6, 0, "MB"), (1e3, 0, "KB")):
        if nbytes >= 0.95 * scale:
            return scale, decimals, unit
    return 1.0, 0, "byte" if round(nbytes) == 1 else "bytes"


def shown_time(seconds: float) -> str:
    """`41s`, `2m41s` or `1h02m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def counted(number: int, noun: str) -> str:
    """`1 block`, `2,048 tokens`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rounded(value: float) -> str:
    """Two decimals below 1, one below 10, none above: `0.04`, `1.2`, `143`, `15,870`."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"
