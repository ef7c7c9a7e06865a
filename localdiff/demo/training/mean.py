"""Writes the mean of checkpoints of one training.

    python -m localdiff.demo.training.mean OUT CHECKPOINT CHECKPOINT …

Checkpoints of one training, each after a decay of the learning rate, differ mostly by the examples that were frequent
between them; their mean answers better than each of them (Izmailov et al., "Averaging Weights Leads to Wider Optima
and Better Generalization", arXiv:1803.05407).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from localdiff.demo.leaving import leaving
from localdiff.demo.training.export import VOCABULARY_FILES, export
from localdiff.errors import UsageError
from localdiff.load import load_model, open_weights, plan_memory
from localdiff.model.diffusion_gemma import DiffusionGemma

_ONE_TRAINING = "name checkpoints of one training"


def write_mean(directory: Path, checkpoints: Sequence[Path]) -> None:
    """Writes a checkpoint whose weights are the mean, summed in fp32, of those of others.

    Raises:
        UsageError: they have different vocabularies, or configurations, or one of them would be overwritten.
        WeightsError: one is not a checkpoint.
    """
    if any(directory.resolve() == checkpoint.resolve() for checkpoint in checkpoints):
        raise UsageError(f"`{directory}` is one of the checkpoints", "give another folder for the mean")
    first, *others = checkpoints
    model = _network(first)
    total = model.state_dict()
    for other in others:
        network = _network(other)
        for name in VOCABULARY_FILES:
            if (other / name).read_bytes() != (first / name).read_bytes():
                raise UsageError(f"`{first}` and `{other}` differ in {name}", _ONE_TRAINING)
        if network.config != model.config:
            raise UsageError(f"`{first}` and `{other}` differ in what config.json says", _ONE_TRAINING)
        for name, tensor in network.state_dict().items():
            total[name] = total[name] + tensor
    model.load_state_dict({name: tensor / len(checkpoints) for name, tensor in total.items()})
    export(model, first, directory)


def _network(checkpoint: Path) -> DiffusionGemma:
    return load_model(plan_memory(open_weights(checkpoint), torch.device("cpu"), torch.float32)).network


def main() -> None:
    """Average and write."""
    parser = argparse.ArgumentParser(prog="python -m localdiff.demo.training.mean", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder for the mean")
    parser.add_argument("checkpoints", type=Path, nargs="+", help="folders that localdiff.demo.training.train exported")
    arguments = parser.parse_args()
    with leaving(parser):
        write_mean(arguments.out, arguments.checkpoints)


if __name__ == "__main__":
    main()
