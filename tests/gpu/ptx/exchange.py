"""Instructions of a warp whose lanes read each other's registers."""

from __future__ import annotations

import numpy as np

from tests.gpu.ptx.lanes import Lanes, Mask, Run
from tests.gpu.ptx.numbers import Array
from tests.gpu.ptx.syntax import Instruction, Register

WARP = 32


def exchange(instruction: Instruction, lanes: Lanes) -> Run | None:
    """What an instruction does; None for instructions of other kinds."""
    makers = {"shfl": _shuffle, "vote": _vote, "redux": _reduce, "bar": _gather}
    make = makers.get(instruction.parts[0])
    return None if make is None else make(instruction, lanes)


def members(mask: Mask, named: Array, count: int) -> Array:
    """The lanes that take part; checks that each is in the mask it names, and that all lanes in that mask are there."""
    there = (np.ones(count, np.bool_) if mask is None else mask).reshape(-1, 1, WARP)
    bits = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
    wanted = (np.broadcast_to(named, (count,)).reshape(-1, WARP, 1) & bits) != 0  # [warps, who names, who is named]
    asking = there.reshape(-1, WARP, 1)
    if (wanted & ~there & asking).any():
        raise RuntimeError("lanes that an exchange names are elsewhere in the program")
    if (asking[..., 0] & ~wanted.diagonal(axis1=1, axis2=2)).any():
        raise RuntimeError("a lane takes part in an exchange that does not name it")
    return there.reshape(-1)


def _shuffle(instruction: Instruction, lanes: Lanes) -> Run:
    mode = instruction.parts[2]
    if mode not in ("up", "down", "bfly", "idx") or instruction.parts != ("shfl", "sync", mode, "b32"):
        raise NotImplementedError(instruction.text)
    to, value, by, clamp, named = instruction.operands
    if isinstance(to, Register) and "|" in to.name:
        raise NotImplementedError(instruction.text)
    write, read = lanes.writer(to, "b32"), lanes.reader(value, "b32")
    read_by, read_clamp, read_named = (lanes.reader(operand, "u32") for operand in (by, clamp, named))
    lane = np.arange(lanes.count) % WARP
    first = np.arange(lanes.count) - lane

    def run(mask: Mask) -> None:
        there = members(mask, read_named(), lanes.count)
        move = np.asarray(read_by() & np.uint32(31)).astype(np.int64)
        limit = np.asarray(read_clamp() & np.uint32(31)).astype(np.int64)
        segment = np.asarray((read_clamp() >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
        last = (lane & segment) | (limit & ~segment)
        if mode == "up":
            source = lane - move
            inside = source >= last
        else:
            source = {"down": lane + move, "bfly": lane ^ move, "idx": (lane & segment) | (move & ~segment)}[mode]
            inside = source <= last
        origin = first + np.where(inside, source, lane)
        if not there[origin][there].all():
            raise RuntimeError("a lane reads a register of one that takes no part")
        write(np.broadcast_to(read(), (lanes.count,))[origin], mask)

    return run


def _gather(instruction: Instruction, lanes: Lanes) -> Run:
    """`bar.warp.sync`: brings diverged lanes of a warp together again, without other warps."""
    if instruction.parts != ("bar", "warp", "sync"):
        raise NotImplementedError(instruction.text)
    (named,) = instruction.operands
    read_named = lanes.reader(named, "u32")

    def run(mask: Mask) -> None:
        members(mask, read_named(), lanes.count)

    return run


def _vote(instruction: Instruction, lanes: Lanes) -> Run:
    """`vote.sync.ballot`: a bit for each lane."""
    if instruction.parts != ("vote", "sync", "ballot", "b32"):
        raise NotImplementedError(instruction.text)
    to, value, named = instruction.operands
    write, read, read_named = lanes.writer(to, "b32"), lanes.reader(value, "pred"), lanes.reader(named, "u32")
    bit = np.uint32(1) << np.arange(WARP, dtype=np.uint32)

    def run(mask: Mask) -> None:
        there = members(mask, read_named(), lanes.count).reshape(-1, WARP)
        votes = np.broadcast_to(read(), (lanes.count,)).reshape(-1, WARP)
        told = np.where(votes & there, bit, np.uint32(0)).sum(axis=1, dtype=np.uint32)
        write(np.repeat(told, WARP), mask)

    return run


def _reduce(instruction: Instruction, lanes: Lanes) -> Run:
    name, kind = instruction.parts[2], instruction.parts[-1]
    if instruction.parts[1:] != ("sync", name, kind) or name not in ("add", "min", "max") or kind not in ("s32", "u32"):
        raise NotImplementedError(instruction.text)
    to, value, named = instruction.operands
    write, read, read_named = lanes.writer(to, kind), lanes.reader(value, kind), lanes.reader(named, "u32")

    def run(mask: Mask) -> None:
        members(mask, read_named(), lanes.count)
        masks = np.broadcast_to(read_named(), (lanes.count,))
        values = np.broadcast_to(read(), (lanes.count,)).reshape(-1, WARP)
        # Lanes with the same mask make a group.
        together = (masks.reshape(-1, WARP, 1) >> np.arange(WARP, dtype=np.uint32)) & np.uint32(1) != 0
        each = np.broadcast_to(values[:, None, :], together.shape)
        if name == "add":
            found = np.where(together, each, values.dtype.type(0)).sum(axis=2, dtype=values.dtype)
        else:
            limits = np.iinfo(values.dtype)
            worst, function = (limits.min, np.max) if name == "max" else (limits.max, np.min)
            found = function(np.where(together, each, worst), axis=2).astype(values.dtype)
        write(found.reshape(-1), mask)

    return run
