"""Blocks of threads, from their first instruction to their last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.gpu.ptx.arithmetic import arithmetic
from tests.gpu.ptx.exchange import WARP, exchange
from tests.gpu.ptx.lanes import Lanes, Run
from tests.gpu.ptx.matrices import matrices
from tests.gpu.ptx.memory import GlobalMemory, SharedMemory
from tests.gpu.ptx.numbers import Array
from tests.gpu.ptx.races import Clock
from tests.gpu.ptx.syntax import ALIGNED, Instruction, Kernel, Number, Register
from tests.gpu.ptx.transfers import Transfers
from tests.gpu.ptx.warpgroup import Warpgroups

_ORDERS = {"fence.proxy.async.shared::cta", "nanosleep.u32"}
"""Instructions that order what already happens in order here, or let time pass."""


class Machine:
    """Several blocks of a launch, which take each instruction together.

    Threads that have diverged wait for each other: those furthest back in the program run first.

    Args:
        kernel: the program.
        blocks: their positions in the grid, [(x, y, z)].
        grid: its size.
        parameters: value of each of the kernel's parameters, as an array of one element.
        shared: bytes of shared memory of a block, after what the kernel itself declares.
        first: number of blocks of the launch that have run before.
    """

    def __init__(
        self,
        kernel: Kernel,
        blocks: Sequence[tuple[int, int, int]],
        grid: tuple[int, int, int],
        parameters: dict[str, Array],
        memory: GlobalMemory,
        shared: int,
        first: int = 0,
    ) -> None:
        if kernel.threads % WARP:
            raise NotImplementedError(f"blocks of {kernel.threads} threads")
        self._kernel = kernel
        thread = np.tile(np.arange(kernel.threads, dtype=np.uint32), len(blocks))
        self._block_of = np.repeat(np.arange(len(blocks)), kernel.threads)
        zero = np.zeros(len(thread), np.uint32)
        special = {
            "%tid.x": thread,
            "%tid.y": zero,
            "%tid.z": zero,
            "%laneid": thread % np.uint32(WARP),
            "%warpid": thread // np.uint32(WARP),
            "%ntid.x": zero + np.uint32(kernel.threads),
        }
        for axis, name in enumerate("xyz"):
            special[f"%ctaid.{name}"] = np.array([block[axis] for block in blocks], np.uint32)[self._block_of]
            special[f"%nctaid.{name}"] = zero + np.uint32(grid[axis])
        declared = 0
        for name, size in kernel.shared.items():
            special[name] = zero + np.uint32(declared)
            declared += size + -size % ALIGNED
        special["global_smem"] = zero + np.uint32(declared)  # Triton's name for what the launch asks for
        self._lanes = Lanes(kernel, special)
        self._clock = Clock(self._lanes.count, kernel.threads, first)
        self._shared = SharedMemory(declared + shared, self._block_of, self._clock)
        self._transfers = Transfers(self._lanes, memory, self._shared, parameters, self._clock)
        self._warpgroups = Warpgroups(self._lanes, self._shared)
        self._steps = [self._step(instruction) for instruction in kernel.instructions]

    def run(self) -> None:
        """Runs all blocks to their end."""
        count = self._lanes.count
        running: dict[int, Array] = {0: np.ones(count, np.bool_)}
        waiting: dict[int, Array] = {}
        with np.errstate(all="ignore"):
            while running or waiting:
                if not running:
                    running = self._released(waiting)
                place = min(running)
                lanes = running.pop(place)
                if place == len(self._steps):
                    continue
                self._advance(place, lanes, running, waiting)

    def _advance(self, place: int, lanes: Array, running: dict[int, Array], waiting: dict[int, Array]) -> None:
        """Runs instructions for these lanes until other lanes are further back."""
        instructions, steps = self._kernel.instructions, self._steps
        everybody = bool(lanes.all())
        while place < len(steps):
            if running and place >= min(running):
                _join(running, place, lanes)
                return
            instruction, step = instructions[place], steps[place]
            mask = None if everybody else lanes
            if instruction.guard is not None:
                name, negated = instruction.guard
                told = self._lanes.reader(Register(name), "pred")()
                chosen = lanes & (~told if negated else told)
                mask = None if chosen.all() else chosen
            match instruction.parts[0]:
                case "bra":
                    target = self._kernel.labels[_label(instruction)]
                    taken = lanes if mask is None else mask
                    if taken.any():
                        _join(running, target, taken)
                    lanes = lanes & ~taken
                    if not lanes.any():
                        return
                    everybody = False
                case "ret":
                    lanes = lanes & ~(lanes if mask is None else mask)
                    if not lanes.any():
                        return
                    everybody = False
                case "bar" if instruction.parts == ("bar", "sync"):
                    if not everybody:
                        _join(waiting, place, lanes)
                        return
                    self._clock.passed(None)
                case _:
                    if mask is None or mask.any():
                        try:
                            step(mask)
                        except Exception as error:
                            error.add_note(f"{self._kernel.name}: {instruction.text}")
                            raise
            place += 1

    def _released(self, waiting: dict[int, Array]) -> dict[int, Array]:
        """Lets lanes pass the barrier they wait at; all lanes of a block that have not ended must be at one barrier."""
        at = np.zeros(self._lanes.count, np.int64)
        for place, lanes in waiting.items():
            at[lanes] = place + 1
        for block in range(int(self._block_of.max()) + 1):
            places = np.unique(at[(self._block_of == block) & (at > 0)])
            if len(places) > 1:
                raise RuntimeError("threads of a block wait at different barriers")
        self._clock.passed(at > 0)
        released = {place + 1: lanes for place, lanes in waiting.items()}
        waiting.clear()
        return released

    def _step(self, instruction: Instruction) -> Run:
        """What an instruction does to the lanes that take part."""
        name = ".".join(instruction.parts)
        if name == "bar.sync":
            if instruction.operands != (Number(0),) or instruction.guard is not None:
                raise NotImplementedError(instruction.text)  # a barrier of some threads
            return lambda mask: None
        if name in ("bra", "bra.uni", "ret") or name in _ORDERS:
            return lambda mask: None
        lanes, shared, transfers = self._lanes, self._shared, self._transfers
        found = (
            arithmetic(instruction, lanes)
            or transfers.maker(instruction)
            or exchange(instruction, lanes)
            or matrices(instruction, lanes, shared, transfers)
            or self._warpgroups.maker(instruction)
        )
        if found is None:
            raise NotImplementedError(instruction.text)
        return found


def _join(groups: dict[int, Array], place: int, lanes: Array) -> None:
    before = groups.get(place)
    groups[place] = lanes if before is None else before | lanes


def _label(instruction: Instruction) -> str:
    (target,) = instruction.operands
    assert isinstance(target, Register)
    return target.name
