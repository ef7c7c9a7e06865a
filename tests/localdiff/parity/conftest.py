"""Checkpoints and models of the parity tests, built once a session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from localdiff.load import load_model
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.checkpoints import Spec, write_checkpoint
from tests.reference import Reference

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One checkpoint, loaded by both sides in the same type."""

    spec: Spec
    directory: Path
    reference: Reference
    model: DiffusionGemma
    config: ModelConfig
    dtype: torch.dtype

    def cache(self, capacity: int = 128) -> KVCache:
        """An empty cache of localdiff."""
        return KVCache(self.config, capacity, self.dtype, CPU)

    def ids(self, count: int, seed: int) -> torch.Tensor:
        """Random token ids [count]."""
        return torch.randint(0, self.spec.vocab, (count,), generator=torch.Generator().manual_seed(seed))


MakePair = Callable[..., Pair]


@pytest.fixture(scope="session")
def make_pair(tmp_path_factory: pytest.TempPathFactory) -> MakePair:
    """Builds the pair of a specification, or hands out the one that was built before."""
    built: dict[tuple[str, torch.dtype], Pair] = {}

    def make(spec: Spec, dtype: torch.dtype = torch.float32) -> Pair:
        key = (repr(spec), dtype)
        if key not in built:
            directory = write_checkpoint(spec, tmp_path_factory.mktemp("checkpoint"))
            model, config = load_model(directory, CPU, dtype)
            reference = Reference(directory, dtype)
            built[key] = Pair(
                spec=spec, directory=directory, reference=reference, model=model, config=config, dtype=dtype
            )
        return built[key]

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Sums in one order: thread counts change the last bits."""
    torch.set_num_threads(1)
