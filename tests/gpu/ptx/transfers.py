"""Instructions between registers and memory."""

from __future__ import annotations

import numpy as np

from tests.gpu.ptx.lanes import TYPES, Lanes, Mask, Read, Run
from tests.gpu.ptx.memory import Copies, GlobalMemory, SharedMemory
from tests.gpu.ptx.numbers import Array
from tests.gpu.ptx.races import Clock
from tests.gpu.ptx.syntax import Address, Instruction, Number, Operand, Register, Vector

COPIES = {("cp", "async", "ca", "shared", "global"), ("cp", "async", "cg", "shared", "global")}


class Transfers:
    """Loads, stores, atomic sums and asynchronous copies of the lanes of a launch."""

    def __init__(
        self,
        lanes: Lanes,
        memory: GlobalMemory,
        shared: SharedMemory,
        parameters: dict[str, Array],
        clock: Clock,
    ) -> None:
        self._lanes = lanes
        self._memory = memory
        self._shared = shared
        self._parameters = parameters
        self._copies = Copies(memory, shared, lanes.count, clock)
        self._clock = clock
        self._all = np.arange(lanes.count)
        self._makers = {
            "ld": self._load,
            "st": self._store,
            "atom": self._sum,
            "cp": self._copy,
            "prefetch": self._prefetch,
        }

    def maker(self, instruction: Instruction) -> Run | None:
        """What an instruction does; None for instructions of other kinds."""
        make = self._makers.get(instruction.parts[0])
        return None if make is None else make(instruction)

    def active(self, mask: Mask) -> Array:
        """Numbers of the lanes that take part."""
        return self._all if mask is None else np.flatnonzero(mask)

    def address(self, operand: Operand, kind: str) -> Read:
        """The address that an operand names, for each lane."""
        if not isinstance(operand, Address):
            raise TypeError(f"no address: {operand}")
        if operand.base.lstrip("-").isdigit():
            base: Read = self._lanes.reader(Number(int(operand.base)), kind)
        else:
            base = self._lanes.reader(Register(operand.base), kind)
        offset = np.dtype(TYPES[kind]).type(operand.offset % 2 ** (32 if kind == "u32" else 64))
        count = self._lanes.count
        return lambda: np.broadcast_to(base() + offset, (count,))

    def _load(self, instruction: Instruction) -> Run:
        to, source = instruction.operands
        space, count, kind = _form(instruction, "global", "shared", "param")
        items = to.items if isinstance(to, Vector) else (to,)
        if len(items) != count:
            raise ValueError(instruction.text)
        writes = [self._lanes.writer(item, kind) for item in items]
        if space == "param":
            if not isinstance(source, Address) or source.offset or count > 1:
                raise NotImplementedError(instruction.text)
            value: Array = self._parameters[source.base].view(TYPES[kind])
            return lambda mask: writes[0](value, mask)
        is_shared = space == "shared"
        address = self.address(source, "u32" if is_shared else "u64")
        dtype = np.dtype(TYPES[kind])

        def run(mask: Mask) -> None:
            lanes = self.active(mask)
            addresses = address()[lanes]
            if is_shared:
                found = self._shared.load(lanes, addresses, dtype.itemsize, count)
            else:
                found = self._memory.load(self._clock, lanes, addresses, dtype.itemsize, count)
            for place, write in enumerate(writes):
                whole = np.zeros(self._lanes.count, dtype)
                whole[lanes] = np.ascontiguousarray(found[:, place]).view(dtype)
                write(whole, mask)

        return run

    def _store(self, instruction: Instruction) -> Run:
        to, source = instruction.operands
        space, count, kind = _form(instruction, "global", "shared")
        items = source.items if isinstance(source, Vector) else (source,)
        if len(items) != count:
            raise ValueError(instruction.text)
        width = np.dtype(TYPES[kind]).itemsize
        reads = [self._lanes.reader(item, f"u{8 * width}") for item in items]
        is_shared = space == "shared"
        address = self.address(to, "u32" if is_shared else "u64")

        def run(mask: Mask) -> None:
            lanes = self.active(mask)
            addresses = address()[lanes]
            values = np.stack([np.broadcast_to(read(), (self._lanes.count,))[lanes] for read in reads], axis=1)
            if is_shared:
                self._shared.store(lanes, addresses, values)
            else:
                self._memory.store(self._clock, lanes, addresses, values)

        return run

    def _prefetch(self, instruction: Instruction) -> Run:
        """Changes nothing; but unlike on a GPU, which ignores them, an address outside all allocations is a fault."""
        if instruction.parts != ("prefetch", "global", "L2"):
            raise NotImplementedError(instruction.text)
        (place,) = instruction.operands
        address = self.address(place, "u64")
        return lambda mask: self._memory.check(address()[self.active(mask)])

    def _sum(self, instruction: Instruction) -> Run:
        """`atom.shared.add`: lane after lane, each gets the old value. Scopes make no difference here."""
        how = tuple(part for part in instruction.parts[:-1] if part not in ("relaxed", "cta", "gpu", "sys"))
        if how != ("atom", "shared", "add") or instruction.parts[-1] not in ("u32", "s32"):
            raise NotImplementedError(instruction.text)
        to, place, by = instruction.operands
        write, address, read = self._lanes.writer(to, "u32"), self.address(place, "u32"), self._lanes.reader(by, "u32")

        def run(mask: Mask) -> None:
            lanes = self.active(mask)
            places, added = address(), np.broadcast_to(read(), (self._lanes.count,))
            before = np.zeros(self._lanes.count, np.uint32)
            for lane in lanes:  # few lanes, usually one per warp
                one = np.array([lane])
                before[lane] = self._shared.exchange(one, places[one], added[one])
            write(before, mask)

        return run

    def _copy(self, instruction: Instruction) -> Run:
        """`cp.async`: copies to shared memory that are under way until their group is waited for."""
        if instruction.parts == ("cp", "async", "commit_group"):
            return lambda mask: self._copies.commit(self.active(mask))
        if instruction.parts == ("cp", "async", "wait_group"):
            assert isinstance(instruction.operands[0], Number)
            count = instruction.operands[0].bits
            return lambda mask: self._copies.wait(self.active(mask), count)
        if instruction.parts not in COPIES:
            raise NotImplementedError(instruction.text)
        to, source, size, *read = instruction.operands
        if not isinstance(size, Number) or size.bits not in (4, 8, 16) or len(read) > 1:
            raise NotImplementedError(instruction.text)
        address, origin = self.address(to, "u32"), self.address(source, "u64")
        some = self._lanes.reader(read[0] if read else size, "u32")

        def run(mask: Mask) -> None:
            lanes = self.active(mask)
            nbytes = np.broadcast_to(some(), (self._lanes.count,))[lanes]
            self._copies.start(lanes, address()[lanes], origin()[lanes], size.bits, nbytes)

        return run


def _form(instruction: Instruction, *spaces: str) -> tuple[str, int, str]:
    """The memory that a load or store accesses, how many numbers, and their type."""
    kind, (space, *vector) = instruction.parts[-1], instruction.parts[1:-1] or ("generic",)
    space = space.removesuffix("::cta")  # the block's own shared memory, as without the suffix
    if space not in spaces or vector not in ([], ["v2"], ["v4"], ["v8"]) or kind not in TYPES:
        raise NotImplementedError(instruction.text)
    return space, int(vector[0][1:]) if vector else 1, kind
