"""Quantized modules against decode-then-multiply, and against the model's own modules over decoded weights."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from localdiff.model.moe import Experts
from quant import instructions
from quant.codecs import CODECS
from quant.modules import QuantEmbedding, QuantExperts, QuantLinear, QuantTensor, swap_modules
from quant.modules.embedding import TiedEmbedding, probabilities
from quant.modules.experts import rows_by_expert
from quant.modules.linear import Linear
from tests.models import tiny

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = [torch.float32, torch.bfloat16]
WIDTH, INNER, EXPERTS, VOCAB = 128, 64, 5, 9000


@pytest.fixture(params=sorted(CODECS))
def codec_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def quantized(codec_name: str, *shape: int, device: str, seed: int = 0) -> QuantTensor:
    return QuantTensor.of(CODECS[codec_name], random(*shape, seed=seed).to(torch.bfloat16)).to(device)


def linear(codec_name: str, device: str) -> QuantLinear:
    module = QuantLinear(CODECS[codec_name], WIDTH, 96)
    module.weight = quantized(codec_name, 96, WIDTH, device=device)
    return module


def experts(gate_up: str, down: str, device: str) -> QuantExperts:
    module = QuantExperts(
        gate_up_codec=CODECS[gate_up], down_codec=CODECS[down], experts=EXPERTS, width=WIDTH, inner=INNER
    )
    module.gate_up_proj = quantized(gate_up, EXPERTS, 2 * INNER, WIDTH, device=device, seed=1)
    module.down_proj = quantized(down, EXPERTS, WIDTH, INNER, device=device, seed=2)
    return module


def embedding(codec_name: str, device: str, dtype: torch.dtype) -> QuantEmbedding:
    module = QuantEmbedding(CODECS[codec_name], VOCAB, WIDTH, dtype)
    module.weight = quantized(codec_name, VOCAB, WIDTH, device=device, seed=3)
    return module


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [(7,), (2, 3), (0,)], ids=str)
@pytest.mark.parametrize("has_bf16", [False, True])
def test_linear(
    codec_name: str,
    device: str,
    dtype: torch.dtype,
    rows: tuple[int, ...],
    has_bf16: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without CPU instructions for bf16 it computes in fp32, because torch is several times as slow in bf16 there."""
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: has_bf16)
    module = linear(codec_name, device)
    x = random(*rows, WIDTH, seed=9).to(device, dtype)
    compute = dtype if has_bf16 or device == "cuda" else torch.float32
    expected = F.linear(x.to(compute), module.weight.decode(compute))
    assert torch.equal(module(x), expected.to(dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("formats", [("nf4", "nf4"), ("nf4", "int8"), ("int8", "int8")], ids="-".join)
def test_experts(device: str, dtype: torch.dtype, formats: tuple[str, str]) -> None:
    module = experts(*formats, device)
    x = random(11, WIDTH, seed=4).to(device, dtype)
    index = torch.tensor([[row % EXPERTS, (row * 2 + 1) % EXPERTS] for row in range(11)])
    index[index == 3] = 1  # an expert without rows, and rows that choose one expert twice
    weight = random(11, 2, seed=5).abs().to(device)
    gate_up, down = module.gate_up_proj.decode(dtype), module.down_proj.decode(dtype)
    expected = torch.zeros(11, WIDTH, device=device)
    for row in range(11):
        for slot, expert in enumerate(index[row].tolist()):
            gate, up = (x[row] @ gate_up[expert].T).chunk(2)
            expected[row] += (F.gelu(gate, approximate="tanh") * up @ down[expert].T) * weight[row, slot]
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    result = module(x, index.to(device), weight)
    assert result.dtype == dtype
    assert torch.allclose(result.float(), expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_experts_compute_what_the_models_own_do_with_decoded_weights(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: True)  # else weights are not rounded to bf16 first
    module = experts("nf4", "int8", "cpu")
    own = Experts.__new__(Experts)
    nn.Module.__init__(own)
    own.gate_up_proj = nn.Parameter(module.gate_up_proj.decode(dtype))
    own.down_proj = nn.Parameter(module.down_proj.decode(dtype))
    x, index = random(6, WIDTH).to(dtype), torch.tensor([[0, 1], [4, 2], [1, 0], [2, 3], [3, 4], [0, 2]])
    weight = random(6, 2, seed=5).abs()
    assert torch.equal(module(x, index, weight), own(x, index, weight))


@pytest.mark.parametrize("has_bf16", [False, True])
def test_a_weight_as_published_is_multiplied_as_a_decoded_one(has_bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: has_bf16)
    compute = torch.bfloat16 if has_bf16 else torch.float32
    x, layer = random(7, WIDTH).bfloat16(), Linear(WIDTH, 64).bfloat16()
    assert torch.equal(layer(x), F.linear(x.to(compute), layer.weight.to(compute)).bfloat16())
    multiplied: list[torch.dtype] = []
    monkeypatch.setattr(F, "linear", lambda x, weight: multiplied.append(x.dtype) or x @ weight.T)
    own = Experts(tiny.config()).bfloat16()
    for weights in own.parameters():
        nn.init.normal_(weights)
    width = own.down_proj.shape[1]
    found = own(random(2, width).bfloat16(), torch.tensor([[0, 1], [1, 0]]), torch.ones(2, 2))
    assert found.dtype == torch.bfloat16 and found.isfinite().all()
    assert set(multiplied) == {compute}


@given(
    st.integers(1, 6).flatmap(
        lambda k: st.lists(st.permutations(range(6)).map(lambda order: order[:k]), min_size=1, max_size=9)
    )
)
def test_every_routed_row_is_grouped_once_in_order(index: list[list[int]]) -> None:
    table = torch.tensor(index)
    seen = set()
    for expert, rows, slots in rows_by_expert(table, 6):
        assert rows.tolist() == sorted(rows.tolist())
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            assert index[row][slot] == expert
            seen.add((row, slot))
    assert len(seen) == table.numel()


def test_experts_without_rows() -> None:
    module = experts("nf4", "nf4", "cpu")
    out = module(torch.zeros(0, WIDTH), torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2))
    assert out.shape == (0, WIDTH)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding(codec_name: str, device: str, dtype: torch.dtype) -> None:
    module = embedding(codec_name, device, dtype)
    matrix = module.weight.decode(dtype)
    ids = torch.tensor([[0, 5, VOCAB - 1], [4096, 4095, 5]], device=device)
    assert torch.equal(module.lookup(ids), matrix[ids])
    hidden = random(4, WIDTH, seed=6).to(device, dtype)
    logits = module.logits(hidden)
    assert (logits.shape, logits.dtype) == ((4, VOCAB), dtype)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-4
    assert torch.allclose(logits.float(), F.linear(hidden, matrix).float(), atol=tolerance * 30, rtol=tolerance)
    probs = logits.float().softmax(dim=-1)
    soft = module.soft(logits, logits.float().logsumexp(dim=-1))
    assert (soft.shape, soft.dtype) == ((4, WIDTH), dtype)
    assert torch.allclose(soft.float(), probs @ matrix.float(), atol=tolerance, rtol=tolerance)
    assert torch.equal(module.mean(probabilities(logits, logits.float().logsumexp(dim=-1), dtype)), soft)


def test_without_bf16_instructions_a_cpu_rounds_a_soft_embedding_once(
    codec_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: False)
    monkeypatch.setattr(QuantEmbedding, "chunk", 256)
    module = embedding(codec_name, "cpu", torch.bfloat16)
    logits = random(4, VOCAB, seed=8).to(torch.bfloat16)
    normalizer = logits.float().logsumexp(dim=-1)
    probs = probabilities(logits, normalizer, torch.bfloat16)
    exact = probs.double() @ module.weight.decode(torch.bfloat16).double()
    once = (exact.to(torch.bfloat16) - exact).norm()
    for soft in (module.soft(logits, normalizer), module.mean(probs)):
        assert (soft - exact).norm() < 1.01 * once


def test_embedding_computes_what_the_models_own_does_with_decoded_weights(codec_name: str) -> None:
    module = embedding(codec_name, "cpu", torch.float32)
    own = TiedEmbedding(VOCAB, WIDTH)
    own.weight = nn.Parameter(module.weight.decode(torch.float32))
    hidden = random(3, WIDTH, seed=7)
    ids = torch.tensor([7, 8000])
    logits = module.logits(hidden)
    assert own.dtype == module.dtype
    assert torch.equal(module.lookup(ids), own.lookup(ids))
    assert torch.allclose(logits, own.logits(hidden), atol=1e-4)
    normalizer = logits.logsumexp(dim=-1)
    assert torch.allclose(module.soft(logits, normalizer), own.soft(logits, normalizer), atol=1e-5)


class Model(nn.Module):
    """The parts of a model that a swap looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = TiedEmbedding(192, WIDTH)
        self.layers = nn.ModuleList([nn.ModuleDict({"up": nn.Linear(WIDTH, 64, bias=False), "experts": nn.Module()})])
        bank = self.layers[0]["experts"]  # type: ignore[index]
        bank.gate_up_proj = nn.Parameter(torch.empty(EXPERTS, 2 * INNER, WIDTH))
        bank.down_proj = nn.Parameter(torch.empty(EXPERTS, WIDTH, INNER))


SCHEMES = {
    "embed_tokens.weight": "int8",
    "layers.0.up.weight": "int8",
    "layers.0.experts.gate_up_proj": "nf4",
    "layers.0.experts.down_proj": "int8",
}


def test_a_swap_leaves_the_names_of_the_stored_parts() -> None:
    with torch.device("meta"):
        model = Model()
        swap_modules(model, SCHEMES, torch.bfloat16)
    assert set(model.state_dict()) == {f"{name}.{part}" for name in SCHEMES for part in ("codes", "scales")}


def test_a_swapped_model_takes_stored_parts() -> None:
    with torch.device("meta"):
        model = Model()
        shapes = {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}
        swap_modules(model, SCHEMES, torch.float32)
    encoded = {name: CODECS[scheme].encode(random(*shapes[name])) for name, scheme in SCHEMES.items()}
    state = {f"{name}.codes": parts.codes for name, parts in encoded.items()}
    state |= {f"{name}.scales": parts.scales for name, parts in encoded.items()}
    model.load_state_dict(state, strict=True, assign=True)
    weight = CODECS["int8"].decode(encoded["embed_tokens.weight"])
    assert torch.equal(model.embed_tokens.lookup(torch.tensor([3])), weight[[3]])


def test_what_is_kept_is_not_swapped() -> None:
    model = Model()
    swap_modules(model, {"layers.0.up.weight": "keep"}, torch.float32)
    assert isinstance(model.get_submodule("layers.0.up"), nn.Linear)


@pytest.mark.parametrize("schemes", [{"layers.0.experts.down_proj": "nf4"}, {"layers.0.up.weight": "nf4"}])
def test_what_cannot_be_swapped_is_refused(schemes: dict[str, str]) -> None:
    model = Model()
    model.get_submodule("layers.0").up = nn.Linear(WIDTH, 64, bias=True)
    with pytest.raises(ValueError, match=r"layers\.0\."):
        swap_modules(model, schemes, torch.float32)
