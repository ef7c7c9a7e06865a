"""The loader on plain checkpoints: every tensor accounted for, and nothing held twice."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch
from safetensors.torch import load_file, save_file

from localdiff.adapter import open_adapter
from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.errors import ResourceError, WeightsError
from localdiff.load import load_model, loader, memory_plan, open_weights, plan_memory, skeleton
from localdiff.load.checkpoint import Checkpoint
from localdiff.load.placement import Demand
from localdiff.load.skeleton import Skeleton
from localdiff.load.stored import StoredWeights
from tests.checkpoints.layouts import Spec, write_checkpoint
from tests.models.loaded import network_of

CPU = torch.device("cpu")
SPEC = Spec(layers="sf", vocab=32, hidden=32, mlp=16, canvas=4)
GONE = ("input_layernorm.weight", "router.scale", "self_attn.k_proj.weight", "experts.down_proj")

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(SPEC, tmp_path_factory.mktemp("written"))


@pytest.fixture
def edited(written: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the checkpoint with the given functions applied to its tensors and configuration."""

    def edit(
        tensors: Callable[[Tensors], object] = lambda _: None,
        config: Callable[[dict[str, dict[str, object]]], object] = lambda _: None,
    ) -> Path:
        held = load_file(written / "model.safetensors")
        tensors(held)
        save_file(held, tmp_path / "model.safetensors")
        entries = json.loads((written / "config.json").read_text())
        config(entries)
        (tmp_path / "config.json").write_text(json.dumps(entries))
        return tmp_path

    return edit


def refusal(directory: Path) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        network_of(directory)
    assert caught.value.exit_code == 3
    assert caught.value.hint
    return caught.value


def test_every_parameter_holds_its_tensor(written: Path) -> None:
    model = network_of(written)
    stored = load_file(written / "model.safetensors")
    assert model.config.vocab_size == SPEC.vocab
    for name, parameter in model.named_parameters():
        source = f"model.decoder.{name}"
        if "encoder_layer_scalar" in name:
            source = f"model.encoder.language_model.{name.replace('encoder_', '')}"
        assert torch.equal(parameter, stored[source]), name
        assert not parameter.requires_grad
    scalars = [(layer.layer_scalar.item(), layer.encoder_layer_scalar.item()) for layer in model.layers]
    assert all(decoder != encoder for decoder, encoder in scalars)


def test_it_tells_how_far_it_is(written: Path) -> None:
    told: list[tuple[str, float]] = []
    load_model(
        plan_memory(open_weights(written), CPU, torch.float32),
        progress=lambda stage, share: told.append((stage, share)),
    )
    assert {stage for stage, _ in told} == {"weights"}  # no module of this model has a faster form
    shares = [share for _, share in told]
    assert (shares[0], shares[-1]) == (0, 1)
    assert shares == sorted(set(shares))
    assert len(shares) > 20


