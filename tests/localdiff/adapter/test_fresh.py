"""A new adapter: it changes nothing until it is trained, learns where it may, and distinguishes kinds of rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from localdiff.adapter import add_adapter, save_adapter
from localdiff.adapter.attach import attach, terms_of
from localdiff.adapter.lowrank import LowRank
from localdiff.errors import ResourceError, UsageError
from localdiff.model.batched import batched_logits
from quant.codecs import CODECS
from quant.modules import QuantTensor, swap_modules
from tests.models import tiny
from tests.models.adapters import EVERYTHING, hidden, randomize


def test_a_new_adapter_changes_nothing() -> None:
    network = tiny.model()
    before = hidden(network)
    add_adapter(network, EVERYTHING, rank=3, alpha=6)
    for one, other in zip(before, hidden(network), strict=True):
        assert torch.equal(one, other)


def test_factors_are_fp32_whatever_is_torch_s_default(
    another_default_dtype: Callable[[], AbstractContextManager[None]],
) -> None:
    network = tiny.model()
    with another_default_dtype():
        parameters = add_adapter(network, ["q_proj"], rank=3, alpha=6)
    assert {parameter.dtype for parameter in parameters} == {torch.float32}


def test_factors_are_where_the_network_is_whatever_is_torch_s_default_device() -> None:
    network = tiny.model()
    with torch.device("meta"):
        parameters = add_adapter(network, ["q_proj"], rank=3, alpha=6)
    assert {parameter.device.type for parameter in parameters} == {"cpu"}


def test_a_disk_that_is_full_keeps_nothing_of_an_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(_tensors: object, path: Path, **_rest: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    network = tiny.model()
    add_adapter(network, EVERYTHING, rank=3, alpha=6)
    monkeypatch.setattr("localdiff.adapter.save.save_file", fill)
    with pytest.raises(ResourceError, match="cannot be written: No space left on device"):
        save_adapter(network, tmp_path, base=None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_place_for_an_adapter(tmp_path: Path) -> None:
    network, taken = tiny.model(), tmp_path / "taken"
    add_adapter(network, ["q_proj"], rank=2, alpha=2)
    taken.touch()
    with pytest.raises(ResourceError, match="`.*taken` cannot be written: File exists"):
        save_adapter(network, taken, base=None)


def test_every_factor_learns_and_no_weight_does() -> None:
    network = tiny.model()
    parameters = add_adapter(network, EVERYTHING, rank=3, alpha=6)
    randomize(parameters)
    ids = torch.randint(tiny.VOCAB_SIZE, (4, 9), generator=torch.Generator().manual_seed(0))
    canvas = torch.randint(tiny.VOCAB_SIZE, (4, tiny.CANVAS), generator=torch.Generator().manual_seed(1))
    soft = torch.randn(4, tiny.CANVAS, 32, generator=torch.Generator().manual_seed(2))
    logits = batched_logits(network, ids, torch.tensor([9, 4, 7, 2]), canvas, soft)
    F.cross_entropy(logits.flatten(0, 1), canvas.flatten()).backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in parameters)
    assert {id(p) for p in network.parameters() if p.grad is not None} == {id(p) for p in parameters}


@pytest.mark.parametrize("rows", ["encoder", "decoder"])
def test_an_adapter_of_one_kind_of_rows_leaves_the_other_alone(rows: str) -> None:
    network = tiny.model()
    ids = torch.randint(tiny.VOCAB_SIZE, (2, 9), generator=torch.Generator().manual_seed(0))
    counts = torch.tensor([9, 4])
    canvas = ids[:, : tiny.CANVAS]
    plain, plain_keys = hidden(network)
    plain_batch = batched_logits(network, ids, counts, canvas, None)
    names = [name for name in EVERYTHING if "conditioning" not in name]
    randomize(add_adapter(network, names, rank=2, alpha=2, rows=rows))  # type: ignore[arg-type]
    changed, keys = hidden(network)
    batch = batched_logits(network, ids, counts, canvas, None)
    # Rows that are left alone go through products of fewer rows, which some CPUs sum in another order.
    difference = (keys - plain_keys).abs().max()
    assert difference < 1e-5 if rows == "decoder" else difference > 1e-3
    assert not torch.allclose(changed, plain, atol=1e-3)
    assert not torch.allclose(batch, plain_batch, atol=1e-3)
    alone = [
        batched_logits(network, ids[one : one + 1, :count], counts[one : one + 1], canvas[one : one + 1], None)
        for one, count in enumerate(counts.tolist())
    ]
    torch.testing.assert_close(batch, torch.cat(alone), atol=1e-4, rtol=1e-4)


def test_two_equal_halves_are_one_whole() -> None:
    whole, halves = tiny.model(), tiny.model()
    randomize(add_adapter(whole, EVERYTHING, rank=2, alpha=4))
    terms = {
        (side, path): LowRank(term.lora_A.detach().clone(), term.lora_B.detach().clone(), term.scale)
        for side, path, term in terms_of(whole)
    }
    attach(halves, terms)
    for one, other in zip(hidden(whole), hidden(halves), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_targets_may_have_ranks_of_their_own() -> None:
    network = tiny.model()
    add_adapter(network, ["q_proj"], rank=4, alpha=8)
    add_adapter(network, ["experts.down_proj"], rank=1, alpha=8, rows="decoder")
    ranks = {(side, path.rpartition(".")[2]): (term.rank, term.scale) for side, path, term in terms_of(network)}
    assert ranks == {
        ("encoder", "q_proj"): (4, 2.0),
        ("decoder", "q_proj"): (4, 2.0),
        ("decoder", "down_proj"): (1, 8.0),
    }


def test_what_cannot_be_adapted_is_named() -> None:
    network = tiny.model()
    with pytest.raises(UsageError, match="`c_attn` cannot be adapted") as raised:
        add_adapter(network, ["q_proj", "c_attn"], rank=2, alpha=2)
    assert "q_proj" in (raised.value.hint or "")
    add_adapter(network, ["k_proj"], rank=2, alpha=2)
    with pytest.raises(UsageError, match=r"module='layers\.0\.self_attn\.k_proj' has an adapter already"):
        add_adapter(network, ["q_proj", "k_proj"], rank=2, alpha=2)
    assert {path.rpartition(".")[2] for _, path, _ in terms_of(network)} == {"k_proj"}  # all or nothing


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rows": "canvas"}, "rows='canvas' must be one of both, encoder, decoder"),
        ({"names": "q_proj"}, "names='q_proj' must be a list of names"),
        ({"names": [1]}, r"names=\[1\] must be a list of names"),
        ({"names": 3}, "names=3 must be a list of names"),
        ({"names": []}, r"names=\[\] must have a name"),
        ({"names": ["self_conditioning.gate_proj"], "rows": "encoder"}, "with rows='encoder' leaves nothing to adapt"),
        ({"rank": 0}, "rank=0 must be a whole number >= 1"),
        ({"rank": 1.5}, "rank=1.5 must be a whole number >= 1"),
        ({"rank": True}, "rank=True must be a whole number >= 1"),
        ({"seed": "7"}, "seed='7' must be a whole number from 0 to 9223372036854775807"),
        ({"seed": 2**63}, "seed=9223372036854775808 must be a whole number from 0"),
        ({"alpha": float("nan")}, "alpha=nan must be a finite number above 0"),
        ({"alpha": float("inf")}, "alpha=inf must be a finite number above 0"),
        ({"alpha": 10**400}, "must be a finite number above 0"),
        ({"alpha": 0}, "alpha=0 must be a finite number above 0"),
        ({"alpha": "8"}, "alpha='8' must be a finite number above 0"),
        ({"network": object()}, "`network` is a `DiffusionGemma`, not an `object`"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], words: str) -> None:
    network = tiny.model()
    given = {"network": network, "names": ["q_proj"], "rank": 4, "alpha": 4} | arguments
    with pytest.raises(UsageError, match=words):
        add_adapter(**given)
    assert not list(terms_of(network))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "bf16"}, "dtype='bf16' must be a floating-point type of torch"),
        ({"dtype": torch.int8}, "dtype=torch.int8 must be a floating-point type of torch"),
        ({"directory": 3}, "`directory` is text or a path, not an `int`"),
        ({"base": 3}, "`base` is the name of a model or None, not an `int`"),
        ({"network": tiny.model()}, "the model has no adapter"),
        ({"network": object()}, "`network` is a `DiffusionGemma`, not an `object`"),
    ],
)
def test_arguments_that_cannot_be_saved(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    network = tiny.model()
    add_adapter(network, ["q_proj"], rank=2, alpha=2)
    given = {"network": network, "directory": tmp_path / "new", "base": None} | arguments
    with pytest.raises(UsageError, match=words):
        save_adapter(**given)
    assert not (tmp_path / "new").exists()


def test_a_quantized_base_takes_a_new_adapter_too() -> None:
    network = tiny.model(hidden_size=64, intermediate_size=64)
    before = hidden(network)[0]
    schemes = {f"layers.{layer}.self_attn.q_proj.weight": "int8" for layer in range(3)}
    weights = {name: network.get_parameter(name).clone() for name in schemes}
    swap_modules(network, schemes, torch.float32)
    for name, weight in weights.items():
        network.get_submodule(name.rpartition(".")[0]).weight = QuantTensor.of(CODECS["int8"], weight)
    stored = hidden(network)[0]
    assert not torch.equal(stored, before)
    randomize(add_adapter(network, ["q_proj"], rank=2, alpha=2))
    assert not torch.allclose(hidden(network)[0], stored, atol=1e-2)
