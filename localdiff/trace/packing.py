"""Arrays of a canvas as short text: little-endian bytes, deflated, in base64.

Knows bytes; knows nothing about events. Ids are stored as their difference (XOR) from ids that the reader already
has, so that unchanged ids cost nothing. Floats keep all 32 bits that the engine computed.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

from localdiff.strict_json import Malformed

_LEVEL = 6


def pack_ids(ids: Sequence[int], against: Sequence[int] = ()) -> str:
    """Packs ids, each a 32-bit integer; `against` has the same number of ids, or none, which stands for zeros."""
    return _pack(struct.pack(f"<{len(ids)}i", *_differ(ids, against)))


def unpack_ids(text: object, length: int, where: str, against: Sequence[int] = ()) -> tuple[int, ...]:
    """What `pack_ids` made.

    Raises:
        Malformed: it is not `length` packed ids.
    """
    return _differ(struct.unpack(f"<{length}i", _unpack(text, 4 * length, where)), against)


def pack_floats(values: Sequence[float]) -> str:
    """Packs numbers, each rounded to 32 bits; bytes of equal weight are grouped, which deflates better."""
    return _pack(_planes(struct.pack(f"<{len(values)}f", *values), len(values)))


def unpack_floats(text: object, length: int, where: str) -> tuple[float, ...]:
    """What `pack_floats` made.

    Raises:
        Malformed: it is not `length` packed numbers.
    """
    data = _unpack(text, 4 * length, where)
    return struct.unpack(f"<{length}f", _planes(data, 4) if length else b"")


def pack_flags(flags: Sequence[bool]) -> str:
    """Packs booleans, in the order of `flag_bytes`."""
    return _pack(flag_bytes(flags))


def flag_bytes(flags: Sequence[bool]) -> bytes:
    """Booleans as bytes, eight per byte, the first in the lowest bit."""
    return sum(1 << index for index, flag in enumerate(flags) if flag).to_bytes(-(-len(flags) // 8), "little")


def unpack_flags(text: object, length: int, where: str) -> tuple[bool, ...]:
    """What `pack_flags` made.

    Raises:
        Malformed: it is not `length` packed booleans.
    """
    bits = int.from_bytes(_unpack(text, -(-length // 8), where), "little")
    if bits >> length:
        raise Malformed(f"`{where}` has more than {length} entries")
    return tuple([bool(bits >> index & 1) for index in range(length)])


def _differ(ids: Sequence[int], against: Sequence[int]) -> tuple[int, ...]:
    return tuple([one ^ other for one, other in zip(ids, against, strict=True)]) if against else tuple(ids)


def _planes(data: bytes, count: int) -> bytes:
    """Bytes regrouped: every `len/count`-th byte together; a second call with the other factor undoes the first."""
    stride = len(data) // count if count else 0
    return b"".join(data[start::stride] for start in range(stride))


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode("ascii")


def _unpack(text: object, size: int, where: str) -> bytes:
    """Unpacks exactly `size` bytes; a text that would inflate to more is never inflated further."""
    if not isinstance(text, str):
        raise Malformed(f"`{where}` is not text")
    try:
        packed = base64.b64decode(text, validate=True)
        stream = zlib.decompressobj()
        data = stream.decompress(packed, size + 1)
    except (ValueError, zlib.error) as error:
        raise Malformed(f"`{where}` is not packed data") from error
    if len(data) != size or not stream.eof or stream.unused_data:
        raise Malformed(f"`{where}` does not hold {size} bytes")
    return data
