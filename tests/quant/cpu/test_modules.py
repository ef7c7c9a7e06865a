"""Every fast module against its plain twin."""

from __future__ import annotations

import re
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from quant.codecs import CODECS
from quant.cpu import choice
from quant.cpu.bitsandbytes_library import nf4_library
from quant.cpu.choice import use_cpu_modules
from quant.cpu.embedding import KEPT, LARGE, TAIL, Bf16Embedding, NativeEmbedding
from quant.cpu.experts import CpuExperts
from quant.cpu.int8_weight import has_int8_matmul, requantized
from quant.cpu.linear import Int8Linear, LastRows, NativeLinear
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.support import native_library
from quant.cpu.products import DecodedProduct, Int8Product, NativeProduct
from quant.cpu.switches import CPU_NATIVE, CPU_PATH
from quant.modules import QuantEmbedding, QuantExperts, QuantLinear, QuantTensor
from quant.modules.embedding import ChunkedEmbedding
from quant.switch import SwitchError
from quant.unsupported import Unsupported
from tests.models.native import HAS_KERNEL, needs_native

WIDTH, INNER, EXPERTS, VOCAB, TOP_K = 192, 192, 6, 2048, 3
needs_int8 = pytest.mark.skipif(not has_int8_matmul(), reason="this machine has no exact int8 product")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tensor(codec: str, *shape: int, seed: int = 0) -> QuantTensor:
    return QuantTensor.of(CODECS[codec], normal(*shape, seed=seed) * shape[-1] ** -0.5)


def linear(codec: str = "int8", out: int = 96) -> QuantLinear:
    module = QuantLinear(CODECS[codec], WIDTH, out)
    module.weight = tensor(codec, out, WIDTH)
    return module


def experts(gate_up: str, down: str) -> QuantExperts:
    module = QuantExperts(
        gate_up_codec=CODECS[gate_up], down_codec=CODECS[down], experts=EXPERTS, width=WIDTH, inner=INNER
    )
    module.gate_up_proj = tensor(gate_up, EXPERTS, 2 * INNER, WIDTH, seed=1)
    module.down_proj = tensor(down, EXPERTS, WIDTH, INNER, seed=2)
    return module


def embedding(dtype: torch.dtype = torch.bfloat16) -> QuantEmbedding:
    module = QuantEmbedding(CODECS["int8"], VOCAB, WIDTH, dtype)
    module.weight = tensor("int8", VOCAB, WIDTH, seed=3)
    return module


def routed(rows: int, seed: int = 4) -> tuple[Tensor, Tensor]:
    """Experts and weights; no row chooses expert 3, and every row chooses expert 0."""
    generator = torch.Generator().manual_seed(seed)
    others = torch.tensor([1, 2, 4, 5])
    picks = torch.stack([others[torch.randperm(4, generator=generator)[: TOP_K - 1]] for _ in range(rows)])
    index = torch.cat([picks, torch.zeros(rows, 1, dtype=torch.int64)], dim=1)
    return index, normal(rows, TOP_K, seed=seed).abs()


def relative(result: Tensor, expected: Tensor) -> float:
    return float((result.float() - expected.float()).norm() / expected.float().norm())


