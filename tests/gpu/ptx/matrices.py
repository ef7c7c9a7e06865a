"""Instructions of a warp over matrices, whose elements are in registers of its lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.gpu.ptx.exchange import WARP
from tests.gpu.ptx.lanes import Lanes, Mask, Read, Run
from tests.gpu.ptx.memory import SharedMemory
from tests.gpu.ptx.numbers import Array, from_bf16
from tests.gpu.ptx.syntax import Instruction, Operand, Vector
from tests.gpu.ptx.transfers import Transfers

_LANE = np.arange(WARP)
_GROUP, _PLACE = _LANE // 4, _LANE % 4


@dataclass(frozen=True, slots=True)
class Fragment:
    """Where the elements of a matrix are.

    Attributes:
        kind: type of an element.
        rows, columns: row and column of each lane's elements, in the order of its registers, [32, elements].
        shape: shape of the matrix.
    """

    kind: str
    rows: Array
    columns: Array
    shape: tuple[int, int]

    def gathered(self, reads: list[Read], count: int) -> Array:
        """The matrices of all warps, [warps, rows, columns], from registers with one or more elements each."""
        registers = np.stack([np.broadcast_to(read(), (count,)) for read in reads], axis=1)  # [lanes, registers]
        elements = decoded(registers.view(_BITS[self.kind]).reshape(-1, WARP, self.rows.shape[1]), self.kind)
        matrices = np.zeros((count // WARP, *self.shape), elements.dtype)
        matrices[:, self.rows, self.columns] = elements
        return matrices

    def spread(self, matrices: Array) -> Array:
        """Each lane's elements, [lanes, elements]."""
        found: Array = matrices[:, self.rows, self.columns].reshape(-1, self.rows.shape[1])
        return found


_SUMS = {"bf16": "f32", "f16": "f32", "tf32": "f32", "s8": "s32"}
_BITS = {"bf16": np.uint16, "f16": np.float16, "tf32": np.uint32, "s8": np.int8, "f32": np.float32, "s32": np.int32}


def decoded(bits: Array, kind: str) -> Array:
    """Elements as numbers that numpy multiplies: float32, or float64 for int8, whose sums are then exact."""
    if kind == "bf16":
        return from_bf16(bits)
    if kind == "tf32":  # the lower 13 bits of a float32 are not read
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return bits.astype(np.float64 if kind in ("s8", "s32") else np.float32)


def _fragment(
    kind: str, elements: int, places: Callable[[int], tuple[Array, Array]], shape: tuple[int, int]
) -> Fragment:
    rows, columns = zip(*(places(element) for element in range(elements)), strict=True)
    return Fragment(kind, np.stack(rows, axis=1), np.stack(columns, axis=1), shape)


