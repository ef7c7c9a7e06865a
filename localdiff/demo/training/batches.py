"""Batches of clean training canvases, each a function of (seed, batch number) alone.

Knows token ids and lengths; knows nothing about noise or the network. Sequences of similar length share a batch,
because every row of padding costs as much as a real one, and all batches have about as many rows: many short
sequences, or a few long ones.
Shape letters: B batch, P longest encoder part, L canvas.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

Block: TypeAlias = tuple[list[int], list[int]]
"""The encoder part before a block, and the block's own ids."""
Draw: TypeAlias = Callable[[random.Random], tuple[list[int], list[int]]]
"""Draws an example: prompt ids, and answer ids with the end token."""

_POOL = 16  # batches drawn together and sorted by length
# Canvases are as short as their answers allow. Padding after an answer is learnt quickly, and every sixth batch still
# shows whole canvases of it.
_CANVASES = (24, 40, 56)
_WHOLE_EVERY = 6


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Clean sequences.

    Attributes:
        encoder_ids: [B, P] what comes before the block, padded on the right.
        encoder_rows: [B] real length of each encoder part.
        canvas_ids: [B, L] the block to predict.
        is_answer: bool [B, L], the block's positions up to and including the end token.
    """

    encoder_ids: Tensor
    encoder_rows: Tensor
    canvas_ids: Tensor
    is_answer: Tensor

    def take(self, rows: slice) -> Batch:
        """Some of the sequences, with their padding unchanged."""
        return Batch(
            encoder_ids=self.encoder_ids[rows],
            encoder_rows=self.encoder_rows[rows],
            canvas_ids=self.canvas_ids[rows],
            is_answer=self.is_answer[rows],
        )


class Batches:
    """An endless sequence of batches; `at(n)` is the same at every call."""

    def __init__(
        self, draw: Draw, *, seed: int, batch_size: int, batch_rows: int, canvas_length: int, pad_id: int
    ) -> None:
        """Sets how examples are drawn, and how many.

        Args:
            batch_size: mean number of sequences that are drawn for a batch.
            batch_rows: most rows, of encoder and canvas together; sequences beyond them are left out.
        """
        self._draw = draw
        self._seed = seed
        self._batch_size = batch_size
        self._batch_rows = batch_rows
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
        blocks.sort(key=lambda block: (self._canvas_for(block), len(block[0])))
        pool = [self._collate(part, rng) for part in self._parts(blocks)]
        rng.shuffle(pool)
        return pool

    def _canvas_for(self, block: Block) -> int:
        fitting = [length for length in _CANVASES if len(block[1]) <= length < self._canvas_length]
        return fitting[0] if fitting else self._canvas_length

    def _parts(self, blocks: list[Block]) -> list[list[Block]]:
        """`_POOL` consecutive parts with about the same number of rows, none of them empty."""
        rows = [len(block[0]) + self._canvas_for(block) for block in blocks]
        parts: list[list[Block]] = []
        total, start, cumulative = sum(rows), 0, 0
        for end, here in enumerate(rows, start=1):
            cumulative += here
            parts_left = _POOL - len(parts)
            if cumulative * _POOL >= total * (len(parts) + 1) or len(blocks) - end < parts_left:
                parts.append(blocks[start:end])
                start = end
        return parts

    def _block(self, rng: random.Random) -> Block:
        """The block of one example in which a random id of the answer lies: the encoder part before it, and its ids."""
        prompt, answer = self._draw(rng)
        start = rng.randrange(len(answer)) // self._canvas_length * self._canvas_length
        return prompt + answer[:start], answer[start : start + self._canvas_length]

    def _collate(self, blocks: list[Block], rng: random.Random) -> Batch:
        whole = rng.randrange(_WHOLE_EVERY) == 0
        longest = max(len(encoder) for encoder, _ in blocks)
        length = self._canvas_length if whole else max(self._canvas_for(block) for block in blocks)
        most = max(1, self._batch_rows // (longest + length))
        if len(blocks) > most:  # a random choice, because the last ones are the longest
            blocks = rng.sample(blocks, most)
        encoder_ids = torch.full((len(blocks), longest), self._pad_id)
        canvas_ids = torch.full((len(blocks), length), self._pad_id)
        is_answer = torch.zeros(canvas_ids.shape, dtype=torch.bool)
        for row, (encoder, canvas) in enumerate(blocks):
            encoder_ids[row, : len(encoder)] = torch.tensor(encoder)
            canvas_ids[row, : len(canvas)] = torch.tensor(canvas)
            is_answer[row, : len(canvas)] = True
        rows = torch.tensor([len(encoder) for encoder, _ in blocks])
        return Batch(encoder_ids=encoder_ids, encoder_rows=rows, canvas_ids=canvas_ids, is_answer=is_answer)
