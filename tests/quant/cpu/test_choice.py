"""Which models compute attention, and read their logits, through the native kernel."""

from __future__ import annotations

import pytest

from quant.cpu import choice
from quant.cpu.choice import MIN_WEIGHTS, native_attention, native_logits
from quant.cpu.switches import CPU_NATIVE, CPU_PATH
from quant.switch import SwitchError
from quant.unsupported import Unsupported
from tests.models.native import needs_native

SIZES = (256, 512)


@needs_native
@pytest.mark.parametrize(
    ("path", "sizes", "weights", "takes"),
    [
        ("auto", SIZES, MIN_WEIGHTS, True),
        ("auto", SIZES, MIN_WEIGHTS - 1, False),
        ("fast", SIZES, 1, True),
        ("fast", (256, 32), 1, False),
        ("plain", SIZES, MIN_WEIGHTS, False),
    ],
)
def test_which_models_get_the_kernel(
    path: str, sizes: tuple[int, ...], weights: int, takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "has_amx", lambda: False)
    monkeypatch.setenv(CPU_PATH, path)
    assert (native_attention(sizes, weights) is not None) == takes
    monkeypatch.setenv(CPU_NATIVE, "off")
    assert native_attention(sizes, weights) is None


@needs_native
@pytest.mark.parametrize(
    ("path", "vocabulary", "weights", "takes"),
    [
        ("auto", 1 << 18, MIN_WEIGHTS, True),
        ("auto", 1 << 18, MIN_WEIGHTS - 1, False),
        ("fast", 1 << 8, 1, True),
        ("fast", 1000, 1, False),
        ("plain", 1 << 18, MIN_WEIGHTS, False),
    ],
)
def test_whose_logits_it_reads(
    path: str, vocabulary: int, weights: int, takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CPU_PATH, path)
    assert (native_logits(vocabulary, weights) is not None) == takes
    monkeypatch.setenv(CPU_NATIVE, "off")
    assert native_logits(vocabulary, weights) is None


def test_small_models_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "native_library", lambda: pytest.fail("nothing is to be compiled"))
    assert native_attention(SIZES, MIN_WEIGHTS - 1) is None
    assert native_logits(1 << 18, MIN_WEIGHTS - 1) is None


def test_torch_has_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "native_library", lambda: pytest.fail("nothing is to be compiled"))
    monkeypatch.setattr(choice, "has_amx", lambda: True)
    assert native_attention(SIZES, MIN_WEIGHTS) is None


def test_a_machine_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_amx", lambda: False)
    monkeypatch.setattr(choice, "native_library", lambda: Unsupported("there is none", ""))
    assert native_attention(SIZES, MIN_WEIGHTS) is None
    assert native_logits(1 << 18, MIN_WEIGHTS) is None


def test_a_switch_that_says_nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CPU_PATH, "slow")
    with pytest.raises(SwitchError):
        native_attention(SIZES, MIN_WEIGHTS)
    with pytest.raises(SwitchError):
        native_logits(1 << 18, MIN_WEIGHTS)
