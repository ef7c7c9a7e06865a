"""Compiles every kernel for all kinds of cards, without a card, and reports what each takes: `make kernels-aot`.

It compiles what the released model launches (`tests.gpu.specializations`), each kernel as for that launch. Registers,
spilled bytes and shared memory are read back from the machine code with `cuobjdump`, which Triton ships along with the
assembler. Says nothing about speed. Exits with 1 if a kernel spills, takes more shared memory than the card has,
overwrites what a matrix instruction still reads (`tests.gpu.machine_code`), or does not compile.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import pkgutil
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

if __name__ == "__main__":  # before any device code is imported: an interpreted kernel cannot be compiled
    os.environ.pop("TRITON_INTERPRET", None)

import localdiff.kernels
import quant.cuda
from quant.cuda.tiles import MMA_KIND_BY_MAJOR, MmaKind
from tests.gpu.machine_code import cuobjdump, instructions, overwritten_operands
from tests.gpu.specializations import Launch, launched

CARDS = {80: "A100", 86: "RTX 30", 89: "RTX 40", 90: "H100, H200", 100: "B200", 120: "RTX 50"}
SHARED = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}
"""KiB of shared memory that a block may take at most (CUDA programming guide, technical specifications).

B300 (103), Jetson Thor (110) and DGX Spark (121) are compiled for only if they are named."""
UNASKED = 48
"""KiB that a block may take unless more is requested of the driver; Triton does so if its own part exceeds them."""
RESERVED = 1024
"""Bytes of shared memory that the system keeps in every block from sm_90 on. `cuobjdump` includes them in the declared
bytes; the limits above do not."""
UNCHOSEN = {"quant.cuda.overlapped_kernels", "quant.cuda.overlapped_expert_kernels"}
"""Device code that no tile in the tables uses; `tests.bench.gpu_tiles` compiles and times it."""
COLUMNS = 512
"""Columns of tensor memory that a multiprocessor of a B200 has (PTX ISA, `tcgen05`)."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """What the machine code of a build takes.

    Attributes:
        spilled: bytes of local memory.
        shared: bytes of shared memory that Triton asks for.
        declared: bytes of shared memory that the code itself declares.
        columns: columns of tensor memory.
        overwritten: instructions that overwrite an operand that is still being read.
        seconds: time that compiling took.
    """

    registers: int
    spilled: int
    shared: int
    declared: int = 0
    columns: int = 0
    overwritten: tuple[str, ...] = ()
    seconds: float = field(compare=False)

    def fits(self, card: int) -> bool:
        """Whether nothing is spilled or overwritten, and the card has enough shared memory and tensor memory."""
        most = UNASKED if self.declared and self.shared <= 1024 * UNASKED else SHARED[card]
        has_memory = self.shared + self.declared <= 1024 * most and self.columns <= COLUMNS
        return has_memory and not self.spilled and not self.overwritten

    def words(self, *, fits: bool) -> str:
        """Registers, and what does not fit."""
        if fits:
            return f"{self.registers}"
        if self.overwritten:
            return "overwrites"
        if self.columns > COLUMNS:
            return f"{self.columns} columns"
        if self.spilled:
            return f"{self.registers} ({self.spilled})"
        return f"{(self.shared + self.declared) / 1024:.0f} KiB"


def all_kernels() -> set[tuple[str, str]]:
    """Module and name of every kernel that the released model may launch."""
    found = set()
    for package in (localdiff.kernels, quant.cuda):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_kernels") and module.name not in UNCHOSEN:
                members = vars(importlib.import_module(module.name))
                found |= {(module.name, name) for name in members if name.endswith("_kernel")}
    return found


def mma_kind_of(card: int) -> MmaKind:
    """The matrix instruction of a GPU of this compute capability; tiles depend on it."""
    return MMA_KIND_BY_MAJOR.get(card // 10, "mma.sync")


def names(launches: Sequence[Launch]) -> list[str]:
    """A name for each launch: its kernel, and what tells it from the kernel's other launches."""
    alike: dict[tuple[str, str], list[Launch]] = defaultdict(list)
    for launch in launches:
        alike[launch.module, launch.kernel].append(launch)
    traits = {key: _telling([_traits(launch) for launch in group]) for key, group in alike.items()}
    return [_name(launch, traits[launch.module, launch.kernel]) for launch in launches]


def _name(launch: Launch, telling: Sequence[str]) -> str:
    place = launch.module.rpartition(".")[2].removesuffix("_kernels")
    kernel = launch.kernel.removesuffix("_kernel").replace("_", " ")
    words = [kernel if place == kernel else f"{place}: {kernel}"]
    for trait in telling:
        value = _traits(launch)[trait]
        if value != "False":
            words.append(trait.lower() if value == "True" else f"{trait.lower()} {value}")
    return ", ".join(words)


def _traits(launch: Launch) -> dict[str, str]:
    """Constants first, upper-case ones before the rest: they say more than the types that go with them."""
    constants = sorted(launch.constants, key=lambda constant: not constant[0].isupper())
    traits = {name: str(value) for name, value in constants}
    for name, kind in launch.types:
        is_any = kind not in ("constexpr", "fp32") and name not in launch.aligned
        traits.setdefault(name, kind.removeprefix("*") + " of any alignment" * is_any)
    return traits | {"warps": str(launch.warps)}


def _telling(group: Sequence[dict[str, str]]) -> list[str]:
    """Traits in which launches differ; of traits that differ in the same way, only the first."""
    found: dict[tuple[int, ...], str] = {}
    for trait in group[0]:
        values = [traits[trait] for traits in group]
        if len(set(values)) > 1:
            found.setdefault(tuple(values.index(value) for value in values), trait)
    return list(found.values())


