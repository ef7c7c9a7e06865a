"""The names of code paths, as the report has them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from localdiff.bench.step.code_paths import path_of, paths_of
from localdiff.bench.step.parts import PARTS, PartClock
from localdiff.model.projections import fuse_projections
from quant import instructions
from tests.localdiff.bench.step.small import small_subject

pytestmark = pytest.mark.usefixtures("attention_in_torch")


def test_paths_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: True)
    quantized = paths_of(small_subject("4bit").network, torch.float32)
    plain = paths_of(small_subject("bf16", dtype="bf16").network, torch.bfloat16)
    assert quantized["experts"] == quantized["head"] == "decoded to fp32, multiplied through torch"
    assert plain["attention projections"] == plain["experts"] == plain["norms, residuals"] == "torch, bf16"
    assert plain["attention core"] == "torch, scaled_dot_product_attention in bf16"
    assert plain["sampling"] == "torch, fp32", "logits are read in fp32, whatever the activations are"
    assert paths_of(small_subject("4bit").network, torch.float32, "CUDA graph")["sampling"] == "CUDA graph"
    assert all(paths[part] for paths in (quantized, plain) for part in PARTS)
    network = small_subject("bf16", dtype="bf16").network
    network.attention_kernel = SimpleNamespace(path="bf16, native")
    assert paths_of(network, torch.bfloat16)["attention core"] == "bf16, native"
    assert paths_of(network, torch.float32)["attention core"].startswith("torch"), "it takes bf16 only"


@pytest.mark.parametrize("has_bf16", [False, True])
def test_a_part_is_named_by_the_type_that_it_is_multiplied_in(has_bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without instructions for bf16 multiplies in fp32."""
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: has_bf16)
    quantized, plain = (
        paths_of(small_subject(recipe, dtype="bf16").network, torch.bfloat16) for recipe in ("4bit", "bf16")
    )
    multiplied = "bf16" if has_bf16 else "fp32"
    for part in ("dense MLP", "experts", "head"):
        assert quantized[part] == f"decoded to {multiplied}, multiplied through torch"
        assert plain[part] == f"torch, {multiplied}"


def test_products_in_one_are_named_and_timed_in_the_place_of_theirs() -> None:
    network = small_subject("4bit").network
    fuse_projections(network)
    stacks = [layer.self_attn.fused() for layer in network.layers]
    assert all(stacks)
    with PartClock(lambda: None).watching(network):
        assert all(stack._forward_hooks for stack in stacks)
    words = paths_of(network, torch.float32)["attention projections"]
    plain = "decoded to fp32, multiplied through torch"
    assert words == f"4 × decoded, then multiplied, stacked; 4 × {plain}", "of queries, and of outputs"
    assert paths_of(network, torch.float32)["self-conditioning"].startswith("1 × ")


def test_a_module_names_its_own_path() -> None:
    module = torch.nn.Linear(2, 2)
    assert path_of(module) == "torch, fp32"
    module.path = "a way of its own"  # type: ignore[assignment]
    assert path_of(module) == "a way of its own"
