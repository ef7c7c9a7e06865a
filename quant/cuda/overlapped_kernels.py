"""Device code in Gluon, for Hopper: the next weights are decoded while the tensor cores multiply by the previous ones.

Triton waits for each product whose weights come from registers (`weight_kernels.add_product`), so there a program
decodes and multiplies in turn. In Gluon, an experimental part of Triton, the code says when to wait for a product.
Activations, codes and scales go through shared memory, as many groups ahead as there are stages; weights go to
registers. These kernels have not been timed, and no tile that is chosen uses them. Parameters are those of
`linear_kernels` and `expert_kernels`, plus the number of STAGES.
Shape letters: M rows of activations, N rows of a weight, K its input, S parts of a sum.
"""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from quant.cuda.activation_kernels import gelu
from quant.cuda.nf4_kernels import LOOK_UP
from quant.cuda.weight_kernels import with_jump


def _scale_words() -> str:
    lines = [".reg .b32 code, side, scale, one, none;", "mov.b32 one, 0x3f803f80;", "mov.b32 none, 0x80008000;"]
    for pair in range(2):
        lines += [
            f"prmt.b32 scale, $5, 0, 0x{2 * pair + 1}{2 * pair}{2 * pair + 1}{2 * pair};",
            f"prmt.b32 code, $4, 0xc3c3c3c3, 0x4{2 * pair + 1}4{2 * pair};",
            "and.b32 side, code, 0xff80ff80;",
            "and.b32 code, code, 0x7f7f7f7f;",
            "fma.rn.bf16x2 code, code, one, side;",
            "fma.rn.bf16x2 code, code, scale, none;",
            f"mov.b32 {{${2 * pair}, ${2 * pair + 1}}}, code;",
        ]
    return "\n".join(["{", *lines, "}"])


def _in_time_of(count: int) -> str:
    lines = [".reg .pred never;", ".reg .b32 all;", f"mov.b32 all, ${count};"]
    lines += [f"and.b32 all, all, ${count + at};" for at in range(1, count)]
    lines += ["setp.eq.b32 never, all, -1;", "@never nanosleep.u32 0;"]
    lines += [f"mov.b32 ${at}, ${count + at};" for at in range(count)]
    return "\n".join(["{", *lines, "}"])


_SCALE_WORDS = gl.constexpr(_scale_words())
"""`weight_kernels.SCALE` for a word of four int8 codes, two of a row and two of the row 8 below, and a word of their
scales."""
_LOOK_UP = gl.constexpr(LOOK_UP)
_IN_TIME_16, _OF_16 = gl.constexpr(_in_time_of(16)), gl.constexpr(",".join(["=&r"] * 16 + ["r"] * 16))
_IN_TIME_32, _OF_32 = gl.constexpr(_in_time_of(32)), gl.constexpr(",".join(["=&r"] * 32 + ["r"] * 32))
"""Passes registers on unchanged. The assembler moves decoding after the wait for the product that it should overlap
with, unless something before the wait uses its results: here, an instruction that takes no time, and is skipped unless
all bits of all weights are set."""


