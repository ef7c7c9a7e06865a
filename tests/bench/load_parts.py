"""What a load on a CPU does with weights before the first step, and how long that takes.

    python -m tests.bench.load_parts DIR      a quantized model, such as thirty layers of `tests.checkpoints.full_width`

Prints the seconds of the whole load, of converting weights to int8 by rows (waiting for the disk included), of oneDNN's
layout, and the rate of the conversion alone, for a matrix in memory. Needs an idle machine; the page cache matters.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

import quant.cpu.int8_weight as int8_weight
from localdiff.engine import Engine
from quant.codecs.int8 import Int8
from quant.modules import QuantTensor

OUT, IN = 4096, 2816  # queries of a sliding layer, released size
TRIES = 5


@contextmanager
def timed(owner: object, name: str, seconds: Counter[str], calls: Counter[str]) -> Iterator[None]:
    """Adds up the seconds and calls of a function inside the block."""
    function: Callable[..., Any] = getattr(owner, name)

    def measured(*arguments: Any) -> Any:
        began = time.perf_counter()
        result = function(*arguments)
        seconds[name] += time.perf_counter() - began
        calls[name] += 1
        return result

    with mock.patch.object(owner, name, measured):
        yield


def conversion_rate() -> float:
    """Weights converted per second without waiting for a disk; the best of a few tries."""
    tensor = QuantTensor.of(Int8(), torch.randn(OUT, IN, generator=torch.Generator().manual_seed(0)))
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        int8_weight.requantized(tensor.codec, tensor.encoded)
        took.append(time.perf_counter() - began)
    return OUT * IN / min(took)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load_parts", description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a quantized model, large enough for the fast modules")
    arguments = parser.parse_args()
    seconds, calls = Counter[str](), Counter[str]()
    with ExitStack() as stack:
        for owner, name in ((int8_weight, "requantized"), (torch.ops.onednn, "qlinear_prepack")):
            stack.enter_context(timed(owner, name, seconds, calls))
        began = time.perf_counter()
        Engine.load(arguments.model, device="cpu")
        whole = time.perf_counter() - began
    print(f"load             {whole:6.1f} s, {torch.get_num_threads()} threads")
    print(f"to int8 by rows  {seconds['requantized']:6.1f} s, {calls['requantized']} matrices")
    print(f"oneDNN's layout  {seconds['qlinear_prepack']:6.1f} s, {calls['qlinear_prepack']} matrices")
    print(f"in memory        {conversion_rate() / 1e9:6.2f} G weights/s to int8 by rows")


if __name__ == "__main__":
    main()
