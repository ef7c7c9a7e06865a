"""Device code: all experts of a layer, in launches of fixed shape.

    sort_pairs  one program per expert: pairs sorted by expert, cut into blocks of rows of one expert
    gate_up     a block of rows times the stacked gate and up weights, then the gated activation
    down        a block of rows times the down projection, scattered back to their pairs
    combine     a row's K outputs, weighted and summed in the order of its slots, unless the end of the layer does that

Weights are tiles of codes, with two scales in a word (`quant.cuda.layout`), or unquantized, row by row as published.
No program waits for another and no sum depends on the order in which they run: the same rows give the same bits.
Shape letters: N rows, K experts per row, P = N · K pairs (row-major), E experts, D width, I expert width.
"""

from __future__ import annotations

import triton
import triton.language as tl

from quant.cuda.activation_kernels import gate_and_up, gelu
from quant.cuda.nf4_kernels import load_table
from quant.cuda.row_kernels import to_int8
from quant.cuda.weight_kernels import (
    add_product,
    code_offsets,
    fetch_words,
    kept,
    load_scales,
    load_words,
    with_jump,
)


@triton.jit(do_not_specialize=("pairs", "blocks"))  # they depend on the length of a prompt
def sort_pairs_kernel(
    expert_ids,
    order,
    block_expert,
    block_start,
    block_count,
    pairs,
    experts,
    blocks,
    ROWS: tl.constexpr,
    PAIRS: tl.constexpr,
    BINS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Sorts pairs by expert, and cuts them into blocks of one expert each. Grid: (E,).

    Args:
        expert_ids: int64 [P], the expert of each pair.
        order: int32 [P], the pairs in the order of their experts, those of one expert ascending.
        block_expert, block_start, block_count: int32 [blocks], the expert of a block, and the first and the number (at
            most ROWS) of its places in `order`; blocks that are not needed have the expert -1.
        PAIRS, BINS, BLOCKS: P, E + 1, and `blocks`, rounded up to powers of 2.
    """
    expert = tl.program_id(0)
    pair = tl.arange(0, PAIRS)
    chosen = tl.load(expert_ids + pair, mask=pair < pairs, other=experts).to(tl.int32)
    mine = chosen == expert
    start = tl.sum((chosen < expert).to(tl.int32), axis=0)
    tl.store(order + start + tl.cumsum(mine.to(tl.int32), axis=0) - 1, pair, mask=mine)

    bins = tl.arange(0, BINS)
    counts = tl.where(bins < experts, tl.histogram(chosen, BINS), 0)
    blocks_needed = (counts + ROWS - 1) // ROWS
    first_block = tl.sum(tl.where(bins < expert, blocks_needed, 0), axis=0)
    count = tl.sum(mine.to(tl.int32), axis=0)
    block = tl.arange(0, BLOCKS)
    own = block * ROWS < count
    tl.store(block_expert + first_block + block, expert, mask=own)
    tl.store(block_start + first_block + block, start + block * ROWS, mask=own)
    tl.store(block_count + first_block + block, tl.minimum(count - block * ROWS, ROWS), mask=own)
    if expert == experts - 1:
        unused = (block >= tl.sum(blocks_needed, axis=0)) & (block < blocks)
        tl.store(block_expert + block, -1, mask=unused)


@triton.jit
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
    NF4: tl.constexpr,
    INT8: tl.constexpr,
    PACK: tl.constexpr,
    BY_LANES: tl.constexpr,
    BY_WARP: tl.constexpr,
    BLOCK_AXIS: tl.constexpr,
    FETCHED: tl.constexpr,
    COMPUTE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """`gelu(gate) * up` of every pair, sorted as in `order`: `hidden` [P, I].

    Grid: (blocks, I / 64); with 1 as BLOCK_AXIS (I / 64, blocks), so that the programs of a block are side by side.
    Both products are first rounded to COMPUTE, the type of the activations, as two separate layers would. With INT8,
    `x` is int8 with scales [N, D/64], and `hidden` is int8 with scales [P, I/64]. COLUMNS is 64: one group of the
    input of the down projection. FETCHED is how many groups ahead the L2 cache fetches codes in words; 0 for none.
    """
    block, part = tl.program_id(BLOCK_AXIS), tl.program_id(1 - BLOCK_AXIS)
    expert = tl.load(block_expert + block)
    if expert < 0:
        return
    start = tl.load(block_start + block)
    within = tl.arange(0, ROWS)
    valid = within < tl.load(block_count + block)
    row = tl.load(order + start + within, mask=valid, other=0) // top_k
    column = part * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, 64 if BY_LANES else 32)
    groups = width // 64
    UNQUANTIZED: tl.constexpr = codes.dtype.element_ty.is_floating()
    WORDS: tl.constexpr = codes.dtype.element_ty == tl.int32
    TWO_AHEAD: tl.constexpr = WORDS and levels.dtype.element_ty == tl.int32
    SIZE: tl.constexpr = 8 if WORDS else 32 if NF4 else 64
    both = 2 * inner
    base = expert.to(tl.int64) * groups * both
    RUN: tl.constexpr = 32 if BY_LANES and not WORDS else SIZE
    code_row_stride, code_group_stride = (width, 64) if UNQUANTIZED else (RUN, both * SIZE)
    second_half = both * 32 if BY_LANES else 32
    # Columns of the gate, followed by the same columns of the up projection.
    first, jump = part * COLUMNS, inner - COLUMNS
    weight_codes = codes + base * SIZE + code_offsets(first, code_row_stride, jump, 2 * COLUMNS, BY_LANES, WORDS)
    weight_scales = scales + (base + first) // 2 + with_jump(tl.arange(0, COLUMNS), jump // 2, COLUMNS)
    x_rows = x + row[:, None].to(tl.int64) * width + k[None, :]
    x_row_scales = x_scales + row * groups
    acc = tl.zeros([2 * COLUMNS, ROWS], dtype=tl.float32)
    table = load_table(levels, NF4, INT8, PACK)
    if INT8:  # scales are loaded a group ahead, because Triton copies ahead only what a product takes
        next_scale, next_x = load_scales(weight_scales, 0, 2 * COLUMNS), tl.load(x_row_scales)
    if WORDS:  # codes are loaded ahead, too, since codes in words go straight to registers
        next_codes, next_scale = load_words(weight_codes, weight_scales, 0, code_group_stride, inner)
        if TWO_AHEAD:
            second = tl.minimum(1, groups - 1)
            later_codes, later_scale = load_words(weight_codes, weight_scales, second, code_group_stride, inner)
        if FETCHED:
            lines = codes + (base + first + with_jump(tl.arange(0, 2 * COLUMNS), jump, 2 * COLUMNS)) * SIZE
            for group in tl.static_range(2, FETCHED):
                fetch_words(lines, weight_scales, tl.minimum(group, groups - 1) * both)
    for group in range(groups):
        scale, x_scale = 0, 0
        if WORDS and FETCHED:
            fetch_words(lines, weight_scales, tl.minimum(group + FETCHED, groups - 1) * both)
        of_group = weight_codes + group * code_group_stride
        ahead = tl.minimum(group + (2 if TWO_AHEAD else 1), groups - 1)
        if WORDS:
            of_group, scale = next_codes, next_scale
            if TWO_AHEAD:
                next_codes, next_scale = kept(later_codes), kept(later_scale)
                later_codes, later_scale = load_words(weight_codes, weight_scales, ahead, code_group_stride, inner)
            else:
                next_codes, next_scale = load_words(weight_codes, weight_scales, ahead, code_group_stride, inner)
        elif INT8:
            scale, x_scale = next_scale, next_x
            next_scale = load_scales(weight_scales + ahead * inner, 0, 2 * COLUMNS)
            next_x = tl.load(x_row_scales + ahead)
        elif not UNQUANTIZED:
            scale = load_scales(weight_scales + group * inner, 0, 2 * COLUMNS)
        x_group = x_rows + group * 64
        acc = add_product(
            acc, x_group, x_scale, of_group, second_half, scale, table, valid[:, None], NF4, INT8, PACK, BY_WARP
        )
    gate, up = gate_and_up(acc)
    activated = gelu(gate.to(COMPUTE).to(tl.float32)).to(COMPUTE)
    value = (activated.to(tl.float32) * up.to(COMPUTE).to(tl.float32)).to(COMPUTE)
    sorted_row = start + within
    target = hidden + sorted_row[:, None].to(tl.int64) * inner + column[None, :]
    if INT8:
        value_codes, scale = to_int8(value.to(tl.float32))
        tl.store(target, value_codes, mask=valid[:, None])
        tl.store(hidden_scales + sorted_row * (inner // 64) + part, scale, mask=valid)
    else:
        tl.store(target, value, mask=valid[:, None])


@triton.jit
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
    NF4: tl.constexpr,
    INT8: tl.constexpr,
    PACK: tl.constexpr,
    BY_LANES: tl.constexpr,
    BY_WARP: tl.constexpr,
    BLOCK_AXIS: tl.constexpr,
    FETCHED: tl.constexpr,
    TILES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """The down projection of every pair, back in the order of pairs: `outputs` [P, D].

    Grid: (blocks, D / (TILES COLUMNS)), or swapped as in `gate_up_kernel`; a program computes its tiles one after the
    other. FETCHED is as in `gate_up_kernel`.
    """
    block, part = tl.program_id(BLOCK_AXIS), tl.program_id(1 - BLOCK_AXIS)
    expert = tl.load(block_expert + block)
    if expert < 0:
        return
    within = tl.arange(0, ROWS)
    valid = within < tl.load(block_count + block)
    sorted_row = tl.load(block_start + block) + within
    word = tl.arange(0, COLUMNS // 2)
    k = tl.arange(0, 64 if BY_LANES else 32)
    groups = inner // 64
    UNQUANTIZED: tl.constexpr = codes.dtype.element_ty.is_floating()
    WORDS: tl.constexpr = codes.dtype.element_ty == tl.int32
    SIZE: tl.constexpr = 8 if WORDS else 32 if NF4 else 64
    base = expert.to(tl.int64) * groups * width
    RUN: tl.constexpr = 32 if BY_LANES and not WORDS else SIZE
    code_row_stride, code_group_stride = (inner, 64) if UNQUANTIZED else (RUN, width * SIZE)
    second_half = width * 32 if BY_LANES else 32
    rows = hidden + sorted_row[:, None].to(tl.int64) * inner + k[None, :]
    row_scales = hidden_scales + tl.where(valid, sorted_row, 0) * groups
    table = load_table(levels, NF4, INT8, PACK)
    for tile in range(TILES):
        first = (part * TILES + tile) * COLUMNS
        down_codes = codes + base * SIZE + code_offsets(first, code_row_stride, 0, COLUMNS, BY_LANES, WORDS)
        down_scales = scales + (base + first) // 2 + word
        acc = tl.zeros([COLUMNS, ROWS], dtype=tl.float32)
        if INT8:
            next_scale, next_row_scale = load_scales(down_scales, 0, COLUMNS), tl.load(row_scales)
        if WORDS:
            next_codes, next_scale = load_words(down_codes, down_scales, 0, code_group_stride, width // 2)
            if FETCHED:
                lines = codes + (base + first + tl.arange(0, COLUMNS)) * SIZE
                for group in tl.static_range(1, FETCHED):
                    fetch_words(lines, down_scales, tl.minimum(group, groups - 1) * width)
        for group in range(groups):
            scale, row_scale = 0, 0
            if WORDS and FETCHED:
                later = tl.minimum(group + FETCHED, (TILES - tile) * groups - 1)
                # After the last group come the first ones of the next tile.
                row = later * width + tl.where(later < groups, 0, COLUMNS - groups * width)
                fetch_words(lines, down_scales, row)
            of_group = down_codes + group * code_group_stride
            ahead = tl.minimum(group + 1, groups - 1)
            if WORDS:
                of_group, scale = next_codes, next_scale
                next_codes, next_scale = load_words(down_codes, down_scales, ahead, code_group_stride, width // 2)
            elif INT8:
                scale, row_scale = next_scale, next_row_scale
                next_scale = load_scales(down_scales + ahead * (width // 2), 0, COLUMNS)
                next_row_scale = tl.load(row_scales + ahead)
            elif not UNQUANTIZED:
                scale = load_scales(down_scales + group * (width // 2), 0, COLUMNS)
            x_group = rows + group * 64
            acc = add_product(
                acc, x_group, row_scale, of_group, second_half, scale, table, valid[:, None], NF4, INT8, PACK, BY_WARP
            )
        pair = tl.load(order + sorted_row, mask=valid, other=0)
        column = first + tl.arange(0, COLUMNS)
        target = outputs + pair[:, None].to(tl.int64) * width + column[None, :]
        tl.store(target, tl.trans(acc).to(outputs.dtype.element_ty), mask=valid[:, None])


@triton.jit
def combine_kernel(outputs, routing_weights, combined, width, TOP_K: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows [N, D]: sums of a row's K outputs times `routing_weights` (fp32). Grid: (N, D / COLUMNS rounded up)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    acc = tl.zeros([COLUMNS], dtype=tl.float32)
    for slot in tl.static_range(TOP_K):
        pair = row * TOP_K + slot
        value = tl.load(outputs + pair * width + column, mask=inside, other=0.0).to(tl.float32)
        acc += value * tl.load(routing_weights + pair)
    tl.store(combined + row * width + column, acc.to(combined.dtype.element_ty), mask=inside)
