"""`bench quality`: what it measures on models whose differences are known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from localdiff.bench.quality import canvases
from localdiff.bench.quality.answers import Answer, ask
from localdiff.bench.quality.canvases import Predictions, agreement, divergence, kept_positions, kept_steps, predict
from localdiff.bench.quality.comparison import ALL, Comparison
from localdiff.bench.quality.comparison import compare as compare_all
from localdiff.bench.quality.questions import PROMPTS, Question, file_questions, skill_questions
from localdiff.bench.quality.report import table, to_object
from localdiff.demo.skills import SKILLS
from localdiff.engine import Engine
from localdiff.errors import ContextError, UsageError, WeightsError
from localdiff.events import DenoiseStep
from localdiff.options import GenerateOptions
from tests.models import tiny

OPTIONS = tuple(GenerateOptions(seed=seed, max_tokens=16, context_size=64, steps=3) for seed in (1, 2))
SIX_STEPS = replace(OPTIONS[0], steps=6)
"""More steps than a walk keeps, and enough for a changed model to be right where the first is wrong."""


def question(text: str, group: str = "g", wanted: str | None = None) -> Question:
    judge = None if wanted is None else lambda answer: wanted in answer
    return Question(group=group, prompt=text, is_right=judge)


QUESTIONS = [question("hello there", wanted="a"), question("what is 2", "h", wanted="e"), question("why", wanted="o")]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Callable[[], Engine]]:
    """Makes loaders of a tiny model whose matrices are changed by a share of their spread."""
    directory = tmp_path_factory.mktemp("tiny")

    def prepare(change: float = 0.0) -> Callable[[], Engine]:
        def load() -> Engine:
            network = tiny.model(scale=0.1)
            generator = torch.Generator().manual_seed(9)
            for parameter in network.parameters():
                if parameter.dim() > 1:
                    parameter.data += change * 0.1 * torch.randn(parameter.shape, generator=generator)
            return tiny.engine(directory, network=network)

        return load

    return prepare


def silent(_: str) -> None:
    pass


def compare(
    loads: Sequence[Callable[[], Engine]],
    questions: Sequence[Question],
    options: Sequence[GenerateOptions],
    progress: Callable[[str], None],
) -> Comparison:
    """The comparison of two models."""
    (found,) = compare_all(loads[0], loads[1:], questions, options, progress)
    return found


@pytest.fixture(scope="module")
def of_two_seeds(make: Callable[..., Callable[[], Engine]]) -> Comparison:
    """A changed model compared with the first, with two seeds for each question."""
    return compare((make(), make(0.1)), QUESTIONS, OPTIONS, silent)


@pytest.fixture(scope="module")
def much_changed(make: Callable[..., Callable[[], Engine]]) -> tuple[Comparison, list[str]]:
    """A model changed by 0.3 compared with the first, once for each question, and the progress messages."""
    told: list[str] = []
    return compare((make(), make(0.3)), QUESTIONS, [SIX_STEPS], told.append), told


@pytest.mark.parametrize("system", [None, "be brief"])
def test_a_walk_sees_what_the_run_saw(make: Callable[..., Callable[[], Engine]], system: str | None) -> None:
    engine, options = make()(), replace(SIX_STEPS, system=system)
    messages = [{"role": "user", "content": "hello there"}]
    steps = [
        event for event in engine.generate(messages, options) if isinstance(event, DenoiseStep) and event.block == 1
    ]
    answer, seen = ask(engine, QUESTIONS[0], options)
    assert [canvas.ids for canvas in seen] == [step.shown_ids for step in steps]
    predictions = predict(engine, QUESTIONS[0], options, seen)
    assert [tuple(draft) for draft in predictions.drafts.tolist()] == [step.argmax_ids for step in steps]
    for kept, log_probs in zip(kept_steps(len(steps)), predictions.log_probs, strict=True):
        entropies = -(log_probs.exp() * log_probs).sum(dim=-1)
        assert torch.allclose(entropies, torch.tensor(steps[kept].entropies), atol=1e-5)
    assert answer.steps[0] == len(steps)


def test_the_divergence_is_the_formula() -> None:
    def predictions(probs: list[list[float]], draft: list[int]) -> Predictions:
        return Predictions(drafts=torch.tensor([draft]), log_probs=torch.tensor([probs]).log())

    first = predictions([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], [0, 1])
    second = predictions([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]], [1, 1])
    assert divergence(first, second) == pytest.approx(0.25 * math.log(2) / 2, abs=1e-7)
    assert divergence(first, first) == 0
    assert agreement(first, second) == 0.5


@pytest.mark.parametrize(
    ("count", "kept"), [(1, [0]), (2, [0, 1]), (4, [0, 1, 2, 3]), (10, [0, 3, 6, 9]), (48, [0, 16, 31, 47])]
)
def test_kept_steps_are_spread_over_the_block(count: int, kept: list[int]) -> None:
    assert kept_steps(count) == kept


def test_kept_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept_positions(96, 1536).tolist() == list(range(96))
    assert len(kept_positions(256, 262_144)) == 16
    monkeypatch.setattr(canvases, "MAX_KEPT", 10)
    assert kept_positions(9, 5).tolist() == [0, 8]
    assert kept_positions(9, 100).tolist() == [0]


def test_a_model_does_not_differ_from_itself(make: Callable[..., Callable[[], Engine]]) -> None:
    result = compare((make(), make()), QUESTIONS, OPTIONS, silent)
    assert [row.group for row in result.rows] == ["g", "h", ALL]
    everything = result.rows[-1]
    assert (everything.questions, everything.runs) == (3, 6)
    assert everything.divergence.mean == 0
    assert everything.agreement.mean == everything.same.mean == 1
    assert everything.steps_change.mean == 0
    assert everything.score_change is not None
    assert (everything.score_change.mean, everything.score_change.margin) == (0, math.inf)
    *_, line, blank, note = table(result).splitlines()
    assert (blank, note) == ("", "± ?: no interval, of fewer than 10 questions or of values that never differ")
    *_, change, _, steps, kl, draft, same, _ = line.split("|")
    assert [cell.strip() for cell in (change, steps, kl, draft, same)] == [
        "+0.0 ± ?",
        "+0.0 ± ? %",
        "0.0000 ± ?",
        "100.00 ± ? %",
        "100.0 ± ? %",
    ]


def test_a_larger_change_shows_more(
    make: Callable[..., Callable[[], Engine]], much_changed: tuple[Comparison, list[str]]
) -> None:
    little, much = compare((make(), make(0.001)), QUESTIONS, [SIX_STEPS], silent).rows[-1], much_changed[0].rows[-1]
    assert 0 < little.divergence.mean < 0.5 * much.divergence.mean
    assert much.agreement.mean < little.agreement.mean <= 1
    assert much.same.mean <= little.same.mean


def test_differences_are_paired_and_signed(
    make: Callable[..., Callable[[], Engine]], much_changed: tuple[Comparison, list[str]]
) -> None:
    forward = much_changed[0].rows[-1]
    backward = compare((make(0.3), make()), QUESTIONS, [SIX_STEPS], silent).rows[-1]
    assert forward.score is not None and backward.score is not None
    assert forward.score_change is not None and backward.score_change is not None
    assert forward.score_change.mean != 0, "or it has no sign"
    assert forward.score_change.mean == pytest.approx(-backward.score_change.mean)
    assert backward.score.mean == pytest.approx(forward.score.mean + forward.score_change.mean)
    assert backward.steps.mean == pytest.approx(forward.steps.mean * (1 + forward.steps_change.mean))


def test_seeds_of_a_question_count_as_one_value(of_two_seeds: Comparison) -> None:
    row = of_two_seeds.rows[-1]
    assert row.steps.count == row.steps_change.count == 3
    assert row.runs == 6


def test_one_model_is_held_at_a_time(make: Callable[..., Callable[[], Engine]]) -> None:
    import gc

    from localdiff.model.diffusion_gemma import DiffusionGemma

    alive = []

    def counting(load: Callable[[], Engine]) -> Callable[[], Engine]:
        def loaded() -> Engine:
            alive.append(sum(type(each) is DiffusionGemma for each in gc.get_objects()))
            return load()

        return loaded

    before = sum(type(each) is DiffusionGemma for each in gc.get_objects())
    compare((counting(make()), counting(make())), QUESTIONS[:1], OPTIONS[:1], silent)
    assert alive == [before, before]


def test_progress_names_the_question(much_changed: tuple[Comparison, list[str]]) -> None:
    told = much_changed[1]
    assert told[0] == "loading the first model"
    assert told[2] == "first model: question 2 of 3 (h)"
    assert len(told) == 8


def test_a_model_with_another_vocabulary_is_refused(make: Callable[..., Callable[[], Engine]], tmp_path: Path) -> None:
    def other() -> Engine:
        return tiny.engine(tmp_path, network=tiny.model(vocab_size=128))

    with pytest.raises(WeightsError, match=r"`tiny` has 128 token ids and canvases of \d+, and `tiny` has 64 and"):
        compare((make(), other), QUESTIONS[:1], OPTIONS[:1], silent)


@pytest.mark.parametrize(
    ("times", "words"),
    [(30, r" has \d+ tokens and the context holds 64, the"), (120_000, ": a text of .* does not fit")],
)
def test_a_prompt_without_room_for_an_answer_is_refused_before_any_is_answered(
    make: Callable[..., Callable[[], Engine]], times: int, words: str
) -> None:
    told: list[str] = []
    questions = [*QUESTIONS[:1], question("too long " * times, PROMPTS)]
    with pytest.raises(ContextError, match=rf"question 2 of 2 \(prompts\){words}"):
        compare((make(), make()), questions, OPTIONS[:1], told.append)
    assert told == ["loading the first model"]


def test_several_are_held_against_one(make: Callable[..., Callable[[], Engine]]) -> None:
    told: list[str] = []
    changed = [make(change) for change in (0.0, 0.3)]
    same, other = compare_all(make(), changed, QUESTIONS[:1], OPTIONS[:1], told.append)
    assert same.rows[0].divergence.mean == 0 < other.rows[0].divergence.mean
    assert [words for words in told if words.startswith("loading")] == [
        "loading the first model",
        "loading the 2. model",
        "loading the 3. model",
    ]


def unjudged(make: Callable[..., Callable[[], Engine]]) -> Comparison:
    return compare((make(), make(0.1)), [question("hello there", PROMPTS)], OPTIONS[:1], silent)


def test_what_nobody_can_judge_has_no_score(make: Callable[..., Callable[[], Engine]]) -> None:
    result = unjudged(make)
    (row,) = result.rows
    assert row.score is row.score_change is None
    head, _, line, *_ = table(result).splitlines()[2:]
    assert head.startswith("|         | questions | steps per block | ") and "score" not in head
    assert line.startswith("| prompts |         1 |            ")
    assert json.loads(json.dumps(to_object(result), allow_nan=False))["groups"][0]["steps"]["margin"] is None


def test_the_report_has_a_line_a_group(of_two_seeds: Comparison) -> None:
    result = of_two_seeds
    head, _, *lines, _, note = table(result).splitlines()
    assert note.startswith("± ?: no interval")
    assert head.startswith("tiny (bf16) against tiny (bf16), fp32 on cpu: ")
    assert head.endswith("2 seeds a question")
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["g", "h", "all"]
    places = {tuple(place for place, sign in enumerate(line) if sign == "|") for line in lines}
    assert len(places) == 1, "the columns of a table are aligned"
    content = to_object(result)
    assert content["first"]["recipe"] == "bf16"
    assert content["groups"][2]["group"] == "all"
    assert content["seeds"] == 2


def test_a_narrow_terminal_gets_lists_of_figures(of_two_seeds: Comparison) -> None:
    lines = table(of_two_seeds, 60).splitlines()
    assert max(map(len, lines)) <= 60
    assert "g: questions 2, score " in "\n".join(lines) and not any(line.startswith("|") for line in lines)
    assert table(of_two_seeds, 400) == table(of_two_seeds)


def test_skill_questions_are_held_out_and_judged() -> None:
    questions = skill_questions(["add", "spelling"], 5)
    assert [each.group for each in questions] == ["add"] * 5 + ["spelling"] * 5
    assert all(each.is_right is not None and not each.is_right("surely not") for each in questions)
    assert {each.group for each in skill_questions([], 1)} == set(SKILLS)
    assert len(skill_questions(["add", "add"], 5)) == 5, "named twice, it is asked once"
    with pytest.raises(UsageError, match="no skill `flying`"):
        skill_questions(["flying"], 1)


def test_a_file_of_prompts_may_be_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "prompts.txt").write_text("One?\n")
    assert [each.prompt for each in file_questions(Path("~/prompts.txt"))] == ["One?"]


def test_prompts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("One?\n\n  \nTwo, and three.\n")
    assert [each.prompt for each in file_questions(path)] == ["One?", "Two, and three."]
    path.write_bytes(b"\xef\xbb\xbfOne?\r\n")
    assert [each.prompt for each in file_questions(path)] == ["One?"]
    path.write_bytes("One.\x0cStill one.\u2028And on.\nTwo.\r\n".encode())
    assert [each.prompt for each in file_questions(path)] == [
        "One.\x0cStill one.\u2028And on.",
        "Two.",
    ]
    path.write_text("One?\nTwo.\nOne?\n")
    assert [each.prompt for each in file_questions(path)] == ["One?", "Two."]
    path.write_text("\n")
    with pytest.raises(UsageError, match="has no prompts"):
        file_questions(path)
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="is not text: byte 0 is not UTF-8"):
        file_questions(path)
    with pytest.raises(UsageError, match="^no such file: `.*nothing`"):
        file_questions(tmp_path / "nothing")


def test_steps_a_block() -> None:
    assert Answer(ids=(1,), steps=(4, 8), right=None).steps_a_block == 6


def test_a_file_of_prompts_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="more than 16 MB"):
        file_questions(path)
