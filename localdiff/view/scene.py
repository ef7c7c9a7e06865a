"""A scene: what there is to draw at a moment of a run, folded from its events.

Knows events; knows nothing about sizes, colours or terminals. Folding is cheap and keeps only references,
because it happens on the engine's thread at every step, while most scenes are never drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile

from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    DenoiseStep,
    Event,
    Prefilled,
    RunFinished,
    RunStarted,
    TextCommitted,
)

REMEMBERED_STEPS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """A moment of a run.

    Attributes:
        run: how the run began, or None before that.
        prefill: how much of the prompt has been encoded, or None.
        block: the canvas that is condensing, or None before the first.
        step: its latest denoise step, or None while it is untouched noise.
        accepted_before: acceptance of the step before `step`, or None where there was none in this block.
        means: mean entropy of the latest steps of this block, in nats, oldest first.
        block_steps: denoise steps of the blocks before this one.
        passes: denoise steps of the whole run.
        tokens: tokens committed so far, end tokens left out.
        tok_per_s: `tokens` over the time from the first denoise step to the latest commit, or None before it; at the
            end, the whole run's rate, as in every other report.
        pending: committed text whose paragraph goes on in this block.
        stopping: the run has been asked to stop, and will after this step.
        slowed: the run waits between steps for the viewer's sake, so its speed means nothing.
        legend: explain the stages below the canvas.
    """

    run: RunStarted | None = None
    prefill: Prefilled | None = None
    block: BlockStarted | None = None
    step: DenoiseStep | None = None
    accepted_before: tuple[bool, ...] | None = None
    means: tuple[float, ...] = ()
    block_steps: tuple[int, ...] = ()
    passes: int = 0
    tokens: int = 0
    tok_per_s: float | None = None
    pending: str = ""
    stopping: bool = False
    slowed: bool = False
    legend: bool = False

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end the answer; empty before the run began."""
        return self.run.end_ids if self.run else ()


def fold(scene: Scene, event: Event) -> Scene:
    """The scene after `event`.

    A committed block stays visible as its last step until the next one starts, so that no frame shows an
    empty page. `pending` is not touched: which text is final belongs to `paragraphs.Transcript`.
    """
    match event:
        case RunStarted():
            return Scene(run=event, slowed=scene.slowed, legend=scene.legend)
        case Prefilled():
            return replace(scene, prefill=event)
        case BlockStarted():
            return replace(scene, block=event, step=None, accepted_before=None, means=())
        case DenoiseStep():
            return replace(
                scene,
                step=event,
                accepted_before=scene.step.accepted if scene.step else None,
                means=(*scene.means, event.mean_entropy)[-REMEMBERED_STEPS:],
                passes=scene.passes + 1,
            )
        case BlockCommitted():
            ids = takewhile(lambda token: token not in scene.end_ids, event.token_ids)
            tokens = scene.tokens + sum(1 for _ in ids)
            elapsed = scene.step.elapsed if scene.step else 0.0
            return replace(
                scene,
                block_steps=(*scene.block_steps, event.steps),
                tokens=tokens,
                tok_per_s=tokens / elapsed if tokens and elapsed > 0 else scene.tok_per_s,
            )
        case TextCommitted():
            return scene
        case RunFinished():
            return replace(scene, tok_per_s=event.stats.tok_per_s) if event.stats.tokens else scene
