"""Device code: bytes of two nf4 codes decoded to levels, or to weights, in one of four ways.

    shuffles        a warp holds the sixteen levels in fp32, one per lane, and reads them from each other; the weights
                    are those of the codec, bit for bit
    byte permutes   for int8 arithmetic, from a table of int8 in registers: 4 codes at a time, without a memory access;
                    this adds 0.02 percentage points to the relative error of weights
    table of bytes  a byte is looked up as a whole in shared memory, and gives two levels in bf16; the weights are
                    rounded twice
    memory          two loads per byte, in Triton's interpreter, which has no inline assembly

Shuffles and loads from shared memory use the same unit, which serves one warp per clock, and on an H100 shuffles keep
it busy (`docs/gpu-measured.md`). The table of bytes takes half as many loads, and fewer instructions.
Shape letters: N rows of a weight.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import num_warps

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


def _exchange(targets: list[int]) -> str:
    """Shuffles that bring the level of each code of a word, the lowest code first, to its operand in `targets`."""
    word, table = len(targets), len(targets) + 1
    lines = [".reg .b32 code;"]
    for place, target in enumerate(targets):
        # Shuffles stay within half a warp (0x10 of 0x101f), so that only the low four bits of `code` count.
        lines += [
            f"shr.b32 code, ${word}, {4 * place};",
            f"shfl.sync.idx.b32 ${target}, ${table}, code, 0x101f, 0xffffffff;",
        ]
    return "\n".join(["{", *lines, "}"])


EXCHANGE = {count: _exchange([place // 2 + count * (place % 2) for place in range(2 * count)]) for count in (2, 4)}
"""Two or four bytes of two codes each to the levels of the low and of the high codes, shuffled from other lanes."""

EXCHANGE_BY_LANES = _exchange([1, 0, 3, 2, 5, 4, 7, 6])
"""Four bytes of two codes each to their levels, two of each byte, that of the code in its high half first."""


def _fill(warps: int) -> str:
    per_thread = 256 * 8 // (32 * warps)  # eight threads write the copies of a word, 16 bytes each
    step = 32 * warps // 8
    parts = range(per_thread)
    lines = [
        ".shared .align 16 .b32 table[8192];",
        ".reg .b32 thread, start, place;",
        ".reg .b64 from;",
        *(f".reg .b32 word{part};" for part in parts),
        "mov.u32 thread, %tid.x;",
        "shr.u32 place, thread, 3;",
        "mul.wide.u32 from, place, 4;",
        "add.s64 from, from, $1;",
        *(f"ld.global.b32 word{part}, [from+{4 * step * part}];" for part in parts),
        "mov.u32 start, table;",
        "mad.lo.u32 place, thread, 16, start;",
        *(f"st.shared.v4.b32 [place+{128 * step * part}], {{{', '.join([f'word{part}'] * 4)}}};" for part in parts),
        "mov.u32 thread, %laneid;",
        "mad.lo.u32 $0, thread, 4, start;",
        "bar.sync 0;",
    ]
    return "\n".join(["{", *lines, "}"])


FILL = {warps: _fill(warps) for warps in (4, 8)}
"""By the warps of a program: copies 256 words from global to 32 KiB of shared memory, each to 32 places, and gives each
lane the address of its own copies.

A lane reads from a bank that no other lane reads from, whatever the byte. Triton offers no memory that lasts for a
program, so the code declares its own. Triton's begins after it, still at a multiple of 1,024 bytes, as its matrices
need, and the driver grants both together 48 KiB.
"""


def _look_up() -> str:
    lines = [".reg .b32 at, none, first, second, pair;", "mov.b32 none, 0x80008000;"]
    lines += ["prmt.b32 first, $10, 0, 0x1010;", "prmt.b32 second, $10, 0, 0x3232;"]
    for byte, scale in enumerate(("first", "first", "second", "second")):
        lines += [
            f"prmt.b32 at, $8, 0, 0x444{byte};",
            "mad.lo.u32 at, at, 128, $9;",
            "ld.shared.b32 pair, [at];",
            f"fma.rn.bf16x2 pair, pair, {scale}, none;",
            f"mov.b32 {{${2 * byte}, ${2 * byte + 1}}}, pair;",
        ]
    return "\n".join(["{", *lines, "}"])


LOOK_UP = _look_up()
"""A word of four bytes to eight weights in bf16, two of each byte.

