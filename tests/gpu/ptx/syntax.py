"""Parses the text of a compiled kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

_COMMENT = re.compile(r"//[^\n]*")
_INSTRUCTION = re.compile(r"(?:@(!?)(%?\w+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_SKIPPED = (".loc", ".file", ".pragma", ".version", ".target", ".address_size", ".extern", ".global", ".section")

ALIGNED = 16
"""The alignment in bytes of each piece of shared memory that a kernel declares."""


@dataclass(frozen=True, slots=True)
class Register:
    """A register or a special register, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A constant, as its bits: an integer, or a float's."""

    bits: int


@dataclass(frozen=True, slots=True)
class Vector:
    """Several operands in braces."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """Memory at a register, a parameter or a symbol, plus some bytes."""

    base: str
    offset: int


Operand: TypeAlias = Register | Number | Vector | Address


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        parts: its name, split at the dots.
        guard: the predicate under which a thread takes part, and whether it is negated.
    """

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[str, bool] | None
    text: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel.

    Attributes:
        parameters: name and type of each.
        registers: type of each register by name, or by prefix if the kernel has a range of them.
        shared: bytes of each piece of shared memory that the kernel declares, by its name.
        labels: the instruction that follows each label.
        threads: threads of a block.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    registers: dict[str, str]
    shared: dict[str, int]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    threads: int

    def kind_of(self, register: str) -> str:
        """`pred`, `b16`, `b32` or `b64`."""
        return self.registers.get(register) or self.registers[register.rstrip("0123456789")]


def parse(text: str) -> Kernel:
    """The one kernel of a PTX module."""
    text = _COMMENT.sub("", text)
    text = re.sub(r"^\s*\.global[^;]*;", "", text, flags=re.MULTILINE)  # a library's strings, which no kernel reads
    header, _, body = text.partition("\n{")
    name = re.search(r"\.entry\s+(\w+)", header)
    threads = re.search(r"\.reqntid\s+(\d+)", header)
    if name is None or threads is None:
        raise ValueError("this is no PTX of one kernel that says how many threads a block has")
    parameters = tuple((found[1], found[0]) for found in re.findall(r"\.param\s+\.(\w+)[^,)]*?(\w+)\s*[,)\n]", header))
    body = body.partition("$L__func_end")[0]
    registers: dict[str, str] = {}
    shared: dict[str, int] = {}
    labels: dict[str, int] = {}
    instructions: list[Instruction] = []
    for statement in _statements(body):
        if statement.startswith(".reg"):
            _declare(statement, registers)
        elif statement.startswith(".shared"):
            _reserve(statement, shared)
        elif statement.endswith(":"):
            if labels.setdefault(statement[:-1], len(instructions)) != len(instructions):
                raise ValueError(f"two places are called {statement}")
        elif not statement.startswith(_SKIPPED):
            instructions.append(_instruction(statement))
    return Kernel(name[1], parameters, registers, shared, tuple(instructions), labels, int(threads[1]))


def _statements(body: str) -> list[str]:
    """Declarations, labels and instructions in order; braces of scopes are dropped, since their names do not clash."""
    found = []
    for line in re.split(r";|\n(?=\s*[$\w]+:)", body):
        rest = line.strip()
        while match := re.match(r"([$\w]+:)\s*|[{}]\s*|\.loc[^\n]*\n?\s*|\.pragma[^\n]*\n?\s*", rest):
            if match[1]:
                found.append(match[1])
            rest = rest[match.end() :]
        if rest:
            found.append(" ".join(rest.split()))
    return found


def _declare(statement: str, registers: dict[str, str]) -> None:
    match = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", statement)
    assert match is not None, statement
    kind = {"u16": "b16", "s16": "b16", "u32": "b32", "s32": "b32", "f32": "b32", "u64": "b64", "f64": "b64"}
    for name in match[2].split(","):
        name, told = re.sub(r"<\d+>", "", name.strip()), kind.get(match[1], match[1])
        if registers.setdefault(name, told) != told:
            raise ValueError(f"{name} is of two types, in scopes of its own: {statement}")


def _reserve(statement: str, shared: dict[str, int]) -> None:
    match = re.fullmatch(r"\.shared\s+\.align\s+(\d+)\s+\.b(\d+)\s+(\w+)\[(\d+)\]", statement)
    if match is None or int(match[1]) > ALIGNED:
        raise ValueError(f"no shared memory of a known kind: {statement}")
    if match[3] in shared:
        raise ValueError(f"two pieces of shared memory, in scopes of their own: {statement}")
    shared[match[3]] = int(match[2]) // 8 * int(match[4])


def _instruction(statement: str) -> Instruction:
    match = _INSTRUCTION.fullmatch(statement)
    if match is None:
        raise ValueError(f"no instruction: {statement}")
    guard = (match[2], match[1] == "!") if match[2] else None
    return Instruction(tuple(match[3].split(".")), _operands(match[4]), guard, statement)


def _operands(text: str) -> tuple[Operand, ...]:
    found, depth, start = [], 0, 0
    for place, character in enumerate(text + ","):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            if item := text[start:place].strip():
                found.append(_operand(item))
            start = place + 1
    return tuple(found)


def _operand(text: str) -> Operand:
    if text.startswith("{"):
        return Vector(_operands(text[1:-1]))
    if text.startswith("["):
        base, _, offset = (part.strip() for part in text[1:-1].partition("+"))
        return Address(base, int(offset or "0", 0))
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", text):
        return Number(int(text[2:], 16))
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        return Number(int(text.rstrip("U"), 0))
    return Register(text)
