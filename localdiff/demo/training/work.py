"""The shared parts of training a model and an adapter: options, batches, and the work folder with its log.

Knows command lines and folders; does not know what is trained, or on what.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from localdiff.demo.training.architecture import CANVAS_LENGTH
from localdiff.demo.training.batches import Batches, Draw
from localdiff.demo.training.team import Team
from localdiff.demo.training.trainer import Trainer, TrainingOptions
from localdiff.model.diffusion_gemma import DiffusionGemma

STATE = "state.pt"
_SHOWN_EVERY = 20


def make_parser(module: str, about: str, *, updates: int, decay: int) -> argparse.ArgumentParser:
    """A command-line parser with the options that every training has.

    Args:
        module: full name of the module that is run.
        updates, decay: defaults of these options.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("work", type=Path, help="folder that keeps the state of the training")
    parser.add_argument("--updates", type=int, default=updates)
    parser.add_argument("--decay", type=int, default=decay, help="updates over which the rate falls to 0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--compile", action="store_true", help="compile what lies between products: faster, and needs a C++ compiler"
    )
    parser.add_argument("--export", type=Path, metavar="DIR", help="write what was trained to this folder and stop")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line; what is to be exported must have been trained before."""
    arguments = parser.parse_args()
    if arguments.export is not None and not (arguments.work / STATE).exists():
        parser.error(f"`{arguments.work}` has no training to export")
    return arguments


def make_trainer(work: Path, model: DiffusionGemma, draw: Draw, options: TrainingOptions, team: Team) -> Trainer:
    """A trainer on what `draw` draws, which continues from the state in `work` if there is one."""
    batches = Batches(
        draw,
        seed=options.seed,
        batch_size=options.batch_size,
        batch_rows=options.batch_rows,
        canvas_length=CANVAS_LENGTH,
        pad_id=model.config.pad_token_id,
    )
    trainer = Trainer(model.train(), batches, options, team)
    if (work / STATE).exists():
        trainer.resume(work / STATE)
    return trainer


def train(trainer: Trainer, arguments: argparse.Namespace) -> None:
    """Runs a trainer to its end with the options of `make_parser`'s command line."""
    torch.set_num_threads(arguments.threads)  # after loading a base, which sets the number itself
    torch.set_flush_denormal(True)
    if arguments.compile:
        trainer.compile()
    with journal(arguments.work / "log.jsonl", trainer.options.updates) as report:
        trainer.run(arguments.work / STATE, report)


@contextmanager
def journal(path: Path, updates: int) -> Iterator[Callable[[int, float, float], None]]:
    """Appends a line of JSON to a file for every update, and prints a line of text for every twentieth.

    What it yields reports the number of a finished update, from 1, its loss and its accuracy; seconds are those since
    the journal was opened.
    """
    started = time.perf_counter()
    with path.open("a", encoding="utf-8") as file:

        def report(update: int, loss: float, accuracy: float) -> None:
            seconds = time.perf_counter() - started
            line = {
                "update": update,
                "loss": round(loss, 4),
                "accuracy": round(accuracy, 4),
                "seconds": round(seconds, 1),
            }
            file.write(json.dumps(line) + "\n")
            if update % _SHOWN_EVERY == 0:
                file.flush()
                print(f"{update}/{updates}  loss {loss:.3f}  right {accuracy:.1%}  {seconds:.0f} s", flush=True)

        yield report
