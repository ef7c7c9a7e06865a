"""Device code: tiles of codes to tiles of weights, and their products with rows of activations.

Weights as published are multiplied as they are.

The sixteen levels of nf4 are looked up in a table of fp32, which gives the weights that the codec gives, bit for bit;
or, for int8 arithmetic, in a table of int8, which adds 0.02 points to their relative error and on a GPU is a byte
permutation: two tables of eight, a selection between them, 4 weights at a time, no memory access.
Shape letters: M rows of activations, N rows of a weight, K its input.
"""

from __future__ import annotations

import triton
import triton.language as tl

LEVELS_INT8 = (-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127)
"""`quant.codecs.nf4.LEVELS` times 127, rounded."""


def _word(levels: tuple[int, ...]) -> str:
    return "0x" + "".join(f"{level & 255:02x}" for level in reversed(levels))


_TABLES = [_word(LEVELS_INT8[start : start + 4]) for start in range(0, 16, 4)]

DECODE = f"""{{
.reg .b32 index, side, low, high, even, odd;
and.b32 index, $2, 0x77777777;
shr.b32 side, $2, 1;
and.b32 side, side, 0x44444444;
or.b32 side, side, 0x32103210;
prmt.b32 low, {_TABLES[0]}, {_TABLES[1]}, index;
prmt.b32 high, {_TABLES[2]}, {_TABLES[3]}, index;
prmt.b32 even, low, high, side;
shr.b32 index, index, 16;
shr.b32 side, side, 16;
prmt.b32 low, {_TABLES[0]}, {_TABLES[1]}, index;
prmt.b32 high, {_TABLES[2]}, {_TABLES[3]}, index;
prmt.b32 odd, low, high, side;
prmt.b32 $0, even, odd, 0x6420;
prmt.b32 $1, even, odd, 0x7531;
}}"""
"""Four bytes of two codes each to four levels of the low and four of the high codes.

A selector of `prmt` is a nibble: its low three bits choose a byte of a pair of words, so that `index` looks up both
halves of the table, and `side` takes from one or the other by the code's fourth bit.
"""

_DECODE = tl.constexpr(DECODE)


def _exchange(count: int) -> str:
    lines = [".reg .b32 code;"]
    for place in range(2 * count):
        # Within half a warp (0x10 of 0x101f), so that of the code's bits only the low four count.
        target, source = place // 2 + count * (place % 2), 2 * count
        lines += [
            f"shr.b32 code, ${source}, {4 * place};",
            f"shfl.sync.idx.b32 ${target}, ${source + 1}, code, 0x101f, 0xffffffff;",
        ]
    return "\n".join(["{", *lines, "}"])


EXCHANGE = {count: _exchange(count) for count in (2, 4)}
"""Two or four bytes of two codes each to the levels of the low and of the high codes, which other lanes hold."""

_EXCHANGE_2, _EXCHANGE_4 = tl.constexpr(EXCHANGE[2]), tl.constexpr(EXCHANGE[4])
_LANE = tl.constexpr("{ mov.u32 $0, %laneid; and.b32 $0, $0, 15; }")


@triton.jit
def table_of(levels, NF4: tl.constexpr, INT8: tl.constexpr, PACK: tl.constexpr):
    """nf4's table as `add_product` takes it, to be made once, ahead of the loop.

    A warp holds the fp32 table: lane n, and lane n + 16, have level n, and ask each other for the rest. To Triton it is
    a tile [1, 1] of which all threads have a copy. That the copies differ it need not know, as long as such a tile gets
    from one layout to another without an exchange; the trial of `support` sees whether it does. And it is loaded: of a
    scalar, or whatever else Triton can compute ahead of the loop, it makes a reason to decode in another layout than
    that of the matrix instruction, and to take shared memory between.
    """
    if NF4 and not INT8 and PACK > 0:
        lane = tl.inline_asm_elementwise(_LANE, "=r", [], dtype=tl.int32, is_pure=True, pack=1)
        levels = tl.load(levels + lane + tl.zeros([1, 1], dtype=tl.int32))
    return levels


