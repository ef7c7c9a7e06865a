"""What the evaluation prints, and what it says of arguments that it cannot use."""

from __future__ import annotations

import json
import sys

import pytest

from localdiff.demo.evaluate import held_out, main


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["evaluate", *arguments])
    main()


def test_a_skill_is_scored(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked(monkeypatch, "--skills", "spelling", "--prompts", "2", "--seeds", "0", "1", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["skill"], found["runs"]) == ("spelling", 4)
    assert 0 <= found["accuracy"] <= 1 and found["steps"] >= 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--prompts", "0"], 2, "argument --prompts: 0 should be 1 or more"),
        (["--prompts", "few"], 2, "argument --prompts: invalid whole_number value: 'few'"),
        (["--model", "/nowhere"], 3, "error: no such directory: `/nowhere`\nhint: a model is"),
        (["--adapter", "nope"], 3, "error: there is no adapter `nope`\nhint: "),
    ],
)
def test_what_it_cannot_use_is_said_in_a_sentence(
    arguments: list[str], code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        asked(monkeypatch, *arguments)
    assert stopped.value.code == code
    assert words in capsys.readouterr().err


def test_questions_are_the_same_at_every_call() -> None:
    assert held_out("sort", 5, ["story"]) == held_out("sort", 5, ["story"])
    assert [example.messages for example in held_out("sort", 5)] == [
        example.messages for example in held_out("sort", 9)[:5]
    ]
