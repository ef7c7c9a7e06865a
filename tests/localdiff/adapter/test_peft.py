"""PEFT on the reference model and localdiff compute the same with the same adapter.

The tests load PEFT, not this module: every process of a run reads this file, and only one of them runs it.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from localdiff.adapter import add_adapter, save_adapter
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.checkpoints.layouts import Spec, write_checkpoint
from tests.models.adapters import EVERYTHING, randomize
from tests.models.loaded import network_of
from tests.models.reference import Reference

CPU = torch.device("cpu")
SPEC = Spec(layers="ssf", hidden=40, heads=4, kv_heads=2, full_kv_heads=1, experts=6, top_k=2, expert_mlp=24, seed=21)
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write_checkpoint(SPEC, tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def network(directory: Path) -> DiffusionGemma:
    return network_of(directory)


def with_peft(directory: Path, adapter: Path) -> Reference:
    import peft

    model = peft.PeftModel.from_pretrained(Reference(directory).model, adapter)
    return Reference.of(model.eval().get_base_model())


def assert_same(network: DiffusionGemma, reference: Reference, *, changes: Reference | None = None) -> None:
    """Two steps after a prefill and a commit, compared with the reference, and with one that must differ."""
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


LINEAR = r"model\.(encoder\.language_model|decoder)\..*_proj"


def trained_with_peft(directory: Path, output: Path, **config: Any) -> Reference:
    """An adapter as PEFT makes and saves it, with all factors drawn independently; returns PEFT's model with it."""
    import peft

    model = peft.get_peft_model(Reference(directory).model, peft.LoraConfig(**config))
    randomize(parameter for name, parameter in model.named_parameters() if "lora_" in name)
    model.save_pretrained(output)
    return Reference.of(model.eval().get_base_model())


EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]
MADE: dict[str, dict[str, Any]] = {
    "attention and MLP by a list": {
        "target_modules": ["self_attn.q_proj", "self_attn.o_proj", "layers.1.mlp.up_proj"],
        "exclude_modules": r".*vision.*",
    },
    "all of it by a pattern": {"target_modules": LINEAR, "target_parameters": EXPERTS, "r": 2, "lora_alpha": 5},
    "all linear layers": {
        "target_modules": "all-linear",
        "exclude_modules": r".*vision.*",
        "use_rslora": True,
    },
    "the ends of names, as most trainers take them": {
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        "exclude_modules": r".*(vision_tower|embed_vision).*",
    },
    "experts alone": {"target_modules": [], "target_parameters": EXPERTS},
    "one parameter of experts": {"target_modules": [], "target_parameters": ["experts.gate_up_proj"]},
    "the other one": {"target_modules": [], "target_parameters": ["layers.1.experts.down_proj"]},
    "one in one layer, both in another": {
        "target_modules": [],
        "target_parameters": ["layers.0.experts.gate_up_proj", "experts.down_proj"],
    },
    "the encoder": {"target_modules": r"model\.encoder\.language_model\..*_proj"},
    "the decoder and the router": {"target_modules": r"model\.decoder\..*(q_proj|router\.proj)"},
    "patterns of rank and alpha": {
        "target_modules": LINEAR,
        "target_parameters": EXPERTS,
        "rank_pattern": {"q_proj": 5, r"layers\.1\.mlp\.up_proj": 1, "experts.gate_up_proj": 4},
        "alpha_pattern": {r"decoder\.layers\.\d\.self_attn\.k_proj": 3, "down_proj": 20},
    },
}


@pytest.mark.parametrize("name", MADE)
def test_what_peft_trained_computes_the_same_here(directory: Path, tmp_path: Path, name: str) -> None:
    reference = trained_with_peft(directory, tmp_path, **({"r": 3, "lora_alpha": 6} | MADE[name]))
    assert_same(network_of(directory, adapter=tmp_path), reference, changes=Reference(directory))


def test_experts_as_peft_had_them_before_0_19_1(directory: Path, tmp_path: Path) -> None:
    """With the factors swapped: its A was [r · E, out] and its B [in, r · E]."""
    reference = trained_with_peft(directory, tmp_path, r=2, lora_alpha=6, target_modules=[], target_parameters=EXPERTS)
    file = tmp_path / "adapter_model.safetensors"
    tensors = load_file(file)
    turned = {}
    for key in (key for key in tensors if "lora_A" in key):
        other = key.replace("lora_A", "lora_B")
        a = tensors[key].view(SPEC.experts, 2, -1)  # E r in
        b = tensors[other].view(-1, 2, SPEC.experts)  # out r E
        turned[key] = b.permute(2, 1, 0).flatten(0, 1).contiguous()
        turned[other] = a.permute(2, 1, 0).flatten(1).contiguous()
    save_file(turned, file)
    assert_same(network_of(directory, adapter=tmp_path), reference, changes=Reference(directory))


def test_what_is_saved_here_leaves_peft_nothing_to_warn_of(
    network: DiffusionGemma, directory: Path, tmp_path: Path
) -> None:
    randomize(add_adapter(network, ["experts.gate_up_proj"], rank=2, alpha=4, rows="decoder"))
    save_adapter(network, tmp_path, base="tiny")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        reference = with_peft(directory, tmp_path)
    assert_same(network, reference, changes=Reference(directory))
