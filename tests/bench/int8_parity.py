"""`python -m tests.bench.int8_parity [--recipe int8] [--count 20] [--seeds 3]`: what int8 activations cost in answers.

The demo model in a recipe, once with plain modules, which multiply decoded weights in the type of the activations, and
once with everything in int8 that the CPU path computes in int8. Both get the same questions under the same noise, as in
`localdiff bench quality`. The project's bound is one point of score and 3 % of steps.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from localdiff.bench.quality.comparison import compare
from localdiff.bench.quality.questions import skill_questions
from localdiff.bench.quality.report import table
from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.demo.skills import SKILLS
from localdiff.engine import Engine
from localdiff.options import GenerateOptions
from quant.cpu.switches import CPU_PATH
from quant.recipe import RECIPES
from tests.bench.batching import run_batched
from tests.checkpoints.quantized import quantize


def loaded(directory: str, path: str) -> Engine:
    """The model with the modules that `LOCALDIFF_CPU_PATH=path` chooses."""
    os.environ[CPU_PATH] = path
    return Engine.load(directory, device="cpu")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.int8_parity", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--skills", nargs="+", choices=sorted(SKILLS), default=[name for name in SKILLS if name != "story"]
    )
    parser.add_argument("--recipe", choices=RECIPES, default="int8")
    parser.add_argument("--count", type=int, default=20, help="prompts of each skill")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        directory = str(quantize(DEMO_DIRECTORY, Path(folder, arguments.recipe), arguments.recipe))
        (comparison,) = compare(
            lambda: loaded(directory, "plain"),
            [lambda: loaded(directory, "fast")],
            skill_questions(arguments.skills, arguments.count),
            [GenerateOptions(seed=seed) for seed in range(arguments.seeds)],
            lambda words: print(words, file=sys.stderr),
            runner=partial(run_batched, width=16),
        )
    print(table(comparison))


if __name__ == "__main__":
    main()
