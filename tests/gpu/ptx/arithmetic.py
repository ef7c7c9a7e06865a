"""Instructions that a thread does by itself, over all lanes at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from tests.gpu.ptx.lanes import TYPES, Lanes, Mask, Run
from tests.gpu.ptx.numbers import Array, from_bf16, to_bf16
from tests.gpu.ptx.syntax import Instruction, Register

Function: TypeAlias = Callable[..., Array]

WIDE = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}


def arithmetic(instruction: Instruction, lanes: Lanes) -> Run | None:
    """What an instruction does; None for instructions of other kinds."""
    name, *rest = instruction.parts
    make = MAKERS.get(name)
    if make is None:
        return None
    if not re.fullmatch(FORMS[name], ".".join(rest)):
        raise NotImplementedError(instruction.text)
    return make(instruction, lanes)


def _apply(function: Function, instruction: Instruction, lanes: Lanes, to: str, *kinds: str) -> Run:
    """Applies a function to operands of these types; the result has type `to`."""
    write = lanes.writer(instruction.operands[0], to)
    reads = [lanes.reader(operand, kind) for operand, kind in zip(instruction.operands[1:], kinds, strict=True)]

    def run(mask: Mask) -> None:
        write(function(*(read() for read in reads)), mask)

    return run


def _over(function: Function, instruction: Instruction) -> Function:
    """The function over registers of the instruction's type, rounded once; `ftz` makes denormal numbers zero."""
    if "ftz" in instruction.parts:
        return lambda *values: _flushed(function(*map(_flushed, values)).astype(np.float32))
    return _rounded(function, instruction.parts[-1])


def _flushed(values: Array) -> Array:
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, values * np.float32(0), values)


def _rounded(function: Function, kind: str) -> Function:
    if kind == "bf16":
        return lambda *values: to_bf16(function(*(from_bf16(value).astype(np.float64) for value in values)))
    if kind in ("s16x2", "u16x2"):
        return _in_pairs(function, np.dtype(np.uint16), np.dtype(np.uint16))  # only for sums, which ignore signs
    if kind in ("bf16x2", "f16x2", "f32x2"):
        half = {"bf16x2": ("bf16", "u2"), "f16x2": ("f16", "u2"), "f32x2": ("f32", "u4")}[kind]
        return _in_pairs(_rounded(function, half[0]), np.dtype(TYPES[half[0]]), np.dtype(half[1]))
    if kind in ("f32", "f16"):
        return lambda *values: function(*values).astype(TYPES[kind])
    return function


def _in_pairs(function: Function, dtype: np.dtype[Any], bits: np.dtype[Any]) -> Function:
    def apply(*values: Array) -> Array:
        shape = np.broadcast_shapes(*(np.shape(value) for value in values)) or (1,)
        both = [np.ascontiguousarray(np.broadcast_to(value, shape)).view(dtype) for value in values]
        return np.asarray(function(*both)).view(f"u{2 * bits.itemsize}")

    return apply


