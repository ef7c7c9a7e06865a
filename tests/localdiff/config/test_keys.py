"""Which values each setting takes, and that the table agrees with the command line."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import typer

from localdiff.cli import app
from localdiff.cli.configured import GENERATING
from localdiff.cli.lazy import loaded
from localdiff.config import KEYS
from localdiff.errors import UsageError
from localdiff.ui.terminal import LiveOption


def parameters(command: str) -> dict[str, Any]:
    """Option of a command → its parameter."""
    group: Any = typer.main.get_command(app)
    return {name: parameter for parameter in loaded(group.commands[command]).params for name in parameter.opts}


@pytest.mark.parametrize("command", ["run", "chat"])
def test_every_setting_is_an_option_with_the_same_default_and_choices(command: str) -> None:
    options = parameters(command)
    for name in (*GENERATING, "ui.live"):
        key = KEYS[name]
        assert key.flag in options
        option = options[key.flag]
        if key.choices and option.type_descriptor.choices is not None:
            assert key.choices == option.type_descriptor.choices, name
        if option.default is not None:
            assert key.default == option.default, name


def test_wishes_are_those_of_the_terminal() -> None:
    assert set(KEYS["ui.live"].choices) == set(get_args(LiveOption))


def test_no_two_settings_share_a_variable() -> None:
    assert len({key.variable for key in KEYS.values()}) == len(KEYS)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("context", "4096", 4096),
        ("generate.entropy_bound", "0.2", 0.2),
        ("generate.temperature", "0", 0),
        ("generate.think", "yes", True),
        ("generate.think", "0", False),
        ("max_memory", "10 GB", "10 GB"),
        ("device", "cuda:1", "cuda:1"),
        ("ui.palette", "16", "16"),
        ("generate.system", "Be brief.", "Be brief."),
    ],
)
def test_text_of_a_variable(name: str, text: str, value: object) -> None:
    found = KEYS[name].from_text(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("context", "8k", "context='8k' must be a whole number"),
        ("context", "0", "context=0 must be >= 1"),
        ("context", "1e3", "context='1e3' must be a whole number"),
        ("generate.steps", "-1", "steps=-1 must be >= 1"),
        ("generate.entropy_bound", "nan", "entropy_bound=nan must be a finite number"),
        ("generate.seed", "-5", "seed=-5 must be >= 0"),
        ("generate.think", "maybe", "think='maybe' must be true or false"),
        ("max_memory", "lots", "max_memory='lots' is not an amount of memory"),
        ("device", "gpu", "device='gpu' must be auto, cpu, cuda, cuda:N or mps"),
        ("dtype", "int3", "dtype='int3' must be one of auto, bf16, fp32"),
        ("dtype", "fp16", "dtype='fp16' cannot hold this model: its activations pass 65,504 and turn into NaN"),
        ("ui.palette", "pink", "palette='pink' must be one of auto, dark, light, 16, mono, ascii, heat"),
        ("ui.fps", "0", "fps=0 must be a finite number >= 0.1"),
        ("ui.fps", "1e-12", "fps=1e-12 must be a finite number >= 0.1"),
        ("ui.fps", "inf", "fps=inf must be a finite number >= 0.1"),
        ("ui.fps", "fast", "fps='fast' must be a number"),
    ],
)
def test_text_that_is_no_value(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        KEYS[name].from_text(text)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ui.palette", 16, "palette=16 must be text in quotes"),
        ("model", True, "model=True must be text in quotes"),
        ("context", True, "context=True must be a whole number"),
        ("context", [1], "context=[1] must be a single value"),
        ("generate.think", 1, "think=1 must be true or false"),
        ("ui.fps", False, "fps=False must be a number"),
    ],
)
def test_values_of_a_file_that_have_the_wrong_type(name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        KEYS[name].checked(value)
    assert caught.value.message == message
