"""`wgmma`: four warps multiply matrices in shared memory; the first may be in their registers (Hopper)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from tests.gpu.ptx.exchange import WARP
from tests.gpu.ptx.lanes import Lanes, Mask, Run
from tests.gpu.ptx.matrices import decoded, first_operand, items, result
from tests.gpu.ptx.memory import Flight, SharedMemory
from tests.gpu.ptx.numbers import Array
from tests.gpu.ptx.syntax import Instruction, Number, Operand, Vector

GROUP = 4 * WARP
_BITS = {"bf16": np.uint16, "f16": np.float16, "s8": np.int8}
_WIDTHS = {1: 128, 2: 64, 3: 32}
"""Bytes of a row of a swizzled matrix, by the two highest bits of its descriptor."""


class Warpgroups:
    """Products of the warpgroups of a launch, which read shared memory until they are waited for."""

    def __init__(self, lanes: Lanes, shared: SharedMemory) -> None:
        self._lanes = lanes
        self._shared = shared
        self._open: dict[int, list[Flight]] = defaultdict(list)
        self._closed: dict[int, list[list[Flight]]] = defaultdict(list)

    def maker(self, instruction: Instruction) -> Run | None:
        """What an instruction does; None for instructions of other kinds."""
        if instruction.parts[0] != "wgmma":
            return None
        match instruction.parts[1:]:
            case ("fence", "sync", "aligned"):
                return lambda mask: None
            case ("commit_group", "sync", "aligned"):
                return self._commit
            case ("wait_group", "sync", "aligned"):
                (count,) = instruction.operands
                assert isinstance(count, Number)
                return partial(self._wait, count.bits)
            case ("mma_async", "sync", "aligned", _, _, _, _):
                return _multiply(instruction, self._lanes, self.read)
        raise NotImplementedError(instruction.text)

    def read(self, group: int, places: Array) -> Array:
        """Bytes that a product of a warpgroup reads."""
        found, flight = self._shared.gather(group * GROUP, places)
        self._open[group].append(flight)
        return found

    def _groups(self, mask: Mask) -> Iterable[int]:
        if mask is None:
            return range(self._lanes.count // GROUP)
        return map(int, np.flatnonzero(mask.reshape(-1, GROUP).any(axis=1)))

    def _commit(self, mask: Mask) -> None:
        for group in self._groups(mask):
            self._closed[group].append(self._open.pop(group, []))

    def _wait(self, count: int, mask: Mask) -> None:
        """Ends all but the last `count` groups of products."""
        for group in self._groups(mask):
            closed = self._closed[group]
            while len(closed) > count:
                for flight in closed.pop(0):
                    self._shared.land(flight)


def places(descriptor: int, rows: int, depth: int, size: int, *, transposed: bool) -> Array:
    """Where the elements of a matrix are in shared memory, [rows, depth]: bytes from the start.

    Args:
        descriptor: 64 bits, as in the PTX ISA ("Matrix descriptor format"): start, offset between blocks of a row's
            width, offset between groups of eight rows, swizzle.
        rows: length of the dimension that is not summed over.
        depth: length of the dimension that is summed over.
        size: bytes of an element.
        transposed: whether neighbours in memory differ in their row, not in their place in the sum.
    """
    start, leading, stride = ((descriptor >> bit & 0x3FFF) << 4 for bit in (0, 16, 32))
    width = _WIDTHS.get(descriptor >> 62)
    if width is None or descriptor >> 49 & 7:
        raise NotImplementedError("a matrix without swizzle, or one that does not begin at a multiple of its pattern")
    row, place = np.arange(rows)[:, None], np.arange(depth)[None, :]
    along, across = (row, place) if transposed else (place, row)
    per_row = width // size
    found = start + along // per_row * leading + across // 8 * stride + across % 8 * width + along % per_row * size
    return found ^ ((found >> 7 & (width // 16 - 1)) << 4)


def _multiply(instruction: Instruction, lanes: Lanes, read_bytes: Callable[[int, Array], Array]) -> Run:
    shape, to_kind, a_kind, b_kind = instruction.parts[-4:]
    rows, columns, depth = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    if rows != 64 or a_kind != b_kind or a_kind not in _BITS or to_kind != ("s32" if a_kind == "s8" else "f32"):
        raise NotImplementedError(instruction.text)
    to, a, b, adds, *flags = instruction.operands
    numbers = [flag.bits if isinstance(flag, Number) else None for flag in flags]
    from_registers = isinstance(a, Vector)
    size = np.dtype(_BITS[a_kind]).itemsize
    # Signs of both matrices, and which are transposed; int8 has neither, and registers are not transposed.
    expected = 0 if size == 1 else 3 if from_registers else 4
    if len(flags) != expected or numbers[:2] not in ([], [1, 1]) or depth != 32 // size:
        raise NotImplementedError(instruction.text)
    *a_transposed, b_transposed = numbers[2:] or [0]
    sums_at = result(to_kind, columns)
    writes = [lanes.writer(item, to_kind) for item in items(to)]
    reads = [lanes.reader(item, to_kind) for item in items(to)]
    read_adds = lanes.reader(adds, "pred")
    a_at = first_operand(a_kind)
    a_reads = [lanes.reader(item, "b32") for item in items(a)] if from_registers else []

    def in_memory(operand: Operand, count: int, is_transposed: bool) -> Callable[[Mask], Array]:
        descriptor = lanes.reader(operand, "u64")

        def read(mask: Mask) -> Array:
            told = np.broadcast_to(descriptor(), (lanes.count,)).reshape(-1, GROUP)
            found = np.zeros((len(told), count, depth * size), np.uint8)
            for number, group in enumerate(told):
                if mask is not None and not mask[number * GROUP]:
                    continue
                if (group != group[0]).any():
                    raise RuntimeError("threads of a warpgroup have different descriptors")
                at = places(int(group[0]), count, depth, size, transposed=is_transposed)
                at = at[:, :, None] + np.arange(size)
                found[number] = read_bytes(number, at).reshape(count, -1)
            return decoded(found.view(_BITS[a_kind]), a_kind)

        return read

    read_a = None if from_registers else in_memory(a, rows, bool(a_transposed[0]) if a_transposed else False)
    read_b = in_memory(b, columns, bool(b_transposed))

    def run(mask: Mask) -> None:
        if mask is not None and (mask.reshape(-1, GROUP).any(axis=1) != mask.reshape(-1, GROUP).all(axis=1)).any():
            raise RuntimeError("a part of a warpgroup runs wgmma")
        first = a_at.gathered(a_reads, lanes.count).reshape(-1, rows, depth) if read_a is None else read_a(mask)
        product = first @ read_b(mask).transpose(0, 2, 1)
        sums = sums_at.spread(product.reshape(-1, 16, columns))
        before = np.stack([np.broadcast_to(read(), (lanes.count,)) for read in reads], axis=1)
        total = np.where(np.broadcast_to(read_adds(), (lanes.count,))[:, None], before, 0) + sums
        kept = total.astype(np.int64).astype(np.int32) if to_kind == "s32" else total.astype(np.float32)
        for place, write in enumerate(writes):
            write(np.ascontiguousarray(kept[:, place]), mask)

    return run