def compiled(launch: Launch, card: int) -> Use:
    """Compiles one kernel for one kind of card."""
    began = time.perf_counter()
    made = build(launch, card)
    # For a kernel that wants more tensor memory than there is, Triton compiles a trap, which spills nothing.
    columns = getattr(made.metadata, "tmem_size", 0)
    seconds = time.perf_counter() - began
    use = use_of(cuobjdump(made.asm["cubin"], "-res-usage"), shared=made.metadata.shared, seconds=seconds)
    overwritten = overwritten_operands(instructions(made.asm["cubin"])) if mma_kind_of(card) == "wgmma" else []
    for line in overwritten:
        print(f"{launch}, sm_{card}: an operand that is still read is overwritten by {line}", file=sys.stderr)
    return replace(use, columns=columns, overwritten=tuple(overwritten))


def build(launch: Launch, card: int) -> Any:
    """Triton's compiled kernel."""
    import triton
    from triton.backends.compiler import GPUTarget

    kernel = getattr(importlib.import_module(launch.module), launch.kernel)
    target = GPUTarget("cuda", card, 32)
    return triton.compile(source_of(launch, kernel, target), target=target, options=options_of(launch))


def source_of(launch: Launch, kernel: Any, target: Any) -> Any:
    """What Triton compiles, exactly as for a launch on a GPU, which then finds it in Triton's cache.

    Triton itself assembles it, because its versions differ in which parameters have an empty list of attributes.
    """
    from triton.compiler import ASTSource, make_backend

    values = dict(launch.constants)
    marks = [
        (kind, values[name] if kind == "constexpr" else _mark(kind, parameter, is_aligned=name in launch.aligned))
        for (name, kind), parameter in zip(launch.types, kernel.params, strict=True)
    ]
    bound = {name: values.get(name) for name, _ in launch.types}
    backend = make_backend(target)
    _, *source = kernel._pack_args(backend, options_of(launch), bound, marks, backend.parse_options(options_of(launch)))
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        return GluonASTSource(kernel, *source)
    return ASTSource(kernel, *source)


def _mark(kind: str, parameter: Any, *, is_aligned: bool) -> str | None:
    """Triton's mark for a multiple of 16, for any other value, and for a parameter that it does not specialize."""
    if is_aligned:
        return "D"
    return "" if kind.startswith(("*", "i")) and not parameter.do_not_specialize else None


def options_of(launch: Launch) -> dict[str, Any]:
    """Options of the compiler; all others are Triton's defaults for a launch."""
    return {
        "num_warps": launch.warps,
        "num_stages": launch.stages,
        "enable_fp_fusion": launch.fuses,
        "maxnreg": launch.max_registers,
    }


def use_of(told: str, *, shared: int, seconds: float) -> Use:
    """Parses what `cuobjdump -res-usage` says about one kernel."""
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", told)
    assert found is not None, told
    registers, stack, declared, local = (int(number) for number in found.groups())
    declared = max(0, declared - RESERVED)
    return Use(registers=registers, spilled=stack + local, shared=shared, declared=declared, seconds=seconds)


def cards_of_command_line(description: str, usual: Iterable[int]) -> list[int]:
    """The cards that the arguments of the process name, or the usual ones if there are none."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cards", nargs="*", type=int, metavar="CARD", help="compute capability without its point: 86")
    return parser.parse_args().cards or list(usual)


def main(cards: list[int]) -> int:
    """Prints a table of registers by kernel and card; a cell is empty if that card launches another tile."""
    began, failed = time.perf_counter(), 0
    of_card = {card: mma_kind_of(card) for card in cards}
    of_kind = {kind: launched(mma_kind=kind) for kind in dict.fromkeys(of_card.values())}
    launches = list(dict.fromkeys(launch for several in of_kind.values() for launch in several))
    for module, kernel in sorted(all_kernels() - {(launch.module, launch.kernel) for launch in launches}):
        print(f"{module}.{kernel} is launched by nothing", file=sys.stderr)
        failed += 1
    named = names(launches)
    width = max(map(len, named))
    print(f"{'registers (spilled bytes)':{width}}" + "".join(f"{'sm_' + str(card):>11}" for card in cards), flush=True)
    # Processes, because much of compiling is Python code.
    pool = ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
    with pool:
        tasks = [
            [pool.submit(told, launch, card) if launch in of_kind[of_card[card]] else None for card in cards]
            for launch in launches
        ]
        for name, row in sorted(zip(named, tasks, strict=True), key=lambda pair: pair[0]):
            cells = []
            for card, task in zip(cards, row, strict=True):
                if task is None:
                    cells.append("")
                    continue
                use = task.result()
                fits = isinstance(use, Use) and use.fits(card)
                failed += not fits
                cells.append(use if isinstance(use, str) else use.words(fits=fits))
            print(f"{name:{width}}" + "".join(f"{cell:>11}" for cell in cells), flush=True)
    seconds = time.perf_counter() - began
    print(f"{len(launches)} kernels for {len(cards)} kinds of cards in {seconds:.0f} s, {failed} do not fit or fail")
    return 1 if failed else 0


def told(launch: Launch, card: int) -> Use | str:
    """What a kernel takes on a card, or "fails" if it does not compile."""
    try:
        return compiled(launch, card)
    except Exception as error:  # any error of the compiler; the table and the exit code show it
        print(f"{launch}, sm_{card}: {error}", file=sys.stderr)
        return "fails"


if __name__ == "__main__":
    sys.exit(main(cards_of_command_line(__doc__, CARDS)))
