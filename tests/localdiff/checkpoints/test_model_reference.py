"""From a name to a directory: the packaged model, directories, quantized models, and names that are none of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from localdiff.checkpoints import model_reference
from localdiff.checkpoints.model_reference import KINDS, ModelSource, resolve_local
from localdiff.checkpoints.model_store import quantized_directory
from localdiff.errors import UsageError, WeightsError
from localdiff.quoting import shell_word
from tests.fakes.permissions import as_anyone


def test_demo_is_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_reference, "DEMO_DIRECTORY", tmp_path)
    assert resolve_local("demo") == ModelSource(directory=tmp_path, name="demo", revision=None)


def test_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner" / "model").mkdir(parents=True)
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for reference, directory in (
        (str(tmp_path), tmp_path),
        ("owner/model", Path("owner/model")),
        ("./demo", Path("demo")),
        ("~/demo", tmp_path / "demo"),
    ):
        assert resolve_local(reference) == ModelSource(directory=directory, name=reference)


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("https://huggingface.co/owner/model", "did you mean `owner/model`?"),
        ("https://huggingface.co/owner/model-1.5_b/tree/main", "did you mean `owner/model-1.5_b`?"),
        ("http://www.huggingface.co/owner/model?library=transformers#files", "did you mean `owner/model`?"),
        ("hf.co/owner/model/", "did you mean `owner/model`?"),
        ("https://huggingface.co/datasets/owner/data", KINDS),
        ("https://huggingface.co/owner", KINDS),
        ("https://huggingface.co.example/owner/model", KINDS),
    ],
)
def test_of_the_address_of_a_page_the_id_is_meant(reference: str, hint: str) -> None:
    with pytest.raises(WeightsError, match="^no such directory: ") as caught:
        resolve_local(reference)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("./missing", "no such directory: `./missing`"),
        ("/no/such/place", "no such directory: `/no/such/place`"),
        ("a/b/c", "no such directory: `a/b/c`"),
        ("~/missing", "no such directory: `~/missing`"),
        ("owner/", "no such directory: `owner/`"),
        ("omed", "`omed` is neither `demo`, nor a quantized model, a directory or a Hub id"),
        ("", "`` is neither `demo`, nor a quantized model, a directory or a Hub id"),
    ],
)
def test_what_is_no_model(reference: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError) as raised:
        resolve_local(reference)
    assert raised.value.message == message
    assert "a model is `demo`, a name of `localdiff models`, the path of a directory, or a Hub id" in (
        raised.value.hint or ""
    )


def test_an_adapter_and_gguf_are_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my models/lora").mkdir(parents=True)
    Path("my models/lora/adapter_config.json").touch()
    Path("my models/file").mkdir()
    Path("my models/file/a.Q4_K_M.gguf").touch()
    gguf = "is GGUF, which localdiff does not read"
    for reference, message, hint in (
        ("my models/lora", "is an adapter, not a model", "`-m MODEL --adapter 'my models/lora'` adds it to one"),
        ("my models/file", gguf, "it reads safetensors, "),
        ("my models/file/a.Q4_K_M.gguf", gguf, "it reads safetensors, "),
    ):
        with pytest.raises(WeightsError) as caught:
            resolve_local(reference)
        assert caught.value.message == f"`{reference}` {message}"
        assert (caught.value.hint or "").startswith(hint)
    Path("my models/lora/model.safetensors").touch()
    assert resolve_local("my models/lora") is not None


def test_a_file_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "a model" / "model.safetensors"
    path.parent.mkdir()
    path.touch()
    with pytest.raises(WeightsError) as raised:
        resolve_local(str(path))
    assert raised.value.message == f"`{path}` is a file, not the directory of a model"
    assert raised.value.hint == KINDS
    (path.parent / "config.json").touch()
    with pytest.raises(WeightsError) as raised:
        resolve_local(str(path))
    assert raised.value.hint == f"did you mean `{shell_word(path.parent)}`?"


def test_the_name_of_an_adapter_is_told_from_that_of_a_model() -> None:
    with pytest.raises(WeightsError, match="`sudoku` is neither `demo`, nor") as raised:
        resolve_local("sudoku")
    assert raised.value.hint == "it is an adapter of the demo model: `-m demo --adapter sudoku`"


def test_a_recipe_is_told_from_a_model() -> None:
    with pytest.raises(WeightsError) as raised:
        resolve_local("4bit")
    assert raised.value.message == "`4bit` is a recipe, not a model"
    assert str(raised.value.hint).startswith("`localdiff quantize --recipe 4bit` makes a model with it; ")


def test_a_name_that_was_mistyped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError, match="`dmeo` is neither `demo`, nor") as raised:
        resolve_local("dmeo")
    assert raised.value.hint == "did you mean `demo`?"


def test_a_folder_that_may_not_be_looked_into_is_no_hub_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "locked").mkdir(mode=0)
    with as_anyone(), pytest.raises(WeightsError) as raised:
        resolve_local("locked/model")
    assert raised.value.message == "`locked/model` cannot be read: Permission denied"
    assert raised.value.hint == "check the permissions of its folders"


def test_a_quantized_model_that_may_not_be_read_is_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    directory = home / "models" / "small-4bit"
    directory.mkdir(parents=True)
    for folder in (directory, directory.parent):
        folder.chmod(0)
        with as_anyone(), pytest.raises(WeightsError) as raised:
            resolve_local("small-4bit")
        folder.chmod(0o755)
        assert raised.value.message == f"`{directory}` cannot be read: Permission denied"
        assert raised.value.hint == "check its permissions"


def test_a_quantized_model_goes_by_its_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    directory = home / "models" / "small-4bit"
    directory.mkdir(parents=True)
    with pytest.raises(WeightsError, match="`small-4bit` is neither"):
        resolve_local("small-4bit")
    (directory.parent / "small-4bit.partial").mkdir()
    for name in ("small-4bit", "small-4bit.partial"):
        with pytest.raises(WeightsError, match=f"`{name}` is an unfinished quantized model"):
            resolve_local(name)
    (directory.parent / "small-4bit.partial").rmdir()
    (directory / "quant.json").touch()
    assert resolve_local("small-4bit") == ModelSource(directory=directory, name="small-4bit")
    for suffix in (".partial", ".discarded"):
        (directory.parent / f"small-4bit{suffix}").mkdir()
        (directory.parent / f"small-4bit{suffix}" / "quant.json").touch()
    for name in ("..", ".", "../models/small-4bit", "", "small-4bit.partial", "small-4bit.discarded"):
        assert quantized_directory(name) is None


def test_a_file_does_not_take_a_model_s_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = home / "models" / "mine-4bit"
    directory.mkdir(parents=True)
    (directory / "quant.json").touch()
    (home / "mine-4bit").touch()
    monkeypatch.chdir(home)
    assert resolve_local("mine-4bit") == ModelSource(directory=directory, name="mine-4bit")


def test_a_revision_is_for_the_hub_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="revision='v1' is for a model from the Hub, and model=.* is not one"):
        resolve_local(str(tmp_path), revision="v1")


def test_a_hub_id_is_of_no_local_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_local("owner/model", revision="v1") is None
