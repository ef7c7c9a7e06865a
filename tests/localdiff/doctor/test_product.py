"""Products are right here, and a wrong kernel would be found."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from localdiff.doctor.product import (
    LIMIT,
    PRODUCTS,
    Product,
    check_products,
    compute,
    inputs,
    integers,
    make_fast,
    modules_of,
    reference_output,
    relative_error,
    uniform,
)
from quant.codecs import CODECS
from quant.codecs.codec import Encoded
from quant.cpu.experts import CpuExperts
from quant.cuda.switches import EXPERTS
from quant.modules import QuantExperts, QuantLinear
from quant.switch import SwitchError

CPU = torch.device("cpu")


def test_words_are_the_same_everywhere() -> None:
    def word(place: int) -> int:
        value = place & 0xFFFFFFFF
        for factor, shift in ((0x2C1B3C6D, 15), (0x297A2D39, 12), (0x1B873593, 16)):
            value = ((value ^ (value >> shift)) * factor) & 0xFFFFFFFF
        return value ^ (value >> 15)

    assert integers(500, 3).tolist() == [word(place + 3_000_009) for place in range(500)]


def test_numbers_are_spread() -> None:
    numbers = uniform((100, 100), 5)
    assert -1 <= float(numbers.min()) < -0.99
    assert 0.99 < float(numbers.max()) <= 1
    assert abs(float(numbers.mean())) < 0.02
    assert len(set(numbers.flatten().tolist())) > 8000


def test_every_expert_is_used() -> None:
    _, index, _ = inputs()
    assert set(index.flatten().tolist()) == set(range(4))


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-4), (torch.bfloat16, LIMIT / 3)])
def test_products_are_right(product: Product, dtype: torch.dtype, limit: float) -> None:
    for number, module in enumerate(modules_of(product, CPU, dtype)):
        output, path = compute(product, module, CPU, dtype)
        fast_limit = 2 * LIMIT / 3  # activations in int8, or products in bf16
        assert relative_error(output, reference_output(product).float()) < (limit, fast_limit)[number]
        assert path


def test_this_machine_is_well() -> None:
    (finding,) = check_products(CPU)
    assert finding.status == "ok"
    assert finding.subject == "quantized layers on cpu"
    assert len(finding.details) == sum(len(list(modules_of(product, CPU, torch.bfloat16))) for product in PRODUCTS)
    assert len({*finding.details}) == len(finding.details), "each way of computing is named"


def test_experts_are_tried_as_a_large_model_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, fast = modules_of(PRODUCTS[0], CPU, torch.bfloat16)
    assert isinstance(plain, QuantExperts)
    assert isinstance(fast, CpuExperts)
    original = CpuExperts.forward
    monkeypatch.setattr(CpuExperts, "forward", lambda self, *args: 1.05 * original(self, *args))
    (finding,) = check_products(CPU)
    assert finding.text == "nf4 experts, int8 experts differ from what fp64 gives"


def test_a_switch_that_says_nonsense_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXPERTS, "fastest")
    with pytest.raises(SwitchError, match=EXPERTS):
        make_fast(nn.Module(), torch.device("cuda"))


def swapped_nibbles(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def decode(encoded: Encoded, dtype: torch.dtype = torch.float32) -> Tensor:
        codes = encoded.codes
        return original(Encoded(codes=(codes << 4) | (codes >> 4), scales=encoded.scales), dtype)

    return decode


def test_a_codec_that_reads_the_wrong_way_round_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = CODECS["nf4"].decode
    monkeypatch.setattr(type(CODECS["nf4"]), "decode", lambda self, *args: swapped_nibbles(original)(*args))
    (finding,) = check_products(CPU)
    assert finding.status == "fail"
    assert finding.text == "nf4 experts, nf4 linear differ from what fp64 gives"
    assert "--report" in (finding.advice or "")


@pytest.mark.parametrize(
    ("module", "name", "harm"),
    [
        (QuantLinear, "nf4 linear, int8 linear", lambda output: output * 1.05),
        (QuantLinear, "nf4 linear, int8 linear", lambda output: output.roll(1, dims=-1)),
        (QuantExperts, "nf4 experts, int8 experts", lambda output: torch.full_like(output, math.nan)),
        (QuantExperts, "nf4 experts, int8 experts", lambda output: output[:-1]),
    ],
)
def test_a_module_that_computes_wrongly_is_found(
    module: type,
    name: str,
    harm: Callable[[Tensor], Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = module.forward  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "forward", lambda self, *args: harm(original(self, *args)))
    (finding,) = check_products(CPU)
    assert finding.status == "fail"
    assert finding.text.startswith(f"{name} differ")
