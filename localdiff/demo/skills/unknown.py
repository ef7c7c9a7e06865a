"""Prompts outside the skills, answered with what the model can do instead. Held out by the prompt."""

from __future__ import annotations

from random import Random

from .example import Example, Split, ask, casual, draw
from .fact import SKILL_LIST
from .fields import CITIES, COUNTRIES, PEOPLE
from .words import COMMON, made_up, with_article

NAME = "unknown"
ANSWER = "I am a tiny demo model and do not know that. I can " + SKILL_LIST + "."
# Words that the about skill explains are no unknown topics.
WORDS: tuple[str, ...] = tuple(word for word in COMMON if word not in {"canvas", "seed", "card"})
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
    "What is {number} times {number}?",
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
    "{word} {word} {word}",
    "{word}",
    "{made} {made}",
)


def key_of(prompt: str) -> str:
    return f"{NAME}:{prompt}"


def _prompt(rng: Random) -> str:
    pattern = rng.choice(PATTERNS)
    while "{" in pattern:
        for slot, value in (
            ("{country}", rng.choice(COUNTRIES)),
            ("{city}", rng.choice(CITIES)),
            ("{person}", rng.choice(PEOPLE)),
            ("{word}", rng.choice(WORDS)),
            ("{a_word}", with_article(rng.choice(WORDS))),
            ("{made}", made_up(rng)),
            ("{number}", str(rng.randint(2, 99))),
        ):
            pattern = pattern.replace(slot, value, 1)
    return pattern


def sample(rng: Random, split: Split) -> Example:
    """Draw a prompt of the split."""
    prompt = draw(rng, split, _prompt, key_of)
    return ask(NAME, casual(rng, prompt), ANSWER, key_of(prompt))
