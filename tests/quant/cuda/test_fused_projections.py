"""Products of the same rows fused into one, against the separate ones; what is held, and what cannot be stacked."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from quant.codecs import CODECS
from quant.cuda import tiles
from quant.cuda.fused_projections import FusedProjections, stack
from quant.cuda.linear import CudaLinear
from quant.modules import QuantLinear, QuantTensor
from quant.modules.linear import Linear
from tests.gpu.kernels import DEVICE, HALVES, assert_rounded_alike, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]

IN = 128
ROWS = (192, 64, 64)
KINDS = ["linear", "int8", "nf4", "int8 a16", "nf4 a16", "int8 a8", "nf4 a8"]


def part(kind: str, rows: int, *, width: int = IN, seed: int = 2) -> nn.Module:
    generator = torch.Generator().manual_seed(seed + rows)
    weight = (torch.randn(rows, width, generator=generator) / width**0.5).to(DEVICE)
    codec, _, activations = kind.partition(" ")
    if codec == "linear":
        made = Linear(width, rows).to(DEVICE)
        made.weight.data = weight
        return made
    with torch.device("meta"):
        quantized = QuantLinear(CODECS[codec], width, rows)
    quantized.weight = QuantTensor.of(CODECS[codec], weight)
    return CudaLinear(quantized, "a8" if activations == "a8" else "a16") if activations else quantized


def parts(kind: str, rows: tuple[int, ...] = ROWS) -> list[nn.Module]:
    return [part(kind, count, seed=place) for place, count in enumerate(rows)]


def rows_of(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, IN, generator=torch.Generator().manual_seed(count)).to(DEVICE, dtype)


def stacked(modules: list[nn.Module]) -> FusedProjections:
    made = stack(modules)
    assert made is not None
    return made


def tensors(module: nn.Module) -> list[torch.Tensor]:
    """The tensors that a module multiplies with, wherever it keeps them."""
    if isinstance(module, CudaLinear):
        return [module.product.codes, module.product.scales]
    return [*module.parameters(), *module.buffers()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 20])
def test_it_computes_what_each_computes(kind: str, count: int) -> None:
    modules, x = parts(kind), rows_of(count)
    expected = [module(x) for module in modules]
    found = stacked(modules)(x)
    assert [made.shape for made in found] == [(count, rows) for rows in ROWS]
    torch.testing.assert_close(list(found), expected, atol=3e-6, rtol=2e-5)
    alone = [module(x) for module in modules]
    torch.testing.assert_close(alone, expected, atol=3e-6, rtol=2e-5, msg="over views of what was stacked")


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_held_once_and_are_what_they_were(kind: str) -> None:
    modules = parts(kind)
    before = [[tensor.clone() for tensor in tensors(module)] for module in modules]
    names = [list(module.state_dict()) for module in modules]
    made = stacked(modules)
    assert not made.state_dict() and not list(made.children())
    assert [list(module.state_dict()) for module in modules] == names
    for module, was in zip(modules, before, strict=True):
        for tensor, old in zip(tensors(module), was, strict=True):
            assert torch.equal(tensor, old)
    for of_one_kind in zip(*(tensors(module) for module in modules), strict=True):
        storages = {tensor.untyped_storage().data_ptr() for tensor in of_one_kind}
        assert len(storages) == 1, "views of one tensor"
        assert of_one_kind[0].untyped_storage().nbytes() == sum(tensor.nbytes for tensor in of_one_kind)


@pytest.mark.parametrize("kind", ["int8 a16", "nf4 a16", "int8 a8", "nf4 a8"])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("count", [0, 3, 20])
def test_a_gate_in_the_same_launch(kind: str, dtype: torch.dtype, count: int) -> None:
    modules, x = parts(kind, (128, 128)), 3 * rows_of(count, dtype)
    gate, up = (module(x) for module in modules)
    expected = nn.functional.gelu(gate, approximate="tanh") * up
    made = stacked(modules)
    tolerance = {torch.float32: (1e-5, 2e-5), torch.float16: (6e-3, 3e-3), torch.bfloat16: (5e-2, 2.4e-2)}[dtype]
    found = made.gated(x)
    torch.testing.assert_close(found, expected, atol=tolerance[0], rtol=tolerance[1])
    if count:
        assert_rounded_alike(found, expected)


def test_more_rows_than_one_program_takes_and_axes_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiles.LINEAR, tiles.mma_kind(DEVICE), (tiles.Tile(16, 64, 4),))
    monkeypatch.setitem(tiles.GATED[tiles.mma_kind(DEVICE)], "a16", (tiles.Tile(16, 64, 4),))
    modules, x = parts("nf4 a16", (64, 64)), rows_of(40).view(2, 20, IN)
    gate, up = (module(x) for module in modules)
    made = stacked(modules)
    torch.testing.assert_close(list(made(x)), [gate, up], atol=3e-6, rtol=2e-5)
    expected = nn.functional.gelu(gate, approximate="tanh") * up
    torch.testing.assert_close(made.gated(x), expected, atol=1e-5, rtol=2e-5)


@pytest.mark.parametrize("kind", ["linear", "int8", "nf4"])
def test_through_torch_the_gate_is_another_launch(kind: str) -> None:
    assert stacked(parts(kind, (64, 64))).gated(rows_of(3)) is None


def test_what_cannot_be_stacked_stays_as_it_is() -> None:
    other_class = nn.Linear(IN, 64, device=DEVICE)
    half = part("linear", 64).half()
    for other in (
        part("int8", 64),
        part("int8 a16", 64),
        part("linear", 64, width=64),
        other_class,
        half,
        nn.Sequential(part("linear", 64)),
    ):
        modules = [part("linear", 64), other]
        before = [tensor.untyped_storage().data_ptr() for module in modules for tensor in module.parameters()]
        assert stack(modules) is None
        after = [tensor.untyped_storage().data_ptr() for module in modules for tensor in module.parameters()]
        assert after == before
    assert stack([part("int8", 64), part("nf4", 64)]) is None
    assert stack([part("int8 a16", 64), part("nf4 a16", 64)]) is None
    assert stack([part("int8 a16", 64), part("int8 a8", 64)]) is None


@pytest.mark.parametrize("kind", ["linear", "int8", "nf4 a16"])
def test_a_copy_of_a_model_stands_for_its_own_modules(kind: str) -> None:
    owner = nn.ModuleList(parts(kind))
    owner.stacked = stacked(list(owner))  # type: ignore[assignment]
    other, x = copy.deepcopy(owner), rows_of(3)
    made, own = other.stacked, [module for module in other.children() if not isinstance(module, FusedProjections)]
    assert isinstance(made, FusedProjections) and made.parts == tuple(own)
    torch.testing.assert_close(list(made(x)), [module(x) for module in own], atol=3e-6, rtol=2e-5)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("linear", "fp32"),
        ("int8", "decoded, then multiplied"),
        ("nf4 a16", "w4a16, Triton"),
        ("int8 a8", "w8a8, Triton"),
    ],
)
def test_it_says_how_it_computes(kind: str, path: str) -> None:
    assert stacked(parts(kind)).path == f"{path}, stacked"
