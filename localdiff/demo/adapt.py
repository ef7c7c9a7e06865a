"""Trains an adapter on one skill and writes it in PEFT's layout.

    python -m localdiff.demo.adapt WORK --skill sudoku6 --updates 1500      train, or continue what WORK holds
    python -m localdiff.demo.adapt WORK --skill sudoku6 --export DIR        write WORK's adapter to DIR
    torchrun --standalone --nproc-per-node 2 -m localdiff.demo.adapt WORK …      with two processes

The base's weights stay as they are; only low-rank factors are trained, by the loop that trained the base. WORK keeps
the state after every hundred updates, and a log line for each.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from ..adapter import add_adapter, save_adapter
from ..engine import Engine
from .architecture import CANVAS_LENGTH
from .batches import Batches
from .corpus import load_vocabulary, render
from .journal import Journal
from .skills import ALL_SKILLS
from .team import Team, join
from .training import Trainer, TrainingOptions

STATE = "state.pt"
RANKS: Mapping[int, Sequence[str]] = {
    32: [*(f"self_attn.{name}_proj" for name in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down"))],
    8: ["experts.gate_up_proj", "experts.down_proj"],
}
"""What is adapted, by rank. An expert sees a quarter of the rows, and there are eight of them."""
SCALE = 2.0
"""alpha / rank."""


def prepare(work: Path, skill: str, base: Path, options: TrainingOptions, team: Team | None = None) -> Trainer:
    """A trainer of new factors beside the weights of `base`; continues from the state in `work` where there is one."""
    work.mkdir(parents=True, exist_ok=True)
    tokenizer, template = load_vocabulary(base)
    model = Engine.load(str(base), device="cpu", dtype="fp32").model
    for rank, targets in RANKS.items():
        add_adapter(model, targets, rank=rank, alpha=SCALE * rank, seed=options.seed)

    def draw(rng: random.Random) -> tuple[list[int], list[int]]:
        return render(ALL_SKILLS[skill](rng, "train"), tokenizer, template)

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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m localdiff.demo.adapt", description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, help="folder that keeps the state of the training")
    parser.add_argument("--skill", choices=sorted(ALL_SKILLS), default="sudoku6")
    parser.add_argument("--base", type=Path, default=Path(__file__).parent / "checkpoint", help="checkpoint to adapt")
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--decay", type=int, default=600, help="updates over which the rate falls to 0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--compile", action="store_true", help="compile what lies between products: faster, and needs a C++ compiler"
    )
    parser.add_argument("--export", type=Path, help="write the adapter to this folder and stop")
    arguments = parser.parse_args()
    options = TrainingOptions(
        updates=arguments.updates, decay=arguments.decay, seed=arguments.seed, learning_rate=3e-3, balance_weight=0.0
    )
    team = join()
    trainer = prepare(arguments.work, arguments.skill, arguments.base, options, team)
    if arguments.export:
        save_adapter(trainer.model, arguments.export, base="demo", dtype=torch.bfloat16)
        return
    torch.set_num_threads(arguments.threads)  # behind the loading of the base, which settles it for itself
    torch.set_flush_denormal(True)
    if arguments.compile:
        trainer.compile()
    with Journal(arguments.work / "log.jsonl", options.updates) as journal:
        trainer.run(arguments.work / STATE, journal.report)


if __name__ == "__main__":
    main()
