"""Where tests of kernels run, as far as a machine without a card shows it."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from tests.gpu import kernels


def test_a_card_is_named_as_its_tensors_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuda` is not equal to `cuda:0`, so a cache filled for one would not be found for the other."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("EMULATED_GPU", "")
    spec = importlib.util.spec_from_file_location("kernels_with_a_card", kernels.__file__)
    assert spec is not None and spec.loader is not None
    with_card = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(with_card)
    assert with_card.HAS_CARD and torch.device("cuda:0") == with_card.DEVICE
