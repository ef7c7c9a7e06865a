"""What `Engine.load` says about the device, and about files beside the weights that cannot be read."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from localdiff.checkpoint_files import MAX_SMALL, TEXT_FILES
from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.checkpoints.verification_record import record_finding
from localdiff.diffusion.settings import SamplerSettings
from localdiff.download_plan import confirm_silently
from localdiff.engine import Engine, opening
from localdiff.engine.loadable import require_text
from localdiff.errors import UsageError, WeightsError
from localdiff.load import LoadedModel, open_weights
from localdiff.load_progress import tell_nobody
from quant import MANIFEST_FILE
from quant.files.manifest import FileEntry, read_manifest
from tests.checkpoints.quantized import quantize
from tests.fakes.permissions import as_anyone

REBUILT = "the `localdiff quantize` that made it rebuilds what is damaged, from the same source"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantize(DEMO_DIRECTORY, tmp_path_factory.mktemp("quantized") / "demo-4bit", "4bit")


def refusal(directory: Path) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        Engine.load(directory, device="cpu")
    return caught.value


def test_a_model_is_on_the_device_where_it_was_placed(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` means the first GPU, but takes another one if that has too little memory."""
    second, tried, load = torch.device("cuda", 1), list[torch.device](), opening.load_model

    def loaded_there(*arguments: Any, **options: Any) -> LoadedModel:
        assert options["activations"] == "int8"
        loaded = load(*arguments, **options)
        return replace(loaded, placement=replace(loaded.placement, main=second))

    def try_there(_: object, device: torch.device, *__: object, **___: object) -> None:
        tried.append(device)

    monkeypatch.setattr(opening, "load_model", loaded_there)
    monkeypatch.setattr(opening, "try_kernels", try_there)
    opened = opening.open_model(
        made,
        device="cpu",
        dtype="fp32",
        activations="int8",
        revision=None,
        offline=True,
        context_size=64,
        max_memory=None,
        adapter=None,
        confirm=confirm_silently,
        progress=tell_nobody,
    )
    assert tried == [second] and opened.identity.device == "cuda:1"


