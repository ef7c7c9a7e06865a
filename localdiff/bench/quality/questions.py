"""The questions of `bench quality`, no two of them the same, and how answers are judged.

Two sources: the held-out prompts of the demo model's skills, each with a strict rule for what is right; and a file of
prompts, whose answers are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from localdiff.demo.evaluate import held_out
from localdiff.demo.scoring import score
from localdiff.demo.skills import SKILLS
from localdiff.errors import UsageError
from localdiff.paths import expanded
from localdiff.utf8 import MAX_BYTES, decoded

PROMPTS = "prompts"
"""Group of questions from a file."""

_FILE = "`--prompts` takes a UTF-8 file with one prompt per line"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question.

    Attributes:
        group: the skill that it belongs to, for the table.
        prompt: what the user says.
        is_right: judges an answer's text, or None where that is impossible.
    """

    group: str
    prompt: str
    is_right: Callable[[str], bool] | None = None


def skill_questions(skills: Sequence[str], count: int) -> list[Question]:
    """`count` held-out prompts of each skill, or as many as it has; the same at every call.

    Raises:
        UsageError: there is no such skill.
    """
    for skill in skills:
        if skill not in SKILLS:
            raise UsageError(f"there is no skill `{skill}`", f"the demo model's skills are {', '.join(SKILLS)}")
    return [
        Question(group=skill, prompt=example.prompt, is_right=partial(score, example))
        for skill in dict.fromkeys(skills or SKILLS)
        for example in held_out(skill, count)
    ]


def file_questions(path: Path) -> list[Question]:
    """One question per non-blank line of a text file; equal lines are one, or an interval would count them as several.

    Raises:
        UsageError: the file cannot be read as text, has no prompt, or is too large.
    """
    try:
        with expanded(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"no such file: `{path}`", _FILE) from None
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror}", _FILE) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"`{path}` has more than {MAX_BYTES / 1e6:.0f} MB of prompts", _FILE)
    # Other characters at which Python would split, a form feed among them, are part of a prompt.
    lines = decoded(data, f"`{path}`", _FILE).split("\n")
    prompts = dict.fromkeys(line.removesuffix("\r") for line in lines if line.strip())
    questions = [Question(group=PROMPTS, prompt=prompt) for prompt in prompts]
    if not questions:
        raise UsageError(f"`{path}` has no prompts", _FILE)
    return questions