def _fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float64, rounded to odd, so that a second rounding gives what a single one would.

    A product of two floats of 32 bits is exact in 64; what the sum loses is computed with Knuth's TwoSum.
    """
    product, c = np.asarray(a, np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64)
    total = np.atleast_1d(product + c)
    added = total - product
    lost = (product - (total - added)) + (c - added)
    inexact = (lost != 0) & np.isfinite(total) & np.isfinite(lost)
    bits = total.view(np.uint64)
    bits = np.where(inexact & ((lost > 0) != (total > 0)), bits - np.uint64(1), bits)
    return np.asarray(np.where(inexact, bits | np.uint64(1), bits).view(np.float64))


def _bounded(instruction: Instruction, lanes: Lanes) -> Run:
    """`min` and `max` of two or three: NaN counts only if the name says so, and -0 is less than 0."""
    kind, is_least = instruction.parts[-1], instruction.parts[0] == "min"
    if kind[0] in "su":
        function: Function = np.minimum if is_least else np.maximum
    else:
        if "NaN" in instruction.parts:
            chosen = np.minimum if is_least else np.maximum
        else:
            chosen = np.fmin if is_least else np.fmax

        def function(a: Array, b: Array) -> Array:
            first = np.signbit(a) if is_least else ~np.signbit(a)
            return np.where(a == b, np.where(first, a, b), chosen(a, b))

    arity = len(instruction.operands) - 1
    over = _over(lambda *values: reduce(function, values), instruction)
    return _apply(over, instruction, lanes, kind, *[kind] * arity)


def _multiply(instruction: Instruction, lanes: Lanes) -> Run:
    """`mul` and `mad`: of integers the lower half of the product, or all of it."""
    kind, adds = instruction.parts[-1], instruction.parts[0] == "mad"
    if instruction.parts[1] == "wide":
        wide = np.dtype(TYPES[WIDE[kind]])

        def whole(a: Array, b: Array, c: Array | int = 0) -> Array:
            return np.asarray(a.astype(wide) * b.astype(wide) + c)

        return _apply(whole, instruction, lanes, WIDE[kind], *[kind] * 2, *[WIDE[kind]] * adds)
    if instruction.parts[1] == "hi":
        wide = np.dtype(TYPES[WIDE[kind]])
        bits = wide.type(4 * wide.itemsize)

        def upper(a: Array, b: Array) -> Array:
            return np.asarray((a.astype(wide) * b.astype(wide)) >> bits).astype(TYPES[kind])

        return _apply(upper, instruction, lanes, kind, kind, kind)
    function: Function = (lambda a, b, c: a * b + c) if adds else np.multiply
    return _apply(_over(function, instruction), instruction, lanes, kind, *[kind] * (3 if adds else 2))


def _divide(instruction: Instruction, lanes: Lanes) -> Run:
    """`div` and `rem`: integers toward zero; floats as exact as numpy's, where a GPU may be less exact."""
    kind = instruction.parts[-1]
    if np.dtype(TYPES[kind]).kind == "f":
        return _apply(_over(np.divide, instruction), instruction, lanes, kind, kind, kind)
    if instruction.parts[0] == "rem":
        return _apply(np.fmod, instruction, lanes, kind, kind, kind)
    # Without the remainder it is a multiple, so nothing needs rounding.
    return _apply(lambda a, b: (a - np.fmod(a, b)) // b, instruction, lanes, kind, kind, kind)


def _logical(function: Function, arity: int) -> Callable[[Instruction, Lanes], Run]:
    def make(instruction: Instruction, lanes: Lanes) -> Run:
        kind = instruction.parts[-1]
        return _apply(function, instruction, lanes, kind, *[kind] * arity)

    return make


def _shift(instruction: Instruction, lanes: Lanes) -> Run:
    """Shifts by the width or more leave only the sign."""
    kind, left = instruction.parts[-1], instruction.parts[0] == "shl"
    dtype = np.dtype(TYPES[kind])
    most = 8 * dtype.itemsize - 1

    def function(a: Array, b: Array) -> Array:
        by = np.minimum(b, most).astype(dtype)
        moved = np.left_shift(a, by) if left else np.right_shift(a, by)
        return moved if dtype.kind == "i" else np.where(b > most, dtype.type(0), moved).astype(dtype)

    return _apply(function, instruction, lanes, kind, kind, "u32")


def _extract(instruction: Instruction, lanes: Lanes) -> Run:
    """`bfe`: some bits from a place on, sign-extended if the type is signed."""
    kind = instruction.parts[-1]
    dtype = np.dtype(TYPES[kind])
    wide, width = np.dtype(np.int64 if dtype.kind == "i" else np.uint64), 8 * dtype.itemsize

    def function(a: Array, place: Array, count: Array) -> Array:
        if ((place >= width) | (count > width) | (place + count > width) | (count == 0)).any():
            raise NotImplementedError(instruction.text)
        up = (np.uint32(64) - (place + count)).astype(wide)
        down = (np.uint32(64) - count).astype(wide)
        return ((a.astype(wide) << up) >> down).astype(dtype)

    return _apply(function, instruction, lanes, kind, kind, "u32", "u32")


def _permute(instruction: Instruction, lanes: Lanes) -> Run:
    """`prmt`: four bytes of eight, one for each digit, whose highest bit asks for the byte's sign instead."""

    def function(a: Array, b: Array, choice: Array) -> Array:
        both = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
        total = np.zeros(np.broadcast_shapes(np.shape(both), np.shape(choice)), np.uint32)
        for place in range(4):
            digit = (choice >> np.uint32(4 * place)) & np.uint32(15)
            byte = ((both >> ((digit & np.uint32(7)) * np.uint32(8)).astype(np.uint64)) & np.uint64(255)).astype(
                np.uint32
            )
            sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            total |= np.where(digit & np.uint32(8), sign, byte) << np.uint32(8 * place)
        return total

    return _apply(function, instruction, lanes, "b32", "b32", "b32", "b32")


COMPARISONS: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    "num": lambda a, b: np.full(np.broadcast(a, b).shape, fill_value=True),
    "nan": lambda a, b: np.full(np.broadcast(a, b).shape, fill_value=False),
}  # fmt: skip


def _compare(instruction: Instruction, lanes: Lanes) -> Run:
    """`setp`: for floats, names in `u` are true for NaN, others are not; `num` and `nan` only test for NaN."""
    name, kind = instruction.parts[1:]
    if kind in ("f16x2", "bf16x2"):
        return _compare_two(instruction, lanes, name, kind.removesuffix("x2"))
    function = _comparison(name, kind)
    return _apply(function, instruction, lanes, "pred", kind, kind)