def native() -> NativeLibrary:
    if not HAS_KERNEL:
        pytest.skip("no C compiler, or another CPU or system")
    library = native_library()
    assert isinstance(library, NativeLibrary)
    return library


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(7,), (2, 3), (1,), (0,)], ids=str)
def test_native_linear(codec: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    plain = linear(codec)
    x = normal(*shape, WIDTH, seed=9).to(dtype)
    result = NativeLinear(plain, native())(x)
    assert (result.shape, result.dtype) == (plain(x).shape, dtype)
    assert not x.numel() or relative(result, plain(x)) < 0.02


def test_weights_with_gaps_are_copied() -> None:
    plain = linear("int8")
    gapped = linear("int8")
    gapped.weight.codes = plain.weight.codes.repeat_interleave(2, dim=1)[:, ::2]
    gapped.weight.scales = plain.weight.scales.repeat_interleave(2, dim=1)[:, ::2]
    x = normal(3, WIDTH)
    assert torch.equal(NativeLinear(gapped, native())(x), NativeLinear(plain, native())(x))


def test_the_native_product_does_not_mind_an_outlying_channel() -> None:
    """Each group has a scale of its own."""
    plain = linear("nf4")
    x = normal(8, WIDTH, seed=9)
    x[:, 5] = 300.0
    result = NativeLinear(plain, native())(x) - 300 * plain.weight.decode(torch.float32)[:, 5]
    x[:, 5] = 0
    assert relative(result, plain(x)) < 0.5  # relative to a thousandth of the sum
    assert relative(NativeLinear(plain, native())(x), plain(x)) < 0.02


@needs_int8
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(7,), (2, 3), (1,)], ids=str)
def test_int8_linear(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    plain = linear()
    fast = Int8Linear(plain, LastRows())
    x = normal(*shape, WIDTH, seed=9).to(dtype)
    result = fast(x)
    assert (result.shape, result.dtype) == (plain(x).shape, dtype)
    assert relative(result, plain(x)) < 0.02
    stored = plain.weight.decode(torch.float32)
    assert 0.001 < relative(requantized(plain.weight.codec, plain.weight.encoded).decode(), stored) < 0.02


@needs_int8
def test_int8_linear_is_the_product_of_what_it_holds() -> None:
    """Not just close to the plain one: exactly the product of its integers, the residual included."""
    plain = linear()
    x = normal(9, WIDTH, seed=9)
    x[2, 5], x[7, 11] = 90.0, -200.0
    rows = LastRows().of(x)
    assert rows.residual_rows.tolist() == [2, 7]
    weight = requantized(plain.weight.codec, plain.weight.encoded).decode()
    assert torch.allclose(Int8Linear(plain, LastRows())(x), rows.decode() @ weight.T, rtol=1e-5, atol=1e-5)


@needs_int8
def test_an_outlying_channel_costs_no_accuracy() -> None:
    plain = linear()
    x = normal(8, WIDTH, seed=9)
    x[:, 5] = 0
    outlying = x.clone()
    outlying[:, 5] = 100.0
    result = Int8Linear(plain, LastRows())(outlying) - 100 * plain.weight.decode(torch.float32)[:, 5]
    assert relative(result, plain(x)) < 0.1  # relative to a hundredth of the sum
    assert relative(Int8Linear(plain, LastRows())(outlying), plain(outlying)) < 0.02


def test_another_thread_never_gets_the_rows_of_another_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    last, first, second = LastRows(), normal(4, 64), normal(4, 64, seed=1)
    expected = last.of(first).codes
    meanwhile: list[torch.Tensor] = []

    def interrupted(x: torch.Tensor) -> weakref.ref[torch.Tensor]:
        monkeypatch.undo()
        meanwhile.append(last.of(first).codes)  # as another thread might at this very moment
        return weakref.ref(x)

    monkeypatch.setattr("quant.cpu.linear.weakref", SimpleNamespace(ref=interrupted))
    last.of(second)
    assert torch.equal(meanwhile[0], expected)


@needs_int8
def test_layers_with_the_same_rows_quantize_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []
    from quant.cpu import linear as linear_module

    quantize = linear_module.quantize_rows
    monkeypatch.setattr(linear_module, "quantize_rows", lambda x: calls.append(x.shape) or quantize(x))
    last = LastRows()
    first, second = Int8Linear(linear(), last), Int8Linear(linear(out=64), last)
    x, other = normal(4, WIDTH), normal(4, WIDTH, seed=1)
    y = first(x)
    second(x)
    assert len(calls) == 1
    assert not torch.equal(first(other), y)
    assert torch.equal(first(x), y)
    assert len(calls) == 3


PRODUCTS = [
    ("nf4", lambda t: DecodedProduct(t, torch.float32), 1e-5),
    ("int8", lambda t: DecodedProduct(t, torch.bfloat16), 2e-2),
    ("nf4", lambda t: DecodedProduct(t, torch.float32, nf4_library()), 1e-5),
    ("nf4", lambda t: DecodedProduct(t, torch.bfloat16, nf4_library()), 2e-2),
    ("int8", Int8Product, 2e-2),
    ("nf4", lambda t: NativeProduct(t, native()), 2e-2),
    ("int8", lambda t: NativeProduct(t, native()), 2e-2),
]


@pytest.mark.parametrize(("codec", "make", "tolerance"), PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("in_order", [True, False])
def test_products(codec: str, make: object, tolerance: float, dtype: torch.dtype, in_order: bool) -> None:
    if make is Int8Product and not has_int8_matmul():
        pytest.skip("this machine has no exact int8 product")
    weights = tensor(codec, EXPERTS, 64, WIDTH)
    product = make(weights)
    counts = [2, 0, 5, 1, 0, 3]
    x = normal(4, WIDTH).to(dtype)
    x[1, 3] = 70.0
    chosen = torch.arange(11) % 4
    result = product(x[chosen], None, counts) if in_order else product(x, chosen, counts)
    expert_of = torch.repeat_interleave(torch.arange(EXPERTS), torch.tensor(counts))
    expected = torch.einsum("pi,poi->po", x[chosen].float(), weights.decode(torch.float32)[expert_of])
    assert (result.shape, result.dtype) == (expected.shape, dtype)
    assert relative(result, expected) < max(tolerance, 5e-3 if dtype == torch.bfloat16 else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("formats", [("nf4", "nf4"), ("nf4", "int8"), ("int8", "int8")], ids="-".join)
@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("switch", ["auto", "off"])
def test_experts(
    monkeypatch: pytest.MonkeyPatch, formats: tuple[str, str], dtype: torch.dtype, rows: int, switch: str
) -> None:
    monkeypatch.setenv(CPU_PATH, "fast")
    monkeypatch.setenv(CPU_NATIVE, switch)
    model = nn.ModuleDict({"experts": experts(*formats)})
    plain = experts(*formats)
    use_cpu_modules(model)
    fast = model["experts"]
    assert isinstance(fast, CpuExperts)
    has_kernel = switch == "auto" and HAS_KERNEL
    assert ("native" in fast.path) == has_kernel
    assert fast.decodes == (not has_kernel and ("nf4" in formats or not has_int8_matmul()))
    x, (index, weight) = normal(rows, WIDTH, seed=5).to(dtype), routed(rows)
    result = fast(x, index, weight)
    assert result.dtype == dtype
    assert relative(result, plain(x.float(), index, weight)) < 0.03


def test_experts_without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_PATH, "fast")
    model = nn.ModuleDict({"experts": experts("nf4", "int8")})
    use_cpu_modules(model)
    out = model["experts"](torch.zeros(0, WIDTH), torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2))
    assert out.shape == (0, WIDTH)


@pytest.fixture(params=["native", "bf16"])
def fast_embedding(request: pytest.FixtureRequest) -> Bf16Embedding | NativeEmbedding:
    return Bf16Embedding(embedding()) if request.param == "bf16" else NativeEmbedding(embedding(), native())


def test_embedding_lookup_and_head_are_those_of_the_plain_one(fast_embedding: ChunkedEmbedding) -> None:
    plain = embedding()
    ids = torch.tensor([[0, 7], [VOCAB - 1, 7]])
    assert torch.equal(fast_embedding.lookup(ids), plain.lookup(ids))
    hidden = normal(5, WIDTH, seed=6).to(torch.bfloat16)
    limit = 0.02 if isinstance(fast_embedding, NativeEmbedding) else 5e-3
    assert relative(fast_embedding.logits(hidden), plain.logits(hidden)) < limit
    assert fast_embedding.logits(hidden).dtype == torch.bfloat16


def test_the_native_embedding_in_fp32() -> None:
    plain = embedding(torch.float32)
    fast = NativeEmbedding(plain, native())
    hidden, logits = normal(5, WIDTH, seed=6), normal(5, VOCAB, seed=7) * 12
    normalizer = logits.logsumexp(dim=-1)
    assert torch.equal(fast.lookup(torch.tensor([3])), plain.lookup(torch.tensor([3])))
    assert fast.logits(hidden).dtype == fast.soft(logits, normalizer).dtype == torch.float32
    assert relative(fast.logits(hidden), plain.logits(hidden)) < 0.02
    assert relative(fast.soft(logits, normalizer), plain.soft(logits, normalizer)) < 2 * TAIL


@pytest.mark.parametrize("spread", [0.1, 3.0, 12.0, 100.0])
def test_soft_embedding_of_flat_and_of_decided_rows(fast_embedding: ChunkedEmbedding, spread: float) -> None:
    logits = (normal(6, VOCAB, seed=7) * spread).to(torch.bfloat16)
    normalizer = logits.float().logsumexp(dim=-1)
    assert relative(fast_embedding.soft(logits, normalizer), embedding().soft(logits, normalizer)) < 1e-2


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each call multiplied with the whole embedding."""
    numbers = []
    soft = ChunkedEmbedding.soft

    def watch(plain: ChunkedEmbedding, logits: Tensor, normalizer: Tensor) -> Tensor:
        numbers.append(len(logits))
        return soft(plain, logits, normalizer)

    monkeypatch.setattr(ChunkedEmbedding, "soft", watch)
    return numbers


def sure_of(*ids: int) -> Tensor:
    """Logits of rows in which that many ids are equally probable, and no others."""
    logits = torch.full((len(ids), VOCAB), -30.0, dtype=torch.bfloat16)
    for row, number in zip(logits, ids, strict=True):
        row[:number] = 5.0
    return logits


def test_rows_take_the_shortest_way_that_is_exact_enough(dense: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[object, ...]] = []
    fast, logits = Bf16Embedding(embedding()), sure_of(KEPT[0], KEPT[0] + 1, VOCAB)
    sparse = fast._sum_most_probable

    def watch(logits: Tensor, normalizer: Tensor, rows: Tensor, kept: int, out: Tensor) -> Tensor:
        left = sparse(logits, normalizer, rows, kept, out)
        taken.append((kept, rows.tolist(), left.tolist()))
        return left

    monkeypatch.setattr(fast, "_sum_most_probable", watch)
    fast.soft(logits, logits.float().logsumexp(dim=-1))
    assert taken == [(KEPT[0], [0, 1, 2], [1, 2]), (KEPT[1], [1, 2], [2])]
    assert dense == [1]


def test_only_rows_of_many_ids_are_multiplied_whole(dense: list[int]) -> None:
    limit = int(LARGE * VOCAB)
    fast, plain, logits = NativeEmbedding(embedding(), native()), embedding(), sure_of(limit, limit + 1, 1, VOCAB)
    normalizer = logits.float().logsumexp(dim=-1)
    result = fast.soft(logits, normalizer)
    assert dense == [2]
    for row in range(len(logits)):
        assert relative(result[row], plain.soft(logits, normalizer)[row]) < 5e-3


def test_no_row_loses_more_than_the_tail() -> None:
    """With a codebook of ones the result is the sum of the probabilities."""
    fast = Bf16Embedding(embedding())
    fast.weight.fill_(1)
    stored = embedding()
    stored.weight.codes.fill_(1)
    stored.weight.scales.fill_(1)
    for kind in (fast, *([NativeEmbedding(stored, native())] if HAS_KERNEL else ())):
        for spread in (1.0, 4.0, 8.0):
            logits = (normal(32, VOCAB, seed=8) * spread).to(torch.bfloat16)
            mass = kind.soft(logits, logits.float().logsumexp(dim=-1)).float()
            assert float(mass.min()) > 1 - TAIL - 2**-8


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = embedding()
        self.up = linear()
        self.small = linear("nf4")
        self.experts = experts("nf4", "int8")


def kinds(model: nn.Module) -> list[type]:
    return [type(module) for module in model.children()]


PLAIN = [QuantEmbedding, QuantLinear, QuantLinear, QuantExperts]


@needs_int8
@pytest.mark.parametrize("switch", ["auto", "off"])
def test_what_is_replaced(monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setattr(choice, "has_amx", lambda: False)
    monkeypatch.setattr(choice, "has_bf16_matmul", lambda: True)
    monkeypatch.setenv(CPU_NATIVE, switch)
    has_kernel = switch == "auto" and HAS_KERNEL
    model, told = Whole(), []
    use_cpu_modules(model)
    assert kinds(model) == PLAIN  # all too small
    use_cpu_modules(model, min_weights=WIDTH * 96, progress=lambda done, of: told.append((done, of)))
    small = NativeLinear if has_kernel else QuantLinear
    assert kinds(model) == [NativeEmbedding if has_kernel else Bf16Embedding, Int8Linear, small, CpuExperts]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    words = model.experts.path
    assert words.startswith("nf4 by int8, native, ") if has_kernel else "int8 by rows" in words


@needs_native
def test_the_kernel_stands_in_for_int8_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_int8_matmul", lambda: False)
    monkeypatch.setenv(CPU_PATH, "fast")
    model = Whole()
    use_cpu_modules(model)
    assert kinds(model)[1:] == [NativeLinear, NativeLinear, CpuExperts]


@needs_native
@pytest.mark.parametrize(
    ("has_amx", "dtype", "expected"),
    [
        (False, torch.bfloat16, NativeEmbedding),
        (False, torch.float32, NativeEmbedding),
        (True, torch.bfloat16, Bf16Embedding),
        (True, torch.float32, NativeEmbedding),
    ],
)
def test_with_amx_the_head_is_multiplied_in_bf16_where_the_kernel_has_no_tiles(
    monkeypatch: pytest.MonkeyPatch, has_amx: bool, dtype: torch.dtype, expected: type
) -> None:
    monkeypatch.setattr(choice, "has_amx", lambda: has_amx)
    monkeypatch.setattr(native(), "has_tiles", False)
    monkeypatch.setattr(choice, "has_bf16_matmul", lambda: True)
    monkeypatch.setenv(CPU_PATH, "fast")
    model = nn.ModuleDict({"embed_tokens": embedding(dtype)})
    use_cpu_modules(model)
    assert kinds(model) == [expected]


@needs_native
def test_an_embedding_in_nf4_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_bf16_matmul", lambda: True)
    monkeypatch.setenv(CPU_PATH, "fast")
    stored = QuantEmbedding(CODECS["nf4"], VOCAB, WIDTH, torch.bfloat16)
    stored.weight = tensor("nf4", VOCAB, WIDTH)
    model = nn.ModuleDict({"embed_tokens": stored})
    use_cpu_modules(model)
    assert kinds(model) == [Bf16Embedding]


@needs_native
def test_a_shape_that_the_kernel_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_PATH, "fast")
    model = nn.ModuleDict({"odd": linear("nf4", out=90), "even": linear("nf4")})
    use_cpu_modules(model)
    assert kinds(model) == [QuantLinear, NativeLinear]


@needs_int8
@pytest.mark.parametrize("switch", ["auto", "off"])
def test_nothing_takes_more_than_there_is_to_spare(monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv(CPU_PATH, "fast")
    monkeypatch.setenv(CPU_NATIVE, switch)
    monkeypatch.setattr(choice, "has_amx", lambda: False)
    monkeypatch.setattr(choice, "has_bf16_matmul", lambda: True)
    has_kernel = switch == "auto" and HAS_KERNEL
    small = NativeLinear if has_kernel else QuantLinear
    # One scale of 4 bytes per row, where each group of 64 had one of 2 bytes.
    head, up, down = VOCAB * (WIDTH - 6), 96 * (4 - 6), EXPERTS * WIDTH * (4 - 6)
    made = [choice._fast(module, LastRows(), 0) for module in Whole().children()]
    assert sum(fast.extra_bytes for fast in made if fast) == (up if has_kernel else up + down + head)
    for spare, has_room in ((0, False), (head - 1, False), (head, True), (None, True)):
        model = Whole()
        use_cpu_modules(model, spare=spare)
        if has_kernel:  # it reads the stored codes of everything else
            assert kinds(model) == [NativeEmbedding, Int8Linear, small, CpuExperts]
        else:
            assert kinds(model) == [Bf16Embedding if has_room else QuantEmbedding, Int8Linear, small, CpuExperts]


@pytest.mark.parametrize("switch", ["auto", "off"])
def test_experts_whose_codes_are_read_take_nothing(monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv(CPU_PATH, "fast")
    monkeypatch.setenv(CPU_NATIVE, switch)
    formats = ("nf4", "int8") if switch == "auto" and HAS_KERNEL else ("nf4", "nf4")
    model = nn.ModuleDict({"experts": experts(*formats)})
    use_cpu_modules(model, spare=0)
    assert isinstance(model["experts"], CpuExperts)


@pytest.mark.parametrize(
    ("unsupported", "words"),
    [
        (
            Unsupported("there is no C compiler", "install one"),
            r"there is no C compiler: experts are decoded .*; install one",
        ),
        (Unsupported("there is no kernel for this machine", ""), None),
    ],
)
def test_what_is_missing_is_said_where_something_can_be_done(
    unsupported: Unsupported, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CPU_PATH, "fast")
    monkeypatch.setattr(choice, "native_library", lambda: unsupported)
    assert use_cpu_modules(nn.ModuleDict({"up": linear()})) is None
    warning = use_cpu_modules(Whole())
    assert warning is None if words is None else warning is not None and re.fullmatch(words, warning)


def test_a_switch_that_says_nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_PATH, "quick")
    with pytest.raises(SwitchError, match="LOCALDIFF_CPU_PATH=quick must be auto, plain or fast"):
        use_cpu_modules(nn.Module())


def test_the_switch_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_PATH, "plain")
    model = Whole()
    use_cpu_modules(model, min_weights=0)
    assert kinds(model) == PLAIN


def test_a_machine_that_can_do_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_int8_matmul", lambda: False)
    monkeypatch.setattr(choice, "has_bf16_matmul", lambda: False)
    monkeypatch.setattr(choice, "nf4_library", lambda: None)
    monkeypatch.setattr(choice, "native_library", lambda: Unsupported("it is switched off", ""))
    monkeypatch.setenv(CPU_PATH, "fast")
    model, plain = Whole(), experts("nf4", "int8")
    use_cpu_modules(model)
    assert kinds(model) == [QuantEmbedding, QuantLinear, QuantLinear, CpuExperts]
    assert model.experts.path == "decoded to fp32, multiplied through torch"
    x, (index, weight) = normal(9, WIDTH), routed(9)
    assert torch.allclose(model.experts(x, index, weight), plain(x, index, weight), atol=1e-4)


def test_what_has_no_weights_yet_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_PATH, "fast")
    model = Whole()
    model.up.weight.to("meta")
    use_cpu_modules(model)
    assert type(model.up) is QuantLinear
