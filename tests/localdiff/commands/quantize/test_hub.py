"""`localdiff quantize` from the Hub: what is fetched, kept, deleted, checked, and what may go wrong on the way."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.commands.quantize import source_check
from localdiff.commands.quantize.command import QuantizeRequest, quantize
from localdiff.hub.cache import unfinished_file
from localdiff.machine.disk_space import mounts
from localdiff.quantizing import planned_job
from localdiff.ui.output import Output, Stream
from quant.files.manifest import read_manifest
from quant.released import MODEL
from tests.checkpoints.quantized import SHARDS, tree
from tests.checkpoints.weights import write_small_text, write_small_weights
from tests.fakes.hub import COMMIT, TOKEN, Hub, Repository, hub, nobody
from tests.localdiff.conftest import SetFree, UseHub
from tests.screens.processes import Cli

FIRST, VISION, LAST = (f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
HEAD = "lm_head.weight", "model.decoder.embed_tokens.weight"


@pytest.fixture
def server(tmp_path: Path, use_hub: UseHub) -> Iterator[Hub]:
    directory = write_small_text(write_small_weights(tmp_path / "published"))
    files = {path.name: path.read_bytes() for path in directory.iterdir()} | {"README.md": b"# x", "code.py": b"raise"}
    with hub(small=Repository(files=files, license="apache-2.0")) as running:
        use_hub(running)
        yield running


def cache(tmp_path: Path) -> Path:
    return tmp_path / "hf" / "hub" / "models--owner--small"


def test_what_is_needed_is_fetched_once_into_the_shared_cache(
    cli: Cli, server: Hub, output: Path, tmp_path: Path
) -> None:
    result = cli("quantize", "owner/small", "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n"), result.stderr
    assert result.stderr.startswith(f"owner/small @ {COMMIT[:8]} → 4bit\n")
    assert "in 2 files into " in result.stderr
    # the vision tower's file is left where it is, and so is everything else that is not needed
    snapshot = cache(tmp_path) / "snapshots" / COMMIT
    assert {path.name for path in snapshot.iterdir()} == {
        FIRST,
        LAST,
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "model.safetensors.index.json",
    }
    assert set(server.fetched()) == {FIRST, LAST, "tokenizer.json"}
    manifest = read_manifest(output)
    assert (manifest.model, manifest.revision) == ("owner/small", COMMIT)
    assert "`hf cache rm model/owner/small` deletes them" in result.stderr
    # another recipe needs no download, and no network
    server.requests.clear()
    result = cli("quantize", "owner/small", "--recipe", "int8", "--yes", "--offline", stdin=b"")
    assert result.code == 0, result.stderr
    assert "all here already" in result.stderr
    assert "The Hub was not asked" in result.stderr
    assert server.requests == []


def test_a_head_that_differs_from_the_embedding_is_refused_before_it_is_fetched(cli: Cli, server: Hub) -> None:
    repository = server.repositories["owner/small"]
    tensors = load(repository.files[FIRST])
    dry_run = ["quantize", "owner/small", "--dry-run"]
    for copy, of in (("model.encoder.language_model.norm.weight", "model.decoder.norm.weight"), HEAD):
        repository.files[FIRST] = save(tensors | {copy: tensors[of].clone()})
        assert cli(*dry_run, stdin=b"").stderr == ""
    repository.ranges = False
    words = "warning: left out as copies of others, uncompared: `lm_head.weight`; those of a directory are"
    assert words in cli(*dry_run, stdin=b"").stderr
    repository.ranges = True
    head = tensors[HEAD[1]].clone()
    head[-1, -1] += 1
    repository.files[FIRST] = save(tensors | {"lm_head.weight": head})
    for arguments in (dry_run, ["quantize", "owner/small", "--yes"]):
        result = cli(*arguments, stdin=b"")
        assert (result.code, result.stdout) == (3, "")
        assert "error: `lm_head.weight` differs from `model.decoder.embed_tokens.weight`" in result.stderr
    assert server.fetched() == []


def test_weights_that_another_program_quantized_are_said_to_be(cli: Cli, server: Hub) -> None:
    """This is said before a recipe is consulted, which does not know their tensors either."""
    repository = server.repositories["owner/small"]
    tensors = load(repository.files[FIRST])
    name = next(name for name in tensors if name.endswith("experts.down_proj"))
    packed = {f"{name.replace('down_proj', '0.down_proj')}.weight_scale_2": torch.ones(1)}
    repository.files[FIRST] = save({other: tensor for other, tensor in tensors.items() if other != name} | packed)
    index = json.loads(repository.files["model.safetensors.index.json"])
    del index["weight_map"][name]
    repository.files["model.safetensors.index.json"] = json.dumps(index).encode()
    config = json.loads(repository.files["config.json"])
    repository.files["config.json"] = json.dumps(
        config | {"quantization_config": {"quant_method": "modelopt"}}
    ).encode()
    for arguments in (["--dry-run"], ["--yes"]):
        result = cli("quantize", "owner/small", *arguments, stdin=b"")
        assert (result.code, result.stdout) == (3, "")
        assert result.stderr == (
            "error: `owner/small` was quantized with `modelopt`, in a form that localdiff does not read\n"
            "hint: take the original weights: `localdiff quantize` makes them smaller\n"
        )
    assert server.fetched() == []


def test_what_is_here_already_is_told_without_the_hub(cli: Cli, server: Hub, output: Path) -> None:
    assert cli("quantize", "owner/small", "--yes", stdin=b"").code == 0
    server.requests.clear()
    for revision in ([], ["--revision", COMMIT]):
        again = cli("quantize", "owner/small", "--yes", *revision, stdin=b"")
        assert (again.code, again.stdout) == (0, f"{output}\n"), again.stderr
        assert "nothing was made" in again.stderr
    other = cli("quantize", "owner/small", "--yes", "--revision", "v2", stdin=b"")
    assert other.code == 2
    assert f"`{output}` already exists, and was made from revision {COMMIT}" in other.stderr
    assert server.requests == []


def test_what_is_damaged_is_rebuilt_from_its_own_revision(cli: Cli, server: Hub, output: Path, tmp_path: Path) -> None:
    assert cli("quantize", "owner/small", "--yes", stdin=b"").code == 0
    before = tree(output)
    (output / SHARDS[0]).unlink()
    shutil.rmtree(cache(tmp_path))
    server.requests.clear()
    server.repositories["owner/small"].newer = "b" * 40
    result = cli("quantize", "owner/small", "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n"), result.stderr
    assert result.stderr.startswith(f"owner/small @ {COMMIT[:8]} → 4bit\n")
    assert set(server.fetched()) == {FIRST, "tokenizer.json"}, "what the other file became is sound"
    assert tree(output) == before


def test_weights_that_the_cache_has_of_another_commit_are_not_to_fetch(cli: Cli, server: Hub, home: Path) -> None:
    assert cli("quantize", "owner/small", "--yes", stdin=b"").code == 0
    server.requests.clear()
    server.repositories["owner/small"].newer = "b" * 40
    result = cli("quantize", "owner/small", "--recipe", "int8", "--yes", stdin=b"")
    assert (result.code, "all here already" in result.stderr) == (0, True), result.stderr
    assert server.fetched() == []
    assert read_manifest(home / "models" / "small-int8").revision == "b" * 40


@pytest.mark.parametrize("stream", [[], ["--stream"]], ids=["kept", "streamed"])
def test_what_could_not_be_run_is_refused_before_a_weight_is_read(
    cli: Cli, server: Hub, output: Path, stream: list[str]
) -> None:
    files = server.repositories["owner/small"].files
    config = files["config.json"]
    files["config.json"] = config.replace(b'size": 128', b'size": 64')
    for arguments in (["--dry-run"], ["--yes"]):
        result = cli("quantize", "owner/small", *arguments, *stream, stdin=b"")
        assert (result.code, result.stdout) == (3, "")
        assert result.stderr.startswith("error: `model.decoder.embed_tokens.weight` has the shape [128, 64], where ")
    files |= {"config.json": config, "chat_template.jinja": b"{% if"}
    for _ in ("fetched", "here already"):
        result = cli("quantize", "owner/small", "--yes", *stream, stdin=b"")
        assert (result.code, result.stdout) == (3, "")
        assert "error: the chat template `owner/small/chat_template.jinja` cannot be used: line 1" in result.stderr
        assert not list(output.parent.rglob("*.safetensors"))


def test_a_folder_of_temporary_files_that_takes_none_is_named(
    cli: Cli, server: Hub, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full"
    monkeypatch.setattr(source_check, "TemporaryDirectory", lambda **_: nullcontext(str(full)))
    result = cli("quantize", "owner/small", "--yes", stdin=b"")
    assert (result.code, result.stdout) == (4, "")
    assert f"error: `{full}` cannot be written: No such file or directory\n" in result.stderr
    assert "have `TMPDIR` name another folder" in result.stderr
    assert not list(output.parent.rglob("*.safetensors"))


def test_streaming_gives_the_same_bytes_and_leaves_no_download(
    cli: Cli, server: Hub, output: Path, tmp_path: Path
) -> None:
    assert cli("quantize", "owner/small", "--yes", stdin=b"").code == 0
    kept = tree(output)
    shutil.rmtree(tmp_path / "hf")
    shutil.rmtree(output)
    result = cli("quantize", "owner/small", "--yes", "--stream", stdin=b"")
    assert result.code == 0, result.stderr
    assert tree(output) == kept
    assert "each deleted after it is read" in result.stderr
    assert "hf cache rm" not in result.stderr
    assert not cache(tmp_path).exists()
    assert {path.name for path in output.parent.iterdir()} == {"small-4bit"}


def test_streaming_leaves_alone_what_was_in_the_cache(cli: Cli, server: Hub, tmp_path: Path) -> None:
    assert cli("quantize", "owner/small", "--yes", stdin=b"").code == 0
    before = tree(tmp_path / "hf")
    server.requests.clear()
    result = cli("quantize", "owner/small", "--yes", "--stream", "-o", str(tmp_path / "other"), stdin=b"")
    assert result.code == 0
    assert tree(tmp_path / "hf") == before
    assert server.fetched() == []


def test_a_connection_that_is_cut_costs_nothing_but_time(cli: Cli, server: Hub, output: Path, tmp_path: Path) -> None:
    assert cli("quantize", "owner/small", "--yes", "-o", str(tmp_path / "whole"), stdin=b"").code == 0
    shutil.rmtree(tmp_path / "hf")
    server.repositories["owner/small"].cuts = cuts = {FIRST: [100], LAST: [1000]}
    assert cli("quantize", "owner/small", "--yes", stdin=b"").code == 0
    assert not any(cuts.values())
    assert tree(output) == tree(tmp_path / "whole")


def test_a_hub_that_fails_half_way_is_gone_on_with(cli: Cli, server: Hub, output: Path, tmp_path: Path) -> None:
    whole = cli("quantize", "owner/small", "--yes", "-o", str(tmp_path / "whole"), stdin=b"")
    assert whole.code == 0
    shutil.rmtree(tmp_path / "hf")
    repository = server.repositories["owner/small"]
    last = repository.files.pop(LAST)
    missing = Repository(files=repository.files | {LAST: last}, license="apache-2.0", gone={LAST})
    server.repositories["owner/small"] = missing
    result = cli("quantize", "owner/small", "--yes", stdin=b"")
    assert (result.code, result.stdout) == (3, "")
    assert "the Hub answered 404 for `owner/small`" in result.stderr
    assert (output.with_name("small-4bit.partial") / SHARDS[0]).exists()
    assert not output.exists()
    missing.gone.clear()
    server.requests.clear()
    result = cli("quantize", "owner/small", "--yes", stdin=b"")
    assert result.code == 0, result.stderr
    assert "1 of them is finished" in result.stderr
    assert server.fetched() == [LAST]
    assert tree(output) == tree(tmp_path / "whole")


@pytest.mark.parametrize("stream", [[], ["--stream"]], ids=["kept", "streamed"])
def test_weights_that_do_not_hash_to_what_was_published(cli: Cli, server: Hub, output: Path, stream: list[str]) -> None:
    server.repositories["owner/small"].wrong = {LAST}
    result = cli("quantize", "owner/small", "--yes", *stream, stdin=b"")
    assert (result.code, result.stdout) == (3, "")
    assert f"`{LAST}` is damaged (its SHA-256 is not the published one)" in result.stderr
    assert not output.exists()
    server.repositories["owner/small"].wrong = set()
    assert cli("quantize", "owner/small", "--yes", *stream, stdin=b"").code == 0


def test_a_token_and_a_revision(cli: Cli, server: Hub, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.repositories["owner/small"].gated = True
    for arguments in (["--yes"], ["--dry-run"]):
        result = cli("quantize", "owner/small", *arguments, stdin=b"")
        assert (result.code, result.stdout) == (3, "")
        assert result.stderr.startswith("error: access to `owner/small` is not granted for this account\nhint: accept")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert cli("quantize", "owner/small", "--revision", "v1", "--yes", stdin=b"").code == 0
    assert read_manifest(output).revision == COMMIT


def test_without_a_network_the_released_model_is_planned_from_its_description(
    cli: Cli, use_hub: UseHub, home: Path
) -> None:
    use_hub(url := nobody())
    result = cli("quantize", "--dry-run", stdin=b"")
    assert result.code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"{MODEL} → 4bit"
    assert "  experts                      60    45.7 GB  12.9 GB    12.9 GB     12.9 GB" in lines
    assert lines[-2] == f"`{MODEL}` could not be fetched: no answer from {url}."
    assert lines[-1] == "These figures come from the built-in description of the released weights, not from the Hub."
    offline = cli("quantize", "--dry-run", "--offline", "--stream", stdin=b"")
    assert offline.code == 0
    assert "has not been downloaded, and the Hub may not be asked." in offline.stdout
    more = "`--stream` also needs disk for one file of the download, whose size is not known here."
    assert more in offline.stdout and more not in result.stdout
    assert "-4bit.partial/source.partial, each deleted after it is read" in offline.stdout
    assert "/hub, where they stay" in result.stdout
    assert " needs 67.0 GB, " in result.stdout and " needs 15.4 GB, " in offline.stdout
    # a real run shows the same, and then says why it goes no further
    result = cli("quantize", "--yes", stdin=b"")
    assert (result.code, result.stdout) == (3, "")
    assert result.stderr.startswith(f"{MODEL} → 4bit\n")
    assert f"error: `{MODEL}` could not be fetched: no answer from {url}\n" in result.stderr
    assert not home.exists()
    assert cli("quantize", "owner/other", "--dry-run", stdin=b"").code == 3


def streams() -> Output:
    return Output(stdout=Stream(file=io.StringIO()), stderr=Stream(file=io.StringIO()))


def shown(stream: Stream) -> str:
    assert isinstance(stream.file, io.StringIO)
    return stream.file.getvalue()


def test_what_streaming_had_of_a_file_needs_no_space_when_it_goes_on(
    cli: Cli, server: Hub, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a job that only just fits would be refused after it was stopped."""
    needs = []

    def needed(*options: str) -> int:
        assert cli("quantize", "owner/small", *options, "--dry-run", stdin=b"").code == 0
        return needs[-1]

    monkeypatch.setattr(planned_job, "mounts", lambda wanted: needs.append(wanted[0][1]) or mounts(wanted))
    scratch = output.with_name("small-4bit.partial") / "source.partial"
    scratch.mkdir(parents=True)
    without, streamed = needed(), needed("--stream")
    files = server.repositories["owner/small"].files
    content = files[FIRST]
    assert streamed - without == max(len(content), len(files[LAST])) != min(len(content), len(files[LAST]))
    for left, resumed in ((b"another", 0), (content, 200_000)):
        unfinished_file(scratch, hashlib.sha256(left).hexdigest()).write_bytes(content[:200_000])
        assert needed("--stream") == streamed - resumed, "what this job does not go on with takes its space to the end"
        assert needed() == without, "only streaming goes on with it"
    (scratch / FIRST).write_bytes(content[:70_000])
    (scratch.parent / f"{SHARDS[0]}.partial").write_bytes(content[:5_000])
    assert needed() == without - 5_000, "what was being written is overwritten"
    assert needed("--stream") == streamed - 275_000
    (scratch / FIRST).unlink()
    result = cli("quantize", "owner/small", "--yes", "--stream", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert not scratch.parent.exists()


def test_streaming_is_offered_where_the_plan_does_not_fit(
    cli: Cli, server: Hub, output: Path, tmp_path: Path, set_free: SetFree
) -> None:
    total = sum(len(server.repositories["owner/small"].files[name]) for name in (FIRST, LAST))
    set_free(total + 2_200_000)
    result = cli("quantize", "owner/small", "--yes", stdin=b"")
    assert (result.code, result.stdout) == (4, "")
    assert "not enough disk space" in result.stderr
    assert "hint: `--stream` needs " in result.stderr
    assert "`HF_HOME` moves the download" in result.stderr
    dry = cli("quantize", "owner/small", "--dry-run", stdin=b"")
    assert dry.code == 0
    assert dry.stderr.startswith("warning: not enough disk space in ")
    assert "; `--stream` needs " in dry.stderr
    asked = []

    def ask(answer: bool) -> object:
        return lambda question: asked.append(question) or answer

    request = QuantizeRequest(model="owner/small")
    assert quantize(request, replace(streams(), ask=ask(False))) == 130  # type: ignore[arg-type]
    assert not output.parent.exists()
    said = replace(streams(), ask=ask(True))  # type: ignore[arg-type]
    assert quantize(request, said) == 0
    assert len(asked) == 2
    assert asked[0].startswith("This does not fit: not enough disk space in ")
    assert asked[0].endswith("Stream?")
    assert shown(said.stdout) == f"{output}\n"
    assert not cache(tmp_path).exists()


def test_where_not_even_streaming_fits_it_says_so(cli: Cli, server: Hub, set_free: SetFree) -> None:
    set_free(5000)
    for arguments in (["--yes"], ["--yes", "--stream"]):
        result = cli("quantize", "owner/small", *arguments, stdin=b"")
        assert result.code == 4
        assert "5 KB free" in result.stderr


def test_uploaded_to_the_hub_a_quantized_model_loads_by_its_id(cli: Cli, server: Hub, home: Path) -> None:
    assert DEMO_DIRECTORY.is_dir()
    assert cli("quantize", "demo", "--yes", stdin=b"").code == 0
    uploaded = {path.name: path.read_bytes() for path in (home / "models" / "demo-4bit").iterdir()}
    server.repositories["owner/demo-4bit"] = Repository(files=uploaded)
    arguments = ("--seed", "1", "--max-tokens", "96", "Spell the word canvas.")
    here = cli("run", "-m", "demo-4bit", *arguments, stdin=b"")
    there = cli("run", "-m", "owner/demo-4bit", *arguments, stdin=b"")
    assert (there.code, there.stdout) == (0, here.stdout)
    assert cli("quantize", "owner/demo-4bit", "--yes", stdin=b"").code == 2
