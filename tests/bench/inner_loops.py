"""`python -m tests.bench.inner_loops [CARD ...]`: what the inner loops of the GEMM kernels are made of, without a GPU.

Compiles the GEMM and attention kernels that the released model launches in `4bit` (`tests.gpu.specializations`) and
counts the machine instructions of their innermost loops. All warps of a program issue them, so tiles of different
shapes are compared by instructions per MFLOP of the result, and by the bytes that a program reads, all of them from the
L2 cache; the counts say what a GPU has to issue and to read, not how long it takes.

Clocks of a multiprocessor per MFLOP say which of three resources runs out first: the schedulers, which issue
instructions of four warps a clock; the units of integers, bits and selections (ALU), 64 lanes a clock; and memory input
and output (MIO), 32 lanes and 128 bytes of shared memory a clock, which loads, stores and exchanges between lanes
share. The rates are quoted from memory of the CUDA C++ Programming Guide (its table of native arithmetic instructions
and its notes on shared memory), not looked up again, and the same for all cards: on paper, without bank conflicts,
dependencies and latencies. Two kinds of units are not counted: tensor cores, whose rates are in
`docs/decisions/0022-dense-weights-from-their-codes.md`, and units that no loop here fills.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

if __name__ == "__main__":  # before any device code is imported: an interpreted kernel cannot be compiled
    os.environ.pop("TRITON_INTERPRET", None)

from tests.gpu.kernels_aot import build, cards_of_command_line, mma_kind_of, names
from tests.gpu.machine_code import beside_products, instructions, loops, name_of
from tests.gpu.specializations import WAYS, Launch, launched

GROUP = 64
WIDTHS = {"*bf16": 2, "*fp16": 2, "*fp32": 4, "*i8": 1}
"""Type of a launch's pointer → bytes of what it points to."""
TENSOR = ("HMMA", "IMMA", "HGMMA", "IGMMA", "UTCHMMA")
DECODING = ("I2F", "I2FP", "SHFL", "PRMT")
ALU = (
    *("BMSK", "F2FP", "FMNMX", "FSEL", "FSETP", "I2FP", "IABS", "IADD", "IADD3", "IMNMX", "ISETP", "LEA", "LOP3"),
    *("MOV", "P2R", "PLOP3", "PRMT", "R2P", "SEL", "SGXT", "SHF", "VIADD", "VIADDMNMX", "VIMNMX"),
)
MIO = ("LDG", "LDGSTS", "LDS", "LDSM", "SHFL", "STG", "STS", "STSM")


def innermost(code: list[tuple[int, str]]) -> list[str]:
    """The shortest loop with a matrix instruction in it."""
    found = [[line for _, line in loop] for loop in loops(code)]
    return min((body for body in found if any(name_of(line) in TENSOR for line in body)), key=len)


def clocks(body: Sequence[str], warps: int) -> tuple[float, float, float]:
    """Clocks of an otherwise idle multiprocessor: to issue a loop's instructions, on its ALUs, and in MIO."""
    found = [line for line in body if not line.startswith("@!PT ")]  # never executed: only a scheduler is busy with it
    alu = sum(name_of(line) in ALU for line in found)
    return len(body) * warps / 4, alu * warps / 2, sum(map(_words_of_a_lane, found)) * warps


def _words_of_a_lane(instruction: str) -> int:
    """How often MIO moves 4 bytes for each lane: once per 4 bytes loaded or stored, and once for anything smaller."""
    if name_of(instruction) not in MIO:
        return 0
    modifiers = re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0].split(".")
    if {"M88", "MT88"} & set(modifiers):
        return int(modifiers[-1]) if modifiers[-1].isdigit() else 1  # matrices of 8 rows, each 4 bytes of every lane
    return next((int(bits) // 32 for bits in ("128", "64") if bits in modifiers), 1)


def mflop(launch: Launch) -> float | None:
    """MFLOP of one pass through the loop: 64 inputs or more, some keys or ids; None if it has no matrix product."""
    sizes = dict(launch.constants)
    if launch.kernel == "attention_kernel":
        return 4e-6 * sizes["ROWS"] * sizes["KEYS"] * sizes["WIDTH"]
    if launch.kernel in ("linear_kernel", "gate_up_kernel", "down_kernel"):
        twice = launch.kernel == "gate_up_kernel" or sizes.get("GATED", False)
        return 2e-6 * sizes["ROWS"] * sizes["COLUMNS"] * GROUP * (1 + twice) * _groups(sizes)
    if launch.kernel == "soft_kernel":
        return 2e-6 * sizes["ROWS"] * sizes["GROUPS"] * GROUP * sizes["IDS"]
    return None


def kilobytes(launch: Launch) -> float:
    """Kilobytes of activations, logits, codes, keys and values that one pass through the loop reads, without scales."""
    sizes, types = dict(launch.constants), dict(launch.types)
    if launch.kernel == "attention_kernel":
        return 2e-3 * sizes["KEYS"] * sizes["WIDTH"] * WIDTHS[types["keys"]]
    if launch.kernel == "soft_kernel":
        return 1e-3 * sizes["IDS"] * (sizes["ROWS"] * WIDTHS[types["probs"]] + sizes["GROUPS"] * GROUP)
    rows = types["x"] if "x" in types else types["hidden"]
    weights = GROUP / 2 if sizes["NF4"] else WIDTHS[types["codes"]] * GROUP
    twice = launch.kernel == "gate_up_kernel" or sizes.get("GATED", False)
    return 1e-3 * (sizes["ROWS"] * GROUP * WIDTHS[rows] + sizes["COLUMNS"] * weights * (1 + twice)) * _groups(sizes)


def _groups(sizes: dict[str, Any]) -> int:
    """Groups of 64 inputs in one pass: loops of `quant.cuda.overlapped_kernels` have two."""
    return 2 if "STAGES" in sizes else 1


def main(cards: list[int]) -> None:
    """Prints a line for each kernel and card."""
    print("per MFLOP: instructions of all warps, KB read, clocks to issue, on ALUs, in MIO;", end=" ")
    print("of one warp: all, on tensor cores, decoding, beside products of Hopper; KiB shared")
    for card in cards:
        launches = [one for one in launched(WAYS[1:2], mma_kind_of(card), [128]) if mflop(one) is not None]
        for launch, name in sorted(zip(launches, names(launches), strict=True), key=lambda pair: pair[1]):
            made = build(launch, card)
            body = innermost(instructions(made.asm["cubin"]))
            found = Counter(map(name_of, body))
            work = mflop(launch) or 1.0
            issue, alu, mio = (count / work for count in clocks(body, launch.warps))
            print(
                f"sm_{card}  {name:75} {len(body) * launch.warps / work:6.0f} {kilobytes(launch) / work:5.1f}  "
                f"{issue:5.0f} {alu:5.0f} {mio:5.0f}  {len(body):5} "
                f"{sum(found[kind] for kind in TENSOR):4} {sum(found[kind] for kind in DECODING):4} "
                f"{beside_products(body):4} {made.metadata.shared / 1024:5.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main(cards_of_command_line(__doc__, (86, 90, 120)))
