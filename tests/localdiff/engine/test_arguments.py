"""Arguments of another kind are named, whichever function of the library is given them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from localdiff.conversation import Conversation
from localdiff.engine import Engine
from localdiff.errors import UsageError, WeightsError
from localdiff.model_reference import DEMO_DIRECTORY
from tests.models import tiny


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"options": {"seed": 1}}, "`options` are a `GenerateOptions`, not a `dict`"),
        ({"cancel": True}, "`cancel` is a `threading.Event`, not a `bool`"),
    ],
)
def test_an_argument_of_another_kind_is_refused(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    engine = tiny.engine(tmp_path)
    with pytest.raises(UsageError, match=words):
        list(engine.generate("hi", **given))
    with pytest.raises(UsageError, match=words):
        list(Conversation(engine).answer([{"role": "user", "content": "hi"}], **given))


def test_a_rule_that_is_none_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    words = "^stop_rule='soon' must be one of both, stable, confident, never$"
    with pytest.raises(UsageError, match=words):
        next(tiny.engine(tmp_path).generate("hi", stop_rule="soon"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": None}, "`model` is text or a path, not a `NoneType`"),
        ({"model": 5}, "`model` is text or a path, not an `int`"),
        ({"adapter": True}, "`adapter` is text or a path, not a `bool`"),
        ({"device": 0}, "`device` is text or a `torch.device`, not an `int`"),
        ({"dtype": torch.bfloat16}, "`dtype` is text, not a `dtype`"),
        ({"revision": 1}, "`revision` is text, not an `int`"),
        ({"device": "tpu"}, "^device='tpu' should be auto, cpu, cuda, cuda:N or mps$"),
        ({"dtype": "fp16"}, "^dtype='fp16' cannot hold this model"),
        ({"revision": "v1"}, "^revision='v1' is for a model from the Hub, and model='demo' is not one$"),
    ],
)
def test_an_argument_that_cannot_be_used_loads_nothing(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Engine.load(**{"model": "demo"} | given)


def test_a_path_object_is_a_directory_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").symlink_to(DEMO_DIRECTORY)
    monkeypatch.chdir(tmp_path)
    for model, name in (("demo", "demo"), (Path("demo"), "./demo"), (tmp_path / "demo", str(tmp_path / "demo"))):
        engine = Engine.load(model, device=torch.device("cpu"), context_size=64)
        assert (engine.identity.model, engine.identity.device) == (name, "cpu")
    with pytest.raises(WeightsError, match="there is no adapter `./sudoku`"):
        Engine.load("demo", adapter=Path("sudoku"))
