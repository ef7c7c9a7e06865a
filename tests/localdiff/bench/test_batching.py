"""Several generations on one model: the same numbers as one after the other, and no task waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest
import torch

from localdiff.bench.quality.answers import Answer, ask
from localdiff.bench.quality.comparison import compare, one_by_one
from localdiff.bench.quality.questions import Question
from localdiff.engine import Engine
from localdiff.model.cache import KVCache
from localdiff.options import GenerateOptions
from tests.bench import batching
from tests.bench.batching import Wish, denoise, run_batched
from tests.models import tiny

TEXTS = ("hello there", "what is 2", "why", "one two three four", "a", "so what", "never")


def task(text: str, seed: int = 1) -> Callable[[Engine], Answer]:
    question = Question(group="g", prompt=text)
    options = GenerateOptions(seed=seed, max_tokens=12, context_size=64, steps=3)
    return lambda engine: ask(engine, question, options)[0]


TASKS = [*(task(text, seed) for text, seed in zip(TEXTS, cycle((1, 2)), strict=False)), task(TEXTS[0], 2)]
"""One task more than the widest full batch has, and one text with both seeds."""


def load_into(directory: Path) -> Engine:
    return tiny.engine(directory, network=tiny.model(scale=0.1))


@pytest.fixture
def load(tmp_path: Path) -> Callable[[], Engine]:
    return partial(load_into, tmp_path)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many canvases each pass had."""
    sizes: list[int] = []

    def counted(model: object, wishes: Sequence[Wish]) -> torch.Tensor:
        sizes.append(len(wishes))
        return denoise(model, wishes)  # type: ignore[arg-type]

    monkeypatch.setattr(batching, "denoise", counted)
    return sizes


def test_a_pass_over_many_canvases_is_as_many_passes(load: Callable[[], Engine]) -> None:
    model, generator = load().model, torch.Generator().manual_seed(0)
    config = model.config
    wishes = []
    for length, conditioned in ((3, True), (11, False), (1, True)):
        cache = KVCache(config, 16, torch.float32, torch.device("cpu"))
        model.encode(torch.randint(config.vocab_size, (length,), generator=generator), cache)
        canvas = torch.randint(config.vocab_size, (config.canvas_length,), generator=generator)
        soft = torch.randn(config.canvas_length, config.hidden_size, generator=generator) if conditioned else None
        wishes.append(Wish(canvas, cache, soft))
    expected = torch.stack([model.denoise(wish.canvas, wish.cache, wish.soft) for wish in wishes])
    assert torch.allclose(denoise(model, wishes), expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(expected[0], expected[1], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """The answer that each task gets from a model of its own."""
    return [each(load_into(tmp_path_factory.mktemp("alone"))) for each in TASKS]


@pytest.mark.parametrize("width", [1, 3, pytest.param(7, marks=pytest.mark.slow), 20])
def test_answers_are_those_of_one_after_the_other(
    load: Callable[[], Engine], shared: list[int], alone: list[Answer], width: int
) -> None:
    assert run_batched(load(), TASKS, width) == alone
    assert sum(shared) == (sum(sum(answer.steps) for answer in alone) if width > 1 else 0)
    assert max(shared, default=0) == (min(width, len(TASKS)) if width > 1 else 0)


def test_who_shares_a_pass_does_not_depend_on_time(load: Callable[[], Engine], shared: list[int]) -> None:
    tasks = [task(text) for text in TEXTS[:5]]
    run_batched(load(), tasks, 3)
    before = list(shared)
    shared.clear()
    run_batched(load(), tasks, 3)
    assert shared == before


def test_an_error_ends_all_of_them(load: Callable[[], Engine]) -> None:
    ended: list[str] = []

    def fails(engine: Engine) -> Answer:
        task("x")(engine)
        raise ZeroDivisionError("this task's own")

    def long(engine: Engine) -> Answer:
        answers = [task(text)(engine) for text in TEXTS]
        ended.append("long")
        return answers[-1]

    with pytest.raises(ZeroDivisionError, match="this task's own"):
        run_batched(load(), [long, fails, long, long, long], 4)
    assert not ended


def test_an_error_of_the_model_is_raised(load: Callable[[], Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: object, wishes: object) -> torch.Tensor:
        raise MemoryError("no room for so many")

    monkeypatch.setattr(batching, "denoise", broken)
    with pytest.raises(MemoryError, match="no room for so many"):
        run_batched(load(), [task(text) for text in TEXTS], 4)


def test_a_comparison_is_the_same_in_batches(load: Callable[[], Engine]) -> None:
    texts = TEXTS[:5]
    questions = [Question(group="g", prompt=text, is_right=lambda text: "a" in text) for text in texts]
    options = [GenerateOptions(seed=1, max_tokens=12, context_size=64, steps=3)]

    def changed() -> Engine:
        engine = load()
        for parameter in engine.model.parameters():
            if parameter.dim() > 1:
                parameter.data *= 1.05
        return engine

    one, many = (
        next(iter(compare(load, [changed], questions, options, lambda words: None, walks=3, runner=runner)))
        for runner in (one_by_one, partial(run_batched, width=4))
    )
    assert one.rows[0].divergence.mean == pytest.approx(many.rows[0].divergence.mean, rel=1e-3)
    assert (one.rows[0].divergence.count, one.rows[0].same.count) == (3, len(texts))
    assert [pair.first for pair in one.pairs] == [pair.first for pair in many.pairs]


def test_nothing_to_do(load: Callable[[], Engine]) -> None:
    assert run_batched(load(), [], 4) == []
    assert run_batched(load(), [partial(lambda engine: 7)], 4) == [7]
