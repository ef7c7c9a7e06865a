"""Trains the demo model and writes it as a checkpoint in the released layout.

    python -m localdiff.demo.train WORK --updates 3000        train, or continue what WORK holds
    python -m localdiff.demo.train WORK --export DIR           write WORK's model to DIR

WORK keeps the vocabulary, the state after every hundred updates, and a log line for each.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch

from ..model.config import ModelConfig
from .architecture import CANVAS_LENGTH, config_json
from .batches import Batches
from .corpus import load_vocabulary, render, sample_example
from .export import end_of_turn_id, export
from .training import Trainer, TrainingOptions
from .vocabulary import write_vocabulary

STATE = "state.pt"


def prepare(work: Path, options: TrainingOptions) -> Trainer:
    """A trainer over the skills' training split; continues from the state in `work` where there is one."""
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "tokenizer.json").exists():
        write_vocabulary(work)
    tokenizer, template = load_vocabulary(work)

    def draw(rng: random.Random) -> tuple[list[int], list[int]]:
        return render(sample_example(rng, "train"), tokenizer, template)

    config = ModelConfig.from_dict(config_json(tokenizer.get_vocab_size(), end_of_turn_id(tokenizer)))
    batches = Batches(
        draw,
        seed=options.seed,
        batch_size=options.batch_size,
        canvas_length=CANVAS_LENGTH,
        pad_id=config.pad_token_id,
    )
    trainer = Trainer(config, batches, options)
    if (work / STATE).exists():
        trainer.resume(work / STATE)
    return trainer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m localdiff.demo.train", description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="folder that keeps the state of the training")
    parser.add_argument("--updates", type=int, default=TrainingOptions.updates)
    parser.add_argument(
        "--decay", type=int, default=TrainingOptions.decay, help="updates over which the rate falls to 0"
    )
    parser.add_argument("--seed", type=int, default=TrainingOptions.seed)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--export", type=Path, help="write the model as a checkpoint to this folder and stop")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    options = TrainingOptions(updates=arguments.updates, decay=arguments.decay, seed=arguments.seed)
    trainer = prepare(arguments.work, options)
    if arguments.export:
        export(trainer.model, arguments.work, arguments.export)
        return
    started = time.perf_counter()
    with (arguments.work / "log.jsonl").open("a", encoding="utf-8") as log:

        def report(update: int, loss: float, accuracy: float) -> None:
            seconds = time.perf_counter() - started
            line = {
                "update": update,
                "loss": round(loss, 4),
                "accuracy": round(accuracy, 4),
                "seconds": round(seconds, 1),
            }
            log.write(json.dumps(line) + "\n")
            if update % 20 == 0:
                log.flush()
                print(f"{update}/{options.updates}  loss {loss:.3f}  right {accuracy:.1%}  {seconds:.0f} s", flush=True)

        trainer.run(arguments.work / STATE, report)


if __name__ == "__main__":
    main()