def _compare_two(instruction: Instruction, lanes: Lanes, name: str, kind: str) -> Run:
    """Compares the halves of registers into two predicates: that of the low half comes first."""
    target, *sources = instruction.operands
    names = target.name.split("|") if isinstance(target, Register) else []
    if len(names) != 2:
        raise NotImplementedError(instruction.text)
    writes = [lanes.writer(Register(one), "pred") for one in names]
    reads = [lanes.reader(source, "b32") for source in sources]
    function = _comparison(name, kind)

    def run(mask: Mask) -> None:
        words = [np.asarray(read(), np.uint32) for read in reads]
        for write, place in zip(writes, (0, 16), strict=True):
            halves = [(word >> np.uint32(place)).astype(np.uint16) for word in words]
            write(function(*(half if kind == "bf16" else half.view(np.float16) for half in halves)), mask)

    return run


def _comparison(name: str, kind: str) -> Function:
    is_float = kind in ("f16", "f32", "bf16")
    unordered = is_float and (name.endswith("u") or name == "nan")
    base = COMPARISONS[name.removesuffix("u") if is_float else name]

    def function(a: Array, b: Array) -> Array:
        if kind == "bf16":
            a, b = from_bf16(a), from_bf16(b)
        found = base(a, b)
        if is_float:
            unknown = np.isnan(a) | np.isnan(b)
            found = found | unknown if unordered else found & ~unknown
        return np.asarray(found)

    return function


def _select(instruction: Instruction, lanes: Lanes) -> Run:
    kind = instruction.parts[-1]

    def function(a: Array, b: Array, first: Array) -> Array:
        return np.where(first, a, b)

    return _apply(function, instruction, lanes, kind, kind, kind, "pred")


def _move(instruction: Instruction, lanes: Lanes) -> Run:
    kind = instruction.parts[-1]
    return _apply(np.asarray, instruction, lanes, kind, kind)


def _convert(instruction: Instruction, lanes: Lanes) -> Run:
    *modes, to, source = instruction.parts[1:]
    if to in ("bf16x2", "f16x2"):
        return _convert_two(instruction, lanes, to)
    dtype: np.dtype[Any] = np.dtype(TYPES[to])

    def function(value: Array) -> Array:
        if source == "bf16":
            value = from_bf16(value)
        if to == "bf16":
            return to_bf16(value.astype(np.float32))
        if value.dtype.kind == "f" and dtype.kind in "iu":
            whole = np.rint(value) if "rni" in modes else np.trunc(value)
            limits = np.iinfo(dtype)
            clipped = np.clip(np.nan_to_num(whole.astype(np.float64), nan=0.0), float(limits.min), float(limits.max))
            return clipped.astype(dtype)
        return np.asarray(value.astype(dtype))

    return _apply(function, instruction, lanes, to, source)


def _convert_two(instruction: Instruction, lanes: Lanes, to: str) -> Run:
    """Two floats into one register, the first in its upper half."""

    def bits(value: Array) -> Array:
        return to_bf16(value) if to == "bf16x2" else np.asarray(value).astype(np.float16).view(np.uint16)

    def function(upper: Array, lower: Array) -> Array:
        high, low = (np.atleast_1d(bits(value)).astype(np.uint32) for value in (upper, lower))
        return (high << np.uint32(16)) | low

    return _apply(function, instruction, lanes, "b32", "f32", "f32")


def _negate(instruction: Instruction, lanes: Lanes) -> Run:
    """Flips the sign bits of floats, even of NaN."""
    kind = instruction.parts[-1]
    signs = {
        "bf16": ("b16", 0x8000),
        "bf16x2": ("b32", 0x80008000),
        "f16x2": ("b32", 0x80008000),
        "f32": ("b32", 0x80000000),
    }
    if kind in signs:
        stored, sign = signs[kind]
        return _apply(lambda value: value ^ value.dtype.type(sign), instruction, lanes, stored, stored)
    return _apply(np.negative, instruction, lanes, kind, kind)


def _popcount(instruction: Instruction, lanes: Lanes) -> Run:
    kind = instruction.parts[-1]
    return _apply(lambda value: np.bitwise_count(value).astype(np.uint32), instruction, lanes, "u32", kind)


def _unary(function: Function) -> Callable[[Instruction, Lanes], Run]:
    def make(instruction: Instruction, lanes: Lanes) -> Run:
        kind = instruction.parts[-1]
        return _apply(_over(function, instruction), instruction, lanes, kind, kind)

    return make


