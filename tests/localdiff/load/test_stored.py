"""Stored weights: three forms, told apart by what is in the directory, and a message for what is wrong with one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from localdiff.engine import Engine
from localdiff.errors import WeightsError
from localdiff.events import BlockCommitted, RunFinished
from localdiff.load import LoadedModel, load_model, open_weights, plan_memory
from localdiff.load.stored import BitsandbytesWeights, QuantizedWeights
from localdiff.options import GenerateOptions
from quant import MANIFEST_FILE
from quant.codecs import CODECS
from quant.codecs.codec import Encoded
from quant.files.manifest import Manifest, read_manifest
from quant.modules import QuantEmbedding, QuantExperts
from quant.recipe import RECIPES
from tests.checkpoints.layouts import QUANTIZABLE, write_checkpoint
from tests.checkpoints.quantized import quantize

CPU = torch.device("cpu")
SPEC = replace(QUANTIZABLE, layers="ssf", settings={"max_denoising_steps": 10, "eos_token_id": [1]})
PROMPT = [3, 14, 15, 9, 26, 5]
OPTIONS = GenerateOptions(seed=5, max_tokens=24, context_size=64)

Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(SPEC, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def by_recipe(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The checkpoint quantized by a recipe."""
    made: dict[str, Path] = {}

    def make(recipe: str) -> Path:
        if recipe not in made:
            made[recipe] = quantize(source, tmp_path_factory.mktemp("quantized") / recipe, recipe)
        return made[recipe]

    return make


@pytest.fixture
def copied(by_recipe: Callable[[str], Path], tmp_path: Path) -> Path:
    """A quantized directory that a test may damage."""
    return Path(shutil.copytree(by_recipe("4bit"), tmp_path / "copy"))


