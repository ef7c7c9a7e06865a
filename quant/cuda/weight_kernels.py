"""Device code: tiles of codes decoded to tiles of weights, and their products with rows of activations.

Weights that are stored unquantized, as published, are multiplied as they are.

The sixteen levels of nf4 are looked up in a table of fp32, which gives the codec's weights bit for bit; or, for int8
arithmetic, in a table of int8. That adds 0.02 percentage points to their relative error, and on a GPU it takes byte
permutes alone: one in each half of the table and one to select between the halves, 4 weights at a time, without a
memory access.
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
"""Four bytes of two codes each to four levels of the low codes and four of the high ones.

A selector of `prmt` is a nibble whose low three bits choose one of the 8 bytes of two words. `index` therefore looks a
code up in either half of the table, and `side` picks the half by the code's fourth bit.
"""

_DECODE = tl.constexpr(DECODE)


def _exchange(count: int) -> str:
    lines = [".reg .b32 code;"]
    for index in range(2 * count):
        # Shuffles stay within half a warp (0x10 of 0x101f), so that only the low four bits of `code` count.
        target, source = index // 2 + count * (index % 2), 2 * count
        lines += [
            f"shr.b32 code, ${source}, {4 * index};",
            f"shfl.sync.idx.b32 ${target}, ${source + 1}, code, 0x101f, 0xffffffff;",
        ]
    return "\n".join(["{", *lines, "}"])


EXCHANGE = {count: _exchange(count) for count in (2, 4)}
"""Two or four bytes of two codes each to the levels of the low and of the high codes, shuffled from other lanes."""

_EXCHANGE_2, _EXCHANGE_4 = tl.constexpr(EXCHANGE[2]), tl.constexpr(EXCHANGE[4])
_LANE = tl.constexpr("{ mov.u32 $0, %laneid; and.b32 $0, $0, 15; }")


_TAKE = tl.constexpr("mov.f32 $0, $1;")

_MIDDLE, _BITS_OF_MIDDLE = tl.constexpr(1.5 * 2**23), tl.constexpr(0x4B400000)
"""An fp32 number and its bits: up to 2²² from it, adding an integer to the bits adds it to the number. 64 products of
int8 are at most 2²⁰. Conversions of int32 would run on the few units that compute exponentials."""


@triton.jit
def load_table(levels, NF4: tl.constexpr, INT8: tl.constexpr, PACK: tl.constexpr):
    """nf4's table as `add_product` takes it; to be called once, before the loop.

    The fp32 table is spread over a warp: each lane holds one level, lanes n and n + 16 the same one, and shuffles bring
    the others. Triton believes the [1, 1] tile is the same in all threads, which is safe only while it changes layout
    without an exchange; `support` checks. It must be loaded: a value that Triton can compute before the loop makes it
    decode in another layout and go through shared memory.
    """
    if NF4 and not INT8 and PACK > 0:
        lane = tl.inline_asm_elementwise(_LANE, "=r", [], dtype=tl.int32, is_pure=True, pack=1)
        levels = tl.load(levels + lane + tl.zeros([1, 1], dtype=tl.int32))
    return levels


@triton.jit
def nf4_levels(pairs, table, PACK: tl.constexpr):
    """Levels of the low and the high codes of bytes, as fp32.

    With PACK 0 from a table in memory, which takes an address and a load per weight; otherwise from one that is spread
    over lanes (`load_table`).
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
"""Two or four int8 codes times as many scales in bf16, rounded once, as bf16.

With 0x43 as its high byte, the low seven bits of a code are a bf16 number from 128 to 255. From that 128 is subtracted,
or 256 if the eighth bit is set, which as a bf16 bit is the lowest one of the exponent. Conversions to fp32 would run on
the few units that compute exponentials; these instructions do not.
"""
_SCALE_2, _SCALE_4 = tl.constexpr(SCALE[2]), tl.constexpr(SCALE[4])


@triton.jit
def int8_weights(codes, scale, COMPUTE: tl.constexpr, PACK: tl.constexpr, DECODE_ONCE: tl.constexpr = False):
    """Codes [N, K] times scales, broadcast to them, rounded once to COMPUTE: before that, the products are exact.

    Args:
        DECODE_ONCE: one warp decodes a weight, and the others read it from shared memory. Otherwise every warp that
            multiplies by it decodes it, since Triton moves pure instructions behind that exchange. Where four warps
            share an operand, it goes through shared memory in any case.
    """
    if PACK == 0 or not COMPUTE.is_bf16():
        weights = (codes.to(tl.float32) * scale.to(tl.float32)).to(COMPUTE)
    elif PACK == 2:
        weights = tl.inline_asm_elementwise(_SCALE_2, "=r,r,r", [codes, scale], dtype=tl.bfloat16, is_pure=True, pack=2)
    else:
        weights = tl.inline_asm_elementwise(
            _SCALE_4, "=&r,=&r,r,r,r", [codes, scale], dtype=tl.bfloat16, is_pure=not DECODE_ONCE, pack=4
        )
    return weights


@triton.jit
def code_offsets(first, row_stride, COLUMNS: tl.constexpr, BY_LANES: tl.constexpr):
    """Offsets [COLUMNS, 32] of the first 32 bytes of rows of codes; BY_LANES, [32 COLUMNS] of all their bytes in order.

    Args:
        first: the first row.
    """
    if BY_LANES:
        offsets = first * row_stride + tl.arange(0, 32 * COLUMNS)
    else:
        offsets = (first + tl.arange(0, COLUMNS))[:, None] * row_stride + tl.arange(0, 32)[None, :]
    return offsets


