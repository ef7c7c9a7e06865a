"""What a scene's numbers mean, computed once per frame: stages, settled count, what went back to noise, the end.

Knows entropies and acceptance; knows nothing about pieces, rows or colours. A position counts as settled by its
entropy, the same test as its colour; acceptance says only what the sampler took back.
"""

from __future__ import annotations

from dataclasses import dataclass

from localdiff.view.palette import LEANING, NOISE, SETTLED, stage_of
from localdiff.view.scene import Scene


@dataclass(frozen=True, kw_only=True, slots=True)
class CanvasState:
    """A canvas in numbers.

    Attributes:
        stages: stage of each position; all noise before the first step.
        settled: number of settled positions.
        renoised: positions that the previous step accepted and this step did not.
        end: position of the first end token about which the model is at least leaning, or the length.
    """

    stages: tuple[int, ...]
    settled: int
    renoised: tuple[bool, ...]
    end: int


def state_of(scene: Scene) -> CanvasState:
    """The state of a canvas, for a scene that has one."""
    step = scene.step
    if step is None:
        length = len(scene.block.canvas_ids) if scene.block else 0
        return CanvasState(stages=(NOISE,) * length, settled=0, renoised=(False,) * length, end=length)
    stages = tuple(map(stage_of, step.entropies))
    before = scene.accepted_before or (False,) * len(stages)
    return CanvasState(
        stages=stages,
        settled=stages.count(SETTLED),
        renoised=tuple([was and not now for was, now in zip(before, step.accepted, strict=True)]),
        end=_end(step.argmax_ids, stages, scene.end_ids),
    )


def _end(ids: tuple[int, ...], stages: tuple[int, ...], end_ids: tuple[int, ...]) -> int:
    for position, token in enumerate(ids):
        if token in end_ids and stages[position] <= LEANING:
            return position
    return len(ids)