def load(directory: Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(plan_memory(open_weights(directory), CPU, dtype))


def refusal(directory: Path) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        load(directory)
    assert caught.value.exit_code == 3
    assert caught.value.hint
    assert not caught.value.message.endswith(".")
    return caught.value


def stored(directory: Path) -> Tensors:
    return {name: part for shard in sorted(directory.glob("*.safetensors")) for name, part in load_file(shard).items()}


def decoded(directory: Path, target: Path) -> Path:
    """The same weights as a plain checkpoint in fp32."""
    manifest, parts = read_manifest(directory), stored(directory)
    weights = {}
    for name, entry in manifest.tensors.items():
        if entry.scheme == "keep":
            weights[name] = parts[name].float()
        else:
            encoded = Encoded(codes=parts[f"{name}.codes"], scales=parts[f"{name}.scales"])
            weights[name] = CODECS[entry.scheme].decode(encoded)
    target.mkdir()
    for file in directory.glob("*.json*"):
        if "safetensors" not in file.name and file.name != MANIFEST_FILE:
            shutil.copy(file, target)
    shutil.copy(directory / "chat_template.jinja", target)
    save_file(weights, target / "model.safetensors")
    return target


def generated(directory: Path) -> list[tuple[tuple[int, ...], int]]:
    """Ids and steps of every block of a whole generation."""
    engine = Engine.load(str(directory), device="cpu", dtype="fp32")
    events = list(engine.generate(PROMPT, OPTIONS))
    assert isinstance(events[-1], RunFinished)
    return [(event.token_ids, event.steps) for event in events if isinstance(event, BlockCommitted)]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_generation_is_that_of_the_decoded_weights(
    by_recipe: Callable[[str], Path], tmp_path: Path, recipe: str
) -> None:
    quantized = by_recipe(recipe)
    blocks = generated(quantized)
    assert len(blocks) > 1
    assert blocks == generated(decoded(quantized, tmp_path / "decoded"))


def test_recipes_differ(by_recipe: Callable[[str], Path]) -> None:
    """Otherwise the test above would prove little."""
    assert generated(by_recipe("4bit-small")) != generated(by_recipe("bf16"))


def test_the_identity_names_the_recipe(by_recipe: Callable[[str], Path], source: Path) -> None:
    assert Engine.load(str(by_recipe("4bit-small")), device="cpu").identity.recipe == "4bit-small"
    assert Engine.load(str(source), device="cpu").identity.recipe == "bf16"


def test_codes_and_scales_stay_in_the_file(by_recipe: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    weights = open_weights(by_recipe("4bit"))
    handed_out = {}
    read = type(weights.checkpoint).tensor

    def reading(name: str) -> Tensor:
        handed_out[name] = read(weights.checkpoint, name)
        return handed_out[name]

    monkeypatch.setattr(weights.checkpoint, "tensor", reading)
    network = load_model(plan_memory(weights, CPU, torch.bfloat16)).network
    held = {tensor.data_ptr() for tensor in network.state_dict().values()}
    assert held == {tensor.data_ptr() for tensor in handed_out.values()}
    assert all(weights.is_mapped(name, torch.bfloat16) for name in weights.shapes)


def test_quantized_modules_are_in_place(by_recipe: Callable[[str], Path]) -> None:
    network = load(by_recipe("4bit")).network
    assert isinstance(network.embed_tokens, QuantEmbedding)
    codecs = [layer.experts.down_proj.codec.name for layer in network.layers if isinstance(layer.experts, QuantExperts)]
    assert codecs == ["int8", "nf4", "int8"]
    assert network.embed_tokens.dtype == network.norm.weight.dtype == torch.float32


def test_bytes_are_those_of_the_parts(by_recipe: Callable[[str], Path]) -> None:
    weights = open_weights(by_recipe("mixed"))
    for name in weights.shapes:
        assert weights.nbytes(name, torch.bfloat16) == sum(
            part.nbytes for part in weights.parts(name, torch.bfloat16).values()
        )


def test_the_number_of_weights_does_not_depend_on_how_they_are_stored(
    by_recipe: Callable[[str], Path], source: Path
) -> None:
    assert open_weights(by_recipe("4bit")).text_parameters() == open_weights(source).text_parameters()


def test_an_unfinished_job_is_never_loaded(copied: Path) -> None:
    (copied / "job.json").write_text('{"job": {}, "sources": {}}')
    assert "unfinished" in refusal(copied).message
    (copied / MANIFEST_FILE).unlink()
    assert "unfinished" in refusal(copied).message
    partial = copied.rename(copied.with_name("copy.partial"))
    (partial / "job.json").write_text('{"job": {}, "sour')
    assert "unfinished" in refusal(partial).message


@pytest.mark.parametrize("text", ['{"lr": 1e-4}', "[]", "no JSON"])
def test_another_program_s_job_file_is_no_matter(copied: Path, text: str) -> None:
    (copied / "job.json").write_text(text)
    assert load(copied).network is not None


def test_codes_without_a_manifest_are_never_weights(copied: Path) -> None:
    (copied / MANIFEST_FILE).unlink()
    message = refusal(copied).message
    assert "holds quantized weights and no `quant.json`" in message


def test_a_manifest_that_is_damaged(copied: Path) -> None:
    text = (copied / MANIFEST_FILE).read_text()
    (copied / MANIFEST_FILE).write_text(text.replace('"nf4"', '"int8"', 1))
    assert "checksum" in refusal(copied).message
    (copied / MANIFEST_FILE).write_bytes(b"\xff\xfe")
    assert "damaged" in refusal(copied).message


def edit_manifest(directory: Path, edit: Callable[[Manifest], Manifest]) -> None:
    manifest = edit(read_manifest(directory))
    (directory / MANIFEST_FILE).write_text(manifest.to_text())


def test_a_tensor_that_the_manifest_does_not_list(copied: Path) -> None:
    gone = "model.decoder.layers.1.layer_scalar"
    edit_manifest(copied, lambda manifest: replace(manifest, tensors=without(manifest, gone)))
    assert f"`quant.json` does not list `{gone}`" in refusal(copied).message


def test_a_tensor_that_only_the_manifest_lists(copied: Path) -> None:
    def add(manifest: Manifest) -> Manifest:
        entry = manifest.tensors["model.decoder.norm.weight"]
        return replace(manifest, tensors={**manifest.tensors, "model.decoder.other": entry})

    edit_manifest(copied, add)
    assert "lacks `model.decoder.other`" in refusal(copied).message


@pytest.mark.parametrize(
    ("shape", "words"),
    [((8, 64, 64), "is not stored as `quant.json` says"), ((4, 64, 63), "cannot be stored that way")],  # by no codec
)
def test_a_tensor_of_another_shape(copied: Path, shape: tuple[int, ...], words: str) -> None:
    def reshape(manifest: Manifest) -> Manifest:
        name = "model.decoder.layers.0.experts.down_proj"
        entry = replace(manifest.tensors[name], shape=shape)
        return replace(manifest, tensors={**manifest.tensors, name: entry})

    edit_manifest(copied, reshape)
    assert words in refusal(copied).message


def without(manifest: Manifest, name: str) -> dict[str, object]:
    return {other: entry for other, entry in manifest.tensors.items() if other != name}


def test_experts_that_are_quantized_by_half_cannot_run(source: Path, tmp_path: Path) -> None:
    recipe = RECIPES["4bit-small"]
    rules = tuple(
        replace(rule, scheme="keep") if rule.pattern.endswith("experts.*_proj") else rule for rule in recipe.rules
    )
    first = replace(rules[0], pattern="*.experts.down_proj", scheme="nf4")
    quantized = quantize(source, tmp_path / "half", replace(recipe, name="half", rules=(first, *rules)))
    assert "cannot run" in refusal(quantized).message


class TestBitsandbytes:
    """Linear layers as `save_pretrained` writes them after bitsandbytes has quantized a model."""

    @pytest.fixture(params=[False, True], ids=["plain", "double"])
    def written(self, source: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
        from bitsandbytes.functional import quantize_4bit

        shutil.copytree(source, tmp_path / "bnb")
        file = tmp_path / "bnb" / "model.safetensors"
        tensors = load_file(file)
        for name in [name for name in tensors if name.startswith("model.decoder") and name.endswith("proj.weight")]:
            codes, state = quantize_4bit(
                tensors.pop(name), blocksize=64, quant_type="nf4", compress_statistics=request.param
            )
            tensors[name] = codes
            tensors |= {f"{name}.{part}": value for part, value in state.as_dict(packed=True).items()}
        save_file(tensors, file)
        return tmp_path / "bnb"

    def test_it_is_decoded_while_it_is_read(self, written: Path, source: Path) -> None:
        from bitsandbytes.functional import QuantState, dequantize_4bit

        weights = open_weights(written)
        assert isinstance(weights, BitsandbytesWeights)
        network = load(written).network
        tensors = load_file(written / "model.safetensors")
        name = "model.decoder.layers.1.self_attn.q_proj.weight"
        state = QuantState.from_dict(
            {part: value for part, value in tensors.items() if part.startswith(f"{name}.")}, device=CPU
        )
        state.dtype = torch.float32
        assert torch.equal(network.layers[1].self_attn.q_proj.weight, dequantize_4bit(tensors[name], state))

    @pytest.mark.parametrize("storage", [torch.uint8, torch.float32], ids=str)
    def test_what_is_decoded_takes_memory_and_what_is_stored_as_it_is_used_does_not(
        self, written: Path, storage: torch.dtype
    ) -> None:
        """Also with codes stored in the type of the weights, as `bnb_4bit_quant_storage` has them for training."""
        file, name = written / "model.safetensors", "model.decoder.layers.1.self_attn.q_proj.weight"
        tensors = load_file(file)
        tensors[name] = tensors[name].flatten().view(storage)[:, None]
        save_file({other: tensor.contiguous() for other, tensor in tensors.items()}, file)
        weights, kept = open_weights(written), "model.decoder.norm.weight"
        assert weights.is_mapped(kept, tensors[kept].dtype)
        assert not weights.is_mapped(name, torch.float32)

    def test_it_says_what_it_is(self, written: Path) -> None:
        engine = Engine.load(str(written), device="cpu")
        assert engine.identity.recipe == "bitsandbytes"
        assert isinstance(list(engine.generate(PROMPT, OPTIONS))[-1], RunFinished)

    def test_one_that_lacks_a_tensor_is_not_called_a_form_that_is_not_read(self, written: Path) -> None:
        tensors, config = load_file(written / "model.safetensors"), written / "config.json"
        del tensors["model.decoder.norm.weight"]
        save_file(tensors, written / "model.safetensors")
        method = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
        config.write_text(json.dumps(json.loads(config.read_text()) | method))
        error = refusal(written)
        assert error.message == "the checkpoint lacks `model.decoder.norm.weight`"
        assert error.hint == "the weights and `config.json` do not belong together"

    def test_copies_that_are_descriptions_alone_are_a_form_that_is_not_read(self, written: Path) -> None:
        """As transformers saves them where `llm_int8_skip_modules` is `["lm_head"]`."""
        tensors, config = load_file(written / "model.safetensors"), written / "config.json"
        decoder, encoder = "model.decoder.", "model.encoder.language_model."
        states = {name: value for name, value in tensors.items() if "layers" in name and "quant_state" in name}
        tensors |= {name.replace(decoder, encoder): value.clone() for name, value in states.items()}
        save_file(tensors, written / "model.safetensors")
        method = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
        config.write_text(json.dumps(json.loads(config.read_text()) | method))
        assert "was quantized with `bitsandbytes`, in a form that localdiff does not read" in refusal(written).message

    def test_a_description_that_cannot_be_read(self, written: Path) -> None:
        tensors = load_file(written / "model.safetensors")
        name = next(name for name in tensors if "quant_state" in name)
        tensors[name] = torch.zeros(3, dtype=torch.uint8)
        save_file(tensors, written / "model.safetensors")
        assert "not a readable bitsandbytes tensor" in refusal(written).message


def test_a_plain_checkpoint_is_neither(source: Path, by_recipe: Callable[[str], Path]) -> None:
    assert not isinstance(open_weights(source), (QuantizedWeights, BitsandbytesWeights))
    assert isinstance(open_weights(by_recipe("bf16")), QuantizedWeights)