@triton.jit
def _load_bytes(codes, N: tl.constexpr):
    """Bytes [N, 32] from pointers to them; or from pointers [32 N] to the order of lanes, as `layout._by_lanes` has."""
    found = tl.load(codes)
    if len(codes.shape) == 1:
        parts = tl.reshape(found, [N // 16, 8, 4, 4, 2, 2])
        found = tl.reshape(tl.permute(parts, [0, 4, 1, 3, 2, 5]), [N, 32])
    return found


@triton.jit
def unpacked(words):
    """The two bf16 numbers of each word int32, the low one first."""
    return words.to(tl.int16).to(tl.bfloat16, bitcast=True), (words >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def load_scales(scales, pair_stride, N: tl.constexpr):
    """Scales [N] from pointers [N] to them; or from pointers [N/2] to words of two, or to the first of each two rows.

    If scales are joined, Triton gives a lane eight adjacent codes instead of four. For `mma.sync` the operands are then
    already in the registers that the instruction takes them from.
    """
    if scales.shape[0] == N:
        of_rows = tl.load(scales)
    else:
        if scales.dtype.element_ty == tl.int32:
            first, second = unpacked(tl.load(scales))
        else:
            first = tl.load(scales)
            second = tl.load(scales + pair_stride)
        blocks = tl.reshape(tl.join(first, second), [N // 16, 8, 2])
        of_rows = tl.reshape(tl.permute(blocks, [0, 2, 1]), [N])
    return of_rows


@triton.jit
def add_product(
    acc,
    x,
    x_scale,
    codes,
    second_half,
    scale,
    table,
    k,
    valid_rows,
    NF4: tl.constexpr,
    INT8: tl.constexpr,
    PACK: tl.constexpr,
):
    """`acc` [N, M] plus the product of one group of 64, transposed.

    The weight is the first operand, because in every kind of matrix instruction that one may be in registers: a decoded
    weight is never stored to memory. Its rows, the columns of a tile, come in 64s, as `wgmma` takes them; activations,
    the second operand, may have any multiple of 8 rows.

    Args:
        x: pointers [M, 32] to the first half of the group; the second half follows it.
        x_scale: [M], of int8 activations; of others, anything.
        codes: pointers [N, 32] to the group's bytes (nf4), to the first half of its codes (int8), or to the first half
            of its weights if they are unquantized; or [32 N] to bytes in the order of lanes.
        second_half: from there to the second half of what is not nf4.
        scale: [N]; of unquantized weights, anything.
        table: nf4's (`load_table`).
        k: [32], 0 to 31; valid_rows: [M, 1].
        PACK: adjacent bytes that a lane holds of a matrix instruction's operand; with 0 there is no inline assembly.
    """
    COMPUTE: tl.constexpr = x.dtype.element_ty
    N: tl.constexpr = acc.shape[0]
    first = tl.trans(tl.load(x, mask=valid_rows, other=0))
    second = tl.trans(tl.load(x + 32, mask=valid_rows, other=0))
    if codes.dtype.element_ty.is_floating():
        acc = tl.dot(tl.load(codes), first, acc, input_precision="ieee")
        acc = tl.dot(tl.load(codes + second_half), second, acc, input_precision="ieee")
    elif INT8:
        scale = scale.to(tl.float32)
        if NF4:
            low, high = nf4_int8(tl.load(codes), table, PACK)
            scale = scale / 127.0
        else:
            low = tl.load(codes)
            high = tl.load(codes + second_half)
        acc_int32 = tl.full(acc.shape, _BITS_OF_MIDDLE, dtype=tl.int32)
        acc_int32 = tl.dot(low, first, acc_int32, out_dtype=tl.int32)
        acc_int32 = tl.dot(high, second, acc_int32, out_dtype=tl.int32)
        product = acc_int32.to(tl.float32, bitcast=True) - _MIDDLE
        acc += product * (scale[:, None] * x_scale[None, :])
    else:
        scale = scale[:, None]
        ADJACENT: tl.constexpr = 2 * PACK if len(codes.shape) == 1 else PACK  # bytes of two rows, or of one
        if NF4:
            low, high = nf4_levels(_load_bytes(codes, N), table, ADJACENT)
            scale = scale.to(tl.float32)
            low, high = (low * scale).to(COMPUTE), (high * scale).to(COMPUTE)
        else:
            low = int8_weights(_load_bytes(codes, N), scale, COMPUTE, ADJACENT)
            high = int8_weights(_load_bytes(codes + second_half, N), scale, COMPUTE, ADJACENT)
        acc = tl.dot(low, first, acc, input_precision="ieee")
        acc = tl.dot(high, second, acc, input_precision="ieee")
        if PACK == 2:
            # `wgmma` reads a decoded weight from registers after it was issued: unless it is waited for, the next
            # iteration may load into them before it has (https://github.com/triton-lang/triton/issues/9433; the
            # assembler's part is fixed in CUDA 13.3). Triton waits for a sum that an instruction takes.
            acc = tl.inline_asm_elementwise(_TAKE, "=f,f", [acc], dtype=tl.float32, is_pure=True, pack=1)
    return acc
