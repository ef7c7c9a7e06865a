"""An adapter's directory: what is read from it, and every reason to refuse it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load as loaded_tensors
from safetensors.torch import save_file
from torch import Tensor

from localdiff.adapter import Adapter, add_adapter, open_adapter, save_adapter
from localdiff.adapter.attach import terms_of
from localdiff.checkpoints import adapter_reference
from localdiff.errors import WeightsError
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.fakes.permissions import as_anyone
from tests.models import tiny
from tests.models.adapters import EVERYTHING, hidden, randomize

FP32 = torch.float32


def save(directory: Path, *names: str, rows: Any = "both", **text: Any) -> DiffusionGemma:
    network = tiny.model(**text)
    randomize(add_adapter(network, names or EVERYTHING, rank=3, alpha=6, rows=rows))
    save_adapter(network, directory, base="tiny")
    return network


def load(directory: Path, network: DiffusionGemma | None = None, *names: str) -> DiffusionGemma:
    network = network or tiny.model()
    adapter = Adapter(open_adapter(str(directory)), network.config, FP32)
    adapter.attach(network, names, [torch.device("cpu")] * len(network.layers))
    return network


def edit_config(directory: Path, **values: Any) -> None:
    path = directory / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def edit_tensors(directory: Path, change: Callable[[dict[str, Tensor]], object], keep_metadata: bool = True) -> None:
    path = directory / "adapter_model.safetensors"
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = loaded_tensors(path.read_bytes())  # a mapped file cannot be overwritten on Windows
    change(tensors)
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    save_file(copies, path, metadata=metadata if keep_metadata else None)


@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors", ""])
def test_a_file_that_may_not_be_read(tmp_path: Path, file: str) -> None:
    directory = tmp_path / "adapter"
    save(directory, "q_proj")
    (directory / file).chmod(0)
    with as_anyone(), pytest.raises(WeightsError, match=r"(?m)cannot be read: Permission denied$") as raised:
        open_adapter(str(directory))
    (directory / file).chmod(0o755)
    assert raised.value.hint == "check its permissions"


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1e300])
def test_values_that_are_not_finite_are_those_of_the_adapter(tmp_path: Path, value: float) -> None:
    save(tmp_path, "q_proj")

    def spoil(tensors: dict[str, Tensor]) -> None:
        name = sorted(tensors)[1]
        tensors[name] = tensors[name].double()
        tensors[name][1, 2] = value

    edit_tensors(tmp_path, spoil)
    with pytest.raises(WeightsError, match=r"adapter_model.safetensors` holds NaN or infinite values, in `.*lora_B"):
        load(tmp_path)


@pytest.mark.parametrize("rows", ["both", "encoder", "decoder"])
def test_what_was_saved_comes_back(tmp_path: Path, rows: str) -> None:
    names = [name for name in EVERYTHING if rows != "encoder" or "conditioning" not in name]
    network = save(tmp_path, *names, rows=rows)
    again = load(tmp_path)
    one = {(side, path): term for side, path, term in terms_of(network)}
    other = {(side, path): term for side, path, term in terms_of(again)}
    assert one.keys() == other.keys()
    for key, term in one.items():
        assert torch.equal(term.lora_A, other[key].lora_A)
        assert torch.equal(term.lora_B, other[key].lora_B)
        assert term.scale == other[key].scale
    for expected, found in zip(hidden(network), hidden(again), strict=True):
        assert torch.equal(expected, found)


def test_terms_that_are_equal_on_both_sides_are_held_once(tmp_path: Path) -> None:
    save(tmp_path, "q_proj", "experts.down_proj")
    network = load(tmp_path)
    held = {id(term) for _, _, term in terms_of(network)}
    assert len(held) == 2 * len(network.layers) == len(list(terms_of(network))) / 2
    adapter = Adapter(open_adapter(str(tmp_path)), network.config, FP32)
    taken = sum(parameter.nbytes for name, parameter in network.named_parameters() if "lora_" in name)
    assert sum(adapter.nbytes(layer) for layer in (None, 0, 1, 2)) == taken


def test_the_same_factors_may_have_another_scale_on_each_side(tmp_path: Path) -> None:
    save(tmp_path, "q_proj")
    edit_config(tmp_path, alpha_pattern={r"model\.decoder\..*q_proj": 12})
    scales = {(side, term.scale) for side, _, term in terms_of(load(tmp_path))}
    assert scales == {("encoder", 2.0), ("decoder", 4.0)}


def test_no_weight_of_the_base_is_copied_or_changed(tmp_path: Path) -> None:
    save(tmp_path)
    network = tiny.model()
    before = {parameter.data_ptr(): parameter.clone() for parameter in network.parameters()}
    load(tmp_path, network)
    after = {p.data_ptr(): p for name, p in network.named_parameters() if "lora_" not in name}
    assert after.keys() == before.keys()
    assert all(torch.equal(after[place], before[place]) for place in before)


def test_targets_keep_their_own_ranks_and_scales(tmp_path: Path) -> None:
    network = tiny.model()
    randomize(add_adapter(network, ["q_proj"], rank=4, alpha=8))
    randomize(add_adapter(network, ["layers.1.mlp.up_proj", "experts.gate_up_proj"], rank=2, alpha=5))
    randomize(add_adapter(network, ["self_conditioning.gate_proj"], rank=1, alpha=0.5))
    save_adapter(network, tmp_path, base=None)
    for expected, found in zip(hidden(network), hidden(load(tmp_path)), strict=True):
        assert torch.equal(expected, found)


def test_a_rank_stabilized_scale_divides_by_the_root(tmp_path: Path) -> None:
    save(tmp_path, "q_proj")
    edit_config(tmp_path, use_rslora=True)
    assert {term.scale for _, _, term in terms_of(load(tmp_path))} == {6 / 3**0.5}


def test_factors_take_the_type_of_the_activations(tmp_path: Path) -> None:
    save(tmp_path, "q_proj", "experts.down_proj")
    network = tiny.model().to(torch.bfloat16)
    Adapter(open_adapter(str(tmp_path)), network.config, torch.bfloat16).attach(
        network, (), [torch.device("cpu")] * len(network.layers)
    )
    assert {term.lora_A.dtype for _, _, term in terms_of(network)} == {torch.bfloat16}
    assert not any(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"peft_type": "LOHA"}, "describes LOHA, and localdiff reads only LORA"),
        ({"peft_type": None}, "describes no kind of adapter"),
        ({"use_dora": True}, "uses DoRA"),
        ({"modules_to_save": ["lm_head"]}, "`modules_to_save`"),
        ({"bias": "lora_only"}, "holds biases"),
        ({"lora_bias": True}, "`lora_bias`"),
        ({"fan_in_fan_out": True}, "`fan_in_fan_out`"),
        ({"init_lora_weights": "pissa"}, "initialized as `pissa`"),
        ({"invented_in_2031": {"x": 1}}, "uses `invented_in_2031`"),
        ({"use_rslora": "false"}, '`use_rslora` in .* is "false", not true or false'),
        ({"r": 0}, "`r` in .* is 0, not a whole number from 1"),
        ({"r": True}, "`r` in .* is true"),
        ({"lora_alpha": "16"}, "`lora_alpha` in"),
        ({"lora_alpha": 10**400}, "`lora_alpha` in .* is 1000"),
        ({"lora_alpha": float("nan")}, "`lora_alpha` in .* is NaN"),
        ({"alpha_pattern": {"q_proj": float("inf")}}, "`alpha_pattern` in"),
        ({"alpha_pattern": {"q_proj": 10**400}}, "`alpha_pattern` in"),
        ({"base_model_name_or_path": 5}, "`base_model_name_or_path` in .* is 5, not text"),
        ({"rank_pattern": {"q_proj": 0}}, "`rank_pattern` in .*, not names with numbers above 0"),
        ({"rank_pattern": {"q_proj": 2.5}}, "`rank_pattern` in .*, not names with numbers above 0"),
        ({"rank_pattern": {"[": 3}}, "`rank_pattern` in"),
        ({"rank_pattern": {"(?i)q_proj": 3}}, "`rank_pattern` in .*, not names or regular expressions"),
        ({"rank_pattern": {"q{99999999999999999999}": 3}}, "`rank_pattern` in"),
        ({"rank_pattern": {"(" * 5000 + ")" * 5000: 3}}, "`rank_pattern` in"),
        ({"r": 10**400, "lora_alpha": 1.5}, "`r` in .* is 1000"),
        ({"r": 10**400, "use_rslora": True}, "`r` in .* is 1000"),
        ({"target_modules": {"q_proj": 1}}, "`target_modules` in"),
        ({"target_parameters": "experts"}, '`target_parameters` in .* is "experts", not a list of names'),
        ({"target_modules": ["q_proj", "c_attn"]}, "targets `c_attn`, and no tensor of the adapter is for it"),
        ({"r": 4}, r"have the shapes \[3, 32\] and \[32, 3\], where rank 4 .* is \[4, 32\] and \[32, 4\]"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_configuration_that_asks_for_more_is_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    save(tmp_path, "q_proj")
    edit_config(tmp_path, **values)
    with pytest.raises(WeightsError, match=message) as caught:
        load(tmp_path)
    assert caught.value.hint
    assert caught.value.exit_code == 3


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "a\udcff"
    folder.mkdir()
    save(folder, "q_proj")
    with pytest.raises(WeightsError, match="is not a name in UTF-8, and safetensors opens no other") as caught:
        load(folder)
    assert caught.value.hint == "rename the folder"


KEY = "base_model.model.model.decoder.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(KEY), "q_proj.lora_B.weight` without its lora_A"),
        (lambda t: t.pop(KEY.replace("lora_A", "lora_B")), "q_proj.lora_A.weight` without its lora_B"),
        (lambda t: t.update({KEY: t[KEY][:, :-1].contiguous()}), "have the shapes"),
        (lambda t: t.update({KEY: t[KEY].to(torch.int32)}), "not a LoRA factor"),
        (lambda t: t.update({KEY.replace("lora_A.weight", "lora_magnitude_vector"): t[KEY]}), "not a LoRA factor"),
        (lambda t: t.update({KEY.replace("layers.0", "layers.7"): t[KEY]}), "layers.7.self_attn.q_proj`, which cannot"),
        (lambda t: t.update({KEY.replace("self_attn.q_proj", "experts"): t[KEY]}), "layers.0.experts`, which cannot"),
        (lambda t: t.update({KEY.replace("self_attn.q_proj", "input_layernorm"): t[KEY]}), "cannot be adapted"),
        (lambda t: t.update({KEY.replace("layers.0.self_attn", "self_conditioning"): t[KEY]}), "self_conditioning"),
        (lambda t: t.update({"base_model.model.lm_head.lora_A.weight": t[KEY]}), "`model.lm_head`"),
        (lambda t: t.update({KEY.removeprefix("base_model.model."): t[KEY]}), "which are the same factor"),
        (lambda t: t.update({KEY.replace(".weight", ".default.weight"): -t[KEY]}), "which are the same factor"),
        (lambda t: t.clear(), "changes nothing"),
    ],
)
def test_tensors_without_a_place_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    save(tmp_path, "q_proj")
    edit_tensors(tmp_path, change)
    with pytest.raises(WeightsError, match=message) as caught:
        load(tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize(("is_inner", "lost"), [(True, "gate_up_proj"), (False, "down_proj")])
def test_tensors_of_one_parameter_of_experts_are_missed(tmp_path: Path, is_inner: bool, lost: str) -> None:
    save(tmp_path, "experts.gate_up_proj", "experts.down_proj")

    def lose(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if ("base_layer" in name) == is_inner]:
            del tensors[name]

    edit_tensors(tmp_path, lose)
    with pytest.raises(WeightsError, match=f"targets `.*{lost}`, and no tensor of the adapter is for it"):
        load(tmp_path)


def test_a_full_layer_has_no_values_to_adapt(tmp_path: Path) -> None:
    save(tmp_path, "v_proj")
    text = "layers.2.self_attn.v_proj"
    edit_tensors(tmp_path, lambda t: t.update({KEY.replace("layers.0.self_attn.q_proj", text): torch.zeros(3, 32)}))
    with pytest.raises(WeightsError, match=text):
        load(tmp_path)


def test_vision_tensors_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    network = save(tmp_path, "q_proj")
    vision = "base_model.model.model.encoder.vision_tower.encoder.layers.0.mlp.up_proj.linear.lora_A.weight"
    edit_tensors(tmp_path, lambda t: t.update({vision: torch.zeros(3, 8)}))
    with caplog.at_level("INFO", "localdiff"):
        again = load(tmp_path)
    assert "skipped 1 vision tensors" in caplog.text
    assert torch.equal(hidden(network)[0], hidden(again)[0])


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="there is no adapter `nowhere`") as caught:
        open_adapter("nowhere")
    assert caught.value.hint is not None and caught.value.hint.endswith("with this package come: sudoku")
    with pytest.raises(WeightsError, match="there is no adapter `owner/name`") as caught:
        open_adapter("owner/name")
    assert caught.value.hint is not None and "`hf download owner/name --local-dir DIR`" in caught.value.hint
    with pytest.raises(WeightsError, match="has no `adapter_config.json`"):
        open_adapter(str(tmp_path))
    save(tmp_path, "q_proj")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(WeightsError, match="cannot be read"):
        open_adapter(str(tmp_path))
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    with pytest.raises(WeightsError, match="has no `adapter_model.safetensors`") as caught:
        open_adapter(str(tmp_path))
    assert caught.value.hint is not None and "may run code" in caught.value.hint
    with pytest.raises(WeightsError, match="is a file, not the directory of an adapter"):
        open_adapter(str(tmp_path / "adapter_model.bin"))
    for text in ("{", "[]", "[" * 100_000):
        (tmp_path / "adapter_config.json").write_text(text)
        with pytest.raises(WeightsError, match="adapter_config.json"):
            open_adapter(str(tmp_path))


def test_an_adapter_of_this_package_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "shipped" / "sudoku", "q_proj")
    save(tmp_path / "here" / "sudoku", "k_proj")
    monkeypatch.setattr(adapter_reference, "SHIPPED", tmp_path / "shipped")
    monkeypatch.chdir(tmp_path / "here")
    assert adapter_reference.find_adapter("sudoku") == tmp_path / "shipped" / "sudoku"
    assert adapter_reference.find_adapter("./sudoku") == Path("sudoku")
    with pytest.raises(WeightsError) as caught:
        adapter_reference.find_adapter("soduku")
    assert caught.value.hint is not None and "with this package come: sudoku" in caught.value.hint
    with pytest.raises(WeightsError, match="there is no adapter"):
        adapter_reference.find_adapter("a" * 300)


def test_other_weights_of_the_same_shape_are_another_base(tmp_path: Path) -> None:
    save(tmp_path, "q_proj")
    with pytest.raises(
        WeightsError, match="was trained on other weights of `tiny` than those that are loaded"
    ) as caught:
        load(tmp_path, tiny.model(seed=1))
    assert caught.value.hint
    load(tmp_path, tiny.model(), "owner/any-name")  # the weights identify the base, whatever its name


@pytest.mark.parametrize(
    ("base", "names", "refused"),
    [
        ("google/diffusiongemma", ("google/diffusiongemma",), False),
        ("Google/DiffusionGemma", ("google/diffusiongemma",), False),
        ("google/diffusiongemma", ("4bit", "google/diffusiongemma"), False),
        ("google/diffusiongemma", ("demo",), True),
        ("demo", ("google/diffusiongemma",), True),
        ("meta/other", ("google/diffusiongemma",), True),
        ("somebody/demo", ("demo",), True),
        ("google/diffusiongemma", ("./models/mine", "mine"), False),
        ("/home/somebody/models/mine", ("google/diffusiongemma",), False),
        ("~somebody/mine", ("google/diffusiongemma",), False),
        (".cache/mine", ("google/diffusiongemma",), False),
        ("my models/mine", ("google/diffusiongemma",), False),
        ("C:/mine", ("google/diffusiongemma",), False),
        ("models/here", ("google/diffusiongemma",), False),
        ("models/elsewhere", ("google/diffusiongemma",), True),
        ("", ("google/diffusiongemma",), False),
        (None, ("demo",), False),
    ],
)
def test_names_tell_another_base_where_weights_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str | None, names: tuple[str, ...], refused: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models/here").mkdir(parents=True)
    save(tmp_path, "q_proj")
    edit_tensors(tmp_path, lambda t: None, keep_metadata=False)
    edit_config(tmp_path, base_model_name_or_path=base)
    if refused:
        with pytest.raises(WeightsError, match=f"was trained on `{base}`, and the model is `{names[0]}`"):
            load(tmp_path, None, *names)
    else:
        load(tmp_path, None, *names)


def test_a_base_of_the_same_name_by_another_owner_is_taken_for_a_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, "q_proj")
    edit_tensors(tmp_path, lambda t: None, keep_metadata=False)
    edit_config(tmp_path, base_model_name_or_path="unsloth/diffusiongemma-26B-A4B-it")
    load(tmp_path, None, "somebody/quantized", "google/diffusiongemma-26b-a4b-it")
    (said,) = [record.getMessage() for record in caplog.records]
    assert "was trained on `unsloth/diffusiongemma-26B-A4B-it`, which is taken for a copy of `google/" in said