@triton.jit
def nf4_levels(pairs, table, PACK: tl.constexpr):
    """Levels of the low and the high codes of bytes, as fp32; with PACK 0 from a table in memory.

    Otherwise lanes hold it (`table_of`): one in memory takes an address and a load for every weight.
    """
    if PACK == 0:
        low = tl.load(table + (pairs & 15))
        high = tl.load(table + (pairs >> 4))
    elif PACK == 2:
        low, high = tl.inline_asm_elementwise(
            _EXCHANGE_2,
            "=&f,=&f,=&f,=&f,r,f,f",
            [pairs, table],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=2,
        )
    else:
        low, high = tl.inline_asm_elementwise(
            _EXCHANGE_4,
            "=&f,=&f,=&f,=&f,=&f,=&f,=&f,=&f,r,f,f,f,f",
            [pairs, table],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=4,
        )
    return low, high


@triton.jit
def nf4_int8(pairs, levels, PACK: tl.constexpr):
    """Levels of the low and the high codes of bytes, as int8; with PACK 0 from the table `levels` in memory."""
    if PACK == 0:
        low = tl.load(levels + (pairs & 15))
        high = tl.load(levels + (pairs >> 4))
    else:
        low, high = tl.inline_asm_elementwise(
            _DECODE, "=r,=r,r", [pairs], dtype=(tl.int8, tl.int8), is_pure=True, pack=4
        )
    return low, high


