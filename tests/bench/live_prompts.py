"""Which prompts best show what the canvas is: positions are visibly taken back, and the answer is still right.

    python -m tests.bench.live_prompts                            held-out questions of several skills
    python -m tests.bench.live_prompts --skills about --prompts 40 --seeds 0 1 2 3 4
    python -m tests.bench.live_prompts --ask "Write a long text about quantization."

For choosing a new prompt and seed after a new demo model: the Makefile has them for `make run` and the example trace.
A run is better the more of its steps send visible positions back to noise, and the more often the answer is right with
other seeds, too; the best seed is that of the right run with the most such steps. Prompts given with `--ask` have no
known answer: their answers are printed to be read.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localdiff.demo.evaluate import held_out
from localdiff.demo.scoring import score
from localdiff.demo.skills import SKILLS, Example
from localdiff.engine import Engine
from localdiff.events import DenoiseStep, Event, TextCommitted
from localdiff.options import GenerateOptions
from localdiff.view.canvas_state import state_of
from localdiff.view.scene import Scene, fold

SKILLS_TO_ASK = ("sudoku", "about", "sort", "add", "json", "story")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """What a run shows.

    Attributes:
        seed: its seed.
        answer: its text.
        right: whether the answer is right; None if that is unknown.
        steps: denoise steps of all blocks.
        back_steps: steps at which a position before the end of the answer was taken back.
        back: positions taken back there, over all steps.
    """

    seed: int
    answer: str
    right: bool | None
    steps: int
    back_steps: int
    back: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A prompt and its runs, one or more."""

    prompt: str
    sights: tuple[Sight, ...]

    @property
    def best(self) -> Sight:
        """The run to show: one that was right, if any was."""
        return max(self.sights, key=lambda sight: (bool(sight.right), sight.back_steps, sight.back))

    @property
    def rank(self) -> tuple[bool, int, int, int]:
        """Greater is better: a best run worth showing, then the number of right answers, then how much it shows."""
        best, right = self.best, sum(bool(sight.right) for sight in self.sights)
        return (best.right is not False and best.back_steps > 0, right, best.back_steps, best.back)

    def row(self) -> str:
        """A line of the table."""
        best, known = self.best, [sight.right for sight in self.sights if sight.right is not None]
        right = f"{sum(known)}/{len(known)}" if known else "?"
        return f"{right:>6} {best.seed:5} {best.steps:6} {best.back_steps:9} {best.back:10}  {self.prompt}"


def sight_of(events: Iterable[Event], seed: int, example: Example | None = None) -> Sight:
    """What a run shows, read as the canvas reads it."""
    scene, answer = Scene(), ""
    steps = back_steps = back = 0
    for event in events:
        scene = fold(scene, event)
        if isinstance(event, DenoiseStep):
            state = state_of(scene)
            taken = sum(state.renoised[: state.end])
            steps, back_steps, back = steps + 1, back_steps + (taken > 0), back + taken
        elif isinstance(event, TextCommitted) and event.channel == "answer":
            answer += event.text
    right = None if example is None else score(example, answer)
    return Sight(seed=seed, answer=answer, right=right, steps=steps, back_steps=back_steps, back=back)


def try_out(engine: Engine, prompt: str, seeds: Sequence[int], example: Example | None = None) -> Candidate:
    """Ask once with each seed."""
    return Candidate(
        prompt=prompt,
        sights=tuple(sight_of(engine.generate(prompt, GenerateOptions(seed=seed)), seed, example) for seed in seeds),
    )


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="demo")
    parser.add_argument("--skills", nargs="+", choices=sorted(SKILLS), default=SKILLS_TO_ASK)
    parser.add_argument("--prompts", type=int, default=20, help="of each skill")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ask", nargs="+", metavar="PROMPT", help="these prompts only")
    parser.add_argument("--show", type=int, default=30, help="rows of the table")
    options = parser.parse_args()
    engine = Engine.load(options.model, device="cpu")
    if options.ask:
        found = [try_out(engine, prompt, options.seeds) for prompt in options.ask]
    else:
        examples = [example for skill in options.skills for example in held_out(skill, options.prompts)]
        found = [try_out(engine, example.prompt, options.seeds, example) for example in examples]
    print(f"{'right':>6} {'seed':>5} {'steps':>6} {'with back':>9} {'taken back':>10}  prompt")
    for candidate in sorted(found, key=lambda candidate: candidate.rank, reverse=True)[: options.show]:
        print(candidate.row())
        if options.ask:
            print(*(f"       {sight.seed}: {sight.answer}" for sight in candidate.sights), sep="\n")


if __name__ == "__main__":
    main()
