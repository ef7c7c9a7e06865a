"""Prompts outside the skills, answered with what the model can do or a skill's limit. Held out by the prompt."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from localdiff.demo.skills import limits
from localdiff.demo.skills.example import Example, Split, ask, casual, draw
from localdiff.demo.skills.fact import SKILL_LIST
from localdiff.demo.skills.fields import CITIES, COUNTRIES, PEOPLE
from localdiff.demo.skills.words import COMMON, listed, made_up, with_article

NAME = "unknown"
LIMITS_SHARE = 0.45
REMARK_SHARE = 0.2
ANSWER = "I am a tiny demo model and do not know that. I can " + SKILL_LIST + "."
ANSWERS = (ANSWER, *limits.ANSWERS)
# Words that the about skill explains, or that ask for a story, are not unknown topics.
WORDS: tuple[str, ...] = tuple(word for word in COMMON if word not in {"canvas", "seed", "card", "doctor", "story"})
PATTERNS: tuple[str, ...] = (
    "What is the capital of {country}?",
    "How many people live in {city}?",
    "What is the weather in {city}?",
    "How far is {city} from {city}?",
    "Who is {person}?",
    "Who was the first king of {country}?",
    "Where is {city}?",
    "When was {city} founded?",
    "What should I eat in {city}?",
    "Translate {word} to French.",
    "How do you say {word} in German?",
    "What does {word} mean?",
    "What is {a_word}?",
    "Write a poem about {a_word}.",
    "Write code that draws {a_word}.",
    "Write a function in Python.",
    "How do I make {a_word}?",
    "Give me a recipe with {word}.",
    "What color is {a_word}?",
    "Where can I buy {a_word}?",
    "Why is the {word} {word}?",
    "Tell me a joke about {a_word}.",
    "Draw {a_word}.",
    "What rhymes with {word}?",
    "Is {a_word} better than {a_word}?",
    "What is the square root of {number}?",
    "Who won the game in {city}?",
    "What time is it in {city}?",
    "What is the price of {a_word}?",
    "Write a letter to {person}.",
    "Sing a song about {city}.",
    "Tell me about {country}.",
    "Explain the {word} to {person}.",
    "Why did {person} go to {city}?",
    "Do you like {word}?",
    "Who won the {word} in {year}?",
    "What happened in {year}?",
    "Which year was the {word} {verb}?",
    "How many {word}s does {a_word} have?",
    "How many {word}s are in {a_word}?",
    "How old is {person}?",
    "How {made} is the {word}?",
    "Which is {made}, {number} or {number}?",
    "What is half of {number}?",
    "Count to {number}.",
    "Count the letters in {word}.",
    "List {number} {word}s.",
    "Name three {word}s.",
    "What is my {word}?",
    "What did I say before?",
    "What was my first question?",
    "Can you {verb} {a_word}?",
    "Do you know {person}?",
    "Is the {word} {made}?",
    "Are there {word}s in {country}?",
    "I {verb} {word}.",
    "I am {made}.",
    "I feel {made} today.",
    "You are {made}.",
    "My {word} is {made}.",
    "My name is {person}.",
    "Please {verb} my {word}.",
    "{Verb} the {word}.",
    "{Verb} this text: the {word} {verb} on the {word}",
    "{Verb} the text: {made} {made} {made} {made}",
    "Give me ideas for {word}.",
    "Write {a_made}.",
    "Write {a_made} about {word}.",
    "Explain {made} {made}.",
    "{person} is {number} years old and {person} is {number}. Who is older?",
    "If I have {number} {word}s and eat {number}, how many are left?",
    "Solve {number}x + {number} = {number}",
    "{salad}",
    "{salad}",
    "{salad}",
    "{salad}?",
    "{word}",
    "{number}",
    "{made} {made}",
)
VERBS: tuple[str, ...] = listed(
    """
    fix translate summarize check find open close read buy sell paint clean call love like hate need want see
    hear eat drink build break move bring send win lose teach play sing dance jump run walk sleep
    """
)
# All of these are in training: they are what everybody types first, or next.
REMARKS: tuple[str, ...] = (
    "Yes", "No", "OK", "Okay", "Test", "Testing", "Why", "How", "What", "When", "Who", "Where", "Really", "Again",
    "More", "Go on", "Continue", "Stop", "Wait", "Maybe", "Sure", "Please", "Sorry", "Wow", "Lol", "Hmm", "And",
    "And you", "And then", "And backwards", "And in French", "One more", "Try again", "Are you sure", "That is wrong",
    "Wrong", "What do you mean", "I do not understand", "Say something", "Anything", "Nothing", "Do it", "Faster",
    "Shorter", "Tell me a joke", "Write a poem", "Write a haiku", "Write code", "Translate", "How old are you",
    "Where do you live", "What is my name", "What is the meaning of life", "What time is it", "What is today's date",
    "I love you",
    "Ping", "Foo", "Foo bar", "...", "??", "???", "!", "?", ".", "-", "abc", "x", "1 2 3", "{}", "[]", ":)",
)  # fmt: skip
_SMALL = listed(
    """
    the a an in on at of to for from with and or but not is are was were be do does did can could will would has
    have I you he she it we they my your his her this that these those who what where when why how which if so
    """
)
_MARKS = ("", "", "", "", "", "", ",", ".", ":", "!", ";", " -", '"')


def key_of(prompt: str) -> str:
    return f"{NAME}:{prompt}"


def _prompt(rng: Random) -> str:
    return re.sub(r"\{(\w+)\}", lambda slot: _SLOTS[slot[1]](rng), rng.choice(PATTERNS))


def _salad(rng: Random) -> str:
    """Two to nine words in any order."""
    words = []
    for _ in range(rng.randint(2, 9)):
        kind = rng.random()
        if kind < 0.4:
            word = rng.choice(_SMALL)
        elif kind < 0.7:
            word = rng.choice(WORDS)
        else:
            word = made_up(rng)
        words.append((word if rng.random() < 0.93 else str(rng.randint(0, 9999))) + rng.choice(_MARKS))
    words[0] = words[0].capitalize()
    return " ".join(words)


_SLOTS: dict[str, Callable[[Random], str]] = {
    "country": lambda rng: rng.choice(COUNTRIES),
    "city": lambda rng: rng.choice(CITIES),
    "person": lambda rng: rng.choice(PEOPLE),
    "word": lambda rng: rng.choice(WORDS),
    "a_word": lambda rng: with_article(rng.choice(WORDS)),
    "made": made_up,
    "a_made": lambda rng: with_article(made_up(rng)),
    "verb": lambda rng: rng.choice(VERBS),
    "Verb": lambda rng: rng.choice(VERBS).capitalize(),
    "number": lambda rng: str(rng.randint(2, rng.choice((9, 99, 9999)))),
    "year": lambda rng: str(rng.randint(1000, 2100)),
    "salad": _salad,
}


def _prompt_and_answer(rng: Random) -> tuple[str, str]:
    """A prompt and its answer."""
    return limits.draw_prompt(rng) if rng.random() < LIMITS_SHARE else (_prompt(rng), ANSWER)


def sample(rng: Random, split: Split) -> Example:
    """Draw a prompt of the split."""
    if split == "train" and rng.random() < REMARK_SHARE:
        remark = rng.choice(REMARKS) + rng.choice(("", "", ".", "?", "!"))
        return ask(NAME, casual(rng, remark, share=0.4), ANSWER, key_of("remark"))
    prompt, answer = draw(rng, split, _prompt_and_answer, lambda pair: key_of(pair[0]))
    return ask(NAME, casual(rng, prompt), answer, key_of(prompt))
