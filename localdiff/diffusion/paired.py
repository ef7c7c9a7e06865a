"""Noise for two runs to be compared: the same wherever both are at the same step of the same block.

With one stream per run, the two would diverge at the first block for which one of them needs a step more. Here each
step of each block has a stream of its own.
"""

from __future__ import annotations

import hashlib

import torch

from localdiff.diffusion.noise import SeededNoise


class PairedNoise(SeededNoise):
    """Draws that depend on the seed, the block, the step and nothing else."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seed = seed
        self._block, self._step = 1, 0

    def at(self, block: int, step: int) -> None:
        """Draws for this step of this block from here on."""
        self._block, self._step = block, step

    def _stream(self, kind: str) -> torch.Generator:
        name = f"{self._seed} {self._block} {self._step} {kind}".encode()
        return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1)
