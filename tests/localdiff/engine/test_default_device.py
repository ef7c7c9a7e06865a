"""torch's default device has no effect on an engine, and an engine has none on the default device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
import torch

from localdiff.conversation import Conversation
from localdiff.diffusion.noise import SeededNoise
from localdiff.engine import Engine
from localdiff.events import Event, RunFinished
from localdiff.options import GenerateOptions
from localdiff.text.prompt import Prompt
from tests.models import tiny

OPTIONS = GenerateOptions(seed=7, max_tokens=20)


@contextmanager
def default_meta() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@pytest.fixture(params=[default_meta, lambda: torch.device("meta")], ids=["set", "context"])
def on_meta(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[object]]:
    """A context in which new tensors have no memory."""
    context: Callable[[], AbstractContextManager[object]] = request.param
    return context


def written(events: Iterator[Event]) -> tuple[int, ...]:
    last = list(events)[-1]
    assert isinstance(last, RunFinished)
    return last.token_ids


def default_device() -> str:
    return torch.empty(0).device.type


def test_a_model_is_loaded_and_answers(on_meta: Callable[[], AbstractContextManager[object]]) -> None:
    answers = []
    messages: Prompt = [{"role": "user", "content": "Spell the word moon."}]
    for context in (nullcontext, on_meta):
        with context():
            engine = Engine.load("demo", device="cpu")
            answers.append(written(engine.generate(messages, OPTIONS)))
            answers.append(written(Conversation(engine).answer(messages, OPTIONS)))  # type: ignore[arg-type]
    assert answers[1:] == answers[:-1]


@pytest.mark.parametrize("noise", ["seeded", "reference"])
def test_noise_is_the_same(tmp_path: Path, noise: str, on_meta: Callable[[], AbstractContextManager[object]]) -> None:
    engine = tiny.engine(tmp_path)
    options = GenerateOptions(seed=7, max_tokens=20, noise=noise)  # type: ignore[arg-type]
    expected = written(engine.generate("abc", options))
    with on_meta():
        assert written(engine.generate("abc", options)) == expected


def test_between_events_the_default_is_the_caller_s(
    tmp_path: Path, on_meta: Callable[[], AbstractContextManager[object]]
) -> None:
    engine = tiny.engine(tmp_path)
    with on_meta():
        seen = {default_device() for _ in engine.generate("abc", OPTIONS)}
        assert seen == {"meta"}
        abandoned = engine.generate("abc", OPTIONS)
        next(abandoned)
    assert default_device() == "cpu"
    next(abandoned)
    with on_meta():
        next(abandoned)
        abandoned.close()
        assert default_device() == "meta"
    assert default_device() == "cpu"


def test_an_error_leaves_the_default_as_it_was(
    tmp_path: Path, on_meta: Callable[[], AbstractContextManager[object]]
) -> None:
    class Broken(SeededNoise):
        def start_step(self, length: int) -> None:
            raise OSError(length)

    engine = tiny.engine(tmp_path)
    with on_meta():
        with pytest.raises(OSError, match="8"):
            list(engine.generate("abc", OPTIONS, noise=Broken(1)))
        assert default_device() == "meta"
