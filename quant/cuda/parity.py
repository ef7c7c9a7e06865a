"""Whether fast modules and kernels compute what plain ones do, on the GPU and with the weights of a user.

A compiler can make a wrong program from a correct kernel, for one kind of GPU or in one version, and tests elsewhere do
not notice (https://github.com/triton-lang/triton/pull/8554, https://github.com/triton-lang/triton/pull/9756). So a few
plain results are computed while a model is loaded, and the modules that replace plain ones are checked against them.
Shape letters: N rows, D width, E experts, K experts per row, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from quant.cuda.linear import CudaLinear
from quant.cuda.switches import Part
from quant.modules.embedding import QuantEmbedding
from quant.modules.linear import QuantLinear

Present: TypeAlias = Callable[[], AbstractContextManager[None]]

ABSOLUTE, RELATIVE = 0.25, 0.1
"""Largest error of a number, as fractions of the root mean square of its column and of the number itself, added.

Rounding to bf16 stays under a tenth of that, and activations in int8 under a half. Leaving out one of forty groups of
64 inputs exceeds it.
"""
LARGEST, LARGEST_INT8 = 0.02, 0.05
"""Largest error of a result, relative to its norm, and the same with activations in int8: a fault that is small in
every number, as a wrong scale is, exceeds it. At the released widths, rounding to bf16 takes 0.3 % of the norm at most,
experts' table of bytes 0.7 %, and activations in int8 2 %, or 4 % where the columns of an expert's inner rows differ
much.
"""
FEWEST = 12
"""Fewest rows that show by how much a column's numbers vary, and so by how much they may be off."""
_COLUMNS = 4096
"""Columns that are compared at a time: an fp32 copy of all logits would take 268 MB."""
_DRAWN = 1_000_003
"""Numbers that are drawn for a tensor; a prime, so that its rows differ."""
_TOP_K = 8
_SPREAD = 4.0
"""Standard deviation of logits."""
_SEED = 0