def test_tensors_of_the_wanted_type_are_not_copied(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_out: dict[str, int] = {}
    read = Checkpoint.tensor

    def reading(self: Checkpoint, name: str) -> torch.Tensor:
        tensor = read(self, name)
        handed_out[name] = tensor.data_ptr()
        return tensor

    monkeypatch.setattr(Checkpoint, "tensor", reading)
    model = network_of(written)
    assert {parameter.data_ptr() for parameter in model.parameters()} == set(handed_out.values())
    assert not any("vision" in name for name in handed_out), "vision tensors stay unread"


def test_other_types_are_converted(written: Path) -> None:
    model = network_of(written, torch.bfloat16)
    stored = load_file(written / "model.safetensors")
    assert all(parameter.dtype is torch.bfloat16 for parameter in model.parameters())
    assert torch.equal(model.norm.weight, stored["model.decoder.norm.weight"].bfloat16())


def test_vision_is_skipped_with_one_line(written: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="localdiff.load"):
        network_of(written)
    vision = [name for name in Checkpoint(written).names() if "vision" in name]
    (line,) = caplog.messages
    assert f"skipped {len(vision)} vision tensors" in line


def test_a_checkpoint_without_vision_loads_without_a_word(
    edited: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    directory = edited(lambda held: [held.pop(name) for name in list(held) if "vision" in name])
    with caplog.at_level(logging.INFO, logger="localdiff.load"):
        network_of(directory)
    assert caplog.messages == []


def test_tied_copies_are_accepted(edited: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    def add(held: Tensors) -> None:
        embedding = held["model.decoder.embed_tokens.weight"]
        held |= {"model.decoder.embed_tokens.weight": embedding.bfloat16(), "lm_head.weight": embedding.clone()}
        for name in [name for name in held if name.startswith("model.decoder.layers.0.self_attn.")]:
            held[name.replace("model.decoder", "model.encoder.language_model")] = held[name].clone()

    with caplog.at_level(logging.INFO, logger="localdiff.load"):
        network_of(edited(add))
    assert "7 tied copies" in caplog.messages[0]


@pytest.mark.parametrize("element", [0, 99, -100, -1])
def test_a_copy_that_differs_is_refused(
    edited: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, element: int
) -> None:
    """As in a fine-tune that trained only the head; the reference computes with both."""
    monkeypatch.setattr(skeleton, "END", 100)

    def add(held: Tensors) -> None:
        held["lm_head.weight"] = held["model.decoder.embed_tokens.weight"].clone()
        held["lm_head.weight"].view(-1)[element] += 0.5

    message = refusal(edited(add)).message
    assert message.startswith("`lm_head.weight` differs from `model.decoder.embed_tokens.weight`, although")


def test_missing_tensors_are_named_up_to_five(edited: Callable[..., Path]) -> None:
    gone = [f"model.decoder.layers.{layer}.{norm}" for layer in (0, 1) for norm in GONE]
    message = refusal(edited(lambda held: [held.pop(name) for name in gone])).message
    assert message.count("`model.decoder.layers.") == 5
    assert "lacks" in message
    assert f"and {len(gone) - 5} more" in message


def test_a_missing_encoder_scalar_is_named(edited: Callable[..., Path]) -> None:
    name = "model.encoder.language_model.layers.1.layer_scalar"
    assert f"lacks `{name}`" in refusal(edited(lambda held: held.pop(name))).message


@pytest.mark.parametrize(
    "name",
    [
        "model.decoder.layers.0.self_attn.q_proj.bias",
        "model.decoder.layers.1.self_attn.v_proj.weight",
        "model.decoder.layers.2.router.scale",
        "model.encoder.language_model.layers.2.layer_scalar",
        "model.encoder.language_model.self_conditioning.bias",
        "model.encoder.audio_tower.weight",
        "something.else",
    ],
)
def test_an_unexpected_tensor_is_named(edited: Callable[..., Path], name: str) -> None:
    def add(held: Tensors) -> None:
        held[name] = torch.ones(3)

    message = refusal(edited(add)).message
    assert f"has unknown tensors: `{name}`" in message


@pytest.mark.parametrize(
    ("settings", "program"),
    [
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "`modelopt`"),
        ({"quantization_config": {"quant_method": "awq"}}, "`awq`"),
        ({"quantization_config": {"quant_method": "a\x1b[31m"}}, "another program"),
        ({"quantization_config": ["awq"]}, "another program"),
        ({"quantization": {"bits": 4}, "quantization_config": {"bits": 4}}, "MLX"),
        ({"quantization": {"bits": 4}}, "MLX"),
    ],
)
@pytest.mark.parametrize("is_renamed", [True, False])
def test_weights_in_a_form_of_another_program_are_said_to_be(
    edited: Callable[..., Path], settings: dict[str, Any], program: str, is_renamed: bool
) -> None:
    """Otherwise the hint would be that weights and configuration do not belong together."""
    name = "model.decoder.layers.0.self_attn.q_proj"

    def pack(held: Tensors) -> None:
        weight = held.pop(f"{name}.weight").to(torch.int32)
        held |= {f"{name}.qweight": weight} if is_renamed else {f"{name}.weight": weight[:, ::8].clone()}

    directory = edited(pack, lambda config: config.update(settings))
    caught = refusal(directory)
    assert caught.message == f"`{directory}` was quantized with {program}, in a form that localdiff does not read"
    assert caught.hint == "take the original weights: `localdiff quantize` makes them smaller"
    with pytest.raises(WeightsError, match=r"lacks|shape"):
        raise caught.__cause__ or caught


def test_the_network_without_its_head_is_said_to_be(edited: Callable[..., Path]) -> None:
    """`model.model.save_pretrained` of a fine-tune; its configuration is right."""

    def strip(held: Tensors) -> None:
        for name in list(held):
            held[name.removeprefix("model.")] = held.pop(name)

    assert "they are there without `model.`" in str(refusal(edited(strip)).hint)


def test_a_head_of_another_shape_is_not_a_tied_copy(edited: Callable[..., Path]) -> None:
    def add(held: Tensors) -> None:
        held["lm_head.weight"] = torch.ones(SPEC.vocab + 1, SPEC.hidden)

    assert "has unknown tensors: `lm_head.weight`" in refusal(edited(add)).message


def test_whole_numbers_are_no_weights(edited: Callable[..., Path]) -> None:
    name = "model.decoder.layers.0.self_attn.q_proj.weight"
    message = refusal(edited(lambda held: held.update({name: held[name].to(torch.int8)}))).message
    assert message == f"`{name}` holds int8, not weights"


def test_a_shape_that_the_config_does_not_have(edited: Callable[..., Path]) -> None:
    directory = edited(config=lambda entries: entries["text_config"].update(moe_intermediate_size=8))
    message = refusal(directory).message
    assert "experts.gate_up_proj` has the shape [4, 32, 32]" in message
    assert "asks for [4, 16, 32]" in message


def test_the_config_of_another_model(edited: Callable[..., Path]) -> None:
    directory = edited(config=lambda entries: entries.update(model_type="llama"))
    assert "llama" in refusal(directory).message


def test_untied_weights_are_refused(edited: Callable[..., Path]) -> None:
    directory = edited(config=lambda entries: entries.update(tie_word_embeddings=False))
    assert "tie_word_embeddings" in refusal(directory).message


def test_weights_that_do_not_fit_the_device(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = sum(parameter.numel() for parameter in network_of(written).parameters()) * 2
    monkeypatch.setattr(memory_plan, "free_bytes", lambda device: 500_000)
    sizes = rf"`bf16` takes .*\({needed / 1e3:.0f} KB weights, .*`cpu` has 500 KB available"
    with pytest.raises(ResourceError, match=sizes) as caught:
        network_of(written, torch.bfloat16)
    assert caught.value.exit_code == 4
    assert caught.value.hint


@pytest.mark.parametrize(("free", "limit"), [(10**9, 500_000), (500_000, 10**9)], ids=["a limit", "more than is free"])
def test_every_device_gives_what_is_free_there_up_to_the_limit(
    written: Path, monkeypatch: pytest.MonkeyPatch, free: int, limit: int
) -> None:
    monkeypatch.setattr(memory_plan, "free_bytes", lambda device: free if device.type == "cuda" else None)
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    with pytest.raises(ResourceError, match="`cuda:0` has 500 KB available"):
        plan_memory(open_weights(written), first, torch.bfloat16, further=(second,), context=64, max_memory=limit)


@pytest.mark.parametrize("free", [10**9, 500_000], ids=["fits", "does not fit"])
def test_further_devices_are_asked_for_their_memory_only_where_the_first_is_too_small(
    written: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """Asking a GPU creates a context of this process on it, which takes some of its memory."""
    asked: list[torch.device] = []
    monkeypatch.setattr(memory_plan, "free_bytes", lambda device: asked.append(device) or free)
    other = torch.device("cuda", 1)
    with nullcontext() if free > 10**6 else pytest.raises(ResourceError):
        load_model(plan_memory(open_weights(written), CPU, torch.bfloat16, further=(other,), context=64))
    assert (other in asked) == (free < 10**6)


def test_a_gpu_is_told_what_to_multiply_by(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    plan = plan_memory(open_weights(written), CPU, torch.float32)
    plan = replace(plan, placement=replace(plan.placement, main=gpu, layers=(gpu, gpu)))
    monkeypatch.setattr(Skeleton, "assign", lambda *_: None)
    monkeypatch.setattr(loader, "load_for_gpu", lambda plan, progress, activations="auto": (activations,))
    monkeypatch.setattr(loader, "take_kernels", lambda *_: None)
    monkeypatch.setattr(loader, "rounds_activations", lambda network: True)
    loaded = load_model(plan, activations="int8")
    assert (loaded.expectations, loaded.rounds) == (("int8",), True)


@pytest.mark.parametrize(
    ("gigabytes", "first"), [((9, 20, 5), 0), ((0, 9, 5), 1), ((0, 0.01, 9), 2), ((1, 1.05, 0), 1), ((1, 1, 1), 0)]
)
def test_what_does_not_fit_the_first_gpu_begins_on_the_one_with_most_memory(
    written: Path, monkeypatch: pytest.MonkeyPatch, gigabytes: tuple[float, ...], first: int
) -> None:
    """If one GPU can hold the whole model, it does: spread over two, it would be slower."""
    free = {torch.device("cuda", index): int(1e9 * size) for index, size in enumerate(gigabytes)}
    monkeypatch.setattr(memory_plan, "free_bytes", free.get)
    gpu, *others = free
    weights, fits = open_weights(written), max(gigabytes) > 5
    with nullcontext() if fits else pytest.raises(ResourceError, match=f"`cuda:{first}` has") as refused:
        plan = plan_memory(weights, gpu, torch.bfloat16, further=others, context=64, may_offload=True)
    if refused is None:
        assert plan.placement.residence == "whole" and plan.placement.main == torch.device("cuda", first)
        assert plan.free == free[plan.placement.main]


def test_memory_that_is_taken_between_the_plan_and_the_loading(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example by a browser, on a GPU that also draws a desktop."""

    def full(*_: object) -> NoReturn:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 256.00 MiB")

    plan = plan_memory(open_weights(written), CPU, torch.float32)
    monkeypatch.setattr(StoredWeights, "parts", lambda *_: {"": SimpleNamespace(to=full)})
    with pytest.raises(ResourceError, match="the weights do not fit `cpu`") as caught:
        load_model(plan)
    assert "close it" in (caught.value.hint or "") and "`--max-memory`" in (caught.value.hint or "")


def test_mapped_weights_take_no_memory(written: Path) -> None:
    converted, mapped = (load_demand(written, dtype) for dtype in (torch.bfloat16, torch.float32))
    assert sum(converted.account.weights.values()) > 0
    assert sum(mapped.account.weights.values()) == 0
    assert mapped.account.total == mapped.account.cache + mapped.account.buffers
    plan = plan_memory(open_weights(written), CPU, torch.float32, context=64)
    assert plan.needed == mapped.account.total + plan.skeleton.nbytes, "the pages of their files have to be somewhere"


def test_a_model_needs_the_memory_of_its_adapter_too() -> None:
    weights = open_weights(DEMO_DIRECTORY)
    bare, adapted = (
        plan_memory(weights, CPU, torch.float32, context=64, adapter=adapter)
        for adapter in (None, open_adapter("sudoku"))
    )
    assert adapted.adapter is not None
    terms = sum(adapted.adapter.nbytes(layer) for layer in (None, *range(len(adapted.placement.layers))))
    assert adapted.needed - bare.needed == terms > 0


def test_terms_of_an_adapter_are_where_its_layers_are(written: Path) -> None:
    planned = Skeleton.of(open_weights(written), torch.float32)
    terms: Any = SimpleNamespace(nbytes=lambda layer: 1000 if layer is None else 10 + layer)
    bare, adapted = (planned.demand(CPU, 64, adapter) for adapter in (None, terms))
    assert [layer.weights for layer in bare.layers] == [0, 0], "they are mapped"
    assert [layer.weights for layer in adapted.layers] == [10, 11]
    assert adapted.outside - bare.outside == 1000


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_layers_hold_all_keys_and_values_up_to_the_longest_context(written: Path, dtype: torch.dtype) -> None:
    longest = Checkpoint(written).config()["text_config"]["max_position_embeddings"]
    demands = [load_demand(written, dtype, context) for context in (64, longest, longest + 1)]
    for demand in demands:
        assert sum(layer.cache for layer in demand.layers) == demand.account.cache > 0
    assert demands[0].account.total < demands[1].account.total
    assert demands[1] == demands[2]


def test_a_longer_canvas_takes_more_buffers(written: Path, edited: Callable[..., Path]) -> None:
    longer = edited(config=lambda entries: entries.update(canvas_length=2 * SPEC.canvas))
    short, long = (load_demand(directory, torch.float32).account for directory in (written, longer))
    assert long.buffers > short.buffers and long.cache == short.cache


def load_demand(directory: Path, dtype: torch.dtype, context: int = 64) -> Demand:
    return Skeleton.of(open_weights(directory), dtype).demand(CPU, context)


def test_sizes_whose_product_is_beyond_any_memory_are_refused(edited: Callable[..., Path]) -> None:
    directory = edited(
        config=lambda entries: entries["text_config"].update(vocab_size=2**31 - 1, hidden_size=2**31 - 1)
    )
    assert "weights too large for any memory" in refusal(directory).message