The operands after the word are the lane's address in the table, and two scales in a word: the first one for the first
two bytes, the second one for the others.
"""

_DECODE, _EXCHANGE_2, _EXCHANGE_4 = tl.constexpr(DECODE), tl.constexpr(EXCHANGE[2]), tl.constexpr(EXCHANGE[4])
_EXCHANGE_BY_LANES, _LOOK_UP = tl.constexpr(EXCHANGE_BY_LANES), tl.constexpr(LOOK_UP)
_FILL_4, _FILL_8 = tl.constexpr(FILL[4]), tl.constexpr(FILL[8])
_LANE = tl.constexpr("{ mov.u32 $0, %laneid; and.b32 $0, $0, 15; }")


@triton.jit
def load_table(levels, NF4: tl.constexpr, INT8: tl.constexpr, PACK: tl.constexpr):
    """nf4's table as decoding takes it; to be called once, before the loop.

    The fp32 table is spread over a warp: each lane holds one level, lanes n and n + 16 the same one, and shuffles bring
    the others. Triton believes the [1, 1] tile is the same in all threads, which is safe only while it changes layout
    without an exchange; `support` checks. It must be loaded: a value that Triton can compute before the loop makes it
    decode in another layout and go through shared memory.

    Args:
        levels: the sixteen levels; or the table of bytes, int32 [256], for programs of four or eight warps.
    """
    if NF4 and levels.dtype.element_ty == tl.int32:
        tl.static_assert(num_warps() == 4 or num_warps() == 8)
        FILL: tl.constexpr = _FILL_4 if num_warps() == 4 else _FILL_8
        # Not pure: what it stores is not its result, and reads of the table must stay after it.
        levels = tl.inline_asm_elementwise(FILL, "=r,l", [levels.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1)
    elif NF4 and not INT8 and PACK > 0:
        lane = tl.inline_asm_elementwise(_LANE, "=r", [], dtype=tl.int32, is_pure=True, pack=1)
        levels = tl.load(levels + lane + tl.zeros([1, 1], dtype=tl.int32))
    return levels


@triton.jit
def nf4_weights(pairs, scale, table, COMPUTE: tl.constexpr, ADJACENT: tl.constexpr):
    """Weights [N, 32] of the first and of the second half of a group, in COMPUTE.

    Args:
        pairs: bytes [N, 32], each with a code of the first half in its low, and one of the second in its high half.
        scale: bf16 [N, 1].
        table: `load_table`'s, of levels.
        ADJACENT: bytes that inline assembly takes at a time; with 0 there is none.
    """
    if ADJACENT == 0:
        low = tl.load(table + (pairs & 15))
        high = tl.load(table + (pairs >> 4))
    elif ADJACENT == 2:
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
    scale = scale.to(tl.float32)
    return (low * scale).to(COMPUTE), (high * scale).to(COMPUTE)


@triton.jit
def nf4_weights_by_lanes(words, scale_words, table, COMPUTE: tl.constexpr, PACK: tl.constexpr):
    """As `nf4_weights`, from bytes in the order of lanes (`layout`).

    Args:
        words: int32 [8 N], four bytes in each.
        scale_words: int32 [N/2], the scales of two rows that are 8 apart in each.
        table: `load_table`'s; if of bytes, COMPUTE is bf16.
        PACK: with 0 there is no inline assembly.
    """
    N: tl.constexpr = words.shape[0] // 8
    # Of each 16 rows a lane has four words: 8 rows and 4 places in a run of inputs make 32 lanes. A word has a byte of
    # the first and one of the second half of the group in one row, and the same two 8 rows below.
    words = tl.reshape(words, [N // 16, 8, 4, 4])
    scale_words = tl.reshape(scale_words, [N // 16, 8, 1, 1])
    if table.dtype == tl.int32:
        a, b, c, d, e, f, g, h = tl.inline_asm_elementwise(
            _LOOK_UP,
            "=h,=h,=h,=h,=h,=h,=h,=h,r,r,r",
            [words, table, scale_words],
            dtype=(tl.bfloat16,) * 8,
            is_pure=True,
            pack=1,
        )
    else:
        if PACK == 0:
            a, b, c, d = _in_memory(words, table)
            e, f, g, h = _in_memory(words >> 16, table)
        else:
            a, b, c, d, e, f, g, h = tl.inline_asm_elementwise(
                _EXCHANGE_BY_LANES,
                "=&f,=&f,=&f,=&f,=&f,=&f,=&f,=&f,r,f",
                [words, table],
                dtype=(tl.float32,) * 8,
                is_pure=True,
                pack=1,
            )
        upper, lower = unpacked(scale_words)
        upper, lower = upper.to(tl.float32), lower.to(tl.float32)
        a, b, c, d = (a * upper).to(COMPUTE), (b * upper).to(COMPUTE), (c * upper).to(COMPUTE), (d * upper).to(COMPUTE)
        e, f, g, h = (e * lower).to(COMPUTE), (f * lower).to(COMPUTE), (g * lower).to(COMPUTE), (h * lower).to(COMPUTE)
    first = tl.permute(tl.join(tl.join(a, b), tl.join(e, f)), [0, 5, 1, 3, 2, 4])
    second = tl.permute(tl.join(tl.join(c, d), tl.join(g, h)), [0, 5, 1, 3, 2, 4])
    return tl.reshape(first, [N, 32]), tl.reshape(second, [N, 32])


@triton.jit
def _in_memory(words, table):
    """The levels of the first two bytes of words."""
    a = tl.load(table + ((words >> 4) & 15))
    b = tl.load(table + (words & 15))
    c = tl.load(table + ((words >> 12) & 15))
    d = tl.load(table + ((words >> 8) & 15))
    return a, b, c, d


@triton.jit
def unpacked(words):
    """The two bf16 numbers of each word int32, the low one first."""
    return words.to(tl.int16).to(tl.bfloat16, bitcast=True), (words >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


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
