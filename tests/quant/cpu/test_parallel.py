"""Products shared out to threads: each is done once, in one thread, and errors are raised."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.codecs import CODECS
from quant.cpu.bitsandbytes_library import nf4_library
from quant.cpu.parallel import parallel_for, thread_count
from quant.cpu.products import DecodedProduct, ExpertProduct, Int8Product
from quant.modules import QuantTensor
from tests.fakes.threads import torch_threads


@pytest.fixture
def two_threads() -> Iterator[None]:
    with torch_threads(2):
        yield


@given(works=st.integers(1, 5), items=st.lists(st.integers(), max_size=40))
@settings(max_examples=30, deadline=None)
def test_every_item_is_done_once(works: int, items: list[int]) -> None:
    done: list[int] = []
    parallel_for([done.append] * works, items)
    assert sorted(done) == sorted(items)


def test_one_work_stays_in_the_calling_thread() -> None:
    seen: list[threading.Thread] = []
    parallel_for([lambda _: seen.append(threading.current_thread())], [0, 1])
    assert set(seen) == {threading.current_thread()}


def test_operations_of_several_works_have_one_thread_each(two_threads: None) -> None:
    seen: list[int] = []
    both = threading.Barrier(2)

    def work(_: int) -> None:
        both.wait(timeout=60)
        seen.append(torch.get_num_threads())

    parallel_for([work, work], [0, 1])
    assert seen == [1, 1]


def test_threads_that_start_later_are_as_before(two_threads: None) -> None:
    parallel_for([lambda _: None] * 3, [0])
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert (seen, torch.get_num_threads()) == ([2], 2)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()])
def test_threads_that_wait_for_others_end_where_those_do_not_start(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_two(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise error
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(type(error)):
        parallel_for([lambda _: None] * 7, [0])  # no other test has a pool of seven
    for thread in started:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_the_first_error_is_raised_after_the_others_have_done_the_rest() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 3:
            raise ValueError("item 3")
        done.append(item)

    with pytest.raises(ValueError, match="item 3"):
        parallel_for([work, work], range(8))
    assert sorted(done) == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("inference", [True, False])
def test_the_mode_is_that_of_the_caller(inference: bool) -> None:
    with torch.inference_mode(inference), torch.no_grad():
        out = torch.zeros(4)

        def work(item: int) -> None:
            out[item] = torch.ones(1).is_inference()

        parallel_for([work, work], range(4))
    assert out.tolist() == [float(inference)] * 4


def _product(kind: str, tensor: QuantTensor) -> ExpertProduct:
    if kind == "int8":
        return Int8Product(tensor)
    library = nf4_library()
    if kind == "decoded" or library is None:
        return DecodedProduct(tensor, torch.float32)
    return DecodedProduct(tensor, torch.bfloat16, library)


@pytest.mark.parametrize("kind", ["decoded", "library", "int8"])
@pytest.mark.parametrize("counts", [(5, 0, 3), (0, 0, 1), (1, 1, 1), (0, 40, 0)])
def test_the_same_bits_on_any_number_of_threads(kind: str, counts: tuple[int, ...]) -> None:
    if kind == "library" and nf4_library() is None:
        pytest.skip("bitsandbytes' CPU library is not there")
    codec = CODECS["int8" if kind == "int8" else "nf4"]
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(len(counts), 24, 128, generator=generator)
    rows = torch.randn(sum(counts), 128, generator=generator)
    product = _product(kind, QuantTensor.of(codec, weight))
    found = [_on(threads, lambda: product(rows, None, counts)) for threads in (1, 2, 3)]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def _on(threads: int, call: Callable[[], torch.Tensor]) -> torch.Tensor:
    with torch_threads(threads):
        return call()


@pytest.fixture
def twenty() -> Iterator[None]:
    with torch_threads(20):
        yield


def test_threads_are_all_or_a_power_of_two(twenty: None) -> None:
    asked = [0, 1, 2, 3, 4, 7, 8, 15, 16, 19, 20, 21, 1000]
    assert [thread_count(count) for count in asked] == [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 20, 20, 20]


def test_there_are_few_pools_of_threads(twenty: None) -> None:
    assert len({thread_count(count) for count in range(1, 5000)}) == 6
