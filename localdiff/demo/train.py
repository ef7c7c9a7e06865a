"""Trains the demo model and writes it as a checkpoint in the released layout.

    python -m localdiff.demo.train WORK --updates 3000        train, or continue what WORK holds
    python -m localdiff.demo.train WORK --base DIR            from the weights and the vocabulary of a checkpoint
    python -m localdiff.demo.train WORK --export DIR          write WORK's model to DIR
    torchrun --standalone --nproc-per-node 2 -m localdiff.demo.train WORK …      with two processes

WORK keeps the vocabulary, the state after every hundred updates, and a log line for each.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from ..engine import Engine
from ..model.config import ModelConfig
from ..model.diffusion_gemma import DiffusionGemma
from .architecture import config_json
from .corpus import load_vocabulary, render, sample_example
from .export import VOCABULARY_FILES, end_of_turn_id, export
from .team import Team, join
from .training import Trainer, TrainingOptions, initialise
from .vocabulary import write_vocabulary
from .work import make_parser, make_trainer, train


def prepare(work: Path, options: TrainingOptions, *, base: Path | None = None, team: Team | None = None) -> Trainer:
    """A trainer over the skills' training split; continues from the state in `work` where there is one.

    Args:
        base: a checkpoint to start from, where `work` is new. Without one the network is drawn from the seed.
    """
    team = team or Team()
    if team.rank == 0:
        _begin(work, base)
    team.wait()
    tokenizer, template = load_vocabulary(work)

    def draw(rng: random.Random) -> tuple[list[int], list[int]]:
        return render(sample_example(rng, "train"), tokenizer, template)

    config = ModelConfig.from_dict(config_json(tokenizer.get_vocab_size(), end_of_turn_id(tokenizer)))
    model = initialise(config, options.seed) if base is None else _trainable(base)
    return make_trainer(work, model, draw, options, team)


def _begin(work: Path, base: Path | None) -> None:
    """Gives a new folder its vocabulary."""
    work.mkdir(parents=True, exist_ok=True)
    if (work / "tokenizer.json").exists():
        return
    if base is None:
        write_vocabulary(work)
        return
    for name in VOCABULARY_FILES:
        shutil.copyfile(base / name, work / name)


def _trainable(checkpoint: Path) -> DiffusionGemma:
    return Engine.load(str(checkpoint), device="cpu", dtype="fp32").model.requires_grad_(True)


def main() -> None:
    parser = make_parser(
        "localdiff.demo.train",
        __doc__.splitlines()[0],
        updates=TrainingOptions.updates,
        decay=TrainingOptions.decay,
    )
    parser.add_argument("--base", type=Path, help="checkpoint to start from, where WORK is new")
    parser.add_argument("--export", type=Path, help="write the model as a checkpoint to this folder and stop")
    arguments = parser.parse_args()
    options = TrainingOptions(updates=arguments.updates, decay=arguments.decay, seed=arguments.seed)
    trainer = prepare(arguments.work, options, base=arguments.base, team=join())
    if arguments.export:
        export(trainer.model, arguments.work, arguments.export)
        return
    train(trainer, arguments)


if __name__ == "__main__":
    main()