def test_keys_and_values_are_on_the_devices_of_their_layers(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, load = torch.device("meta"), opening.load_model

    def spread(*arguments: Any, **options: Any) -> LoadedModel:
        loaded = load(*arguments, **options)
        first, *others = loaded.placement.layers
        return replace(loaded, placement=replace(loaded.placement, layers=(first, *(elsewhere for _ in others))))

    monkeypatch.setattr(opening, "load_model", spread)
    prefix_cache = Engine.load(made, device="cpu").new_prefix_cache()
    prefix_cache.start_run([1, 2], 16)
    first, *others = (layer.keys.device for layer in prefix_cache.kv_cache.layers)
    assert first == torch.device("cpu") and {*others} == {elsewhere}


def test_a_cpu_gets_threads_for_its_model_and_rounds_no_activations(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited: list[tuple[int, torch.device]] = []
    monkeypatch.setattr(opening, "limit_threads", lambda parameters, device: limited.append((parameters, device)))
    engine = Engine.load(made, device="cpu", activations="int8", context_size=64)
    assert engine.identity.activations == "auto"
    assert limited == [(open_weights(made).text_parameters(), torch.device("cpu"))]


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja"])
def test_what_rebuilds_a_file_of_a_quantized_directory_is_said(made: Path, tmp_path: Path, name: str) -> None:
    directory = shutil.copytree(made, tmp_path / "copy")
    content = (directory / name).read_bytes()
    (directory / name).write_bytes(content[: len(content) // 2])
    refused = refusal(directory)
    assert f"{name}` " in refused.message
    assert refused.hint == REBUILT


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such devices")
def test_a_device_in_the_place_of_a_file_is_not_read_to_say_what_rebuilds_it(made: Path, tmp_path: Path) -> None:
    """/dev/null stands for endless devices; it reads as empty, like the file that the manifest lists."""
    directory = shutil.copytree(made, tmp_path / "copy")
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer.json").symlink_to(os.devnull)
    manifest = read_manifest(directory)
    empty = FileEntry(nbytes=0, sha256=hashlib.sha256(b"").hexdigest())
    listed = replace(manifest, files={**manifest.files, "tokenizer.json": empty})
    (directory / MANIFEST_FILE).write_text(listed.to_text(), encoding="utf-8")
    assert refusal(directory).hint == REBUILT


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model-00001-of-00001.safetensors"]
)
def test_what_may_not_be_read_is_not_to_be_rebuilt(made: Path, tmp_path: Path, name: str) -> None:
    directory = shutil.copytree(made, tmp_path / "copy")
    (directory / name).chmod(0)
    with as_anyone():
        refused = refusal(directory)
    assert refused.message == f"`{directory / name}` cannot be read: Permission denied"
    assert refused.hint == "check its permissions"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such devices")
def test_a_file_without_an_end_is_not_read(tmp_path: Path) -> None:
    directory = shutil.copytree(DEMO_DIRECTORY, tmp_path / "copy")
    (directory / "config.json").unlink()
    (directory / "config.json").symlink_to("/dev/zero")
    assert refusal(directory).message == f"`{directory / 'config.json'}` is a device or a pipe, not a file"


@pytest.mark.parametrize("name", TEXT_FILES)
def test_a_file_of_gigabytes_is_not_read(tmp_path: Path, name: str) -> None:
    directory = shutil.copytree(DEMO_DIRECTORY, tmp_path / "copy")
    os.truncate(directory / name, MAX_SMALL + 1)
    message = refusal(directory).message
    assert "File too large" in message
    assert "Errno" not in message


def test_a_damaged_configuration_that_is_still_json(made: Path, tmp_path: Path) -> None:
    for directory, hint in (
        (made, REBUILT),
        (DEMO_DIRECTORY, "use the `config.json` that was published with the weights"),
    ):
        copy = shutil.copytree(directory, tmp_path / directory.name)
        content = (copy / "config.json").read_text()
        (copy / "config.json").write_text(content.replace('"layer_types"', '"layer_typez"'))
        refused = refusal(copy)
        assert (refused.message, refused.hint) == ("text_config lacks `layer_types`", hint)


def test_a_file_that_quantize_did_not_write_is_not_rebuilt_by_it(made: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(made, tmp_path / "copy")
    manifest = read_manifest(directory)
    files = {name: entry for name, entry in manifest.files.items() if name != "tokenizer.json"}
    (directory / MANIFEST_FILE).write_text(replace(manifest, files=files).to_text(), "utf-8")
    (directory / "tokenizer.json").unlink()
    assert refusal(directory).hint == "give the directory of a complete checkpoint, or its name on the Hub"


def test_a_file_of_published_weights_has_to_be_fetched_again(tmp_path: Path) -> None:
    directory = shutil.copytree(DEMO_DIRECTORY, tmp_path / "copy")
    (directory / "tokenizer.json").write_text("{")
    assert refusal(directory).hint == "the file may be cut off; fetch it again"


@pytest.mark.parametrize("lost", ["<|turn>", "<bos>"])
def test_a_tokenizer_without_the_control_tokens_of_the_template_is_refused(tmp_path: Path, lost: str) -> None:
    directory = shutil.copytree(DEMO_DIRECTORY, tmp_path / "copy")
    file = directory / "tokenizer.json"
    content = json.loads(file.read_text("utf-8"))
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != lost]
    file.write_text(json.dumps(content), "utf-8")
    refused = refusal(directory)
    assert refused.message == f"`{file}` lacks `{lost}`, which the chat template writes"
    assert refused.hint == "use the `tokenizer.json` that was published with the weights"
    with pytest.raises(WeightsError, match=re.escape(refused.message)):
        require_text(open_weights(directory))
    (directory / "chat_template.jinja").write_text("{{ messages[0].content }}")
    Engine.load(directory, device="cpu")  # this template writes no token that is missing


def test_a_template_that_wants_a_system_prompt_is_loaded(tmp_path: Path) -> None:
    directory = shutil.copytree(DEMO_DIRECTORY, tmp_path / "copy")
    wants = "{% if messages[0].role != 'system' %}{{ raise_exception('no system prompt') }}{% endif %}"
    file = directory / "chat_template.jinja"
    file.write_text(wants + file.read_text())
    engine = Engine.load(directory, device="cpu")
    with pytest.raises(UsageError, match="no system prompt"):
        next(iter(engine.generate("Spell the word mill.")))


def test_a_setting_that_is_not_known_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = shutil.copytree(DEMO_DIRECTORY, tmp_path / "copy")
    file = directory / "generation_config.json"
    known = json.loads(file.read_text())
    unknown = {"temperature": 0.7, "top_k": None, "_from_model_config": True, "num_denoising_steps": 12}
    file.write_text(json.dumps(known | unknown))
    assert Engine.load(directory, device="cpu").settings == SamplerSettings.from_config(known)
    words = "generation_config.json has settings that localdiff does not know and ignores: "
    assert words + "`temperature`, `num_denoising_steps`" in caplog.messages


def test_a_model_that_failed_verification_is_not_used_without_a_word(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "home"))
    record_finding(made, "`a` is broken")
    Engine.load(made, device="cpu")
    (record,) = caplog.records
    words = "was damaged when it was last verified: `a` is broken; the `localdiff quantize` that made it rebuilds"
    assert words in record.getMessage()
    caplog.clear()
    record_finding(made)
    Engine.load(made, device="cpu")
    assert not caplog.records
