"""From a name to a directory: the packaged model, directories, and the Hub with everything it may refuse."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from localdiff.errors import ResourceError, UsageError, WeightsError
from localdiff.hub import ModelSource, resolve
from localdiff.hub import reference as references
from localdiff.hub.problems import KINDS, explain
from tests.fakes.hub import COMMIT, TOKEN, Hub, Repository, hub
from tests.screens.processes import ROOT, environment

FILES = {
    "config.json": b'{"model_type": "diffusion_gemma"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors.index.json": b"{}",
    "model-00001-of-00002.safetensors": b"0" * 5000,
    "model-00002-of-00002.safetensors": b"1" * 5000,
}
OTHERS = {
    "README.md": b"# a model",
    "pytorch_model.bin": b"pickle",
    "modeling.py": b"raise SystemExit",
    "onnx/model.safetensors": b"2" * 5000,
    "original/config.json": b"{}",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with hub(
        model=Repository(files=FILES | OTHERS),
        gated=Repository(files=FILES, gated=True),
        private=Repository(files=FILES, private=True),
        broken=Repository(files=FILES, status=500),
        forbidden=Repository(files=FILES, status=403),
        busy=Repository(files=FILES, status=429),
        empty=Repository(files={"README.md": b"# nothing here"}),
    ) as running:
        yield running


Answer: TypeAlias = dict[str, Any]

RESOLVE = """
import json, sys
from localdiff.errors import LocaldiffError
from localdiff.hub import resolve

def answer(reference, settings):
    try:
        source = resolve(reference, **settings)
    except LocaldiffError as error:
        return {"error": error.message, "hint": error.hint, "code": error.exit_code}
    return {"directory": str(source.directory), "name": source.name, "revision": source.revision}

print(json.dumps([answer(*request) for request in json.loads(sys.argv[1])]))
"""


class Client:
    """Resolves names in a process of its own, because the Hub's client reads its settings once."""

    def __init__(self, url: str, home: Path) -> None:
        self.env = environment(
            HF_ENDPOINT=url, HF_HOME=str(home), NO_PROXY="127.0.0.1,localhost", HF_HUB_DISABLE_PROGRESS_BARS="1"
        )

    def resolve(self, reference: str, **settings: object) -> Answer:
        """The source, or the error in its place."""
        return self.resolve_all([(reference, settings)])[0]

    def resolve_all(self, requests: list[tuple[str, dict[str, object]]]) -> list[Answer]:
        """Many in one process."""
        done = subprocess.run(
            [sys.executable, "-c", RESOLVE, json.dumps(requests)],
            capture_output=True,
            text=True,
            env=self.env,
            cwd=ROOT,
            timeout=60,
        )
        assert done.stdout, done.stderr
        found: list[Answer] = json.loads(done.stdout)
        return found


@pytest.fixture
def client(server: Hub, tmp_path: Path) -> Client:
    return Client(server.url, tmp_path / "hf")


def test_demo_is_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "DEMO_DIRECTORY", tmp_path)
    assert resolve("demo") == ModelSource(directory=tmp_path, name="demo", revision=None)
    monkeypatch.setattr(references, "DEMO_DIRECTORY", tmp_path / "missing")
    with pytest.raises(WeightsError, match="this installation has no demo model"):
        resolve("demo")


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
        assert resolve(reference) == ModelSource(directory=directory, name=reference)


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
        resolve(reference)
    assert raised.value.message == message
    assert "a model is `demo`, a name of `localdiff models`, the path of a directory, or a Hub id" in (
        raised.value.hint or ""
    )


def test_a_file_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(WeightsError) as raised:
        resolve(str(path))
    assert raised.value.message == f"`{path}` is a file, not the directory of a model"
    assert raised.value.hint == KINDS
    (tmp_path / "config.json").touch()
    with pytest.raises(WeightsError) as raised:
        resolve(str(path))
    assert raised.value.hint == f"did you mean `--model {tmp_path}`?"


def test_a_name_that_was_mistyped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WeightsError, match="`dmeo` is neither `demo`, nor") as raised:
        resolve("dmeo")
    assert raised.value.hint == "did you mean `demo`?"


def test_a_folder_that_may_not_be_looked_into_is_no_hub_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(WeightsError) as raised:
        references.resolve_local("locked/model")
    assert raised.value.message == "`locked/model` cannot be read: Permission denied"
    assert raised.value.hint == "check the permissions of its folders"


def test_a_quantized_model_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "models" / "small-4bit"
    directory.mkdir(parents=True)
    with pytest.raises(WeightsError, match="`small-4bit` is neither"):
        resolve("small-4bit")
    (directory.parent / "small-4bit.partial").mkdir()
    for name in ("small-4bit", "small-4bit.partial"):
        with pytest.raises(WeightsError, match=f"`{name}` is an unfinished quantized model"):
            resolve(name)
    (directory.parent / "small-4bit.partial").rmdir()
    (directory / "quant.json").touch()
    assert resolve("small-4bit") == ModelSource(directory=directory, name="small-4bit")
    for suffix in (".partial", ".discarded"):
        (directory.parent / f"small-4bit{suffix}").mkdir()
        (directory.parent / f"small-4bit{suffix}" / "quant.json").touch()
    for name in ("..", ".", "../models/small-4bit", "", "small-4bit.partial", "small-4bit.discarded"):
        assert references.quantized_directory(name) is None


def test_a_revision_is_for_the_hub_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="revision='v1' is for a model from the Hub, and model=.* is not one"):
        resolve(str(tmp_path), revision="v1")


def test_only_what_a_model_needs_is_downloaded(client: Client, server: Hub) -> None:
    source = client.resolve("owner/model")
    assert (source["name"], source["revision"]) == ("owner/model", COMMIT)
    directory = Path(source["directory"])
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == FILES


