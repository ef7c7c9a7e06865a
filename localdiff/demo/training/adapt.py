"""Trains an adapter on one skill and writes it in PEFT's layout.

    python -m localdiff.demo.training.adapt WORK --skill sudoku9 --updates 5000   train, or continue what WORK holds
    python -m localdiff.demo.training.adapt WORK --initial DIR                    from an adapter's factors, of any base
    python -m localdiff.demo.training.adapt WORK --export DIR                     write WORK's adapter to DIR
    torchrun --standalone --nproc-per-node 2 -m localdiff.demo.training.adapt WORK …   with two processes

The base's weights are frozen; only low-rank factors are trained, by the loop that trained the base. WORK keeps
the state after every hundred updates, and a log line for each.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from localdiff.adapter import add_adapter, copy_factors, open_adapter, save_adapter
from localdiff.demo.leaving import leaving
from localdiff.demo.skills import ALL_SKILLS
from localdiff.demo.training.rendering import load_vocabulary, render
from localdiff.demo.training.team import Team, join
from localdiff.demo.training.trainer import Trainer, TrainingOptions
from localdiff.demo.training.work import STATE, make_parser, make_trainer, parse, train
from localdiff.engine import Engine

RANKS: Mapping[int, Sequence[str]] = {
    32: [*(f"self_attn.{name}_proj" for name in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down"))],
    8: ["experts.gate_up_proj", "experts.down_proj"],
}
"""Rank → targets. An expert sees a quarter of the rows, and there are eight experts."""
SCALE = 2.0
"""alpha / rank."""


def prepare(
    work: Path,
    skill: str,
    base: Path,
    options: TrainingOptions,
    *,
    initial: str | None = None,
    team: Team | None = None,
) -> Trainer:
    """A trainer of low-rank factors for the weights of `base`; continues from the state in `work` if there is one.

    Args:
        initial: an adapter to start from if `work` is new, by name or directory. Without one the factors are drawn from
            the seed.
    """
    work.mkdir(parents=True, exist_ok=True)
    tokenizer, template = load_vocabulary(base)
    model = Engine.load(str(base), device="cpu", dtype="fp32").model
    for rank, targets in RANKS.items():
        add_adapter(model, targets, rank=rank, alpha=SCALE * rank, seed=options.seed)
    if initial is not None and not (work / STATE).exists():
        copy_factors(open_adapter(initial), model)

    def draw(rng: random.Random) -> tuple[list[int], list[int]]:
        return render(ALL_SKILLS[skill](rng, "train"), tokenizer, template)

    return make_trainer(work, model, draw, options, team or Team())


def main() -> None:
    """Train an adapter, or export one."""
    parser = make_parser("localdiff.demo.training.adapt", __doc__.splitlines()[0], updates=5000, decay=1000)
    parser.add_argument("--skill", choices=sorted(ALL_SKILLS), default="sudoku9")
    parser.add_argument(
        "--base", type=Path, default=Path(__file__).parents[1] / "checkpoint", help="checkpoint to adapt"
    )
    parser.add_argument("--initial", help="adapter to start from, where WORK is new: a directory, or a name")
    arguments = parse(parser)
    options = TrainingOptions(
        updates=arguments.updates, decay=arguments.decay, seed=arguments.seed, learning_rate=3e-3, balance_weight=0.0
    )
    with leaving(parser):
        trainer = prepare(
            arguments.work, arguments.skill, arguments.base, options, initial=arguments.initial, team=join()
        )
        if arguments.export:
            save_adapter(trainer.model, arguments.export, base="demo", dtype=torch.bfloat16)
        else:
            train(trainer, arguments)


if __name__ == "__main__":
    main()
