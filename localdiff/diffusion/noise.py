"""Noise sources: one seeded source of randomness for a whole run, or for two runs that are compared.

Draws happen on the CPU, so that one seed means the same noise on every device.
Shape letters: L canvas, R rows of a block, V vocabulary.
"""

from __future__ import annotations

import hashlib
from typing import Protocol, final

import torch
from torch import Tensor

from localdiff.diffusion.search import inverse_cumulative
from localdiff.errors import ArgumentError


class SampleNoise(Protocol):
    """A source of samples. `whole_canvas` sources must be given all L rows of probabilities at once."""

    whole_canvas: bool

    def start_step(self, length: int) -> None:
        """Called once before the samples of a denoise step are drawn."""

    def sample(self, probs: Tensor, first_row: int) -> Tensor:
        """[R] ids drawn from `probs` [R, V] fp32, for canvas rows `first_row ...`; arbitrary ids where `probs` is NaN.

        Such a step is refused later, once its entropies are known.
        """


class Noise(SampleNoise, Protocol):
    """A source of canvases and samples."""

    def at(self, block: int, step: int) -> None:
        """Called before the draws of each step of each block; step 0 is the canvas before the first step."""

    def canvas(self, length: int, vocab_size: int) -> Tensor:
        """[L] int64 ids, uniform over the vocabulary, on the CPU: a new canvas, or ids to renoise an old one with."""


class SeededNoise:
    """The default: one uniform number per row and step, turned into a sample through the cumulative distribution.

    That is 256 draws per step where a Gumbel or multinomial draw takes 67 million; the distribution is the same.
    Kernels take its numbers and draw the samples themselves, so a subclass may change the numbers but not `sample`.
    """

    whole_canvas = False

    def __init_subclass__(cls) -> None:
        """Raises: TypeError, for a subclass with a `sample` of its own."""
        if "sample" in vars(cls):
            raise TypeError(f"`{cls.__name__}` has its own `sample`, so it must not derive from `SeededNoise`")

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._uniforms = torch.empty(0)

    def at(self, block: int, step: int) -> None:
        """Does nothing: one stream serves the whole run."""

    def canvas(self, length: int, vocab_size: int) -> Tensor:
        return torch.randint(vocab_size, (length,), generator=self._stream("canvas"))

    def start_step(self, length: int) -> None:
        self._uniforms = torch.rand(length, generator=self._stream("samples"), dtype=torch.float32)

    def uniforms(self, length: int) -> Tensor:
        """Starts a step and returns the numbers [L] in [0, 1), fp32 on the CPU, that its samples are drawn with."""
        self.start_step(length)
        return self._uniforms

    def mark(self) -> Tensor:
        """The current position in the noise stream, for `return_to`."""
        return self._generator.get_state()

    def return_to(self, mark: Tensor) -> None:
        """Rewinds to a mark, as if nothing had been drawn since."""
        self._generator.set_state(mark)

    @final
    def sample(self, probs: Tensor, first_row: int) -> Tensor:
        # The whole step's numbers at once: each copy to a GPU makes the host wait until the GPU's earlier work is done.
        self._uniforms = self._uniforms.to(probs.device)
        return inverse_cumulative(probs, self._uniforms[first_row : first_row + len(probs)])

    def _stream(self, kind: str) -> torch.Generator:
        """The generator for draws of this kind."""
        del kind
        return self._generator


class PairedNoise(SeededNoise):
    """Draws that depend on the seed, the block, the step and nothing else, for two runs that are compared.

    With one stream per run, the two would diverge at the first block in which one of them needs an extra step.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seed = seed
        self._block, self._step = 1, 0

    def at(self, block: int, step: int) -> None:
        """Makes the following draws those of this step of this block."""
        self._block, self._step = block, step

    def _stream(self, kind: str) -> torch.Generator:
        name = f"{self._seed} {self._block} {self._step} {kind}".encode()
        return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1)


class ReferenceNoise:
    """Draws exactly as transformers' `generate` after `torch.manual_seed(seed)`, in the same order, for parity checks.

    Its multinomial fills an array of canvas times vocabulary, so it serves fp32 runs on a CPU only.
    """

    whole_canvas = True

    def __init__(self, seed: int, *, device: torch.device, dtype: torch.dtype) -> None:
        """Raises: UsageError, on any device but a CPU or in any dtype but fp32."""
        if device.type != "cpu" or dtype != torch.float32:
            kind = str(dtype).removeprefix("torch.")
            raise ArgumentError(
                f"{{noise}} needs device cpu and dtype fp32, not {device.type} and {kind}",
                "compute on the CPU in fp32, or with the default noise",
                noise="reference",
            )
        self._generator = torch.Generator().manual_seed(seed)

    def at(self, block: int, step: int) -> None:
        """Does nothing: one stream serves the whole run."""

    def canvas(self, length: int, vocab_size: int) -> Tensor:
        return torch.randint(vocab_size, (length,), generator=self._generator)

    def start_step(self, length: int) -> None:
        del length

    def sample(self, probs: Tensor, first_row: int) -> Tensor:
        if first_row:
            raise ValueError(f"reference noise draws for the whole canvas at once, not from {first_row=}")
        if probs.isnan().any():  # which `multinomial` refuses, with an error that does not say whose fault it is
            return torch.zeros(len(probs), dtype=torch.int64)
        return torch.multinomial(probs, num_samples=1, generator=self._generator).squeeze(1)