def test_what_is_here_needs_no_network(client: Client, server: Hub) -> None:
    online = client.resolve("owner/model", revision="v1")
    server.requests.clear()
    assert client.resolve("owner/model", revision="v1", offline=True) == online
    assert client.resolve("owner/model", revision=COMMIT, offline=True) == online
    client.env["HF_HUB_OFFLINE"] = "1"
    assert client.resolve("owner/model", revision="v1") == online
    assert server.requests == []


def test_a_token_opens_gated_and_private_models(client: Client) -> None:
    client.env["HF_TOKEN"] = TOKEN
    assert client.resolve("owner/gated")["revision"] == COMMIT
    assert client.resolve("owner/private")["revision"] == COMMIT


REFUSED: list[tuple[str, dict[str, object], dict[str, str], str, str | None]] = [
    (
        "owner/gated",
        {},
        {},
        "access to `owner/gated` is not granted for this account",
        "accept the terms at {url}/owner/gated, then run `hf auth login`",
    ),
    (
        "owner/private",
        {},
        {},
        "there is no `owner/private` on the Hub, or it is private",
        "check the spelling; for a private model run `hf auth login` first",
    ),
    ("owner/modle", {}, {}, "there is no `owner/modle` on the Hub, or it is private", None),
    ("owner/modle", {}, {"HF_TOKEN": TOKEN}, "there is no `owner/modle` on the Hub, or it is private", None),
    (
        "owner/model",
        {},
        {"HF_TOKEN": "hf_old"},
        "the Hub does not accept this token",
        "run `hf auth login` again, or set `HF_TOKEN` to a token that is valid",
    ),
    ("owner/model", {"revision": "v9"}, {}, "`owner/model` has no revision `v9`", None),
    ("owner/broken", {}, {}, "the Hub answered 500 for `owner/broken`", None),
    ("owner/forbidden", {}, {}, "this token may not read `owner/forbidden`", None),
    ("owner/busy", {}, {}, "the Hub answered that there were too many requests", None),
    ("owner/a--b", {}, {}, "`owner/a--b` cannot be a Hub id", None),
    (
        "owner/empty",
        {},
        {},
        "`owner/empty` has no `config.json`, so it is not a model that localdiff can read",
        None,
    ),
    (
        "owner/model",
        {"offline": True},
        {},
        "`owner/model` has not been downloaded, and the Hub may not be asked",
        "leave out `--offline` and unset `HF_HUB_OFFLINE` to download it",
    ),
    (
        "owner/model",
        {},
        {"HF_HUB_OFFLINE": "1"},
        "`owner/model` has not been downloaded, and the Hub may not be asked",
        None,
    ),
]


@pytest.fixture(scope="module")
def refused(server: Hub, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Answer]:
    """The answer for each line of REFUSED; one process for all lines with the same environment."""
    answers: dict[int, Answer] = {}
    environments = [env for _, _, env, _, _ in REFUSED]
    for env in [env for place, env in enumerate(environments) if env not in environments[:place]]:
        lines = [place for place, other in enumerate(environments) if other == env]
        client = Client(server.url, tmp_path_factory.mktemp("hf"))
        client.env |= env
        asked = [REFUSED[place][:2] for place in lines]
        answers |= dict(zip(lines, client.resolve_all(asked), strict=True))
    return answers


@pytest.mark.parametrize("line", range(len(REFUSED)), ids=lambda line: REFUSED[line][3])
def test_what_the_hub_refuses(refused: dict[int, Answer], server: Hub, line: int) -> None:
    _, _, _, error, hint = REFUSED[line]
    found = refused[line]
    assert (found["error"], found["code"]) == (error, 3)
    assert found["hint"]
    if hint is not None:
        assert found["hint"] == hint.format(url=server.url)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    found = Client(url, tmp_path).resolve("owner/model")
    assert found["error"] == f"`owner/model` could not be fetched: no answer from {url}"
    assert found["code"] == 3


@pytest.mark.slow  # the client waits between its tries
def test_a_download_that_stops_half_way_goes_on_later(client: Client, server: Hub) -> None:
    files = {"config.json": FILES["config.json"]}
    server.repositories["owner/flaky"] = Repository(files=files, truncated=True)
    found = client.resolve("owner/flaky")
    assert found["code"] == 3
    assert found["error"].startswith("`owner/flaky` could not be fetched")
    offline = client.resolve("owner/flaky", offline=True)
    assert offline["code"] == 3
    server.repositories["owner/flaky"].truncated = False
    directory = Path(client.resolve("owner/flaky")["directory"])
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == files


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (errno.ENOSPC, "the disk is full", "free some space"),
        (errno.EFBIG, "file too large", "raise the limit"),
        (errno.EDQUOT, "disk quota exceeded", "raise the limit"),
    ],
)
def test_no_room_for_a_download(code: int, message: str, hint: str, tmp_path: Path) -> None:
    """A limit on files or users is not called a full disk, which would not be found."""
    found = explain(OSError(code, os.strerror(code)), "owner/model", None, place=tmp_path)
    assert isinstance(found, ResourceError)
    assert found.message == f"{message}: `owner/model` does not fit into `{tmp_path}`"
    assert found.hint == f"{hint}; finished files are kept"
    found = explain(OSError(code, os.strerror(code)), "owner/model", None)
    assert found is not None and found.hint == f"{hint}, or move the cache with `HF_HOME`; finished files are kept"


def test_a_cache_that_cannot_be_written(server: Hub, tmp_path: Path) -> None:
    (tmp_path / "hf").write_text("a file where the cache should be")
    found = Client(server.url, tmp_path / "hf").resolve("owner/model")
    assert found["code"] == 3
    assert found["error"].startswith("`owner/model` could not be fetched: ")
