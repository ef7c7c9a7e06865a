"""Examples as token ids: deterministic, short enough, and the same ids as in a chat."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tokenizers import Tokenizer

from localdiff.demo.corpus import Mixture, sample_example
from localdiff.demo.skills import SKILLS
from localdiff.demo.training.rendering import render
from localdiff.demo.training.turns import Render

Vocabulary = tuple[Tokenizer, Render]
CANVAS = 96


def only(skill: str) -> Mixture:
    return Mixture(weights={skill: 1.0}, history_share=0.0, system_share=0.0)


def test_the_same_seed_renders_the_same_ids(demo_vocabulary: Vocabulary) -> None:
    runs = []
    for _ in range(2):
        rng = Random(11)
        runs.append([render(sample_example(rng, "train"), *demo_vocabulary) for _ in range(100)])
    assert runs[0] == runs[1]


def test_rendering_gives_prompt_and_answer_with_their_marks(demo_vocabulary: Vocabulary) -> None:
    tokenizer, template = demo_vocabulary
    rng = Random(1)
    for _ in range(200):
        example = sample_example(rng, "held_out", Mixture(history_share=0.0, system_share=0.5))
        prompt, answer = render(example, tokenizer, template)
        assert tokenizer.decode(prompt, skip_special_tokens=False) == template(example.messages)
        assert tokenizer.decode(prompt[-3:], skip_special_tokens=False) == "<|turn>model\n"
        assert tokenizer.id_to_token(answer[-1]) == "<turn|>"
        assert tokenizer.decode(answer) == example.answer


@pytest.mark.parametrize("skill", sorted(set(SKILLS) - {"story"}))
def test_answers_of_short_skills_fit_on_one_canvas(skill: str, demo_vocabulary: Vocabulary) -> None:
    rng = Random(2)
    pairs = [render(sample_example(rng, "train", only(skill)), *demo_vocabulary) for _ in range(300)]
    assert max(len(answer) for _, answer in pairs) <= 80 < CANVAS
    assert max(len(prompt) for prompt, _ in pairs) <= CANVAS


def test_stories_take_several_canvases(demo_vocabulary: Vocabulary) -> None:
    rng = Random(3)
    lengths = [len(render(sample_example(rng, "train", only("story")), *demo_vocabulary)[1]) for _ in range(100)]
    assert min(lengths) > CANVAS
    assert max(lengths) <= 3 * CANVAS


@pytest.mark.parametrize("skill", ["about", "story"])
def test_no_word_of_a_long_answer_is_written_in_letters(skill: str, demo_vocabulary: Vocabulary) -> None:
    tokenizer, template = demo_vocabulary
    rng = Random(7)
    for _ in range(100):
        example = sample_example(rng, "train", only(skill))
        written = [tokenizer.id_to_token(id) for id in render(example, tokenizer, template)[1]]
        letters = {piece for piece in written if len(piece) == 1 and piece.isalpha()}
        assert letters <= {"A", "I", "x"}, example.answer  # "4x4"


@pytest.mark.parametrize("skill", ["spelling", "sort", "json"])
def test_what_is_copied_is_written_as_it_is_read(skill: str, demo_vocabulary: Vocabulary) -> None:
    tokenizer, template = demo_vocabulary
    rng = Random(8)
    for _ in range(100):
        example = sample_example(rng, "train", only(skill))
        answer = render(example, tokenizer, template)[1]
        assert answer[:-1] == tokenizer.encode(example.answer, add_special_tokens=False).ids


def test_a_conversation_is_the_ids_that_a_chat_has(demo_vocabulary: Vocabulary) -> None:
    """Even if an earlier answer is written in word pieces, which reading its text would not give."""
    tokenizer, template = demo_vocabulary
    rng, seen = Random(6), Counter[str]()
    for _ in range(60):
        example = sample_example(rng, "train", Mixture(history_share=1.0, system_share=0.3))
        ids, _ = render(example, tokenizer, template)
        *messages, question = example.messages
        for earlier in example.earlier:
            messages += [*earlier.messages, ("assistant", earlier.answer)]
            seen[earlier.skill] += 1
        text = template([*messages, question])
        assert tokenizer.decode(ids, skip_special_tokens=False) == tokenizer.decode(
            tokenizer.encode(text, add_special_tokens=False).ids, skip_special_tokens=False
        )
        written = [render(earlier, tokenizer, template)[1] for earlier in example.earlier]
        assert all(any(ids[at : at + len(part)] == part for at in range(len(ids))) for part in written)
    assert seen["story"] and seen["about"] and seen["json"]
