"""Checkpoints and models of the parity tests, built once per session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from localdiff.load import load_model, open_weights, plan_memory
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.checkpoints.layouts import Spec, write_checkpoint
from tests.models.reference import Reference, ReferenceRun, reference_run

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One checkpoint, loaded by both sides with the same dtype."""

    spec: Spec
    directory: Path
    reference: Reference
    model: DiffusionGemma
    config: ModelConfig
    dtype: torch.dtype
    _runs: dict[tuple[int, ...], ReferenceRun] = field(default_factory=dict)

    def cache(self, capacity: int = 128) -> KVCache:
        """An empty cache of localdiff."""
        return KVCache(self.config, capacity, self.dtype, CPU)

    def run(self, prompt: list[int], *, seed: int, max_tokens: int) -> ReferenceRun:
        """What the reference generates, cached."""
        key = (seed, max_tokens, *prompt)
        if key not in self._runs:
            self._runs[key] = reference_run(self.reference, prompt, seed=seed, max_tokens=max_tokens)
        return self._runs[key]

    def capped(self, raw: torch.Tensor) -> torch.Tensor:
        """Raw logits of localdiff [L, V] in fp32 after the soft cap, as the reference returns them."""
        cap = self.config.softcap
        return raw.float() if cap is None else cap * torch.tanh(raw.float() / cap)

    def soft(self, logits: torch.Tensor) -> torch.Tensor:
        """Soft embedding [L, D] for capped logits [L, V] that are divided by their temperature."""
        logits = logits.to(self.dtype)
        return self.model.soft_embedding(logits, logits.float().logsumexp(dim=-1))

    def ids(self, count: int, seed: int) -> torch.Tensor:
        """Random token ids [count]."""
        return torch.randint(0, self.spec.vocab, (count,), generator=torch.Generator().manual_seed(seed))


MakePair = Callable[..., Pair]


@pytest.fixture(scope="session")
def make_pair(tmp_path_factory: pytest.TempPathFactory) -> MakePair:
    """Builds the pair for a specification, or returns the one built before."""
    built: dict[tuple[str, torch.dtype], Pair] = {}

    def make(spec: Spec, dtype: torch.dtype = torch.float32) -> Pair:
        key = (repr(spec), dtype)
        if key not in built:
            directory = write_checkpoint(spec, tmp_path_factory.mktemp("checkpoint"))
            model = load_model(plan_memory(open_weights(directory), CPU, dtype)).network
            reference = Reference(directory, dtype)
            built[key] = Pair(
                spec=spec, directory=directory, reference=reference, model=model, config=model.config, dtype=dtype
            )
        return built[key]

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Sums in one order: thread counts change the last bits."""
    torch.set_num_threads(1)
