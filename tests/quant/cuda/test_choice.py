"""Which modules are replaced on a card, what is said if none can be, and the switches."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from quant.codecs import CODECS
from quant.cuda import choice
from quant.cuda.embedding import CudaEmbedding
from quant.cuda.experts import CudaExperts
from quant.cuda.support import why_unsupported
from quant.cuda.switches import is_sparse
from quant.cuda.tiles import Activations
from quant.modules import QuantEmbedding, QuantExperts, QuantLinear, QuantTensor
from quant.switch import SwitchError
from quant.unsupported import Unsupported
from tests.gpu.kernels import DEVICE, needs_triton
from tests.localdiff.bench.step.small import small_subject
from tests.models.quantized import plain_experts

CARD = torch.device("cuda", 0)


def model() -> nn.Module:
    layers = nn.ModuleList(nn.Module() for _ in range(3))
    for layer, codecs in zip(layers, (("int8", "int8"), ("nf4", "nf4"), ("nf4", "nf4")), strict=True):
        layer.experts = plain_experts(*codecs)
    return layers


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)


@pytest.mark.usefixtures("works")
@needs_triton
def test_experts_are_replaced_layer_by_layer() -> None:
    network = model()
    prepared = choice.use_cuda_modules(network, CARD)
    assert all(isinstance(layer.experts, CudaExperts) for layer in network.children())
    assert prepared.paths == (
        "experts (1): w8a16, grouped, Triton",
        "experts (2): w4a16, grouped, Triton",
    )
    assert prepared.warning is None


@pytest.mark.usefixtures("works")
@needs_triton
def test_what_is_to_be_kept_stays_plain() -> None:
    network = model()
    assert choice.use_cuda_modules(network, CARD, keep={"1.experts"}).paths == (
        "experts (1): w8a16, grouped, Triton",
        "experts (1): w4a16, grouped, Triton",
    )
    assert [type(layer.experts) for layer in network.children()] == [CudaExperts, QuantExperts, CudaExperts]


@pytest.mark.usefixtures("works")
@needs_triton
@pytest.mark.parametrize(
    ("version", "plain", "expected"), [((3, 7), "", True), ((3, 8), "", False), ((3, 7), "byte-table", False)]
)
def test_a_table_of_bytes_is_for_a_triton_that_leaves_it_room(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], plain: str, expected: bool
) -> None:
    monkeypatch.setattr(choice, "triton_version", lambda: version)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", plain)
    made = []
    right = choice.CudaExperts

    def noted(module: nn.Module, *, activations: Activations, byte_table: bool) -> CudaExperts:
        made.append(byte_table)
        return right(module, activations, byte_table=byte_table)

    monkeypatch.setattr(choice, "CudaExperts", noted)
    choice.use_cuda_modules(model()[:1], CARD)
    assert made == [expected]


@pytest.mark.usefixtures("works")
@needs_triton
def test_experts_as_published_are_replaced_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """This lets a step in bf16 be recorded: the plain ones ask the host how many rows each expert gets."""
    network = small_subject("bf16").network.to(DEVICE)
    assert not any(layer.experts.can_be_captured for layer in network.layers)
    plain = [layer.experts for layer in network.layers]
    assert choice.use_cuda_modules(network, CARD).paths == ("experts (4): fp32, grouped, Triton",)
    x = torch.randn(9, 64, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    for layer, before in zip(network.layers, plain, strict=True):
        assert layer.experts.can_be_captured
        index, weight = layer.router(x)
        torch.testing.assert_close(layer.experts(x, index, weight), before(x, index, weight), atol=1e-5, rtol=1e-4)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "experts")
    assert choice.use_cuda_modules(small_subject("bf16").network, CARD) == choice.CudaChoice()


@pytest.mark.usefixtures("works")
@needs_triton
def test_a_part_that_leaves_again_leaves_no_plain_module_behind() -> None:
    """Experts as published share memory with the plain ones: if those stayed, a GPU would hold two layers at a time."""
    network = small_subject("bf16").network
    plain, gone = [weakref.ref(layer.experts) for layer in network.layers], []

    def arriving() -> Iterator[choice.ModelPart]:
        for index, layer in enumerate(network.layers):
            yield choice.ModelPart(path=f"layers.{index}", module=layer, device=CARD)
            gone.append(plain[index]() is None)

    absent = [path for path, _ in network.named_modules() if path.startswith("layers.")]
    choice.use_cuda_modules(network, CARD, absent=absent, parts=arriving())
    assert all(isinstance(layer.experts, CudaExperts) for layer in network.layers)
    assert gone == [True] * len(network.layers)


@pytest.mark.usefixtures("works")
@needs_triton
def test_switches_choose_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_EXPERTS", "a8")
    assert choice.use_cuda_modules(model(), CARD).paths[1] == "experts (2): w4a8, grouped, Triton"
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "experts")
    network = model()
    assert choice.use_cuda_modules(network, CARD) == choice.CudaChoice()
    assert all(isinstance(layer.experts, QuantExperts) for layer in network.children())
    monkeypatch.setenv("LOCALDIFF_CUDA_EXPERTS", "a4")
    with pytest.raises(SwitchError, match="LOCALDIFF_CUDA_EXPERTS=a4 must be a16 or a8"):
        choice.use_cuda_modules(network, CARD)


@pytest.mark.usefixtures("works")
@needs_triton
def test_activations_are_rounded_where_no_variable_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded() -> set[str]:
        network = small_subject("4bit").network
        made = choice.use_cuda_modules(network, CARD, activations="a8")
        kinds = {path.partition(" (")[0] for path in made.paths if "a8, " in path}
        assert choice.rounds_activations(network) == bool(kinds)
        return kinds

    assert rounded() == {"experts", "linear layers", "embedding"}
    monkeypatch.setenv("LOCALDIFF_CUDA_EXPERTS", "a16")
    assert rounded() == {"linear layers", "embedding"}
    monkeypatch.setenv("LOCALDIFF_CUDA_DENSE", "a16")
    assert rounded() == set()
    monkeypatch.delenv("LOCALDIFF_CUDA_EXPERTS")
    as_published = small_subject("bf16").network
    made = choice.use_cuda_modules(as_published, CARD, activations="a8")
    assert made.paths == ("experts (4): fp32, grouped, Triton",) and not choice.rounds_activations(as_published)


@pytest.mark.parametrize("variable", ["PLAIN", "EXPERTS", "DENSE", "SOFT"])
def test_an_invalid_switch_is_an_error_where_nothing_is_replaced_too(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(f"LOCALDIFF_CUDA_{variable}", "a4")
    with pytest.raises(SwitchError, match=f"^LOCALDIFF_CUDA_{variable}"):
        choice.use_cuda_modules(nn.Linear(2, 2), CARD)


def test_self_conditioning_is_exact_unless_it_is_asked_to_be_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_sparse()
    for value in ("exact", "sparse"):
        monkeypatch.setenv("LOCALDIFF_CUDA_SOFT", value)
        assert is_sparse() == (value == "sparse")


@pytest.mark.usefixtures("works")
@needs_triton
def test_dense_layers_and_embedding_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but a weight that does not divide into the columns of a program."""
    network = small_subject("4bit").network
    paths = choice.use_cuda_modules(network, CARD).paths
    assert [path.partition(": ")[2] for path in paths if not path.startswith("experts")] == [
        "w8a16, Triton",
        "w8a16, Triton",
    ]
    assert isinstance(network.embed_tokens, CudaEmbedding)
    left = [module for module in network.modules() if type(module) is QuantLinear]
    assert left
    assert all(module.weight.shape[0] % 64 for module in left)

    monkeypatch.setenv("LOCALDIFF_CUDA_DENSE", "a8")
    paths = choice.use_cuda_modules(small_subject("4bit").network, CARD).paths
    assert any(path.startswith("linear layers") and path.endswith("w8a8, Triton") for path in paths)
    assert "embedding (1): w8a8, Triton" in paths


