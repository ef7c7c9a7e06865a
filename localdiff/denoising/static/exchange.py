"""What the host sends to a static step, and reads back.

Knows copies between a step's buffers and host memory; knows no model.
Shape letters: L canvas, C commit rows, K most probable ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from localdiff.diffusion.reading import TopIds
from localdiff.kernels.decision import StepBuffers
from localdiff.kernels.decision_layout import CONTROLS


class Exchange:
    """Host-side buffers of two steps, so that a step can be sent before the outcome of the last one has arrived.

    With a GPU the memory is pinned, and copies are asynchronous.
    """

    def __init__(self, buffers: StepBuffers) -> None:
        self._buffers = buffers
        self._is_on_gpu = buffers.inputs.is_cuda
        self._inputs = [self._like(buffers.inputs) for _ in range(2)]
        self._outcomes = [self._like(buffers.outcome) for _ in range(2)]
        self._tops: list[Tensor | None] = [None, None]
        self._done = [torch.cuda.Event() if self._is_on_gpu else None for _ in range(2)]  # type: ignore[no-untyped-call]

    def send(self, step: int, controls: Sequence[int], uniforms: Tensor | None, fresh: Tensor) -> None:
        """Copies the inputs of a step to the device, ahead of its launch."""
        inputs = self._inputs[step % 2]
        inputs[:CONTROLS] = torch.tensor(controls, dtype=torch.int32)
        if uniforms is not None:
            inputs[CONTROLS : CONTROLS + len(uniforms)] = uniforms.view(torch.int32)
        inputs[CONTROLS + len(fresh) :] = fresh
        self._buffers.inputs.copy_(inputs, non_blocking=True)

    def send_commit(self, ids: Sequence[int], buffer: Tensor) -> None:
        """Copies the ids that a step commits into `buffer` int64 [C] on the device."""
        buffer.copy_(torch.tensor(ids, dtype=torch.int64, pin_memory=self._is_on_gpu), non_blocking=True)

    def ask(self, step: int, top: Tensor | None = None) -> None:
        """Copies the outcome of a step to the host, after its launch, and with it the most probable ids, if any."""
        self._outcomes[step % 2].copy_(self._buffers.outcome, non_blocking=True)
        if top is not None:
            host = self._tops[step % 2]
            host = self._tops[step % 2] = self._like(top) if host is None else host
            host.copy_(top, non_blocking=True)
        done = self._done[step % 2]
        if done is not None:
            # On the step's device, which need not be the current one.
            done.record(torch.cuda.current_stream(self._buffers.outcome.device))

    def take(self, step: int) -> Tensor:
        """The outcome of a step, waiting for it; to be read before the step after the next is sent."""
        done = self._done[step % 2]
        if done is not None:
            done.synchronize()
        return self._outcomes[step % 2]

    def top(self, step: int) -> TopIds | None:
        """The most probable ids of a step, in int32, after `take`; None where they were not asked for."""
        top = self._tops[step % 2]
        return None if top is None else TopIds(ids=top[0], probs=top[1].view(torch.float32))

    def _like(self, buffer: Tensor) -> Tensor:
        return torch.zeros(buffer.shape, dtype=buffer.dtype, pin_memory=self._is_on_gpu)
