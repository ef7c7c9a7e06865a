"""Batches of clean training canvases, each a function of (seed, batch number) alone.

Knows token ids and lengths; knows nothing about noise or the network. Sequences of similar length share a batch,
because every row of padding costs as much as a real one.
Shape letters: B batch, P longest encoder part, L canvas.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

Draw: TypeAlias = Callable[[random.Random], tuple[list[int], list[int]]]
"""Draws one example: prompt ids, and answer ids with the end token."""

_POOL = 16  # batches that are drawn together and sorted by length
# A canvas of this length holds every short answer. Most batches of them use it: the padding behind is soon learnt, and
# every fourth batch still shows a whole canvas of it.
_SHORT_CANVAS = 56
_WHOLE_EVERY = 4
# A batch of long sequences keeps only as many as these rows hold: it would take ten times as long as the others.
_MAX_ROWS = 5120


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Clean sequences.

    Attributes:
        encoder_ids: [B, P] what stands before the block, padded on the right.
        encoder_rows: [B] real length of each encoder part.
        canvas_ids: [B, L] the block to predict.
        is_answer: bool [B, L], the block's positions up to and including the end token.
    """

    encoder_ids: Tensor
    encoder_rows: Tensor
    canvas_ids: Tensor
    is_answer: Tensor


class Batches:
    """An endless sequence of batches; `at(n)` is the same whenever it is asked for."""

    def __init__(self, draw: Draw, *, seed: int, batch_size: int, canvas_length: int, pad_id: int) -> None:
        self._draw = draw
        self._seed = seed
        self._batch_size = batch_size
        self._canvas_length = canvas_length
        self._pad_id = pad_id
        self._pool_number = -1
        self._pool: list[Batch] = []

    def at(self, number: int) -> Batch:
        """Batch `number`, from 0."""
        if number // _POOL != self._pool_number:
            self._pool_number = number // _POOL
            self._pool = self._draw_pool(random.Random(f"{self._seed}/{self._pool_number}"))
        return self._pool[number % _POOL]

    def _draw_pool(self, rng: random.Random) -> list[Batch]:
        blocks = [self._block(rng) for _ in range(_POOL * self._batch_size)]
        blocks.sort(key=lambda block: (len(block[1]) > _SHORT_CANVAS, len(block[0])))
        pool = [
            self._collate(blocks[start : start + self._batch_size], whole=rng.randrange(_WHOLE_EVERY) == 0)
            for start in range(0, len(blocks), self._batch_size)
        ]
        rng.shuffle(pool)
        return pool

    def _block(self, rng: random.Random) -> tuple[list[int], list[int]]:
        """One block of one example: the encoder part before it, and its own ids."""
        prompt, answer = self._draw(rng)
        start = self._canvas_length * rng.randrange(-(-len(answer) // self._canvas_length))
        return prompt + answer[:start], answer[start : start + self._canvas_length]

    def _collate(self, blocks: list[tuple[list[int], list[int]]], *, whole: bool) -> Batch:
        longest = max(len(encoder) for encoder, _ in blocks)
        fits = max(len(canvas) for _, canvas in blocks) <= _SHORT_CANVAS
        length = min(_SHORT_CANVAS, self._canvas_length) if fits and not whole else self._canvas_length
        blocks = blocks[: max(1, _MAX_ROWS // (longest + length))]
        encoder_ids = torch.full((len(blocks), longest), self._pad_id)
        canvas_ids = torch.full((len(blocks), length), self._pad_id)
        is_answer = torch.zeros(canvas_ids.shape, dtype=torch.bool)
        for row, (encoder, canvas) in enumerate(blocks):
            encoder_ids[row, : len(encoder)] = torch.tensor(encoder)
            canvas_ids[row, : len(canvas)] = torch.tensor(canvas)
            is_answer[row, : len(canvas)] = True
        rows = torch.tensor([len(encoder) for encoder, _ in blocks])
        return Batch(encoder_ids=encoder_ids, encoder_rows=rows, canvas_ids=canvas_ids, is_answer=is_answer)
