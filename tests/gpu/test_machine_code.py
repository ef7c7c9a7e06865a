"""What is detected in machine code: lines as `cuobjdump` writes them, shortened from kernels for an H100."""

from __future__ import annotations

import pytest

from tests.gpu.machine_code import beside_products, loops, overwritten_operands

WAIT = "WARPGROUP.DEPBAR.LE gsb0, 0x0"
FIRST = "HGMMA.64x128x16.F32.BF16 R24, R88, gdesc[UR4], R24"
LAST = "HGMMA.64x128x16.F32.BF16 R24, R92, gdesc[UR20], R24, gsb0"


def code(*lines: str) -> list[tuple[int, str]]:
    return [(16 * place, line) for place, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("line", "overwrites"),
    [
        ("LDG.E.U16 R94, desc[UR16][R16.64]", True),
        ("@P2 IMAD.U32 R93, RZ, RZ, UR19", True),
        ("LDS.128 R92, [R3]", True),
        ("LDS.64 R90, [R3]", False),
        ("LDS.64 R91, [R3]", True),
        ("IMAD.WIDE R91, R5, 0x2, R6", True),
        ("LDSM.16.M88.4 R92, [R36]", True),
        ("LDSM.16.M88 R91, [R36]", False),
        ("LDSM.16.M88.2 R91, [R36]", True),
        ("ISETP.GE.AND P2, PT, R95, R0, PT", False),
        ("SHFL.IDX PT, R95, R1, R2, 0x101f", True),
        ("IMAD.U32 R96, RZ, RZ, UR19", False),
        ("STG.E [R92], R93", False),
        ("FADD R1, R92, R93", False),
    ],
)
def test_registers_that_are_still_read(line: str, overwrites: bool) -> None:
    found = overwritten_operands(code(LAST, line, WAIT))
    assert found == ([f"0x10 {line}"] if overwrites else [])
    assert overwritten_operands(code(LAST, WAIT, line)) == []
    assert overwritten_operands(code(line, LAST, WAIT)) == []


def test_a_loop_goes_on_at_its_beginning() -> None:
    """As Triton 3.7.1 and its assembler compiled a linear layer: the loop's next turn waits for the last product."""
    early, late = "LDG.E.U16 R94, desc[UR16][R16.64]", "LDG.E.U16 R94, desc[UR16][R18.64]"
    body = code("NOP", early, FIRST, WAIT, late, LAST, "@P2 BRA 0x10", WAIT, "EXIT")
    assert [len(loop) for loop in loops(body)] == [6]
    assert overwritten_operands(body) == [f"0x10 {early}"]
    assert overwritten_operands(code("NOP", early, FIRST, WAIT, late, LAST, WAIT, "@P2 BRA 0x10", "EXIT")) == []


def test_what_is_issued_while_a_product_is_under_way() -> None:
    assert beside_products(["MOV R1, R2", FIRST, "MOV R1, R2", LAST, "@P0 MOV R1, R2", WAIT, "BRA 0x0"]) == 2
    assert beside_products(["MOV R1, R2", WAIT, "MOV R1, R2", LAST, "BRA 0x0"]) == 2, "it goes on at the beginning"
    assert beside_products(["MOV R1, R2", "BRA 0x0"]) == 0


def test_operands_in_shared_memory_are_no_registers() -> None:
    assert overwritten_operands(code("HGMMA.64x64x16.F32.BF16 R56, gdesc[UR16], R56, gsb0", "MOV R56, RZ")) == []
