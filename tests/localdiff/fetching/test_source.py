"""From a Hub id to a directory: what is fetched, and everything that the Hub may refuse."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save

from localdiff.download_plan import DownloadPlan
from localdiff.errors import WeightsError
from localdiff.fetching.source import find_source
from localdiff.hub import large_file, problems
from localdiff.hub.cache import folder_of, unfinished_file
from quant.released import MODEL
from tests.fakes.hub import COMMIT, TOKEN, Hub, Repository, hub
from tests.localdiff.conftest import SetFree, UseHub

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
        forbidden=Repository(files=FILES, status=403),
        empty=Repository(files={"README.md": b"# nothing here"}),
        gguf=Repository(
            files={"README.md": b"# a model", "model-Q8_0.gguf": b"GGUF", "config.json": FILES["config.json"]}
        ),
        folders=Repository(files={"BF16/model-BF16-00001-of-00002.GGUF": b"GGUF"}),
        adapter=Repository(files={"adapter_config.json": b"{}", "adapter_model.safetensors": FILES[FIRST]}),
        merged=Repository(files=FILES | {"adapter_config.json": b"{}", "model-Q8_0.gguf": b"GGUF"}),
        garbled=Repository(files=FILES | {"quant.json": b'{"tool": "\xff"}'}),
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def _client(server: Hub, use_hub: UseHub, monkeypatch: pytest.MonkeyPatch) -> None:
    use_hub(server)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)  # the client sleeps between its tries


def test_only_what_a_model_needs_is_downloaded() -> None:
    source = find_source("owner/model")
    assert (source.name, source.revision) == ("owner/model", COMMIT)
    assert {path.name: path.read_bytes() for path in source.directory.iterdir()} == FILES


def test_what_is_here_of_an_unfinished_file_counts_neither_as_download_nor_for_the_disk(set_free: SetFree) -> None:
    part = unfinished_file(folder_of("owner/model") / "blobs", hashlib.sha256(FILES[SECOND]).hexdigest())
    part.parent.mkdir(parents=True)
    part.write_bytes(FILES[SECOND][:15_000])
    missing = sum(map(len, FILES.values())) - 15_000
    plans: list[DownloadPlan] = []
    set_free(missing)
    source = find_source("owner/model", confirm=plans.append)
    assert [(plan.nbytes, plan.continues) for plan in plans] == [(missing, True)]
    assert (source.directory / SECOND).read_bytes() == FILES[SECOND]


def test_what_is_here_needs_no_network(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    online = find_source("owner/model", revision="v1")
    server.requests.clear()
    assert find_source("owner/model", revision="v1", offline=True) == online
    assert find_source("owner/model", revision=COMMIT, offline=True) == online
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_source("owner/model", revision="v1") == online
    assert server.requests == []


def test_what_lies_beside_weights_that_can_be_read_is_left_there() -> None:
    assert {path.name for path in find_source("owner/merged").directory.iterdir()} == set(FILES)


@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("empty", "`owner/empty` has no `config.json`, so it is not a model that localdiff can read", "a model is"),
        ("gguf", "`owner/gguf` is GGUF, which localdiff does not read", f"it reads safetensors, such as `{MODEL}`"),
        ("folders", "`owner/folders` is GGUF, which localdiff does not read", "it reads safetensors"),
        (
            "adapter",
            "`owner/adapter` is an adapter, not a model",
            "`hf download owner/adapter --local-dir DIR`, then `-m MODEL --adapter DIR` adds it to one",
        ),
        ("garbled", "`quant.json` is damaged (it does not have the required form)", "rebuild it"),
    ],
)
def test_what_is_no_model_on_the_hub(name: str, error: str, hint: str) -> None:
    with pytest.raises(WeightsError) as raised:
        find_source(f"owner/{name}")
    assert raised.value.message == error
    assert (raised.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("name", "mirror", "token", "status"),
    [("model", {"status": 401}, None, 401), ("model", {}, "hf_old", 401), ("forbidden", {}, TOKEN, 403)],
)
def test_a_mirror_that_wants_an_account_is_no_matter_of_one_on_the_hub(
    server: Hub, monkeypatch: pytest.MonkeyPatch, name: str, mirror: dict[str, Any], token: str | None, status: int
) -> None:
    """For a 401 the client says that there is no such model, or that it is private."""
    monkeypatch.setattr(problems, "PUBLIC_ENDPOINT", "https://huggingface.co")
    monkeypatch.setitem(server.repositories, "owner/model", Repository(files=FILES, **mirror))
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(WeightsError) as raised:
        find_source(f"owner/{name}")
    assert raised.value.message == f"the mirror {server.url} answered {status} for `owner/{name}`"
    assert raised.value.hint is not None and "hf auth login" not in raised.value.hint


def test_a_download_that_stops_half_way_goes_on_later(server: Hub) -> None:
    server.repositories["owner/flaky"] = Repository(files=FILES, gone={SECOND})
    with pytest.raises(WeightsError, match="^the Hub answered 404 for `owner/flaky`"):
        find_source("owner/flaky")
    with pytest.raises(WeightsError, match=f"(?m)^`{SECOND}` of `owner/flaky` is not here, and cannot be fetched$"):
        find_source("owner/flaky", offline=True)
    server.repositories["owner/flaky"].gone = set()
    server.requests.clear()
    directory = find_source("owner/flaky").directory
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == FILES
    assert FIRST not in server.fetched()


def test_a_file_too_large_for_plain_http_is_refused_before_the_question(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "MAX_HTTP_DOWNLOAD_SIZE", 10_000)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(large_file, "find_spec", lambda name: None)
    asked: list[object] = []
    message = f"`{FIRST}` of `owner/model` is too large to be downloaded without the package `hf-xet`: it has 20 KB"
    with pytest.raises(WeightsError, match=f"(?m)^{message}$") as caught:
        find_source("owner/model", confirm=asked.append)
    assert caught.value.hint == "`pip install hf-xet` and unset `HF_HUB_DISABLE_XET`"
    assert asked == []
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setattr(large_file, "find_spec", lambda name: name)
    find_source("owner/model")


def test_a_cache_that_cannot_be_written(server: Hub, use_hub: UseHub) -> None:
    home = use_hub(server).parent
    home.write_text("a file where the cache should be")
    with pytest.raises(WeightsError, match="^`owner/model` could not be fetched: "):
        find_source("owner/model")
