"""Trains the demo model and writes it as a checkpoint in the released layout.

    python -m localdiff.demo.train WORK --updates 3000        train, or continue what WORK holds
    python -m localdiff.demo.train WORK --base DIR            from the weights and the vocabulary of a checkpoint
    python -m localdiff.demo.train WORK --export DIR          write WORK's model to DIR
    torchrun --standalone --nproc-per-node 2 -m localdiff.demo.train WORK …      with two processes

WORK keeps the vocabulary, the state after every hundred updates, and a log line for each.
"""

from __future__ import annotations

import argparse
import random
import shutil
from pathlib import Path

import torch

from ..engine import Engine
from ..model.config import ModelConfig
from ..model.diffusion_gemma import DiffusionGemma
from .architecture import CANVAS_LENGTH, config_json
from .batches import Batches
from .corpus import load_vocabulary, render, sample_example
from .export import VOCABULARY_FILES, end_of_turn_id, export
from .journal import Journal
from .team import Team, join
from .training import Trainer, TrainingOptions, initialise
from .vocabulary import write_vocabulary

STATE = "state.pt"


def prepare(work: Path, options: TrainingOptions, *, start: Path | None = None, team: Team | None = None) -> Trainer:
    """A trainer over the skills' training split; continues from the state in `work` where there is one.

    Args:
        start: a checkpoint to start from, where `work` is new. Without one the network is drawn from the seed.
    """
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "tokenizer.json").exists():
        if start is None:
            write_vocabulary(work)
        else:
            for name in VOCABULARY_FILES:
                shutil.copyfile(start / name, work / name)
    tokenizer, template = load_vocabulary(work)

    def draw(rng: random.Random) -> tuple[list[int], list[int]]:
        return render(sample_example(rng, "train"), tokenizer, template)

    config = ModelConfig.from_dict(config_json(tokenizer.get_vocab_size(), end_of_turn_id(tokenizer)))
    model = initialise(config, options.seed) if start is None else _trainable(start)
    batches = Batches(
        draw,
        seed=options.seed,
        batch_size=options.batch_size,
        batch_rows=options.batch_rows,
        canvas_length=CANVAS_LENGTH,
        pad_id=config.pad_token_id,
    )
    trainer = Trainer(model, batches, options, team)
    if (work / STATE).exists():
        trainer.resume(work / STATE)
    return trainer


def _trainable(checkpoint: Path) -> DiffusionGemma:
    model = Engine.load(str(checkpoint), device="cpu", dtype="fp32").model
    return model.train().requires_grad_(True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m localdiff.demo.train", description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="folder that keeps the state of the training")
    parser.add_argument("--updates", type=int, default=TrainingOptions.updates)
    parser.add_argument(
        "--decay", type=int, default=TrainingOptions.decay, help="updates over which the rate falls to 0"
    )
    parser.add_argument("--seed", type=int, default=TrainingOptions.seed)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--base", type=Path, help="checkpoint to start from, where WORK is new")
    parser.add_argument(
        "--compile", action="store_true", help="compile what lies between products: faster, and needs a C++ compiler"
    )
    parser.add_argument("--export", type=Path, help="write the model as a checkpoint to this folder and stop")
    arguments = parser.parse_args()
    options = TrainingOptions(updates=arguments.updates, decay=arguments.decay, seed=arguments.seed)
    team = join()
    trainer = prepare(arguments.work, options, start=arguments.base, team=team)
    if arguments.export:
        export(trainer.model, arguments.work, arguments.export)
        return
    torch.set_num_threads(arguments.threads)  # behind the loading of a base, which settles it for itself
    torch.set_flush_denormal(True)
    if arguments.compile:
        trainer.compile()
    with Journal(arguments.work / "log.jsonl", options.updates) as journal:
        trainer.run(arguments.work / STATE, journal.report)


if __name__ == "__main__":
    main()