def first_operand(kind: str) -> Fragment:
    """16 rows of an `mma`'s first matrix."""
    if kind == "tf32":
        return _fragment(kind, 4, lambda e: (_GROUP + 8 * (e % 2), _PLACE + 4 * (e // 2)), (16, 8))
    pack = 4 if kind == "s8" else 2
    return _fragment(
        kind,
        4 * pack,
        lambda e: (_GROUP + 8 * (e // pack % 2), pack * _PLACE + e % pack + 4 * pack * (e // (2 * pack))),
        (16, 8 * pack),
    )


def second_operand(kind: str) -> Fragment:
    """Eight columns of an `mma`'s second matrix."""
    if kind == "tf32":
        return _fragment(kind, 2, lambda e: (_PLACE + 4 * e, _GROUP), (8, 8))
    pack = 4 if kind == "s8" else 2
    return _fragment(
        kind, 2 * pack, lambda e: (pack * _PLACE + e % pack + 4 * pack * (e // pack), _GROUP), (8 * pack, 8)
    )


def result(kind: str, columns: int = 8) -> Fragment:
    """16 rows of the sums."""
    return _fragment(
        kind,
        columns // 2,
        lambda e: (_GROUP + 8 * (e // 2 % 2), 2 * _PLACE + e % 2 + 8 * (e // 4)),
        (16, columns),
    )


def matrices(instruction: Instruction, lanes: Lanes, shared: SharedMemory, transfers: Transfers) -> Run | None:
    """What an instruction does; None for instructions of other kinds."""
    match instruction.parts[0]:
        case "mma":
            return _multiply(instruction, lanes)
        case "ldmatrix":
            return _load(instruction, lanes, shared, transfers)
        case "stmatrix":
            return _store(instruction, lanes, shared, transfers)
    return None


def whole(mask: Mask, what: str) -> None:
    """Refuses an instruction that only some lanes take: kernels here do not need that."""
    if mask is not None and not (mask.reshape(-1, WARP).all(axis=1) == mask.reshape(-1, WARP).any(axis=1)).all():
        raise RuntimeError(f"a part of a warp runs {what}")


def items(operand: Operand) -> tuple[Operand, ...]:
    """The registers of a vector, or the only one."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def _multiply(instruction: Instruction, lanes: Lanes) -> Run:
    """`mma.m16n8`: 16 rows times 8 columns, plus what was there."""
    a_kind, c_kind = instruction.parts[-2:]
    if a_kind not in _SUMS or c_kind != _SUMS[a_kind]:
        raise NotImplementedError(instruction.text)
    a_at, b_at, c_at = first_operand(a_kind), second_operand(a_kind), result(c_kind)
    shape, limits = f"m16n8k{a_at.shape[1]}", ("satfinite",) * (c_kind == "s32")
    kinds = (c_kind, a_kind, a_kind, c_kind)
    if instruction.parts != ("mma", "sync", "aligned", shape, "row", "col", *limits, *kinds):
        raise NotImplementedError(instruction.text)
    to, a, b, c = (items(operand) for operand in instruction.operands)
    writes = [lanes.writer(item, c_kind) for item in to]
    a_reads, b_reads = ([lanes.reader(item, "b32") for item in part] for part in (a, b))
    c_reads = [lanes.reader(item, c_kind) for item in c]

    def run(mask: Mask) -> None:
        whole(mask, "mma")
        product = a_at.gathered(a_reads, lanes.count) @ b_at.gathered(b_reads, lanes.count)
        sums = c_at.spread(product + c_at.gathered(c_reads, lanes.count))
        kept = saturated(sums) if c_kind == "s32" else sums
        for place, write in enumerate(writes):
            write(np.ascontiguousarray(kept[:, place]), mask)

    return run


def saturated(sums: Array) -> Array:
    """int32, clamped to its range."""
    return np.clip(sums, -(2**31), 2**31 - 1).astype(np.int32)


def _eights(instruction: Instruction) -> tuple[int, bool]:
    """How many matrices of eight rows an instruction moves, and whether it transposes them."""
    turns = "trans" in instruction.parts
    expected = ("sync", "aligned", "m8n8", instruction.parts[4], *("trans",) * turns, "shared", "b16")
    if instruction.parts[1:] != expected or instruction.parts[4] not in ("x1", "x2", "x4"):
        raise NotImplementedError(instruction.text)
    return int(instruction.parts[4][1:]), turns


def _load(instruction: Instruction, lanes: Lanes, shared: SharedMemory, transfers: Transfers) -> Run:
    """`ldmatrix`: 8 rows of 16 bytes for each register, with addresses from eight lanes each."""
    count, transposed = _eights(instruction)
    writes = [lanes.writer(item, "b32") for item in items(instruction.operands[0])]
    address = transfers.address(instruction.operands[1], "u32")
    lane = np.arange(lanes.count)

    def run(mask: Mask) -> None:
        whole(mask, "ldmatrix")
        active = transfers.active(mask)
        givers = active[active % WARP < 8 * count]
        rows = np.zeros((lanes.count, 8), np.uint16)
        rows[givers] = shared.load(givers, address()[givers], 2, 8)
        for place, write in enumerate(writes):
            matrix = rows.reshape(-1, WARP, 8)[:, 8 * place : 8 * place + 8]  # [warps, 8, 8]
            matrix = matrix.transpose(0, 2, 1) if transposed else matrix
            pairs = np.ascontiguousarray(matrix).view(np.uint32)  # [warps, 8, 4]
            write(pairs[lane // WARP, _GROUP[lane % WARP], _PLACE[lane % WARP]], mask)

    return run


def _store(instruction: Instruction, lanes: Lanes, shared: SharedMemory, transfers: Transfers) -> Run:
    """`stmatrix`: the inverse of `ldmatrix`."""
    count, transposed = _eights(instruction)
    reads = [lanes.reader(item, "b32") for item in items(instruction.operands[1])]
    address = transfers.address(instruction.operands[0], "u32")
    lane = np.arange(lanes.count)

    def run(mask: Mask) -> None:
        whole(mask, "stmatrix")
        active = transfers.active(mask)
        givers = active[active % WARP < 8 * count]
        rows = np.zeros((lanes.count, 8), np.uint16)
        for place, read in enumerate(reads):
            pairs = np.zeros((lanes.count // WARP, 8, 4), np.uint32)
            pairs[lane // WARP, _GROUP[lane % WARP], _PLACE[lane % WARP]] = read()
            matrix = pairs.view(np.uint16)
            matrix = matrix.transpose(0, 2, 1) if transposed else matrix
            rows.reshape(-1, WARP, 8)[:, 8 * place : 8 * place + 8] = matrix
        shared.store(givers, address()[givers], rows[givers])

    return run
