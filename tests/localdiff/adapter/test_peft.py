"""PEFT, on the reference model, and localdiff compute the same from the same adapter."""

from __future__ import annotations

from pathlib import Path

import peft
import pytest
import torch

from localdiff.adapter import add_adapter, save_adapter
from localdiff.load import load_model, open_weights
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.checkpoints import Spec, write_checkpoint
from tests.localdiff.adapter.helpers import EVERYTHING, randomize
from tests.reference import Reference

CPU = torch.device("cpu")
SPEC = Spec(layers="ssf", hidden=40, heads=4, kv_heads=2, full_kv_heads=1, experts=6, top_k=2, expert_mlp=24, seed=21)
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write_checkpoint(SPEC, tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def network(directory: Path) -> DiffusionGemma:
    return load_model(open_weights(directory), CPU, torch.float32).network


def with_peft(directory: Path, adapter: Path) -> Reference:
    model = peft.PeftModel.from_pretrained(Reference(directory).model, adapter)
    return Reference.of(model.eval().get_base_model())


def assert_same(network: DiffusionGemma, reference: Reference, *, changes: Reference | None = None) -> None:
    """Two steps behind a prefill and a commit, each held against the reference, and against one that differs."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(SPEC.vocab, (29,), generator=generator)
    canvas = torch.randint(SPEC.vocab, (SPEC.canvas,), generator=generator)
    cache = KVCache(network.config, 64, torch.float32, CPU)
    cap = network.config.softcap
    assert cap is not None
    with torch.no_grad():
        network.encode(ids[:13], cache)
        soft = None
        conditioning = None
        for commit in (ids[13:], ids[:0]):
            raw = network.embed_tokens.logits(network(commit, canvas, cache, soft)).float()
            logits = cap * torch.tanh(raw / cap)
            known = reference.encode(ids)
            expected = reference.logits(canvas, known, conditioning)
            torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=TOLERANCE)
            if changes is not None:
                assert not torch.allclose(
                    changes.logits(canvas, changes.encode(ids), conditioning), expected, atol=0.01
                )
            conditioning = expected / 0.7
            soft = network.soft_embedding(conditioning, conditioning.logsumexp(dim=-1))


@pytest.mark.parametrize("rows", ["both", "encoder", "decoder"])
def test_peft_computes_what_was_trained_here(
    network: DiffusionGemma, directory: Path, tmp_path: Path, rows: str
) -> None:
    names = [name for name in EVERYTHING if rows != "encoder" or "conditioning" not in name]
    randomize(add_adapter(network, names, rank=3, alpha=6, rows=rows))  # type: ignore[arg-type]
    save_adapter(network, tmp_path, base="tiny")
    assert_same(network, with_peft(directory, tmp_path), changes=Reference(directory))
