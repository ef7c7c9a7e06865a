"""Registers of all threads of some blocks, side by side, and which threads an instruction is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tests.gpu.ptx.numbers import Array
from tests.gpu.ptx.syntax import Kernel, Number, Operand, Register, Vector

Mask: TypeAlias = NDArray[np.bool_] | None
"""Which lanes take part; None for all, which is faster."""
Run: TypeAlias = Callable[[Mask], None]
Read: TypeAlias = Callable[[], Array]
Write: TypeAlias = Callable[[Array, Mask], None]

UNSIGNED = {"pred": np.bool_, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64}
TYPES = {
    "b8": np.uint8, "u8": np.uint8, "s8": np.int8,
    "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "bf16": np.uint16, "f16": np.float16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32, "bf16x2": np.uint32, "f16x2": np.uint32,
    "s16x2": np.uint32, "u16x2": np.uint32,
    "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64, "f32x2": np.uint64,
    "pred": np.bool_,
}  # fmt: skip
"""numpy's type for each type of PTX; its bits if numpy has no such type."""


class _Registers(dict[str, Array]):
    """Registers by name. Unwritten ones have all bits set, NaN in most types: compilers leave them undefined."""

    def __init__(self, kernel: Kernel, count: int) -> None:
        super().__init__()
        self._kernel = kernel
        self._count = count

    def __missing__(self, name: str) -> Array:
        dtype: np.dtype[Any] = np.dtype(UNSIGNED[self._kernel.kind_of(name)])
        return np.full(self._count, True if dtype == np.bool_ else np.iinfo(dtype).max, dtype)


class Lanes:
    """Threads of several blocks: lane `block * threads + thread`.

    A register's array is never changed in place, so that two registers may share one.
    """

    def __init__(self, kernel: Kernel, special: dict[str, Array]) -> None:
        self.kernel = kernel
        self.count = len(next(iter(special.values())))
        self._special = special
        self._registers = _Registers(kernel, self.count)

    def reader(self, operand: Operand, kind: str) -> Read:
        """Reads an operand as this type; constants are scalars."""
        dtype = np.dtype(TYPES[kind])
        if isinstance(operand, Number):
            bits = operand.bits % 2 ** (8 * dtype.itemsize) if kind != "pred" else int(operand.bits != 0)
            constant = np.array([bits], np.dtype(f"u{dtype.itemsize}")).view(dtype)[0]
            return lambda: constant
        if isinstance(operand, Vector):
            return self._packed(operand, dtype)
        if not isinstance(operand, Register):
            raise TypeError(f"no operand to read: {operand}")
        name = operand.name
        if name in self._special:
            value = self._special[name].astype(dtype)
            return lambda: value
        if name.startswith("!"):
            read = self.reader(Register(name[1:]), kind)
            return lambda: ~read()
        registers, stored = self._registers, np.dtype(UNSIGNED[self.kernel.kind_of(name)])
        if stored.itemsize < dtype.itemsize or (stored == np.bool_) != (dtype == np.bool_):
            raise TypeError(f"{name} is read as {kind}")
        if stored.itemsize == dtype.itemsize:
            return lambda: registers[name].view(dtype)
        narrow = np.dtype(f"u{dtype.itemsize}")  # the lower bits, where a register is wider than the type
        return lambda: registers[name].astype(narrow).view(dtype)

    def writer(self, operand: Operand, kind: str) -> Write:
        """Writes results of this type; in a wider register a signed type is sign-extended."""
        if isinstance(operand, Vector):
            return self._unpacked(operand)
        if not isinstance(operand, Register):
            raise TypeError(f"no operand to write: {operand}")
        name, count, registers = operand.name, self.count, self._registers
        if name == "_":
            return lambda value, mask: None
        dtype, stored = np.dtype(TYPES[kind]), np.dtype(UNSIGNED[self.kernel.kind_of(name)])
        if stored.itemsize < dtype.itemsize or (stored == np.bool_) != (dtype == np.bool_):
            raise TypeError(f"{name} is written as {kind}")
        if stored.itemsize > dtype.itemsize and kind[0] == "f":
            raise TypeError(f"{name} is written as {kind}")
        wider = np.dtype(f"{dtype.kind if dtype.kind in 'iu' else 'u'}{stored.itemsize}")

        def write(value: Array, mask: Mask) -> None:
            value = np.asarray(value)
            if value.dtype != dtype:
                raise TypeError(f"{value.dtype} is written as {kind}")
            if stored != np.bool_:
                value = value.astype(wider) if stored.itemsize != dtype.itemsize else value
            if value.shape != (count,):
                value = np.broadcast_to(value, (count,)).copy()
            bits = value.view(stored)
            if mask is not None:
                bits = np.where(mask, bits, registers[name])
            registers[name] = bits

        return write

    def _packed(self, vector: Vector, dtype: np.dtype[Any]) -> Read:
        """Several registers as one value, the first in the lowest bits."""
        width = 8 * dtype.itemsize // len(vector.items)
        reads = [self.reader(item, f"b{width}") for item in vector.items]
        wide = np.dtype(f"u{dtype.itemsize}")

        def read() -> Array:
            total = np.zeros(self.count, wide)
            for place, part in enumerate(reads):
                total |= part().astype(wide) << wide.type(place * width)
            return total.view(dtype)

        return read

    def _unpacked(self, vector: Vector) -> Write:
        """One value into several registers."""
        names = [item.name for item in vector.items if isinstance(item, Register) and item.name != "_"]
        width = 8 * np.dtype(UNSIGNED[self.kernel.kind_of(names[0])]).itemsize
        writes = [self.writer(item, f"b{width}") for item in vector.items]

        def write(value: Array, mask: Mask) -> None:
            value = np.broadcast_to(np.asarray(value), (self.count,))
            bits = value.view(np.dtype(f"u{value.dtype.itemsize}"))
            for place, part in enumerate(writes):
                part((bits >> bits.dtype.type(place * width)).astype(f"u{width // 8}"), mask)

        return write