class Draws:
    """Random numbers for a device, drawn on the host: the same everywhere. In a large tensor, most are repetitions.

    Args:
        dtype: of normal numbers; uniform ones are fp32.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._generator = torch.Generator().manual_seed(_SEED)

    def normal(self, *shape: int) -> Tensor:
        """Of mean 0 and variance 1."""
        return self._tiled(torch.randn, shape, self._dtype)

    def uniform(self, *shape: int) -> Tensor:
        """In [0, 1)."""
        return self._tiled(torch.rand, shape, torch.float32)

    def _tiled(self, draw: Callable[..., Tensor], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        drawn = draw(min(count, _DRAWN), dtype=torch.float32, generator=self._generator).to(self._device, dtype)
        return drawn.repeat(-(-count // _DRAWN))[:count].view(*shape)


class ParityError(RuntimeError):
    """A fast path computes other numbers than the plain one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of a plain module.

    Attributes:
        method: name of the method that was called.
        arguments, expected: its arguments and its result, in host memory.
    """

    method: str
    arguments: tuple[Tensor, ...]
    expected: Tensor

    @classmethod
    def of(cls, plain: nn.Module, method: str, *arguments: Tensor) -> Call:
        """Calls the method and keeps its result."""
        expected: Tensor = getattr(plain, method)(*arguments)
        return cls(method=method, arguments=tuple(one.cpu() for one in arguments), expected=expected.cpu())


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """A call of a plain module, and the fast module that must give the same result.

    Attributes:
        part: of the switches, which makes the plain module compute.
        name: of the fast module, for messages.
        device: where it computes.
        largest: the largest error, relative to the norm of the result.
        present: makes the context in which its weights are on the device, if they come and go.
    """

    part: Part
    name: str
    fast: nn.Module
    call: Call
    device: torch.device
    largest: float = LARGEST
    present: Present = nullcontext

    @torch.inference_mode()
    def check(self) -> float:
        """The relative error of the fast module.

        Raises:
            ParityError: the error is too large, or a second call gives another result.
        """
        compute: Callable[..., Tensor] = getattr(self.fast, self.call.method)
        with self.present():
            arguments = [argument.to(self.device) for argument in self.call.arguments]
            name, expected = f"{self.name}, {self.call.method} of {len(arguments[0])} rows", (self.call.expected,)
            error = assert_parity(name, lambda: (compute(*arguments),), expected, self.largest)
            if isinstance(self.fast, CudaLinear) and compute(*arguments, in_parts=True).dim() > expected[0].dim():
                parts = assert_parity(
                    f"{name}, in parts",
                    lambda: (compute(*arguments, in_parts=True).sum(dim=0),),
                    expected,
                    self.largest,
                )
                error = max(error, parts)
        return error


@torch.inference_mode()
def plain_calls(plain: Any, rows: Sequence[int], dtype: torch.dtype, *, canvas: int) -> list[Call]:
    """Calls of a plain module, to be made before its weights are passed to a fast one.

    Args:
        plain: a quantized linear layer or embedding, or the experts of a layer.
        rows: how many random rows each call takes; with fewer than `FEWEST`, a correct module may be judged wrong.
        dtype: type of the activations.
        canvas: rows that an embedding takes: a step passes it no other number.
    """
    draws = Draws(next(iter(plain.state_dict().values())).device, dtype)
    if isinstance(plain, QuantEmbedding):
        vocab_size, width = plain.weight.shape
        probs = draws.normal(canvas, vocab_size).mul_(_SPREAD)
        for part in torch.split(probs, 16):  # in fp32, all of them would take more memory than a step
            part.copy_(part.float().softmax(dim=-1))
        return [Call.of(plain, "logits", draws.normal(canvas, width)), Call.of(plain, "mean", probs)]
    if isinstance(plain, QuantLinear):
        return [Call.of(plain, "forward", draws.normal(count, plain.weight.shape[1])) for count in rows]
    experts, width, _ = plain.down_proj.shape
    calls = []
    for count in rows:
        weight, index = draws.uniform(count, experts).topk(min(_TOP_K, experts), dim=-1)
        calls.append(Call.of(plain, "forward", draws.normal(count, width), index, weight))
    return calls


def assert_parity(
    name: str, compute: Callable[[], Sequence[Tensor]], expected: Sequence[Tensor], largest: float = LARGEST
) -> float:
    """The largest relative error of what a fast path computes, ‖actual - expected‖ / ‖expected‖.

    It computes twice: no kernel's result depends on the order in which its programs run, so a difference shows a race.

    Args:
        expected: what the plain path computes, each [N, ...], on any device.
        largest: the largest relative error.

    Raises:
        ParityError: numbers differ by more than rounding explains, or from one time to the next.
    """
    errors = []
    for actual, again, right in zip(compute(), compute(), expected, strict=True):
        if actual.shape != right.shape:
            raise ParityError(f"{name}: a result of shape {list(actual.shape)} should have {list(right.shape)}")
        if not torch.equal(_bits(actual), _bits(again)):
            raise ParityError(f"{name}: the same input gives other numbers the second time")
        error = _relative_error(name, actual, right)
        if error > largest:
            raise ParityError(f"{name}: numbers differ from those of the plain path by {error:.1%} of their norm")
        errors.append(error)
    return max(errors)


def _relative_error(name: str, actual: Tensor, expected: Tensor) -> float:
    """The error over columns where the plain path is finite: where it has NaN or infinity, the weights are at fault."""
    parts = (torch.split(result.reshape(len(expected), -1), _COLUMNS, dim=1) for result in (actual, expected))
    error = norm = 0.0
    for found_part, expected_part in zip(*parts, strict=True):
        right = expected_part.to(actual.device).float()
        has_numbers = right.isfinite().all(dim=0)
        right = right[:, has_numbers]
        difference = (found_part[:, has_numbers].float() - right).abs()
        is_right = difference <= ABSOLUTE * right.square().mean(dim=0).sqrt() + RELATIVE * right.abs()
        if not bool(is_right.all()):  # false for NaN
            wrong = is_right.numel() - int(is_right.sum())
            raise ParityError(f"{name}: {wrong} of {is_right.numel()} numbers differ from those of the plain path")
        error += float(difference.square().sum())
        norm += float(right.square().sum())
    return (error / norm) ** 0.5 if norm else 0.0


def _bits(numbers: Tensor) -> Tensor:
    """The bytes of numbers: compared by these, NaN equals itself."""
    return numbers.contiguous().view(torch.uint8)
