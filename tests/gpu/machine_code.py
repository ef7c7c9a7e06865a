"""Machine code of a compiled kernel, and what can be seen in it without a GPU.

Knows instructions as `cuobjdump` writes them; Triton ships that tool.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

Code: TypeAlias = Sequence[tuple[int, str]]
"""Addresses and instructions."""

_WITHOUT_RESULT = {
    *("BAR", "BRA", "BSSY", "BSYNC", "CALL", "CCTL", "DEPBAR", "ERRBAR", "EXIT", "FENCE", "HGMMA", "IGMMA"),
    *("LDGDEPBAR", "LDGSTS", "MEMBAR", "NOP", "RED", "RET", "ST", "STG", "STL", "STS", "STSM"),
    *("WARPGROUP", "WARPSYNC"),
}
_ASYNCHRONOUS = re.compile(r"[HI]GMMA\.\S+ R\d+, R(\d+), gdesc")
"""A matrix instruction of Hopper whose first operand is in registers: four, starting with this one."""
_WAIT = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0\b")
_BACK = re.compile(r"BRA\S*\s.*?0x([0-9a-f]+)")


def instructions(cubin: bytes) -> list[tuple[int, str]]:
    """Addresses and instructions of a kernel."""
    lines = re.findall(r"^\s+/\*([0-9a-f]{4,5})\*/\s+(.*?);", cuobjdump(cubin, "-sass"), re.MULTILINE)
    return [(int(at, 16), line.strip()) for at, line in lines]


def cuobjdump(cubin: bytes, option: str) -> str:
    """What the tool says of a kernel."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run([tool, option, file.name], capture_output=True, text=True, check=True)
    return told.stdout + told.stderr


def name_of(instruction: str) -> str:
    """The name without predicate, modifiers and operands."""
    return _unpredicated(instruction).split()[0].split(".")[0]


def loops(code: Code) -> Iterator[list[tuple[int, str]]]:
    """The code between each backward branch and its target."""
    for at, line in code:
        target = _BACK.search(line)
        if target and int(target[1], 16) < at:
            yield [(place, inner) for place, inner in code if int(target[1], 16) <= place <= at]


def beside_products(body: Sequence[str]) -> int:
    """Instructions of a loop that are issued while a matrix instruction of Hopper is still running."""
    under_way = False
    for _ in range(2):  # the first turn only tells whether one is running when the loop begins
        count = 0
        for line in map(_unpredicated, body):
            if name_of(line) in ("HGMMA", "IGMMA"):
                under_way = True
            elif _WAIT.match(line):
                under_way = False
            else:
                count += under_way
    return count


def overwritten_operands(code: Code) -> list[str]:
    """Instructions that write registers from which a matrix instruction of Hopper may still read.

    Matrix instructions are asynchronous, and what they read must stay until they are waited for; a loop is followed
    from its end into its beginning. Assemblers have got this wrong (https://github.com/triton-lang/triton/pull/11781),
    and so have compilers (https://github.com/triton-lang/triton/issues/9433).
    """
    found = []
    for part in (list(code), *(2 * body for body in loops(code))):
        being_read: set[int] = set()
        for at, line in part:
            plain = _unpredicated(line)
            if operand := _ASYNCHRONOUS.match(plain):
                being_read |= set(range(int(operand[1]), int(operand[1]) + 4))
            elif _WAIT.match(plain):
                being_read.clear()
            elif being_read & _written(plain):
                found.append(f"{at:#x} {line}")
    return list(dict.fromkeys(found))


def _written(instruction: str) -> set[int]:
    name, _, operands = instruction.partition(" ")
    base, *modifiers = name.split(".")
    register = re.match(r"(?:U?P\w+, )?R(\d+)\b", operands)
    if base in _WITHOUT_RESULT or register is None:
        return set()
    count = 1
    if base == "LDSM":  # one register per matrix
        count = int(modifiers[-1]) if modifiers[-1].isdigit() else 1
    elif "128" in modifiers:
        count = 4
    elif "64" in modifiers or "WIDE" in modifiers:
        count = 2
    return set(range(int(register[1]), int(register[1]) + count))


def _unpredicated(instruction: str) -> str:
    return re.sub(r"^@!?U?P\w+\s+", "", instruction)