@pytest.mark.usefixtures("works")
@needs_triton
@pytest.mark.parametrize(("codec", "ids", "fast"), [("int8", 128, True), ("int8", 100, False), ("nf4", 128, False)])
def test_which_embeddings_are_replaced(codec: str, ids: int, fast: bool) -> None:
    """Those that are stored in the kernels' format, and divide into the columns of a program."""
    embedding = QuantEmbedding(CODECS[codec], ids, 64, torch.float32)
    embedding.weight = QuantTensor.of(CODECS[codec], torch.ones(ids, 64))
    owner = nn.ModuleList([embedding])
    choice.use_cuda_modules(owner, CARD)
    assert isinstance(owner[0], CudaEmbedding) == fast


@pytest.mark.usefixtures("works")
@needs_triton
@pytest.mark.parametrize(
    ("codec", "rows", "plain", "path"),
    [
        ("nf4", 64, "", "w4a16, Triton"),
        ("nf4", 64, "decode", "w4a16, Triton"),
        ("nf4", 64, "dense", "decoded in one launch, then multiplied"),
        ("nf4", 64, "dense,decode", None),
        ("nf4", 40, "", "decoded in one launch, then multiplied"),
        ("nf4", 40, "decode", None),
        ("int8", 64, "", "w8a16, Triton"),
        ("int8", 64, "dense", None),
        ("int8", 40, "", None),
    ],
)
def test_how_a_linear_layer_is_computed(
    monkeypatch: pytest.MonkeyPatch, codec: str, rows: int, plain: str, path: str | None
) -> None:
    """By a kernel, if its rows divide into programs; otherwise nf4 is decoded in one launch."""
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", plain)
    linear = QuantLinear(CODECS[codec], 64, rows)
    linear.weight = QuantTensor.of(CODECS[codec], torch.ones(rows, 64))
    owner = nn.ModuleList([linear])
    choice.use_cuda_modules(owner, CARD)
    assert getattr(owner[0], "path", None) == path


@pytest.mark.usefixtures("works")
@needs_triton
def test_dense_layers_and_embedding_are_switched_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "dense")
    assert choice.use_cuda_modules(small_subject("4bit").network, CARD).paths == (
        "experts (2): w8a16, grouped, Triton",
        "experts (2): w4a16, grouped, Triton",
    )


def test_what_is_missing_is_said_once_and_the_plain_way_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "why_unsupported", lambda _: Unsupported("Triton is not installed", "install it"))
    monkeypatch.setitem(sys.modules, "triton", None)
    network = model()
    prepared = choice.use_cuda_modules(network, CARD)
    assert prepared.warning is not None
    assert prepared.warning.startswith("Triton is not installed: ")
    assert prepared.warning.endswith("; install it")
    assert all(isinstance(layer.experts, QuantExperts) for layer in network.children())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_without_a_card_it_says_so() -> None:
    assert str(why_unsupported(CARD)) == "there is no CUDA device `cuda:0`"
