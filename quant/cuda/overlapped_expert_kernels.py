"""Device code in Gluon, for Hopper: experts in nf4, from a table of bytes; see `overlapped_kernels`."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from quant.cuda.nf4_kernels import load_table
from quant.cuda.overlapped_kernels import gated, overlapped_product, word_pointers, x_pointers


@gluon.jit
def gate_up_kernel(
    x,
    x_scales,
    codes,
    scales,
    levels,
    order,
    block_expert,
    block_start,
    block_count,
    hidden,
    hidden_scales,
    top_k,
    width,
    inner,
    NF4: gl.constexpr,
    INT8: gl.constexpr,
    PACK: gl.constexpr,
    BY_LANES: gl.constexpr,
    BY_WARP: gl.constexpr,
    BLOCK_AXIS: gl.constexpr,
    FETCHED: gl.constexpr,
    COMPUTE: gl.constexpr,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """As `expert_kernels.gate_up_kernel`."""
    block, part = gl.program_id(BLOCK_AXIS), gl.program_id(1 - BLOCK_AXIS)
    expert = gl.load(block_expert + block)
    if expert < 0:
        return
    OUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    within = gl.arange(0, ROWS, gl.SliceLayout(1, OUT))
    valid = within < gl.load(block_count + block)
    sorted_row = gl.load(block_start + block) + within
    row = gl.load(order + sorted_row, mask=valid, other=0) // top_k
    groups, both = width // 64, 2 * inner
    first, jump = part * COLUMNS, inner - COLUMNS
    base = expert.to(gl.int64) * groups * both + first
    acc = overlapped_product(
        x_pointers(x, row, width),
        word_pointers(codes + base * 8, 16 * COLUMNS, jump * 8, 0, 1),
        word_pointers(scales + base // 2, COLUMNS, jump // 2, 0, 1),
        load_table(levels, NF4, INT8, PACK),
        0,
        groups,
        both * 8,
        inner,
        NF4,
        2 * COLUMNS,
        STAGES,
    )
    target = hidden + gl.expand_dims(sorted_row, 1).to(gl.int64) * inner
    column = first + gl.arange(0, COLUMNS, gl.SliceLayout(0, OUT))
    value = gated(acc, COMPUTE).to(COMPUTE)
    gl.store(target + gl.expand_dims(column, 0), value, mask=gl.expand_dims(valid, 1))


@gluon.jit
def down_kernel(
    hidden,
    hidden_scales,
    codes,
    scales,
    levels,
    order,
    block_expert,
    block_start,
    block_count,
    outputs,
    width,
    inner,
    NF4: gl.constexpr,
    INT8: gl.constexpr,
    PACK: gl.constexpr,
    BY_LANES: gl.constexpr,
    BY_WARP: gl.constexpr,
    BLOCK_AXIS: gl.constexpr,
    FETCHED: gl.constexpr,
    TILES: gl.constexpr,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """As `expert_kernels.down_kernel`."""
    block, part = gl.program_id(BLOCK_AXIS), gl.program_id(1 - BLOCK_AXIS)
    expert = gl.load(block_expert + block)
    if expert < 0:
        return
    OUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    within = gl.arange(0, ROWS, gl.SliceLayout(1, OUT))
    valid = within < gl.load(block_count + block)
    sorted_row = gl.load(block_start + block) + within
    pair = gl.load(order + sorted_row, mask=valid, other=0)
    groups = inner // 64
    table = load_table(levels, NF4, INT8, PACK)
    rows = x_pointers(hidden, gl.where(valid, sorted_row, 0), inner)
    target = outputs + gl.expand_dims(pair, 1).to(gl.int64) * width
    for tile in range(TILES):
        first = (part * TILES + tile) * COLUMNS
        base = expert.to(gl.int64) * groups * width + first
        acc = overlapped_product(
            rows,
            word_pointers(codes + base * 8, 8 * COLUMNS, 0, 0, 1),
            word_pointers(scales + base // 2, COLUMNS // 2, 0, 0, 1),
            table,
            0,
            groups,
            width * 8,
            width // 2,
            NF4,
            COLUMNS,
            STAGES,
        )
        value = gl.convert_layout(gl.permute(acc, [1, 0]).to(outputs.dtype.element_ty), OUT)
        column = first + gl.arange(0, COLUMNS, gl.SliceLayout(0, OUT))
        gl.store(target + gl.expand_dims(column, 0), value, mask=gl.expand_dims(valid, 1))
