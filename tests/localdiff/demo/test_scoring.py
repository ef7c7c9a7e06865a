"""The scoring rules: the true answer passes, a damaged one fails."""

from __future__ import annotations

import json
from random import Random

import pytest

from localdiff.demo.scoring import score
from localdiff.demo.skills import SKILLS, Example, sudoku
from localdiff.demo.skills.example import ask

EVERY_SKILL = pytest.mark.parametrize("skill", sorted(SKILLS))


def examples(skill: str, count: int = 60) -> list[Example]:
    rng = Random(21)
    return [SKILLS[skill](rng, "held_out") for _ in range(count)]


@EVERY_SKILL
def test_the_true_answer_is_right_with_blanks_around_it(skill: str) -> None:
    for example in examples(skill):
        assert score(example, example.answer)
        assert score(example, f"{example.answer}\n")


@EVERY_SKILL
def test_a_changed_character_is_wrong(skill: str) -> None:
    rng = Random(22)
    for example in examples(skill):
        places = [place for place, character in enumerate(example.answer) if character.isalnum()]
        place = rng.choice(places)
        changed = chr(ord(example.answer[place]) + 1)
        assert not score(example, example.answer[:place] + changed + example.answer[place + 1 :])


@EVERY_SKILL
def test_an_empty_a_cut_and_another_answer_are_wrong(skill: str) -> None:
    for example in examples(skill):
        assert not score(example, "")
        assert not score(example, example.answer[: len(example.answer) // 2])
        assert not score(example, "I would rather not say.")


def test_json_is_compared_when_parsed_with_types() -> None:
    example = ask("json", "JSON: name: Anna, age: 1", '{"name": "Anna", "age": 1}', "json:x")
    assert score(example, '{ "age":1, "name":"Anna" }')
    for wrong in (
        '{"name": "Anna", "age": "1"}',
        '{"name": "Anna", "age": true}',
        '{"name": "Anna"}',
        '{"name":',
        "[" * 100_000,
    ):
        assert not score(example, wrong)


def test_a_sudoku_must_be_valid_keep_its_clues_and_its_layout() -> None:
    first = sudoku.solved_grids()[0]
    clues = sudoku.rows_of("." * 15 + first[15])
    example = ask("sudoku", f"Sudoku: {clues}", sudoku.rows_of(first), "sudoku:x")
    others = [grid for grid in sudoku.solved_grids() if grid[15] == first[15]]
    assert all(score(example, sudoku.rows_of(grid)) for grid in others)
    assert not score(example, first)
    assert not score(example, clues)
    assert not score(example, sudoku.rows_of("1" * 16))
    wrong_clue = next(grid for grid in sudoku.solved_grids() if grid[15] != first[15])
    assert not score(example, sudoku.rows_of(wrong_clue))


def test_a_story_is_that_of_its_hero_and_place_word_for_word() -> None:
    for example in examples("story"):
        words = example.answer.split()
        assert not score(example, " ".join(words[:-1]))
        assert not score(example, " ".join([words[1], words[0], *words[2:]]))
        if "+" in example.key:
            hero, _ = example.key.removeprefix("story:").split("+")
            assert not score(example, example.answer.replace(hero, "whale" if hero != "whale" else "fox"))


def test_an_answer_about_diffusion_may_break_its_lines_elsewhere() -> None:
    for example in examples("about"):
        assert score(example, example.answer.replace(" ", "\n"))
        assert not score(example, example.answer.upper())


def test_numbers_with_leading_zeros_or_words_are_wrong() -> None:
    example = ask("add", "What is 4 + 3?", "7", "add:3+4")
    assert not score(example, "07")
    assert not score(example, json.dumps("7"))
    assert not score(example, "The answer is 7")
