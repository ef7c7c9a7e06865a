"""Every setting has a range, and a bad value is shown with its name."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from localdiff.errors import UsageError
from localdiff.options import MAX_SEED, GenerateOptions


def test_defaults_leave_the_sampler_to_the_model() -> None:
    options = GenerateOptions()
    assert (options.max_tokens, options.context_size, options.noise) == (1024, None, "seeded")
    assert not (options.think or options.tool_calls or options.record_top_k)
    sampler = ("steps", "cap", "entropy_bound", "t_min", "t_max", "temperature", "stability", "confidence", "seed")
    assert all(getattr(options, name) is None for name in sampler)


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        GenerateOptions().steps = 3  # type: ignore[misc]


@pytest.mark.parametrize("number", [numpy.float32(0.5), numpy.float64(0.5), numpy.int64(1)])
def test_a_number_may_be_one_of_numpy(number: Any) -> None:
    found = GenerateOptions(entropy_bound=number).entropy_bound
    assert found == float(number) and isinstance(found, float)
    with pytest.raises(UsageError, match="entropy_bound"):
        GenerateOptions(entropy_bound=numpy.bool_(True))


@pytest.mark.parametrize("number", [numpy.int64(5), numpy.uint8(5), torch.tensor(5)])
def test_a_whole_number_may_be_one_of_numpy_or_torch(number: Any) -> None:
    options = GenerateOptions(max_tokens=number, seed=number, stability=number)
    assert [type(value) for value in (options.max_tokens, options.seed, options.stability)] == [int] * 3
    assert options == GenerateOptions(max_tokens=5, seed=5, stability=5)
    for bad in (numpy.float64(5), numpy.bool_(True), torch.tensor(5.0), torch.tensor([5, 6]), "5"):
        with pytest.raises(UsageError, match="must be a whole number"):
            GenerateOptions(max_tokens=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0 must be >= 1"),
        ({"think": "yes"}, "think='yes' must be True or False"),
        ({"tool_calls": 1}, "tool_calls=1 must be True or False"),
        ({"system": 5}, "system=5 must be text"),
        ({"context_size": 0}, "context_size=0 must be >= 1"),
        ({"steps": 0}, "steps=0 must be >= 1"),
        ({"cap": -1}, "cap=-1 must be >= 1"),
        ({"stability": -1}, "stability=-1 must be >= 0"),
        ({"entropy_bound": 0.0}, "entropy_bound=0.0 must be > 0"),
        ({"confidence": 0}, "confidence=0 must be > 0"),
        ({"t_min": -0.5}, "t_min=-0.5 must be >= 0"),
        ({"t_max": -0.5}, "t_max=-0.5 must be >= 1e-06"),
        ({"t_min": 0.9, "t_max": 0.8}, "t_min=0.9 must be <= t_max=0.8"),
        ({"temperature": -0.1}, "temperature=-0.1 must be >= 0"),
        ({"temperature": 0.5, "t_min": 0.4}, "temperature=0.5 excludes t_min=0.4"),
        ({"temperature": 0.5, "t_max": 0.4}, "temperature=0.5 excludes t_max=0.4"),
        ({"system": "Caf\udce9"}, "the system prompt is not text: its character 4 is not UTF-8"),
        ({"temperature": 1e-300}, "temperature=1e-300 must be 0 or >= 1e-06"),
        ({"temperature": 1e300}, "temperature=1e+300 must be <= 1000000"),
        ({"t_max": 1e7}, "t_max=10000000.0 must be <= 1000000"),
        ({"max_tokens": 2**31}, f"max_tokens={2**31} must be <= {2**31 - 1}"),
        ({"context_size": 2**31}, f"context_size={2**31} must be <= {2**31 - 1}"),
        ({"steps": 10**11}, f"steps={10**11} must be <= 1000000"),
        ({"cap": 10**11}, f"cap={10**11} must be <= 1000000"),
        ({"stability": 10**11}, f"stability={10**11} must be <= 1000000"),
        ({"record_top_k": -1}, "record_top_k=-1 must be >= 0"),
        ({"record_top_k": 65}, "record_top_k=65 must be <= 64"),
        ({"seed": -1}, "seed=-1 must be >= 0"),
        ({"seed": 2**63}, f"seed={2**63} must be <= {MAX_SEED}"),
        ({"steps": 4.5}, "steps=4.5 must be a whole number"),
        ({"max_tokens": None}, "max_tokens=None must be a whole number"),
        ({"cap": True}, "cap=True must be a whole number"),
        ({"confidence": "low"}, "confidence='low' must be a number"),
        ({"noise": "pink"}, "noise='pink' must be 'seeded' or 'reference'"),
    ],
)
def test_a_bad_value_is_shown_with_its_name(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        GenerateOptions(**settings)  # type: ignore[arg-type]
    assert raised.value.message == message


@pytest.mark.parametrize("name", ["entropy_bound", "t_min", "t_max", "temperature", "confidence"])
def test_numbers_must_be_finite(name: str) -> None:
    for value in (math.nan, math.inf, -math.inf, 10**400, Fraction(10**400)):
        with pytest.raises(UsageError) as raised:
            GenerateOptions(**{name: value})  # type: ignore[arg-type]
        assert raised.value.message == f"{name}={value!r} must be a finite number"


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0, "t_min": 0.4, "t_max": 0.8},
        {"t_min": 0.5, "t_max": 0.5},
        {"stability": 0},
        {"seed": 0},
        {"seed": MAX_SEED},
        {"steps": 4, "cap": 9},
    ],
)
def test_edges_are_allowed(settings: dict[str, object]) -> None:
    options = GenerateOptions(**settings)  # type: ignore[arg-type]
    assert all(getattr(options, name) == value for name, value in settings.items())


@given(low=st.floats(1e-6, 10), high=st.floats(1e-6, 10))
def test_a_schedule_never_rises(low: float, high: float) -> None:
    if low <= high:
        assert GenerateOptions(t_min=low, t_max=high).t_max == high
    else:
        with pytest.raises(UsageError):
            GenerateOptions(t_min=low, t_max=high)
