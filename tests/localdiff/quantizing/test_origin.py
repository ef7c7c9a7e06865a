"""What is found out about weights before any of them is read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from huggingface_hub import hf_hub_download
from safetensors.torch import load, save_file

from localdiff.checkpoint_files import MAX_SMALL
from localdiff.errors import UsageError, WeightsError
from localdiff.fetching import contents
from localdiff.hub.problems import UnreachableError
from localdiff.quantizing.card import license_of
from localdiff.quantizing.origin import find_origin
from quant.errors import SourceError
from quant.files.source import read_source
from quant.planning.plan import make_plan
from quant.recipe import RECIPES
from tests.checkpoints.weights import write_small_weights
from tests.fakes.hub import COMMIT, Repository, hub
from tests.localdiff.conftest import UseHub

RECIPE = RECIPES["4bit"]
TEXTS = ("chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json")
FILES = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = write_small_weights(tmp_path / "small")
    for name in ("tokenizer.json", "chat_template.jinja", "LICENSE", "modeling.py", "NOTICE.txt"):
        (directory / name).write_text(name)
    return directory


def repository(directory: Path, **changes: object) -> Repository:
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    return Repository(files=files, **changes)  # type: ignore[arg-type]


def test_a_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\n\nlicense: no\n")
    monkeypatch.chdir(directory)
    for reference in (str(directory), "."):
        found = find_origin(reference, RECIPE)
        assert (found.reference, found.model, found.revision, found.license) == (reference, "small", None, "apache-2.0")
        assert found.files == read_source(directory)
        assert found.small_files == ("LICENSE", "NOTICE.txt", *TEXTS)
        assert found.small_bytes == sum(len(found.read(name)) for name in found.small_files) > 0
        assert found.read("LICENSE") == b"LICENSE"
        assert found.config["canvas_length"] == 8


def test_a_licence_of_gigabytes_is_not_read(directory: Path) -> None:
    os.truncate(directory / "LICENSE", MAX_SMALL + 1)
    with pytest.raises(WeightsError, match="LICENSE` cannot be read: File too large"):
        find_origin(str(directory), RECIPE).read("LICENSE")


def test_a_directory_called_demo_is_not_the_model_of_this_package(directory: Path) -> None:
    found = find_origin(str(directory.rename(directory.with_name("demo"))), RECIPE)
    assert found.model == "./demo"
    assert license_of(found) is None
    shipped = find_origin("demo", RECIPE)
    assert (shipped.model, license_of(shipped)) == ("demo", "apache-2.0")


def test_names_and_words_that_could_steer_something_are_not_taken_over(directory: Path, use_hub: UseHub) -> None:
    remote = repository(directory, license="mit\n---\n# x")
    remote.files |= {"LICENSE](x) \x1b[31m": b"x", "NOTICE\nx": b"x"}
    with hub(small=remote) as server:
        use_hub(server)
        found = find_origin("owner/small", RECIPE)
    assert found.license is None
    assert found.small_files == ("LICENSE", "NOTICE.txt", *TEXTS)


def test_weights_without_a_text_model_are_refused(directory: Path) -> None:
    tensors = load((directory / FILES[0]).read_bytes())
    del tensors["model.decoder.embed_tokens.weight"]
    save_file(tensors, directory / FILES[0])
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    del index["weight_map"]["model.decoder.embed_tokens.weight"]
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match="has no tensor `model.decoder.embed_tokens.weight`"):
        find_origin(str(directory), RECIPE)


@pytest.mark.parametrize(
    "card", [None, b"# x\n", b"license: mit\n", b"---\nlicense:\n---\n", b"---\nlicense: m", b"\xff"]
)
def test_a_directory_without_a_licence_in_its_card(directory: Path, card: bytes | None) -> None:
    if card is not None:
        (directory / "README.md").write_bytes(card)
    assert find_origin(str(directory), RECIPE).license is None


def test_a_repository_says_the_same_as_the_directory(directory: Path, use_hub: UseHub) -> None:
    local = find_origin(str(directory), RECIPE)
    with hub(small=repository(directory, license="mit")) as server:
        cache = use_hub(server)
        found = find_origin("owner/small", RECIPE)
        assert (found.reference, found.model, found.revision, found.license) == ("owner/small",) * 2 + (COMMIT, "mit")
        assert [file.tensors for file in found.files] == [file.tensors for file in local.files]
        assert [(file.name, file.nbytes) for file in found.files] == [(file.name, file.nbytes) for file in local.files]
        assert all(file.sha256 for file in found.files)
        assert (found.small_files, found.small_bytes) == (local.small_files, local.small_bytes)
        assert found.config == local.config
        assert [found.local_path(file) for file in found.files] == [None] * 3
        assert [request for request in server.requests if request.startswith("GET cdn")] == []
        assert not cache.exists()


def test_a_damaged_header_in_the_cache_says_what_to_delete(directory: Path, use_hub: UseHub) -> None:
    with hub(small=repository(directory)) as server:
        use_hub(server)
        stored = Path(hf_hub_download("owner/small", FILES[0])).resolve()
        content = stored.read_bytes()
        stored.write_bytes(content.replace(b'"BF16"', b'"X128"', 1))
        with pytest.raises(SourceError, match="has the type X128, which localdiff does not read") as caught:
            find_origin("owner/small", RECIPE)
        assert "delete" not in (caught.value.hint or ""), "what was published has it, too"
        stored.write_bytes(bytes(len(content)))  # as a machine that loses power may leave it
        with pytest.raises(SourceError, match="is not a safetensors file") as caught:
            find_origin("owner/small", RECIPE)
    assert caught.value.hint == f"delete `{stored}`, then run the same command again"


def test_a_header_longer_than_the_first_guess(
    directory: Path, use_hub: UseHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "HEADER_GUESS", 100)
    with hub(small=repository(directory)) as server:
        use_hub(server)
        found = find_origin("owner/small", RECIPE)
    assert [file.tensors for file in found.files] == [file.tensors for file in read_source(directory)]


def test_a_single_file_needs_no_index(directory: Path, use_hub: UseHub) -> None:
    remote = repository(directory)
    for name in (*FILES[1:], "model.safetensors.index.json"):
        del remote.files[name]
    remote.files["model.safetensors"] = remote.files.pop(FILES[0])
    with hub(small=remote) as server:
        use_hub(server)
        assert [file.name for file in find_origin("owner/small", RECIPE).files] == ["model.safetensors"]
        remote.files |= repository(directory).files  # it is read before shards
        assert [file.name for file in find_origin("owner/small", RECIPE).files] == ["model.safetensors"]


def test_what_is_quantized_already_is_refused(directory: Path, use_hub: UseHub) -> None:
    (directory / "quant.json").touch()
    with pytest.raises(UsageError, match="is already quantized"):
        find_origin(str(directory), RECIPE)
    spaced = directory.rename(directory.with_name("two words"))
    with pytest.raises(UsageError) as caught:
        find_origin(str(spaced), RECIPE)
    assert f"`localdiff run -m '{spaced}'` runs it" in (caught.value.hint or "")
    directory = spaced
    with hub(small=repository(directory)) as server:
        use_hub(server)
        with pytest.raises(UsageError, match="`owner/small` is already quantized"):
            find_origin("owner/small", RECIPE)


def test_what_bitsandbytes_quantized_is_refused(directory: Path) -> None:
    file = directory / FILES[0]
    name = "model.decoder.layers.0.self_attn.q_proj.weight"
    state = {f"{name}.quant_state.bitsandbytes__nf4": torch.zeros(1)}
    save_file(load(file.read_bytes()) | {name: torch.zeros(1)} | state, file)
    with pytest.raises(UsageError, match="is already quantized"):
        find_origin(str(directory), RECIPE)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"model_type": "llama"}', "`{}` is a `llama` model, not a `diffusion_gemma`"),
        ("{}", "`config.json` of `{}` has no `model_type`"),
        *((config, "`config.json` of `{}` is not a JSON object") for config in ("[]", "{", "7", "[" * 100_000)),
    ],
    ids=lambda text: text[:40],
)
def test_another_model_is_refused(directory: Path, config: str, message: str) -> None:
    (directory / "config.json").write_text(config)
    with pytest.raises(WeightsError) as raised:
        find_origin(str(directory), RECIPE)
    assert raised.value.message == message.format(directory)


def test_a_directory_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="has no `config.json`"):
        find_origin(str(tmp_path), RECIPE)


def test_a_repository_without_weights(directory: Path, use_hub: UseHub) -> None:
    remote = repository(directory)
    del remote.files[FILES[2]]
    with hub(small=remote, bare=Repository(files={"config.json": remote.files["config.json"]})) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match=f"`owner/small` has no `{FILES[2]}`"):
            find_origin("owner/small", RECIPE)
        with pytest.raises(WeightsError, match="`owner/bare` has no `model.safetensors`"):
            find_origin("owner/bare", RECIPE)


def test_an_index_that_lists_what_no_file_holds(directory: Path, use_hub: UseHub) -> None:
    remote = repository(directory)
    index = json.loads(remote.files["model.safetensors.index.json"])
    index["weight_map"]["ghost"] = FILES[0]
    remote.files["model.safetensors.index.json"] = json.dumps(index).encode()
    with hub(small=remote) as server:
        use_hub(server)
        with pytest.raises(SourceError, match="lacks `ghost`"):
            find_origin("owner/small", RECIPE)


def test_offline_a_file_that_the_recipe_drops_need_not_be_here(directory: Path, use_hub: UseHub) -> None:
    with hub(small=repository(directory)) as server:
        use_hub(server)
        for name in ("config.json", "model.safetensors.index.json", FILES[0]):
            hf_hub_download("owner/small", name)
        with pytest.raises(UnreachableError, match=f"`{FILES[2]}` of `owner/small` is not here") as raised:
            find_origin("owner/small", RECIPE, offline=True)
        assert "leave out `--offline`" in (raised.value.hint or "")
        hf_hub_download("owner/small", FILES[2])
        found = find_origin("owner/small", RECIPE, offline=True)
        online = find_origin("owner/small", RECIPE)
    plans = [make_plan(RECIPE, origin.files) for origin in (found, online)]
    assert plans[0].dropped == plans[1].dropped
    assert plans[0].shards == plans[1].shards
