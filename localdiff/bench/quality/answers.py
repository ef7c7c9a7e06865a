"""Whole generations: what a model answers to a question with a seed.

Knows events; knows nothing about what the answers are compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

from localdiff.bench.quality.canvases import Canvas
from localdiff.bench.quality.questions import Question
from localdiff.engine import Engine
from localdiff.events import BlockCommitted, DenoiseStep, TextCommitted
from localdiff.options import GenerateOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One generation.

    Attributes:
        ids: committed ids.
        steps: denoise steps of each block.
        right: whether the text is right; None where that is unknown.
    """

    ids: tuple[int, ...]
    steps: tuple[int, ...]
    right: bool | None

    @property
    def steps_a_block(self) -> float:
        """Mean denoise steps per block."""
        return sum(self.steps) / len(self.steps)


def ask(engine: Engine, question: Question, options: GenerateOptions) -> tuple[Answer, tuple[Canvas, ...]]:
    """The answer to a question, and the canvases that the steps of its first block read."""
    text, canvases = [], []
    ids: list[int] = []
    steps: list[int] = []
    for event in engine.generate(question.prompt, options):
        match event:
            case DenoiseStep(block=1):
                canvases.append(Canvas(ids=event.shown_ids, temperature=event.temperature))
            case TextCommitted(channel="answer"):
                text.append(event.text)
            case BlockCommitted():
                steps.append(event.steps)
                ids += event.token_ids
    right = None if question.is_right is None else question.is_right("".join(text))
    return Answer(ids=tuple(ids), steps=tuple(steps), right=right), tuple(canvases)
