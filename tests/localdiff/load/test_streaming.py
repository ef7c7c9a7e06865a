"""Layers that take turns in one place on a device, which is a CPU here."""

from __future__ import annotations

import gc
import math
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from localdiff.load import streaming
from localdiff.load.streaming import ALIGNMENT, LayerStream

CPU = torch.device("cpu")
DEVICES = [CPU, pytest.param(torch.device("cuda", 0), marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True)
def everything_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams even the small layers of tests."""
    monkeypatch.setattr(streaming, "MIN_BYTES", 1)


class Product(nn.Module):
    """A weight, a view of a part of it, and a counter of passes."""

    def __init__(self, rows: int, seed: int) -> None:
        super().__init__()
        drawn = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(drawn, requires_grad=False)
        self.register_buffer("column", drawn[1:, 1])

    def forward(self, x: Tensor) -> Tensor:
        return self.weight @ x, self.column.clone()


def streamed(layers: list[nn.Module], device: torch.device = CPU, *, opening: nn.Module | None = None) -> LayerStream:
    stream = LayerStream(device)
    for layer in layers:
        stream.hold(layer)
    stream.start(opening or layers[0])
    return stream


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_layers_compute_what_they_did_in_any_order(device: torch.device) -> None:
    layers = [Product(rows, rows).to(device) for rows in (5, 2, 9)]
    x = torch.randn(3, 4).to(device)
    expected = [layer(x) for layer in layers]
    streamed(layers, device)
    for index in (0, 1, 2, 2, 0, 2, 1):
        for found, right in zip(layers[index](x), expected[index], strict=True):
            assert torch.equal(found, right)


def test_all_of_them_lie_in_one_place_of_the_size_of_the_largest() -> None:
    layers = [Product(rows, rows) for rows in (5, 100)]
    stream = streamed(layers)
    addresses = {layer.weight.untyped_storage().data_ptr() for layer in layers}
    assert len(addresses) == 1
    assert layers[0].weight.untyped_storage().nbytes() == -(-100 * 3 * 4 // ALIGNMENT) * ALIGNMENT
    assert stream.nbytes == sum(-(-rows * 3 * 4 // ALIGNMENT) * ALIGNMENT for rows in (5, 100))


def test_a_layer_that_is_held_takes_no_memory_on_the_device() -> None:
    layer = Product(5, 0)
    LayerStream(CPU).hold(layer)
    assert not layer.weight.untyped_storage().nbytes()
    assert not layer.column.untyped_storage().nbytes()


@pytest.mark.gpu
def test_a_gpu_copies_from_memory_that_is_locked(caplog: pytest.LogCaptureFixture) -> None:
    device = torch.device("cuda", 0)
    layers = [nn.Linear(512, 512, bias=False, device=device) for _ in range(4)]
    gc.collect()  # garbage of earlier tests
    before = torch.cuda.memory_allocated(device)
    streamed(layers, device)
    assert before - torch.cuda.memory_allocated(device) == 3 * layers[0].weight.nbytes
    assert not caplog.records


@pytest.mark.gpu
def test_a_gpu_computes_the_same_while_layers_are_copied() -> None:
    """Copies of 64 MB take longer than a pass, and the host runs ahead of both."""
    device = torch.device("cuda", 0)
    stays, *moved = layers = [nn.Linear(4096, 4096, bias=False, device=device) for _ in range(4)]
    x = torch.randn(256, 4096, device=device)

    @torch.inference_mode()
    def passed() -> Tensor:
        y = x
        for layer in layers:
            y = layer(y)
        return y

    expected = passed()
    streamed(moved, device, opening=stays)
    assert all(torch.equal(found, expected) for found in [passed() for _ in range(50)])


def test_small_tensors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MIN_BYTES", 100)
    layer = nn.ModuleList([nn.Linear(4, 4, bias=False), nn.Linear(5, 5, bias=False)])
    small, large = (one.weight for one in layer)
    before = small.data_ptr()
    stream = streamed([layer])
    assert small.data_ptr() == before
    assert stream.nbytes == ALIGNMENT
    assert large.data_ptr() != before


def test_addresses_stay_and_are_aligned() -> None:
    layers = [nn.ModuleList([nn.Linear(3, 1, bias=False), nn.Linear(3, 3, bias=False)]) for _ in range(2)]
    stream = streamed(layers)
    weights = [weight for layer in layers for weight in layer.parameters()]
    before = [weight.data_ptr() for weight in weights]
    for layer in (*layers, layers[0]):
        with stream.present(layer):
            assert [weight.data_ptr() for weight in weights] == before
    base = weights[0].untyped_storage().data_ptr()
    assert [(address - base) % ALIGNMENT for address in before] == [0] * 4


def test_the_layer_that_is_there_is_not_copied_again() -> None:
    layers = [Product(5, 0), Product(5, 1)]
    stream = streamed(layers)
    with stream.present(layers[0]):
        layers[0].weight.zero_()
    with stream.present(layers[0]):
        assert not layers[0].weight.any()
    with stream.present(layers[1]), stream.present(layers[0]):
        assert layers[0].weight.any()


def test_a_copy_that_fails_leaves_nothing_that_would_be_computed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [Product(5, 0), Product(5, 1)]
    x = torch.randn(3, 4)
    expected = [layer(x) for layer in layers]
    streamed(layers)
    layers[0](x)

    def torn(place: Tensor, *_: object, **__: object) -> Tensor:
        place.zero_()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "copy_", torn)
        with pytest.raises(KeyboardInterrupt):
            layers[1](x)
    for layer, right in zip(layers, expected, strict=True):
        assert torch.equal(layer(x)[0], right[0])


def test_two_threads_may_use_one_model() -> None:
    layers = [Product(rows, rows) for rows in (40, 50)]
    x = torch.randn(3, 4)
    expected = [layer(x)[0] for layer in layers]
    opening = Product(60, 60)
    streamed(layers, opening=opening)
    wrong: list[int] = []

    def work(first: int) -> None:
        for turn in range(300):
            index = (first + turn) % 2
            opening(x)
            if not torch.equal(layers[index](x)[0], expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_another_thread_reads_is_not_copied_over() -> None:
    layers, opening, x = [Product(5, 0), Product(5, 1)], Product(5, 2), torch.randn(3, 4)
    expected = layers[1].weight.clone()
    stream = streamed(layers, opening=opening)
    thread = threading.Thread(target=opening, args=(x,))
    with stream.present(layers[1]):
        thread.start()
        thread.join(0.2)
        assert torch.equal(layers[1].weight, expected)
    thread.join()
    assert not torch.equal(layers[1].weight, expected), "the first layer is there by now"


@settings(deadline=None, max_examples=60)
@given(
    shapes=st.lists(
        st.tuples(
            st.sampled_from([torch.uint8, torch.bfloat16, torch.float32]),
            st.lists(st.integers(1, 7), min_size=1, max_size=3),
            st.sampled_from(["whole", "transposed", "the end of another"]),
        ),
        min_size=1,
        max_size=6,
    ),
    layers=st.integers(1, 3),
)
def test_whatever_a_layer_holds_comes_back(shapes: list[tuple[torch.dtype, list[int], str]], layers: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "MIN_BYTES", 1)
        made = []
        for _ in range(layers):
            layer = nn.Module()
            for number, (dtype, shape, form) in enumerate(shapes):
                drawn = torch.randint(0, 200, (3 + math.prod(shape),)).to(dtype)
                tensor = (drawn[3:] if form == "the end of another" else drawn[3:].clone()).view(shape)
                layer.register_buffer(f"part{number}", tensor.T if form == "transposed" and len(shape) == 2 else tensor)
            made.append(layer)
        expected = [{name: tensor.clone() for name, tensor in layer.named_buffers()} for layer in made]
        stream = streamed(made)
        for layer, right in [*zip(made, expected, strict=True)] * 2:
            with stream.present(layer):
                for name, tensor in layer.named_buffers():
                    assert torch.equal(tensor, right[name])
