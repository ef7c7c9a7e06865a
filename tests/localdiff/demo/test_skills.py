"""The generators: right answers, deterministic draws, and a split that never leaks."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from datetime import date
from pathlib import Path
from random import Random

import pytest

import localdiff.demo
from localdiff.demo.skills import (
    SKILLS,
    about,
    arithmetic,
    dates,
    fields,
    is_held_out,
    limits,
    sorting,
    spelling,
    story,
    unknown,
)
from localdiff.demo.skills.about import FACTS
from localdiff.demo.skills.cast import HEROES, PLACES
from localdiff.demo.skills.example import stripped
from localdiff.demo.skills.fact import expand, questions
from localdiff.demo.skills.words import COMMON, made_up

EVERY_SKILL = pytest.mark.parametrize("skill", sorted(SKILLS))


@EVERY_SKILL
def test_the_same_seed_draws_the_same_examples(skill: str) -> None:
    first, second = (Random(7) for _ in range(2))
    assert [SKILLS[skill](first, "train") for _ in range(50)] == [SKILLS[skill](second, "train") for _ in range(50)]


@EVERY_SKILL
def test_training_never_sees_a_held_out_key(skill: str) -> None:
    rng = Random(1)
    trained = {SKILLS[skill](rng, "train").key for _ in range(1500)}
    held_out = {SKILLS[skill](rng, "held_out").key for _ in range(300)}
    assert trained.isdisjoint(held_out)
    assert all(key.startswith(f"{skill}:") for key in trained | held_out)


@EVERY_SKILL
def test_no_held_out_prompt_is_a_trained_one_however_it_is_typed(skill: str) -> None:
    rng = Random(10)
    trained, held_out = (
        {stripped(SKILLS[skill](rng, split).prompt) for _ in range(count)}
        for split, count in (("train", 4000), ("held_out", 500))
    )
    assert trained.isdisjoint(held_out)


@EVERY_SKILL
def test_at_least_200_different_held_out_prompts(skill: str) -> None:
    rng = Random(2)
    assert len({SKILLS[skill](rng, "held_out").prompt for _ in range(1200)}) >= 200


@EVERY_SKILL
def test_an_example_is_one_user_turn_with_an_answer(skill: str) -> None:
    rng = Random(3)
    for split in ("train", "held_out"):
        for _ in range(50):
            example = SKILLS[skill](rng, split)
            assert [role for role, _ in example.messages] == ["user"]
            assert example.prompt == example.prompt.strip() != ""
            assert example.answer == example.answer.strip() != ""


def test_the_split_is_the_same_in_every_process() -> None:
    """Pinned: a changed hash would put trained examples among the held-out ones of a shipped checkpoint."""
    keys = [f"add:{number}+50" for number in range(40)]
    assert [number for number, key in enumerate(keys) if is_held_out(key)] == [1, 26, 36]


def test_about_a_tenth_is_held_out() -> None:
    share = sum(is_held_out(f"spelling:{number}") for number in range(5000)) / 5000
    assert 0.08 < share < 0.12


def test_spelling() -> None:
    assert spelling.answer_to("planet") == "p-l-a-n-e-t"


def test_made_up_words_are_mostly_not_common_and_of_bounded_length() -> None:
    rng = Random(4)
    words = [made_up(rng) for _ in range(500)]
    assert all(3 <= len(word) <= 11 and word.isalpha() and word.islower() for word in words)
    assert sum(word in COMMON for word in words) < 10


def test_common_words_are_distinct_and_plain() -> None:
    assert len(COMMON) >= 300
    assert list(COMMON) == sorted(set(COMMON))
    assert all(word.isascii() and word.isalpha() and word.islower() for word in COMMON)


def test_both_orders_of_a_sum_share_a_key_and_those_of_a_difference_do_not() -> None:
    assert arithmetic.key_of(("+", 47, 38)) == arithmetic.key_of(("+", 38, 47))
    assert arithmetic.key_of(("-", 47, 38)) != arithmetic.key_of(("-", 38, 47))


def test_arithmetic_is_right_for_the_operands_in_the_prompt() -> None:
    rng = Random(5)
    for _ in range(300):
        example = SKILLS["add"](rng, "train")
        numbers = [int(part) for part in "".join(c if c.isdigit() else " " for c in example.prompt).split()]
        assert len(numbers) == 2 and max(numbers) <= 99
        expected = sum(numbers) if "+" in example.key else max(numbers) - min(numbers)
        assert example.answer.rpartition(": ")[2] == str(expected)
        for column in example.answer.rpartition(": ")[0].split(", "):
            terms, result = column.split("=")
            assert sum(map(int, re.findall(r"[+-]?\d+", terms))) == int(result)


def test_sorting_keeps_the_words_and_orders_them() -> None:
    rng = Random(6)
    for _ in range(200):
        example = SKILLS["sort"](rng, "train")
        words = example.answer.split(", ")
        assert 2 <= len(words) <= 5
        assert words == sorted(words)
        assert sorting.key_of(tuple(words)) == example.key
        assert all(word in example.prompt for word in words)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("YYYY-MM-DD", "2024-03-05"),
        ("DD.MM.YYYY", "05.03.2024"),
        ("DD/MM/YYYY", "05/03/2024"),
        ("MM/DD/YYYY", "03/05/2024"),
        ("Month D, YYYY", "March 5, 2024"),
        ("D Month YYYY", "5 March 2024"),
    ],
)
def test_date_formats(form: str, text: str) -> None:
    assert dates.FORMATS[form](date(2024, 3, 5)) == text


def test_a_date_is_never_asked_for_in_the_format_it_has() -> None:
    rng = Random(7)
    for _ in range(300):
        example = SKILLS["dates"](rng, "train")
        assert example.answer not in example.prompt


def test_json_answers_hold_the_fields_of_the_prompt() -> None:
    rng = Random(8)
    sizes = set()
    for _ in range(300):
        example = SKILLS["json"](rng, "train")
        record = json.loads(example.answer)
        sizes.add(len(record))
        assert fields.listing(record) in example.prompt
        assert fields.key_of(record) == example.key
    assert sizes == {2, 3, 4}


def test_patterns_expand_to_every_choice() -> None:
    assert expand("(Is|Was) it (big|)?") == ["Is it big?", "Is it ?", "Was it big?", "Was it ?"]


def test_facts_are_short_distinct_and_asked_in_many_ways() -> None:
    assert len(FACTS) >= 40
    assert len({fact.name for fact in FACTS}) == len(FACTS)
    for fact in FACTS:
        assert len(fact.answer.split()) <= 40, fact.name
        assert len(questions(fact)) >= 12, fact.name


def test_no_question_belongs_to_two_facts() -> None:
    owner: dict[str, str] = {}
    for fact in FACTS:
        for question in questions(fact):
            assert owner.setdefault(stripped(question), fact.name) == fact.name, question


def test_every_fact_holds_out_a_quarter_of_its_phrasings() -> None:
    for fact in FACTS:
        held_out, trained = about.phrasings(fact.name, "held_out"), about.phrasings(fact.name, "train")
        assert set(held_out) | set(trained) == set(questions(fact))
        assert not set(held_out) & set(trained)
        assert 0.25 <= len(held_out) / len(questions(fact)) < 0.35


def test_the_facts_about_the_sampler_use_its_terms() -> None:
    answers = {fact.name: fact.answer for fact in FACTS}
    assert "uniform-state" in answers["mask"] and answers["mask"].startswith("No mask token")
    assert "entropy bound accepts" in answers["entropy bound"] and "does not stop" in answers["entropy bound"]
    assert "stable and confident" in answers["stop"]


def test_what_everybody_types_first_is_trained_and_never_held_out() -> None:
    rng = Random(11)
    for skill, typed in (
        ("about", {question for fact in FACTS for question in fact.plain}),
        ("story", {*story.PLAIN, *story.LONG_PLAIN}),
        ("unknown", set(unknown.REMARKS)),
    ):
        wanted = {stripped(text) for text in typed}
        trained = {stripped(SKILLS[skill](rng, "train").prompt) for _ in range(12000)}
        assert wanted <= trained, skill
        assert wanted.isdisjoint({stripped(SKILLS[skill](rng, "held_out").prompt) for _ in range(2000)}), skill


def listed(prompt: str) -> list[str]:
    """The words that a prompt of the sorting skill asks to sort."""
    words = re.findall(r"[a-z]+", prompt)
    asked = {word for phrasing in sorting.PHRASINGS for word in re.findall(r"[a-z]+", phrasing)}
    return [word for word in words if word not in asked]


def test_limits_are_said_only_beyond_them() -> None:
    rng, nouns = Random(13), (*(hero.noun for hero in HEROES), *(place.noun for place in PLACES))
    seen = Counter[str]()
    for _ in range(3000):
        prompt, answer = limits.draw_prompt(rng)
        seen[answer] += 1
        if answer == limits.STORIES:
            assert sum(bool(re.search(rf"\b{noun}\b", prompt)) for noun in nouns) <= 1, prompt
        elif answer == limits.DATES:
            assert re.search(r"\b\d\d?/\d\d?/\d{4}\b", prompt), prompt
        elif answer == limits.WORDS:
            assert re.search(r"\d", prompt) or len(listed(prompt)) not in range(2, 6), prompt
        elif two := re.search(r"(?<![\d.])(\d\d?) ?([+-]) ?(\d\d?)(?![\d.]| ?[+-])", prompt):
            one, sign, other = two.groups()
            assert re.search(r"[+-] ?$", prompt[: two.start()]) or (sign == "-" and int(one) < int(other)), prompt
    assert set(seen) == set(limits.ANSWERS) and min(seen.values()) > 400


def test_every_story_is_long_names_its_hero_and_place_and_fills_every_slot() -> None:
    for hero in HEROES:
        for place in PLACES:
            for long in (False, True):
                text = story.tell(hero, place, long)
                assert 110 <= len(text.split()) <= 250
                assert re.search(rf"\b{hero.noun}\b", text) and re.search(rf"\b{place.noun}\b", text)
                assert "{" not in text and "  " not in text


def test_unknown_prompts_are_not_questions_that_a_fact_answers() -> None:
    known = {stripped(question) for fact in FACTS for question in (*questions(fact), *fact.plain)}
    known |= {stripped(question) for question in (*story.PLAIN, *story.LONG_PLAIN)}
    rng = Random(9)
    asked = {stripped(SKILLS["unknown"](rng, "train").prompt) for _ in range(5000)}
    assert asked.isdisjoint(known)


def test_the_data_files_import_no_torch() -> None:
    package = Path(localdiff.demo.__file__).parent
    files = [*package.glob("skills/*.py"), *(package / f"{name}.py" for name in DATA_MODULES)]
    assert all(file.is_file() for file in files)
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "torch" for name in names), file


DATA_MODULES = ("corpus", "scoring", "training/rendering", "training/turns", "training/vocabulary")
