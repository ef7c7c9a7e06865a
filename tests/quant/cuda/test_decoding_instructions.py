"""The instructions that decode weights on a card, simulated one by one and compared with the codecs."""

from __future__ import annotations

import re
from itertools import product

import pytest
import torch

from quant.codecs import CODECS
from quant.codecs.codec import Encoded
from quant.codecs.nf4 import LEVELS
from quant.cuda.launch_arguments import byte_table
from tests.gpu.kernels import needs_triton

pytestmark = needs_triton


def test_the_table_of_byte_permutes_is_the_levels_in_int8() -> None:
    from quant.cuda.nf4_kernels import LEVELS_INT8

    assert tuple(round(127 * level) for level in LEVELS) == LEVELS_INT8


def test_the_permutations_of_bytes_decode_every_pair_of_codes() -> None:
    """The instructions are simulated one by one, as the PTX manual defines them."""
    from quant.cuda.nf4_kernels import DECODE, LEVELS_INT8

    pairs = [a | b << 4 for a, b in product(range(16), range(16))]
    for start in range(0, 256, 4):
        four = pairs[start : start + 4]
        low, high = followed(DECODE, int.from_bytes(bytes(four), "little"))
        assert low == bytes(LEVELS_INT8[pair & 15] & 255 for pair in four)
        assert high == bytes(LEVELS_INT8[pair >> 4] & 255 for pair in four)


def followed(program: str, word: int) -> tuple[bytes, bytes]:
    held = {"$2": word}

    def value(name: str) -> int:
        return int(name, 0) if name[0].isdigit() else held[name]

    for operation, operands in re.findall(r"^(and|or|shr|prmt)\.b32 (.*);$", program, re.MULTILINE):
        target, *names = operands.split(", ")
        a, b, *selector = (value(name) for name in names)
        if operation == "prmt":
            source = (a | b << 32).to_bytes(8, "little")
            nibbles = [selector[0] >> 4 * place & 15 for place in range(4)]
            assert all(nibble < 8 for nibble in nibbles), "the fourth bit would replicate the sign"
            held[target] = int.from_bytes(bytes(source[nibble] for nibble in nibbles), "little")
        else:
            held[target] = {"and": a & b, "or": a | b, "shr": a >> b}[operation]
    return held["$0"].to_bytes(4, "little"), held["$1"].to_bytes(4, "little")


@pytest.mark.parametrize("name", ["2", "4", "by lanes"])
def test_the_exchange_between_lanes_decodes_every_pair_of_codes(name: str) -> None:
    """Thirty-two lanes execute the instructions side by side, as the PTX manual defines them."""
    from quant.cuda.nf4_kernels import EXCHANGE, EXCHANGE_BY_LANES

    program, count = (EXCHANGE_BY_LANES, 4) if name == "by lanes" else (EXCHANGE[int(name)], int(name))
    pairs = [a | b << 4 for a, b in product(range(16), range(16))]
    for first in range(0, 256, 32 * count):
        lanes = [pairs[start : start + count] for start in range(first, first + 32 * count, count)]
        words = [int.from_bytes(bytes(several), "little") for several in lanes]
        found = exchanged(program, count, words, [lane & 15 for lane in range(32)])
        for several, levels_of_lane in zip(lanes, found, strict=True):
            low, high = [code & 15 for code in several], [code >> 4 for code in several]
            if name == "by lanes":
                assert levels_of_lane == [level for pair in zip(high, low, strict=True) for level in pair]
            else:
                assert levels_of_lane == low + high


def test_the_table_of_bytes_has_two_levels_in_a_word() -> None:
    """As the plain codec decodes the byte, rounded to bf16."""
    found = byte_table(torch.device("cpu")).view(torch.bfloat16).view(256, 2)
    encoded = Encoded(codes=torch.arange(256).byte().view(8, 32), scales=torch.ones(8, 1, dtype=torch.bfloat16))
    assert torch.equal(found, CODECS["nf4"].decode(encoded, torch.bfloat16).view(256, 2))


def exchanged(program: str, count: int, words: list[int], held: list[int]) -> list[list[int]]:
    """Results of every lane, two for each byte of its word; operands are the results, then the word, then `held`."""
    results: list[list[int]] = [[-1] * 2 * count for _ in words]
    codes = [0] * len(words)
    steps = re.findall(
        rf"^(?:shr\.b32 code, \${2 * count}, (\d+)"
        rf"|shfl\.sync\.idx\.b32 \$(\d), \${2 * count + 1}, code, (0x\w+), 0xffffffff);$",
        program,
        re.MULTILINE,
    )
    assert len(steps) == program.count("\n") - 2
    for shift, target, control in steps:
        if shift:
            codes = [word >> int(shift) for word in words]
            continue
        segment, clamp = int(control, 16) >> 8 & 31, int(control, 16) & 31
        for lane, code in enumerate(codes):
            source = lane & segment | code & 31 & ~segment
            assert source <= (lane & segment | clamp & ~segment), "a lane that is out of range gives its own value"
            results[lane][int(target)] = held[source]
    return results


@pytest.mark.parametrize("count", [2, 4])
def test_int8_times_bf16_is_rounded_once(count: int) -> None:
    """The instructions are simulated one by one, for every code times scales of many sizes."""
    from quant.cuda.weight_kernels import SCALE

    scales = torch.logspace(-30, 3, 128).bfloat16()
    for start in range(-128, 128, count):
        codes = list(range(start, start + count))
        for scale in scales[abs(start) // count % 16 :: 16]:
            expected = (torch.tensor(codes).float() * scale.float()).bfloat16()
            assert torch.equal(scaled(SCALE[count], codes, scale), expected), (codes, scale)


def scaled(program: str, codes: list[int], scale: torch.Tensor) -> torch.Tensor:
    """The results of a lane, as bf16; operands are the results, then the word of codes, then words of scales."""

    def halves(word: int) -> torch.Tensor:
        return torch.tensor([word & 0xFFFF, word >> 16], dtype=torch.int32).to(torch.int16).view(torch.bfloat16)

    def word(pair: torch.Tensor) -> int:
        low, high = (number & 0xFFFF for number in pair.view(torch.int16).tolist())
        return int(low | high << 16)

    words = len(codes) // 2
    held = {f"${words}": int.from_bytes(bytes(code & 255 for code in codes), "little")}
    held |= {f"${words + 1 + place}": word(scale.expand(2)) for place in range(words)}
    for operation, operands in re.findall(r"^(mov|prmt|and|fma)\S* (.*);$", program, re.MULTILINE):
        target, *names = operands.split(", ")
        a, *others = (int(name, 0) if name[0].isdigit() else held[name] for name in names)
        if operation == "prmt":
            source = (a | others[0] << 32).to_bytes(8, "little")
            a = int.from_bytes(bytes(source[others[1] >> 4 * place & 7] for place in range(4)), "little")
        elif operation == "and":
            a &= others[0]
        elif operation == "fma":
            b, c = map(halves, others)
            a = word((halves(a).double() * b.double() + c.double()).bfloat16())
        held[target] = a
    return torch.cat([halves(held[f"${place}"]) for place in range(words)])
