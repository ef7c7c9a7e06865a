"""How often the demo model is right on prompts it was never trained on, and in how many steps.

    python -m localdiff.demo.evaluate                       every skill, 200 held-out prompts each, seed 0
    python -m localdiff.demo.evaluate --skills sudoku add --seeds 0 1 2 --prompts 50 --model DIR --json
    python -m localdiff.demo.evaluate --adapter DIR         with an adapter beside the weights
    python -m localdiff.demo.evaluate --after story add     each prompt in a conversation, after a story and a sum

Runs the engine that users run, at the checkpoint's own settings. The prompts follow from the skill's name alone, so
every model and seed is asked the same ones. The questions before them follow from the name and from the number of
prompts; the model's answers to these are not scored.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from localdiff.conversation import IDS, Conversation
from localdiff.demo.corpus import Mixture, sample_example
from localdiff.demo.estimate import UNKNOWN, UNKNOWN_NOTE, estimate
from localdiff.demo.leaving import leaving
from localdiff.demo.scoring import score
from localdiff.demo.skills import ALL_SKILLS, SKILLS, Example
from localdiff.engine import Engine
from localdiff.events import BlockStats, RunFinished, text_of
from localdiff.options import GenerateOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Result of one skill.

    Attributes:
        runs: prompts times seeds.
        accuracy: share answered right; `margin` is half of its 95 % interval, None where none can be given.
        steps: mean denoise steps per block.
        converged: share of blocks that stopped as stable and confident.
    """

    skill: str
    runs: int
    accuracy: float
    margin: float | None
    steps: float
    converged: float


def held_out(skill: str, count: int, after: Sequence[str] = ()) -> list[Example]:
    """`count` different held-out examples of a skill, the same for the same arguments; fewer if it has no more.

    Each follows a training example of every skill in `after`.
    """
    mixture = Mixture(weights={skill: 1.0}, history_share=0.0, system_share=0.0)
    rng = random.Random(f"held-out {skill}")
    examples: dict[str, Example] = {}
    for _ in range(50 * count):
        example = sample_example(rng, "held_out", mixture)
        examples.setdefault(example.prompt, example)
        if len(examples) == count:
            break
    return [
        replace(example, earlier=tuple(ALL_SKILLS[name](rng, "train") for name in after))
        for example in examples.values()
    ]


def evaluate(engine: Engine, skill: str, *, prompts: int, seeds: Sequence[int], after: Sequence[str] = ()) -> Score:
    """Asks `prompts` held-out questions of a skill once with each seed; see `held_out`."""
    examples = held_out(skill, prompts, after)
    right = [0] * len(examples)
    blocks: list[BlockStats] = []
    for seed in seeds:
        for number, example in enumerate(examples):
            answer, finished = _answer(engine, example, seed)
            right[number] += score(example, answer)
            blocks += finished.stats.blocks
    accuracy = estimate([count / len(seeds) for count in right], largest=1.0)
    return Score(
        skill=skill,
        runs=len(examples) * len(seeds),
        accuracy=accuracy.mean,
        margin=None if math.isinf(accuracy.margin) else accuracy.margin,
        steps=fmean(block.steps for block in blocks),
        converged=fmean(block.reason == "converged" for block in blocks),
    )


def _answer(engine: Engine, example: Example, seed: int) -> tuple[str, RunFinished]:
    """The answer to an example, asked after the model's own answers to those before it."""
    conversation, messages = Conversation(engine), list[dict[str, Any]]()
    for exchange in example.earlier:
        answer, finished = _reply(conversation, messages, exchange, seed)
        messages.append({"role": "assistant", "content": answer, IDS: list(finished.token_ids)})
    return _reply(conversation, messages, example, seed)


def _reply(
    conversation: Conversation, messages: list[dict[str, Any]], example: Example, seed: int
) -> tuple[str, RunFinished]:
    """Adds an example's question to the messages, and gets it answered."""
    messages += [{"role": role, "content": content} for role, content in example.messages]
    events = list(conversation.answer(messages, GenerateOptions(seed=seed)))
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    return text_of(events), finished


def main(typed: Sequence[str] | None = None) -> None:
    """Evaluate and print, with the arguments of this process or others."""
    parser = argparse.ArgumentParser(prog="python -m localdiff.demo.evaluate", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo", help="`demo`, or the directory of an exported training")
    parser.add_argument("--adapter", help="beside its weights: a directory, or the name of one that ships")
    parser.add_argument("--skills", nargs="+", choices=sorted(ALL_SKILLS), default=list(SKILLS))
    parser.add_argument(
        "--after", nargs="+", choices=sorted(ALL_SKILLS), default=[], metavar="SKILL", help="asked first"
    )
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line in place of the table")
    arguments = parser.parse_args(typed)
    with leaving(parser):
        _print_scores(arguments)


def _print_scores(arguments: argparse.Namespace) -> None:
    engine = Engine.load(arguments.model, device="cpu", dtype="fp32", adapter=arguments.adapter)
    if not arguments.json:
        print(f"{'skill':10} {'runs':>5} {'right':>7}  {'±':>5} {'steps a block':>14} {'converged':>10}")
    is_unknown = False
    for skill in arguments.skills:
        result = evaluate(engine, skill, prompts=arguments.prompts, seeds=arguments.seeds, after=arguments.after)
        if arguments.json:
            print(json.dumps(asdict(result)), flush=True)
            continue
        margin = UNKNOWN if result.margin is None else f"{result.margin:.1%}"
        is_unknown |= result.margin is None
        print(
            f"{result.skill:10} {result.runs:5} {result.accuracy:7.1%} {margin:>6}"
            f" {result.steps:14.2f} {result.converged:10.1%}",
            flush=True,
        )
    if is_unknown:
        print(f"\n{UNKNOWN_NOTE}")


if __name__ == "__main__":
    main()