@gluon.jit
def _decoded(codes, scales, is_inside, table, NF4: gl.constexpr, N: gl.constexpr, OPERAND: gl.constexpr):
    """Weights [N, 64] as a first operand, from words in shared memory as they are stored; zeros unless `is_inside`."""
    LANES: gl.constexpr = gl.BlockedLayout(
        [1 if NF4 else 2, 1, 1, 1, 4], [1, 1, 8, 4, 1], [1, gl.num_warps(), 1, 1, 1], [4, 3, 2, 1, 0]
    )
    words = codes.reshape([1 if NF4 else 2, N // 16, 8, 4, 4]).load(LANES)
    scale = scales.reshape([N // 16, 8]).load(gl.SliceLayout(0, gl.SliceLayout(3, gl.SliceLayout(4, LANES))))
    scale = gl.where(is_inside, scale, 0)
    scale = gl.expand_dims(gl.expand_dims(gl.expand_dims(scale, 0), 3), 4)
    if NF4:
        a, b, c, d, e, f, g, h = gl.inline_asm_elementwise(
            _LOOK_UP,
            "=h,=h,=h,=h,=h,=h,=h,=h,r,r,r",
            [words, table, scale],
            dtype=(gl.bfloat16,) * 8,
            is_pure=True,
            pack=1,
        )
        low, high = gl.join(gl.join(a, b), gl.join(e, f)), gl.join(gl.join(c, d), gl.join(g, h))
        weights = gl.permute(gl.join(low, high), [1, 6, 2, 0, 7, 4, 3, 5])
    else:
        a, b, c, d = gl.inline_asm_elementwise(
            _SCALE_WORDS, "=h,=h,=h,=h,r,r", [words, scale], dtype=(gl.bfloat16,) * 4, is_pure=True, pack=1
        )
        weights = gl.permute(gl.join(gl.join(a, b), gl.join(c, d)), [1, 6, 2, 0, 4, 3, 5])
    return gl.convert_layout(gl.reshape(weights, [N, 64]), OPERAND, assert_trivial=True)


@gluon.jit
def _in_time(weights, REGISTERS: gl.constexpr):
    """The same weights, which the assembler must decode before what follows."""
    gl.static_assert(REGISTERS == 16 or REGISTERS == 32)
    if REGISTERS == 16:
        weights = gl.inline_asm_elementwise(_IN_TIME_16, _OF_16, [weights], gl.bfloat16, is_pure=False, pack=32)
    else:
        weights = gl.inline_asm_elementwise(_IN_TIME_32, _OF_32, [weights], gl.bfloat16, is_pure=False, pack=64)
    return weights


@gluon.jit
def word_pointers(words, COUNT: gl.constexpr, jump, second, HALVES: gl.constexpr):
    """Pointers [COUNT] to words that each thread copies; in each of HALVES, the second half of them `jump` further.

    Args:
        second: offset from one of the HALVES to the other.
    """
    PART: gl.constexpr = COUNT // HALVES
    COPY: gl.constexpr = gl.BlockedLayout([4 if PART > 128 else 1], [32], [gl.num_warps()], [0])
    place = gl.arange(0, COUNT, COPY)
    return words + place // PART * second + with_jump(place % PART, jump, PART)


@gluon.jit
def overlapped_product(
    x,
    codes,
    scales,
    table,
    first,
    last,
    code_group_stride,
    scale_group_stride,
    NF4: gl.constexpr,
    N: gl.constexpr,
    STAGES: gl.constexpr,
):
    """The product [N, M] over groups from `first` to before `last`.

    Args:
        x: pointers [M, 64] to the first 64 inputs of rows.
        codes, scales: pointers [8 N] (nf4) or [16 N] and [N/2] to words of the first group.
    """
    M: gl.constexpr = x.shape[0]
    WARPS: gl.constexpr = gl.num_warps()
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, M, 16])
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    IN_ORDER: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    x_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, M, 64], gl.NVMMASharedLayout(128, 16, 2))
    code_ring = gl.allocate_shared_memory(gl.int32, [STAGES, codes.shape[0]], IN_ORDER)
    scale_ring = gl.allocate_shared_memory(gl.int32, [STAGES, N // 2], IN_ORDER)
    for stage in gl.static_range(-1, STAGES - 1):
        # Each group of copies has the activations of one group of inputs, and the codes of the next.
        if stage >= 0:
            async_copy.async_copy_global_to_shared(x_ring.index(stage), x + gl.minimum(first + stage, last - 1) * 64)
        group = gl.minimum(first + stage + 1, last - 1)
        async_copy.async_copy_global_to_shared(code_ring.index(stage + 1), codes + group * code_group_stride)
        async_copy.async_copy_global_to_shared(scale_ring.index(stage + 1), scales + group * scale_group_stride)
        async_copy.commit_group()
    async_copy.wait_group(STAGES - 2)
    tl.debug_barrier()
    acc = gl.zeros([N, M], gl.float32, SUMS)
    weights = _decoded(code_ring.index(0), scale_ring.index(0), first < last, table, NF4, N, OPERAND)
    tl.debug_barrier()
    place = 0
    for pair in range(first, last, 2):
        for half_of_pair in gl.static_range(2):  # each with registers of its own for weights
            group = pair + half_of_pair
            following = gl.where(place == STAGES - 1, 0, place + 1)
            before = gl.where(place == 0, STAGES - 1, place - 1)
            fence_async_shared()
            sums = warpgroup_mma(weights, x_ring.index(place).permute((1, 0)), acc, is_async=True)
            # All warps have decoded these codes. After the barrier, all have finished the previous product, and the
            # assembler does not move what follows the barrier ahead of this product.
            ahead = gl.minimum(group + STAGES, last - 1)
            async_copy.async_copy_global_to_shared(code_ring.index(place), codes + ahead * code_group_stride)
            async_copy.async_copy_global_to_shared(scale_ring.index(place), scales + ahead * scale_group_stride)
            tl.debug_barrier()
            ahead = gl.minimum(group + STAGES - 1, last - 1)
            async_copy.async_copy_global_to_shared(x_ring.index(before), x + ahead * 64)
            async_copy.commit_group()
            # After the last group come zeros.
            weights = _decoded(
                code_ring.index(following), scale_ring.index(following), group + 1 < last, table, NF4, N, OPERAND
            )
            weights = _in_time(weights, N // WARPS)
            async_copy.wait_group(STAGES - 2)
            tl.debug_barrier()
            acc, weights = warpgroup_mma_wait(0, [sums, weights])
            place = following
    async_copy.wait_group(0)
    return acc


@gluon.jit
def x_pointers(x, rows, width):
    """Pointers [M, 64] to rows of activations; each thread has those that it copies, 16 bytes at a time."""
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    k = gl.arange(0, 64, gl.SliceLayout(0, COPY))
    return x + gl.expand_dims(rows, 1).to(gl.int64) * width + gl.expand_dims(k, 0)


@gluon.jit(
    do_not_specialize=("rows", "share"), do_not_specialize_on_alignment=("scale_row_stride", "scale_group_stride")
)
def linear_kernel(
    x,
    x_scales,
    codes,
    scales,
    levels,
    out,
    rows,
    width,
    out_width,
    share,
    code_row_stride,
    code_group_stride,
    second_half,
    scale_row_stride,
    scale_group_stride,
    NF4: gl.constexpr,
    INT8: gl.constexpr,
    GATED: gl.constexpr,
    PACK: gl.constexpr,
    BY_LANES: gl.constexpr,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """As `linear_kernels.linear_kernel`, of int8 in the order of lanes."""
    gl.static_assert(BY_LANES and not NF4 and not INT8)
    OUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    ROW: gl.constexpr = gl.SliceLayout(1, OUT)
    N: gl.constexpr = 2 * COLUMNS if GATED else COLUMNS
    groups = width // 64
    row = gl.program_id(0) * ROWS + gl.arange(0, ROWS, ROW)
    first_column = gl.program_id(1).to(gl.int64) * COLUMNS
    jump = out_width - COLUMNS if GATED else 0
    words = codes.to(gl.pointer_type(gl.int32)) + first_column * 8
    first = gl.program_id(2) * share
    acc = overlapped_product(
        x_pointers(x, gl.minimum(row, rows - 1), width),
        word_pointers(words, 16 * N, jump * 8, second_half // 4, 2),
        word_pointers(scales + first_column // 2, N // 2, jump // 2, 0, 1),
        0,
        first,
        gl.minimum(first + share, groups),
        code_group_stride // 4,
        scale_group_stride,
        NF4,
        N,
        STAGES,
    )
    if GATED:
        value = gated(acc, out.dtype.element_ty).to(out.dtype.element_ty)
    else:
        value = gl.convert_layout(gl.permute(acc, [1, 0]).to(out.dtype.element_ty), OUT)
    column = first_column + gl.arange(0, COLUMNS, gl.SliceLayout(0, OUT))
    target = out + gl.expand_dims(gl.program_id(2) * rows + row, 1).to(gl.int64) * out_width
    gl.store(target + gl.expand_dims(column, 0), value, mask=gl.expand_dims(row < rows, 1))


@gluon.jit
def gated(acc, COMPUTE: gl.constexpr):
    """`gelu(gate) * up` [M, N/2] in fp32 of products [N, M], both rounded to COMPUTE first."""
    TWO: gl.constexpr = gl.BlockedLayout([1, 8, 2], [4, 8, 1], [gl.num_warps(), 1, 1], [2, 1, 0])
    OUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    halves = gl.reshape(gl.permute(acc, [1, 0]).to(COMPUTE), [acc.shape[1], 2, acc.shape[0] // 2])
    gate, up = gl.split(gl.convert_layout(gl.permute(halves, [0, 2, 1]), TWO))
    activated = gelu(gate.to(gl.float32)).to(COMPUTE)
    return gl.convert_layout(activated.to(gl.float32) * up.to(gl.float32), OUT)
