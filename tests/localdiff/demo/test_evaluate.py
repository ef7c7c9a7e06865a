"""What the evaluation prints, and what it says of arguments that it cannot use."""

from __future__ import annotations

import json

import pytest

from localdiff.demo.evaluate import evaluate, held_out, main
from localdiff.demo.skills import SKILLS
from localdiff.engine import Engine


def test_a_skill_is_scored(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--skills", "spelling", "--prompts", "2", "--seeds", "0", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["skill"], found["runs"], found["margin"]) == ("spelling", 4, None)
    assert 0 <= found["accuracy"] <= 1 and found["steps"] >= 1


def test_a_few_questions_promise_no_certainty(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--skills", "add", "--prompts", "3", "--seeds", "0", "1", "2", "3"])
    head, line, *note = capsys.readouterr().out.splitlines()
    assert [*head.split()[:4], *line.split()[:4]] == ["skill", "runs", "right", "±", "add", "12", "100.0%", "?"]
    assert note == ["", "± ?: no interval, of fewer than 10 questions or of values that never differ"]
    main(["--skills", "add", "--prompts", "10"])
    head, line = capsys.readouterr().out.splitlines()
    assert line.split()[:4] == ["add", "10", "100.0%", "30.0%"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--model", "/nowhere"], 3, "error: no such directory: `/nowhere`\nhint: a model is"),
        (["--seeds", "-1", "--skills", "add", "--prompts", "1"], 2, "error: seed=-1 must be >= 0\n"),
        (["--adapter", "nope"], 3, "error: there is no adapter `nope`\nhint: "),
    ],
)
def test_what_it_cannot_use_is_said_in_a_sentence(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == code
    assert words in capsys.readouterr().err


def test_questions_are_the_same_at_every_call_and_differ_from_each_other() -> None:
    for skill in SKILLS:
        assert held_out(skill, 3, ["story"]) == held_out(skill, 3, ["story"])
        prompts = [example.messages[-1][1] for example in held_out(skill, 20)]
        assert prompts[:9] == [example.messages[-1][1] for example in held_out(skill, 9)]
        assert len(set(prompts)) == len(prompts)
    assert len(held_out("sudoku", 200)) == 200


def test_a_question_may_be_asked_after_others() -> None:
    """The shipped model answers those first; what is counted is the last answer."""
    (alone,), (later,) = held_out("add", 1), held_out("add", 1, ["spelling", "dates"])
    assert (alone.key, alone.answer, alone.earlier) == (later.key, later.answer, ())
    assert [exchange.skill for exchange in later.earlier] == ["spelling", "dates"]
    assert held_out("add", 1, ["spelling", "dates"]) == [later]
    engine = Engine.load("demo", device="cpu", dtype="fp32")
    result = evaluate(engine, "add", prompts=2, seeds=(0,), after=["spelling"])
    assert (result.skill, result.runs) == ("add", 2)
    assert result.accuracy == 1.0
