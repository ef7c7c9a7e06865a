"""What is given back before another model is loaded; without a GPU."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from localdiff.load import devices, release_cached_memory


def test_without_a_gpu_there_is_nothing_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    given_back: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given_back.append("GPU"))
    release_cached_memory()
    assert not given_back


def test_a_model_that_only_refers_to_itself_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example if a layer computes through a method of another object, which refers to the layer."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    network = torch.nn.Linear(1, 1)
    network.forward = network.forward  # type: ignore[method-assign]
    gone = weakref.ref(network)
    gc.disable()
    try:
        del network
        assert gone() is not None
        release_cached_memory()
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("has_public_function", [True, False])
def test_page_locked_memory_is_given_back_too_and_kernels_that_found_no_room_are_forgotten(
    has_public_function: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "forget_unloaded_kernels", lambda: given_back.append("kernels"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given_back.append("GPU"))
    if has_public_function:
        monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: given_back.append("host"), raising=False)
    else:
        monkeypatch.delattr(torch.accelerator, "empty_host_cache", raising=False)
        monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: given_back.append("host"), raising=False)
    release_cached_memory()
    assert given_back == ["kernels", "GPU", "host"]
