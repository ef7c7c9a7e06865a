"""`python -m tests.bench.cpu_logits`: the logits of a canvas read on a CPU, through torch and by the kernel in C.

Both ways run in one thread and take turns. Times count only while the thread runs, so other work on the machine matters
little. Each way reads what it left in place of the logits the last time; that takes as long as reading logits.
"""

from __future__ import annotations

import argparse
import os
from functools import partial

import torch

from localdiff.bench.step.released import released_config
from localdiff.denoising.native_reading import read_natively
from localdiff.diffusion.noise import SeededNoise
from localdiff.diffusion.reading import read_logits
from localdiff.machine.hardware import cpu_name
from tests.bench.one_thread import REPEATS, library_in_one_thread, milliseconds


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(prog="python -m tests.bench.cpu_logits", description=__doc__).parse_args()
    library = library_in_one_thread()
    config = released_config(6)
    shape = config.canvas_length, config.vocab_size
    ways = [
        partial(
            read, (torch.randn(shape) * 8).bfloat16(), softcap=config.softcap, temperature=0.8, noise=SeededNoise(0)
        )
        for read in (read_logits, partial(read_natively, library.logits))
    ]
    print(f"{cpu_name()}, load {os.getloadavg()[0]:.1f}; the kernel: {library.instructions}")
    print(f"ms of one thread for {shape[0]} rows of {shape[1]:,} bf16 logits, least of {REPEATS}")
    with torch.inference_mode():
        for name, taken in zip(("torch", "kernel"), milliseconds(ways), strict=True):
            print(f"{name:8}{taken:6.0f}")


if __name__ == "__main__":
    main()
