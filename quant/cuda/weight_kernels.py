"""Device code: tiles of codes decoded to tiles of weights, and their products with rows of activations.

Weights that are stored unquantized, as published, are multiplied as they are.
Shape letters: M rows of activations, N rows of a weight, K its input.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quant.cuda.nf4_kernels import nf4_int8, nf4_weights, nf4_weights_by_lanes, unpacked

_TAKE, _KEEP = tl.constexpr("mov.f32 $0, $1;"), tl.constexpr("mov.b32 $0, $1;")
_FETCH = tl.constexpr("prefetch.global.L2 [$1]; mov.b32 $0, 0;")

_MIDDLE, _BITS_OF_MIDDLE = tl.constexpr(1.5 * 2**23), tl.constexpr(0x4B400000)
"""An fp32 number and its bits: within 2²² of it, adding an integer to the bits adds it to the number. 64 products of
int8 sum to at most 2²⁰. Conversions of int32 would run on the few units that compute exponentials."""


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
        DECODE_ONCE: whether one warp decodes a weight and the others read it from shared memory. Otherwise every warp
            that multiplies by it decodes it, since Triton moves pure instructions past that exchange. Where four warps
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
def code_offsets(
    first,
    row_stride,
    jump,
    N: tl.constexpr,
    BY_LANES: tl.constexpr,
    WORDS: tl.constexpr = False,
    BYTES: tl.constexpr = 32,
):
    """Offsets [N, BYTES] of the first BYTES of rows of codes; BY_LANES, of all their bytes or WORDS in order.

    Args:
        first: the first row.
        jump: rows that are left out in the middle.
    """
    if BY_LANES:
        UNITS: tl.constexpr = 8 if WORDS else 32
        offsets = first * row_stride + with_jump(tl.arange(0, UNITS * N), jump * row_stride, UNITS * N)
    else:
        rows = first + with_jump(tl.arange(0, N), jump, N)
        offsets = rows[:, None] * row_stride + tl.arange(0, BYTES)[None, :]
    return offsets


@triton.jit
def with_jump(places, jump, COUNT: tl.constexpr):
    """Places 0 to COUNT, the second half of them `jump` further."""
    return places + tl.where(places < COUNT // 2, 0, jump)


@triton.jit
def _load_by_lanes(codes, N: tl.constexpr):
    """Bytes [N, 32] from pointers [32 N] to them in the order of lanes, as `layout._by_lanes` has."""
    parts = tl.reshape(tl.load(codes), [N // 16, 8, 4, 4, 2, 2])
    return tl.reshape(tl.permute(parts, [0, 4, 1, 3, 2, 5]), [N, 32])


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
def load_words(codes, scales, group, code_group_stride, scale_group_stride):
    """Codes and scales of a group of nf4 in words, from pointers to those of the first group."""
    return tl.load(codes + group * code_group_stride), tl.load(scales + group * scale_group_stride)


@triton.jit
def fetch_words(lines, scales, row):
    """Makes the L2 cache fetch what `load_words` will load; nothing waits for it, and no register holds it meanwhile.

    Args:
        lines: pointers to the codes of the first group, one to each row's 32 bytes.
        row: offset in rows to those that are fetched; the rows of each group follow those of the previous one.
    """
    _fetch(lines + row * 8)
    _fetch(scales + row // 2)


@triton.jit
def _fetch(places):
    tl.inline_asm_elementwise(_FETCH, "=r,l", [places], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def kept(words):
    """Words int32, unchanged.

    A value that an iteration only hands on to the next would keep Triton from copying anything ahead in that loop: it
    gives up where a value is two iterations old. A move makes a new value.
    """
    return tl.inline_asm_elementwise(_KEEP, "=r,r", [words], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def _whole_group(codes, second_half, scale, table, N: tl.constexpr, COMPUTE: tl.constexpr, PACK: tl.constexpr):
    """Weights [N, 64] of a group, for one product; the arguments are those of `add_product`."""
    if not codes.dtype.is_ptr():
        low, high = nf4_weights_by_lanes(codes, scale, table, COMPUTE, PACK)
        weights = _side_by_side(low, high)
    elif len(codes.shape) == 1:
        ADJACENT: tl.constexpr = 2 * PACK  # bytes of two rows
        low = int8_weights(_load_by_lanes(codes, N), scale[:, None], COMPUTE, ADJACENT)
        high = int8_weights(_load_by_lanes(codes + second_half, N), scale[:, None], COMPUTE, ADJACENT)
        weights = _side_by_side(low, high)
    else:
        weights = int8_weights(tl.load(codes), scale[:, None], COMPUTE, PACK)
    return weights


@triton.jit
def _side_by_side(low, high):
    """[N, 32] and [N, 32] to [N, 64]."""
    return tl.reshape(tl.permute(tl.join(low, high), [0, 2, 1]), [low.shape[0], 64])


@triton.jit
def _add_by_warp(acc, weights, x):
    """`acc` [N, M] plus the product of `weights` [N, 64] and `x` [64, M], by `mma.sync` on Hopper, too.

    With `mma.sync` a warp goes on while its product is computed; `wgmma`, of four warps, is waited for. Triton takes
    `mma.sync` for products with a batch axis, and gives each warp a part of the batch: here, of every 64 rows of the
    weight, the 16 that it has for `wgmma`. Lanes hold the same weights for both. Triton would make them hold others if
    it saw that weights were joined, but it does not look past an instruction that is not pure.
    """
    N: tl.constexpr = acc.shape[0]
    M: tl.constexpr = acc.shape[1]
    weights = tl.inline_asm_elementwise(_KEEP, "=r,r", [weights], dtype=weights.dtype, is_pure=False, pack=2)
    weights = tl.reshape(tl.permute(tl.reshape(weights, [N // 64, 4, 16, 64]), [1, 0, 2, 3]), [4, N // 4, 64])
    acc = tl.reshape(tl.permute(tl.reshape(acc, [N // 64, 4, 16, M]), [1, 0, 2, 3]), [4, N // 4, M])
    acc = tl.dot(weights, tl.broadcast_to(x[None, :, :], [4, 64, M]), acc, input_precision="ieee")
    return tl.reshape(tl.permute(tl.reshape(acc, [4, N // 64, 16, M]), [1, 0, 2, 3]), [N, M])


@triton.jit
def add_product(
    acc,
    x,
    x_scale,
    codes,
    second_half,
    scale,
    table,
    valid_rows,
    NF4: tl.constexpr,
    INT8: tl.constexpr,
    PACK: tl.constexpr,
    BY_WARP: tl.constexpr = False,
):
    """`acc` [N, M] plus the product of one group of 64, transposed.

    The weight is the first operand, because no kind of matrix instruction takes that one from shared memory alone: a
    decoded weight is never stored there. Its rows, the columns of a tile, come in 64s, as `wgmma` takes them;
    activations, the second operand, may have any multiple of 8 rows.

    Args:
        x: pointers [M, 32] to the first half of the group, which the second half follows; or [M, 64] to all of it, for
            one product in place of two: `wgmma` is waited for after each.
        x_scale: [M], for int8 activations; anything for others.
        codes: pointers [N, 32] to the group's bytes (nf4), to the first half of its codes (int8), or to the first half
            of its weights if they are unquantized. For one product, pointers [N, 64] to int8; or in the order of
            lanes, pointers [32 N] to bytes of the first half (int8), or words int32 [8 N] themselves (nf4).
        second_half: offset from there to the second half of what is not nf4.
        scale: [N]; for codes in words, words int32 [N/2] of two scales; for unquantized weights, anything.
        table: nf4's (`nf4_kernels.load_table`).
        valid_rows: [M, 1].
        PACK: adjacent bytes that a lane holds of a matrix instruction's operand; with 0 there is no inline assembly.
        BY_WARP: whether warps multiply one by one, with a table of bytes, in a program of four.
    """
    COMPUTE: tl.constexpr = x.dtype.element_ty
    N: tl.constexpr = acc.shape[0]
    UNQUANTIZED: tl.constexpr = codes.dtype.is_ptr() and codes.dtype.element_ty.is_floating()
    ALONE: tl.constexpr = BY_WARP and NF4 and table.dtype == tl.int32
    first = tl.trans(tl.load(x, mask=valid_rows, other=0))
    if x.shape[1] == 32:
        second = tl.trans(tl.load(x + 32, mask=valid_rows, other=0))
    if x.shape[1] == 64:
        weights = _whole_group(codes, second_half, scale, table, N, COMPUTE, PACK)
        acc = _add_by_warp(acc, weights, first) if ALONE else tl.dot(weights, first, acc, input_precision="ieee")
    elif UNQUANTIZED:
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
        if NF4:
            low, high = nf4_weights(tl.load(codes), scale[:, None], table, COMPUTE, PACK)
        else:
            low = int8_weights(tl.load(codes), scale[:, None], COMPUTE, PACK)
            high = int8_weights(tl.load(codes + second_half), scale[:, None], COMPUTE, PACK)
        acc = tl.dot(low, first, acc, input_precision="ieee")
        acc = tl.dot(high, second, acc, input_precision="ieee")
    if PACK == 2 and not UNQUANTIZED and not INT8 and not ALONE:
        # `wgmma` reads a decoded weight from registers after it was issued: without a wait, the next iteration may
        # load into them first (https://github.com/triton-lang/triton/issues/9433; the assembler's part is fixed in
        # CUDA 13.3). Triton waits for a sum that an instruction takes. A B200, with the same PACK, need not wait, but
        # runs the same code.
        acc = tl.inline_asm_elementwise(_TAKE, "=f,f", [acc], dtype=tl.float32, is_pure=True, pack=1)
    return acc
