"""Which units the instructions of a loop keep busy, for lines as `cuobjdump` writes them."""

from __future__ import annotations

import pytest

from tests.bench.inner_loops import clocks, innermost
from tests.gpu.machine_code import name_of


@pytest.mark.parametrize(
    ("line", "alu", "mio"),
    [
        ("SHFL.IDX PT, R23, R10, R23, 0x101f", 0, 1),
        ("LDS.U16 R69, [R3+UR34+0x3000]", 0, 1),
        ("LDS.64 R10, [R54+0x2000]", 0, 2),
        ("LDSM.16.M88.4 R32, [R36+0x1000]", 0, 4),
        ("LDSM.16.MT88.2 R32, [R36]", 0, 2),
        ("LDSM.16.M88 R32, [R36]", 0, 1),
        ("@P1 LDG.E.U16 R18, desc[UR24][R22.64]", 0, 1),
        ("LDGSTS.E.BYPASS.128 [R21], desc[UR24][R18.64], P0", 0, 4),
        ("@!PT LDS RZ, [RZ]", 0, 0),
        ("SHF.R.U32.HI R23, RZ, 0x8, R69", 1, 0),
        ("F2FP.BF16.F32.PACK_AB R56, R56, R21", 1, 0),
        ("@P1 SEL R10, R19, 0xbf066b30, P0", 1, 0),
        ("FMUL R56, R18.reuse, R23", 0, 0),
        ("IMAD.MOV.U32 R8, RZ, RZ, 0x3f800000", 0, 0),
        ("UIADD3 UR16, UR16, 0x1, URZ", 0, 0),
        ("HMMA.16816.F32.BF16 R20, R24, R48, R20", 0, 0),
    ],
)
def test_instructions_keep_units_busy(line: str, alu: int, mio: int) -> None:
    """With eight warps: two clocks of all schedulers, four of the ALUs, eight of MIO for each 4 bytes of a lane."""
    assert clocks([line], 8) == (2, 4 * alu, 8 * mio)


def test_the_innermost_loop_is_the_shortest_with_a_product() -> None:
    lines = ["MOV R1, R2", "HMMA.16816.F32.BF16 R20, R24, R48, R20", "@P0 BRA 0x10", "FADD R1, R1, R2", "@P1 BRA 0x0"]
    code = [(16 * place, line) for place, line in enumerate(lines)]
    assert [name_of(line) for line in innermost(code)] == ["HMMA", "BRA"]
