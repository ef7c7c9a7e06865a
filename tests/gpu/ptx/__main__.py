"""Runs tests of kernels on emulated GPUs: `make kernels-ptx`, or `python -m tests.gpu.ptx 86 90` for two of them."""

from __future__ import annotations

import os
import subprocess
import sys

CARDS = (86, 90, 120)
"""An RTX 30, an H100 and an RTX 50; what Triton compiles for an A100 and an RTX 40 is much like that for an RTX 30."""
TESTS = ("tests/quant/cuda", "tests/localdiff/kernels")


def main(cards: list[int]) -> int:
    """Exit code of the first run that failed, or 0."""
    for card in cards:
        print(f"sm_{card}", flush=True)
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {"EMULATED_GPU": str(card), "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", "logical", "--maxprocesses", "8", *TESTS]
        done = subprocess.run([*command, "--dist", "worksteal"], env=environment, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main([int(card) for card in sys.argv[1:]] or list(CARDS)))
