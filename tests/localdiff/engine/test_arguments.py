"""An argument of the wrong type is named, whichever function of the library it is given to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.conversation import Conversation
from localdiff.engine import Engine
from localdiff.engine.arguments import check_noise, device_of
from localdiff.errors import UsageError, WeightsError
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


NOISE = {"whole_canvas": False, "at": print, "canvas": print, "start_step": print, "sample": print}


@pytest.mark.parametrize("lacking", NOISE)
def test_a_source_of_noise_that_lacks_a_part_is_refused(lacking: str) -> None:
    check_noise(SimpleNamespace(**NOISE))
    with pytest.raises(UsageError, match="`noise` is a source such as .*, not a `SimpleNamespace`"):
        check_noise(SimpleNamespace(**{name: part for name, part in NOISE.items() if name != lacking}))


def test_a_source_of_noise_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"`noise` is a source such as `SeededNoise\(1\)`, not an `int`"):
        list(tiny.engine(tmp_path).generate("hi", noise=5))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "text"), [("cuda", "cuda"), ("cuda:1", "cuda:1"), ("cpu", "cpu"), ("mps:0", "mps")])
def test_a_device_of_torch_is_the_one_of_its_name(name: str, text: str) -> None:
    assert device_of(torch.device(name)) == text


def test_a_prefix_cache_of_another_engine_is_refused(tmp_path: Path) -> None:
    """Its keys and values would be taken for this model's."""
    (tmp_path / "other").mkdir()
    engine, other = tiny.engine(tmp_path), tiny.engine(tmp_path / "other")
    for prefix_cache, words in (
        (other.new_prefix_cache(), "the prefix cache belongs to another engine"),
        (5, "`prefix_cache` is a `PrefixCache`, not an `int`"),
    ):
        with pytest.raises(UsageError, match=words):
            next(engine.generate("hi", prefix_cache=prefix_cache))  # type: ignore[arg-type]
    assert next(engine.generate("hi", prefix_cache=engine.new_prefix_cache()))


@pytest.mark.parametrize(("messages", "kind"), [(None, "`NoneType`"), ("hi", "`str`"), (iter([]), "iterator")])
def test_messages_of_a_conversation_are_a_list(tmp_path: Path, messages: Any, kind: str) -> None:
    with pytest.raises(UsageError, match=f"messages must be a list, not .*{kind}"):
        next(Conversation(tiny.engine(tmp_path)).answer(messages))


def test_a_conversation_is_with_an_engine() -> None:
    with pytest.raises(UsageError, match="a conversation is with an `Engine`, not a `NoneType`"):
        Conversation(None)  # type: ignore[arg-type]


def test_a_name_that_no_file_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localdiff.paths.models_dir", lambda *_: tmp_path)
    with pytest.raises(WeightsError, match="is neither `demo`, nor a quantized model"):
        Engine.load("a" * 300)


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
        ({"dtype": torch.bfloat16}, "`dtype` is text such as `bf16`, not a `dtype`"),
        ({"activations": torch.int8}, "`activations` is text such as `int8`, not a `dtype`"),
        ({"revision": 1}, "`revision` is text, not an `int`"),
        ({"offline": "no"}, "`offline` is True or False, not a `str`"),
        ({"confirm": 5}, "`confirm` is a function, not an `int`"),
        ({"progress": 5}, "`progress` is a function, not an `int`"),
        ({"device": "tpu"}, "^device='tpu' must be auto, cpu, cuda, cuda:N or mps$"),
        ({"dtype": "fp16"}, "^dtype='fp16' cannot hold this model"),
        ({"activations": "int4"}, "^activations='int4' must be one of auto, int8$"),
        ({"revision": "v1"}, "(?m)^revision='v1' is for a model from the Hub, and model='demo' is not one$"),
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