def _scale(count: int) -> str:
    lines = [".reg .b32 code, side, one, none;", "mov.b32 one, 0x3f803f80;", "mov.b32 none, 0x80008000;"]
    for pair in range(count // 2):
        lines += [
            f"prmt.b32 code, ${count // 2}, 0xc3c3c3c3, 0x4{2 * pair + 1}4{2 * pair};",
            "and.b32 side, code, 0xff80ff80;",
            "and.b32 code, code, 0x7f7f7f7f;",
            "fma.rn.bf16x2 code, code, one, side;",
            f"fma.rn.bf16x2 ${pair}, code, ${count // 2 + 1 + pair}, none;",
        ]
    return "\n".join(["{", *lines, "}"])


SCALE = {count: _scale(count) for count in (2, 4)}
"""Two or four codes of int8 times as many scales in bf16, rounded once, as bf16.

After 0x43, the low seven bits of a code make a number from 128 to 255 in bf16. From that 128 are subtracted, or 256 if
the eighth bit is set, which there is the lowest one of the exponent. A conversion to fp32 would go to the few units
that compute exponentials; these instructions do not.
"""
_SCALE_2, _SCALE_4 = tl.constexpr(SCALE[2]), tl.constexpr(SCALE[4])


@triton.jit
def int8_weights(codes, scale, COMPUTE: tl.constexpr, PACK: tl.constexpr, ONCE: tl.constexpr = False):
    """Codes [N, K] times scales, broadcast to them, rounded to COMPUTE: the products are exact before that.

    Args:
        ONCE: decode each weight in one warp, for all to read it in shared memory. Otherwise every warp that multiplies
            with it decodes it: Triton moves what it knows to be pure behind that exchange. Where four warps share an
            operand, it is in shared memory anyway.
    """
    if PACK == 0 or not COMPUTE.is_bf16():
        weights = (codes.to(tl.float32) * scale.to(tl.float32)).to(COMPUTE)
    elif PACK == 2:
        weights = tl.inline_asm_elementwise(_SCALE_2, "=r,r,r", [codes, scale], dtype=tl.bfloat16, is_pure=True, pack=2)
    else:
        weights = tl.inline_asm_elementwise(
            _SCALE_4, "=&r,=&r,r,r,r", [codes, scale], dtype=tl.bfloat16, is_pure=not ONCE, pack=4
        )
    return weights


@triton.jit
def places_of(first, row, COLUMNS: tl.constexpr, BY_LANES: tl.constexpr):
    """Where the first 32 bytes of rows of codes are, [COLUMNS, 32], or all of them, where lanes have theirs together.

    Args:
        first: the first row; row: from row to row.
    """
    if BY_LANES:
        places = first * row + tl.arange(0, 32 * COLUMNS)
    else:
        places = (first + tl.arange(0, COLUMNS))[:, None] * row + tl.arange(0, 32)[None, :]
    return places


@triton.jit
def _bytes_of_rows(codes, N: tl.constexpr):
    """Bytes [N, 32] of those in the order of lanes: `layout._by_lanes`, backwards."""
    parts = tl.reshape(codes, [N // 16, 8, 4, 4, 2, 2])
    return tl.reshape(tl.permute(parts, [0, 4, 1, 3, 2, 5]), [N, 32])


@triton.jit
def _scales_of_rows(scales, apart, N: tl.constexpr):
    """Scales [N] of pointers to them, or of pointers [N/2] to words of two, or to those of every first of two rows.

    Of values that are joined, Triton gives a lane eight neighbours among the codes instead of four. For `mma.sync` the
    operands then arrive in the registers that the instruction takes, and are not moved.
    """
    if scales.shape[0] == N:
        of_rows = tl.load(scales)
    else:
        if scales.dtype.element_ty == tl.int32:
            words = tl.load(scales)
            first = words.to(tl.int16).to(tl.bfloat16, bitcast=True)
            second = (words >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
        else:
            first = tl.load(scales)
            second = tl.load(scales + apart)
        blocks = tl.reshape(tl.join(first, second), [N // 16, 8, 2])
        of_rows = tl.reshape(tl.permute(blocks, [0, 2, 1]), [N])
    return of_rows


@triton.jit
def add_product(
    total,
    x,
    x_scales,
    codes,
    scales,
    apart,
    table,
    k,
    valid_rows,
    NF4: tl.constexpr,
    INT8: tl.constexpr,
    PACK: tl.constexpr,
):
    """`total` [N, M] plus the product of one group of 64, transposed.

    The weight is the first operand: that one alone may be in registers for every kind of matrix instruction, so that a
    decoded weight is never stored. And its rows, the columns of a tile, are as many as the instruction of an H100
    takes, 64; of activations, the second operand, it takes any multiple of 8.

    Args:
        x: pointers [M, 32] to the first half of the group; the second one follows.
        x_scales: pointers [M] to the scales of int8 activations, of some row also where there is none.
        codes: pointers [N, 32] to the group's bytes (nf4), to the first half of its codes (int8), or to that of its
            weights where they are as published; or [32 N] to bytes in the order of lanes.
        scales: pointers [N], or [N/2] (`_scales_of_rows`); weights as published have none.
        apart: from the scale of a row to that of the row 8 below, which pointers [N/2] leave out and no word has.
        table: nf4's (`table_of`).
        k: [32], 0 to 31; valid_rows: [M, 1].
        PACK: neighbours that a lane of a matrix instruction's operand has in bytes; 0 takes no machine instructions.
    """
    COMPUTE: tl.constexpr = x.dtype.element_ty
    N: tl.constexpr = total.shape[0]
    first = tl.trans(tl.load(x, mask=valid_rows, other=0))
    second = tl.trans(tl.load(x + 32, mask=valid_rows, other=0))
    if codes.dtype.element_ty.is_floating():
        total = tl.dot(tl.load(codes), first, total, input_precision="ieee")
        total = tl.dot(tl.load(codes + 32), second, total, input_precision="ieee")
    elif INT8:
        scale = _scales_of_rows(scales, apart, N).to(tl.float32)
        if NF4:
            low, high = nf4_int8(tl.load(codes), table, PACK)
            scale = scale / 127.0
        else:
            low = tl.load(codes)
            high = tl.load(codes + 32)
        whole = tl.dot(low, first, out_dtype=tl.int32)
        whole = tl.dot(high, second, whole, out_dtype=tl.int32)
        total += whole.to(tl.float32) * (scale[:, None] * tl.load(x_scales)[None, :])
    else:
        scale = _scales_of_rows(scales, apart, N)[:, None]
        if NF4:
            if len(codes.shape) == 1:  # a lane's pairs of two rows follow each other
                low, high = nf4_levels(_bytes_of_rows(tl.load(codes), N), table, 2 * PACK)
            else:
                low, high = nf4_levels(tl.load(codes), table, PACK)
            scale = scale.to(tl.float32)
            low, high = (low * scale).to(COMPUTE), (high * scale).to(COMPUTE)
        else:
            low = int8_weights(tl.load(codes), scale, COMPUTE, PACK)
            high = int8_weights(tl.load(codes + 32), scale, COMPUTE, PACK)
        total = tl.dot(low, first, total, input_precision="ieee")
        total = tl.dot(high, second, total, input_precision="ieee")
    return total