def _mixed(instruction: Instruction, lanes: Lanes) -> Run:
    """`fma`, `add`, `sub` and `mul`; with two types, fp32 sums whose other operands have 16 bits."""
    name, kind = instruction.parts[0], instruction.parts[-1]
    function, arity = {"fma": (_fused, 3), "add": (np.add, 2), "sub": (np.subtract, 2), "mul": (np.multiply, 2)}[name]
    if kind in ("bf16", "f16") and "f32" in instruction.parts:
        # The last operand of a sum, or the addend of a product, is fp32 (PTX ISA, mixed precision instructions).
        wider = from_bf16 if kind == "bf16" else np.asarray

        def mixed(*values: Array) -> Array:
            wide = [wider(value).astype(np.float64) for value in values[:-1]]
            return function(*wide, values[-1].astype(np.float64)).astype(np.float32)

        return _apply(mixed, instruction, lanes, "f32", *[kind] * (arity - 1), "f32")
    return _apply(_over(function, instruction), instruction, lanes, kind, *[kind] * arity)


def _multiplied(instruction: Instruction, lanes: Lanes) -> Run:
    is_whole = instruction.parts[1] in ("wide", "lo", "hi")
    return _multiply(instruction, lanes) if is_whole else _mixed(instruction, lanes)


_BITS, _WHOLE, _HALF = "b(16|32|64)", "[su](16|32|64)", "b?f16(x2)?"
_SUM = rf"{_WHOLE}|(rn\.)?(ftz\.)?f32|(rn\.)?(f32x2|{_HALF}|f32\.b?f16)"

FORMS: dict[str, str] = {
    "abs": rf"s(16|32|64)|(ftz\.)?f32|{_HALF}",
    "add": rf"{_SUM}|[su]16x2",
    "and": rf"pred|{_BITS}",
    "bfe": "[su](32|64)",
    "cvt": r"[su](8|16|32|64)\.[su](8|16|32|64)|rn\.f32\.[su](8|16|32|64)|rn\.b?f16\.[su](8|16)"
    r"|(rzi|rni)\.[su](8|16|32)\.(f32|b?f16)|f32\.b?f16|rn\.b?f16(x2)?\.f32",
    "div": rf"(approx|full)\.(ftz\.)?f32|{_WHOLE}",
    "ex2": r"approx\.(ftz\.)?f32",
    "fma": rf"rn\.((ftz\.)?f32|f32x2|{_HALF}|f32\.b?f16)",
    "mad": rf"lo\.{_WHOLE}|wide\.[su](16|32)",
    "max": rf"{_WHOLE}|(ftz\.)?(NaN\.)?f32|(NaN\.)?{_HALF}",
    "min": rf"{_WHOLE}|(ftz\.)?(NaN\.)?f32|(NaN\.)?{_HALF}",
    "mov": "pred|[bsu](16|32|64)|f32",
    "mul": rf"lo\.{_WHOLE}|(hi|wide)\.[su](16|32)|(rn\.)?(ftz\.)?f32|(rn\.)?(f32x2|{_HALF})",
    "neg": rf"s(16|32|64)|f32|{_HALF}",
    "not": rf"pred|{_BITS}",
    "or": rf"pred|{_BITS}",
    "popc": "b(32|64)",
    "prmt": "b32",
    "rem": _WHOLE,
    "selp": "[bsu](16|32|64)|f32",
    "setp": rf"(eq|ne)\.{_BITS}|(eq|ne|lt|le|gt|ge)\.{_WHOLE}|(lo|ls|hi|hs)\.u(16|32|64)"
    rf"|((eq|ne|lt|le|gt|ge)u?|num|nan)\.(f32|{_HALF})",
    "shl": _BITS,
    "shr": "[bsu](16|32|64)",
    "sqrt": r"(approx|rn)\.(ftz\.)?f32",
    "sub": _SUM,
    "xor": rf"pred|{_BITS}",
}
"""What may follow the first word of a name: all forms implemented here. Others are refused, not ignored."""

MAKERS: dict[str, Callable[[Instruction, Lanes], Run]] = {
    "abs": _unary(np.abs),
    "add": _mixed,
    "and": _logical(np.bitwise_and, 2),
    "bfe": _extract,
    "cvt": _convert,
    "div": _divide,
    "ex2": _unary(np.exp2),
    "fma": _mixed,
    "mad": _multiply,
    "max": _bounded,
    "min": _bounded,
    "mov": _move,
    "mul": _multiplied,
    "neg": _negate,
    "not": _logical(np.invert, 1),
    "or": _logical(np.bitwise_or, 2),
    "popc": _popcount,
    "prmt": _permute,
    "rem": _divide,
    "selp": _select,
    "setp": _compare,
    "shl": _shift,
    "shr": _shift,
    "sqrt": _unary(np.sqrt),
    "sub": _mixed,
    "xor": _logical(np.bitwise_xor, 2),
}
"""By the first word of an instruction's name."""
