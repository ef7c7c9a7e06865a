"""From a Hub id to a directory: what is fetched, and everything that the Hub may refuse."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from safetensors.torch import save

from tests.fakes.hub import COMMIT, TOKEN, Hub, Repository, hub
from tests.screens.processes import ROOT, environment

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
FILES = {
    "config.json": b'{"model_type": "diffusion_gemma"}',
    "generation_config.json": b"{}",
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": FIRST, "b": SECOND}}).encode(),
    FIRST: save({"a": torch.zeros(5000)}),
    SECOND: save({"b": torch.ones(5000)}),
}
OTHERS = {
    "README.md": b"# a model",
    "pytorch_model.bin": b"pickle",
    "consolidated.safetensors": b"2" * 5000,
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
        garbled=Repository(files=FILES | {"quant.json": b'{"tool": "\xff"}'}),
    ) as running:
        yield running


Answer: TypeAlias = dict[str, Any]

RESOLVE = """
import json, sys
from localdiff.errors import LocaldiffError
from localdiff.fetching.source import find_source

def answer(reference, settings):
    try:
        source = find_source(reference, **settings)
    except LocaldiffError as error:
        return {"error": error.message, "hint": error.hint, "code": error.exit_code}
    return {"directory": str(source.directory), "name": source.name, "revision": source.revision}

print(json.dumps([answer(*request) for request in json.loads(sys.argv[1])]))
"""


class Client:
    """Resolves names in a process of its own, because the Hub's client reads its settings once."""

    def __init__(self, url: str, home: Path) -> None:
        self.env = environment(HF_ENDPOINT=url, HF_HOME=str(home), NO_PROXY="127.0.0.1,localhost")

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
    ("owner/garbled", {}, {}, "`quant.json` is damaged (it does not have the form that it should have)", None),
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
    server.repositories["owner/flaky"] = Repository(files=FILES, cuts={SECOND: [100] * 20})
    found = client.resolve("owner/flaky")
    assert found["code"] == 3
    assert found["error"].startswith("`owner/flaky` could not be fetched")
    offline = client.resolve("owner/flaky", offline=True)
    assert offline["code"] == 3
    assert offline["error"] == f"`{SECOND}` of `owner/flaky` is not here, and cannot be fetched"
    server.repositories["owner/flaky"].cuts = {}
    server.requests.clear()
    directory = Path(client.resolve("owner/flaky")["directory"])
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == FILES
    assert FIRST not in server.fetched()


def test_a_cache_that_cannot_be_written(server: Hub, tmp_path: Path) -> None:
    (tmp_path / "hf").write_text("a file where the cache should be")
    found = Client(server.url, tmp_path / "hf").resolve("owner/model")
    assert found["code"] == 3
    assert found["error"].startswith("`owner/model` could not be fetched: ")
