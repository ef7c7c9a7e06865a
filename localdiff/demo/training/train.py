"""Trains the demo model and writes it as a checkpoint in the released layout.

    python -m localdiff.demo.training.train WORK --updates 3000        train, or continue what WORK holds
    python -m localdiff.demo.training.train WORK --base DIR            from the weights of a checkpoint
    python -m localdiff.demo.training.train WORK --export DIR          write WORK's model to DIR
    torchrun --standalone --nproc-per-node 2 -m localdiff.demo.training.train WORK …      with two processes

WORK keeps the vocabulary, the state after every hundred updates, and a log line for each.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from localdiff.checkpoint_files import CHAT_TEMPLATE
from localdiff.demo.corpus import sample_example
from localdiff.demo.leaving import leaving
from localdiff.demo.training.architecture import config_json
from localdiff.demo.training.export import export
from localdiff.demo.training.rendering import END_OF_TURN, load_vocabulary, render
from localdiff.demo.training.team import Team, join
from localdiff.demo.training.trainer import Trainer, TrainingOptions, initialise
from localdiff.demo.training.vocabulary import write_vocabulary
from localdiff.demo.training.work import STATE, make_parser, make_trainer, parse, train
from localdiff.engine import Engine
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma

_EMBEDDING = "embed_tokens.weight"


def prepare(work: Path, options: TrainingOptions, *, base: Path | None = None, team: Team | None = None) -> Trainer:
    """A trainer over the skills' training split; continues from the state in `work` if there is one.

    Args:
        base: a checkpoint to start from if `work` is new. Without one the network is drawn from the seed.
    """
    team = team or Team()
    if team.rank == 0:
        _begin(work)
    team.wait()
    tokenizer, template = load_vocabulary(work)

    def draw(rng: random.Random) -> tuple[list[int], list[int]]:
        return render(sample_example(rng, "train"), tokenizer, template)

    config = ModelConfig.from_dict(config_json(tokenizer.get_vocab_size(), tokenizer.get_vocab()[END_OF_TURN]))
    model = initialise(config, options.seed)
    if base is not None and not (work / STATE).exists():
        begin_from(model, tokenizer, base)
    return make_trainer(work, model, draw, options, team)


def _begin(work: Path) -> None:
    """Writes the vocabulary into a new folder, or into one where writing it was interrupted."""
    work.mkdir(parents=True, exist_ok=True)
    if not (work / CHAT_TEMPLATE).exists():  # the last of its files
        write_vocabulary(work)


def begin_from(model: DiffusionGemma, tokenizer: Tokenizer, checkpoint: Path) -> None:
    """Copies a checkpoint's weights into a model with a different vocabulary.

    A piece of both vocabularies keeps its embedding. A new one begins as the same word in another case or without the
    space before it, or else as the mean of the pieces that its text consisted of before, scaled to their mean norm.
    """
    state = Engine.load(str(checkpoint), device="cpu", dtype="fp32").model.state_dict()
    old_tokenizer, _ = load_vocabulary(checkpoint)
    rows = torch.empty_like(model.state_dict()[_EMBEDDING])
    for piece, id in tokenizer.get_vocab().items():
        same = next(
            (old_id for form in _spellings(piece) if (old_id := old_tokenizer.token_to_id(form)) is not None), None
        )
        if same is not None:
            rows[id] = state[_EMBEDDING][same]
            continue
        text = tokenizer.decode([id], skip_special_tokens=False)
        parts = state[_EMBEDDING][old_tokenizer.encode(text, add_special_tokens=False).ids]
        rows[id] = F.normalize(parts.mean(dim=0), dim=0) * parts.norm(dim=-1).mean()
    model.load_state_dict(state | {_EMBEDDING: rows})


def _spellings(piece: str) -> tuple[str, ...]:
    """A piece, and a word of letters in its other forms."""
    bare = piece.removeprefix(" ")
    if not bare.isalpha() or len(bare) < 2:
        return (piece,)
    return piece, bare.capitalize(), f" {bare.lower()}", f" {bare.capitalize()}", bare.lower()


def main() -> None:
    """Train, or export what was trained."""
    parser = make_parser(
        "localdiff.demo.training.train",
        __doc__.splitlines()[0],
        updates=TrainingOptions.updates,
        decay=TrainingOptions.decay,
    )
    parser.add_argument("--base", type=Path, help="checkpoint to start from, where WORK is new")
    arguments = parse(parser)
    options = TrainingOptions(updates=arguments.updates, decay=arguments.decay, seed=arguments.seed)
    with leaving(parser):
        trainer = prepare(arguments.work, options, base=arguments.base, team=join())
        if arguments.export:
            export(trainer.model, arguments.work, arguments.export)
        else:
            train(trainer, arguments)


if __name__ == "__main__":
    main()
