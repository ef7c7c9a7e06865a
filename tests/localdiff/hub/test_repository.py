"""What a repository holds, according to a server and to the cache, with everything that may go wrong."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, hf_hub_download
from huggingface_hub.utils._shared_blobs import publish_blob_to_shared_store

from localdiff.checkpoint_files import MAX_SMALL
from localdiff.checkpoints.model_reference import KINDS
from localdiff.errors import WeightsError
from localdiff.hub.cache import folder_of
from localdiff.hub.listing import look_up
from localdiff.hub.problems import UnreachableError
from localdiff.hub.repository import NoRangesError, RemoteFile
from localdiff.hub.repository import Repository as Found
from localdiff.hub.retries import WAITS
from localdiff.quoting import printable
from tests.fakes.hub import COMMIT, TOKEN, Hub, Repository, hub, nobody
from tests.localdiff.conftest import UseHub
from tests.screens.processes import Cli

WEIGHTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
FILES = {
    "config.json": b'{"model_type": "diffusion_gemma"}',
    "tokenizer.json": b"{}" * 500,
    "model.safetensors.index.json": json.dumps({"weight_map": {"a": WEIGHTS[0], "b": WEIGHTS[1]}}).encode(),
    WEIGHTS[0]: bytes(range(256)) * 20,
    WEIGHTS[1]: b"1" * 5000,
    "LICENSE": b"do what you like",
}
OTHERS = {"README.md": b"# a model", "modeling.py": b"raise SystemExit", "onnx/model.safetensors": b"2" * 5000}


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.fixture
def server(use_hub: UseHub) -> Iterator[Hub]:
    """The Hub, as far as the client can tell."""
    with hub(model=Repository(files=FILES)) as running:
        use_hub(running)
        yield running


def download(name: str, revision: str | None = None) -> Path:
    """Put a file into the cache like the Hub's client."""
    return Path(hf_hub_download("owner/model", name, revision=revision))


def test_names_sizes_and_hashes_of_what_a_model_may_need(use_hub: UseHub) -> None:
    with hub(model=Repository(files=FILES | OTHERS, license="apache-2.0")) as server:
        use_hub(server)
        found = look_up("owner/model", revision="v1")
        assert (found.revision, found.commit, found.license, found.offline_reason) == ("v1", COMMIT, "apache-2.0", None)
        assert set(found.files) == set(FILES)
        for name, content in FILES.items():
            file = found.files[name]
            assert (file.nbytes, file.local_path) == (len(content), None)
            large = name in (*WEIGHTS, "tokenizer.json")
            assert file.sha256 == (hashlib.sha256(content).hexdigest() if large else None)
            assert file.matches(content)
            assert not file.matches(content[:-1] + b"?")
        assert server.requests == ["GET api/models/owner/model/revision/v1"]


def test_where_the_listing_has_no_sizes_each_file_is_asked_for_its_own(use_hub: UseHub) -> None:
    with hub(model=Repository(files=FILES | {"NOTICE": b""} | OTHERS, has_sizes=False)) as server:
        use_hub(server)
        assert download("config.json").read_bytes() == FILES["config.json"]
        server.requests.clear()
        found = look_up("owner/model")
        assert {name: file.nbytes for name, file in found.files.items()} == {
            "NOTICE": 0,
            **{name: len(content) for name, content in FILES.items()},
        }
        assert found.files[WEIGHTS[0]].sha256 == hashlib.sha256(FILES[WEIGHTS[0]]).hexdigest()
        heads = [request for request in server.requests if request.startswith("HEAD ")]
        assert len(heads) == len(server.requests) - 1 == len(found.files)
        assert found.read("LICENSE") == FILES["LICENSE"]


def test_a_mirror_that_lists_no_hashes_is_asked_for_those_of_weights_that_are_not_here(server: Hub) -> None:
    download(WEIGHTS[0])
    siblings = [{"rfilename": name, "size": len(content)} for name, content in FILES.items()]
    listing = {"id": "owner/model", "sha": COMMIT, "siblings": siblings}
    server.repositories["owner/model"].listing = json.dumps(listing).encode()
    server.requests.clear()
    found = look_up("owner/model")
    for name in WEIGHTS:
        assert found.files[name].sha256 == hashlib.sha256(FILES[name]).hexdigest()
    others = [f"HEAD owner/model/resolve/{COMMIT}/{name}" for name in WEIGHTS[1:]]
    assert server.requests == ["GET api/models/owner/model/revision/main", *others]


def test_a_size_that_nobody_states_is_an_error(use_hub: UseHub, monkeypatch: pytest.MonkeyPatch) -> None:
    unstated = SimpleNamespace(size=None, etag=None)
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", lambda *_, **__: unstated)
    with hub(model=Repository(files=FILES, has_sizes=False)) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match=r"does not say how large `config\.json` is"):
            look_up("owner/model")


def test_reading_a_file_leaves_nothing_on_the_disk(server: Hub, tmp_path: Path) -> None:
    found = look_up("owner/model")
    assert found.read("config.json") == FILES["config.json"]
    assert found.read("tokenizer.json") == FILES["tokenizer.json"]
    server.requests.clear()
    assert found.read("config.json") == FILES["config.json"]
    assert server.requests == [], "what was read is not asked for again"
    assert found.read_part(WEIGHTS[0], 300) == FILES[WEIGHTS[0]][:300]
    assert found.read_part(WEIGHTS[0], 10**6) == FILES[WEIGHTS[0]]
    assert not (tmp_path / "hf" / "hub").exists()


def test_a_server_without_ranges_is_read_no_further_than_needed(use_hub: UseHub) -> None:
    big = b"x" * 30_000_000
    with hub(model=Repository(files={WEIGHTS[0]: big}, ranges=False, pace=0.002)) as server:
        use_hub(server)
        assert look_up("owner/model").read_part(WEIGHTS[0], 1000) == big[:1000]
        assert server.sent < len(big) / 2


def test_a_part_of_a_file_is_read_from_its_middle(server: Hub) -> None:
    name = WEIGHTS[0]
    content = FILES[name]
    found = look_up("owner/model")
    assert found.read_part(name, 100, 5) == content[5:105]
    server.repositories["owner/model"].ranges = False
    assert found.read_part(name, 100) == content[:100]
    with pytest.raises(NoRangesError):
        found.read_part(name, 100, 5)
    download(name)
    here = look_up("owner/model")
    assert here.read_part(name, 100, 5) == content[5:105]


def test_a_commit_is_that_commit(use_hub: UseHub) -> None:
    with hub(model=Repository(files=FILES, says={"api": "c" * 40})) as server:
        use_hub(server)
        assert look_up("owner/model").commit == "c" * 40
        with pytest.raises(WeightsError, match="hands out another commit of `owner/model` than the one it is asked"):
            look_up("owner/model", revision=COMMIT)


def test_what_is_in_the_cache_is_said_and_read_there(server: Hub) -> None:
    path = download(WEIGHTS[0])
    server.requests.clear()
    found = look_up("owner/model")
    assert found.files[WEIGHTS[0]].local_path == path
    assert found.files[WEIGHTS[1]].local_path is None
    assert found.read_part(WEIGHTS[0], 100) == FILES[WEIGHTS[0]][:100]
    assert server.requests == ["GET api/models/owner/model/revision/main"]


def test_the_cache_alone_tells_the_same(server: Hub, use_hub: UseHub) -> None:
    for name in FILES:
        download(name)
    server.requests.clear()
    found = look_up("owner/model", offline=True)
    assert server.requests == []
    assert (found.revision, found.commit, found.license) == ("main", COMMIT, None)
    assert found.offline_reason is not None and "may not be asked" in found.offline_reason.message
    assert {name: file.nbytes for name, file in found.files.items()} == {n: len(c) for n, c in FILES.items()}
    assert found.files[WEIGHTS[0]].sha256 == hashlib.sha256(FILES[WEIGHTS[0]]).hexdigest()
    assert found.files["config.json"].sha256 is None
    assert look_up("owner/model", revision=COMMIT, offline=True).files == found.files
    use_hub(url := nobody())
    alone = look_up("owner/model")
    assert alone.files == found.files
    assert alone.offline_reason is not None and url in alone.offline_reason.message


def test_the_hash_of_a_file_that_several_repositories_share_is_that_of_the_published_one(
    server: Hub, tmp_path: Path
) -> None:
    """The client stores such a file, if it came through `hf_xet`, under another hash, and links to it."""
    cache = tmp_path / "hf" / "hub"
    path = download(WEIGHTS[0])
    blob, stored = path.resolve(), cache / "blobs" / "cc" / ("c" * 64)
    assert publish_blob_to_shared_store(
        blob_path=str(blob), xet_hash=stored.name, cache_dir=cache, expected_size=len(FILES[WEIGHTS[0]])
    )
    assert path.resolve() == stored
    download("config.json")
    found = look_up("owner/model", offline=True).files[WEIGHTS[0]]
    assert found.sha256 == hashlib.sha256(FILES[WEIGHTS[0]]).hexdigest()


def test_offline_only_what_is_here_is_known(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreachableError, match="`owner/model` has not been downloaded"):
        look_up("owner/model", offline=True)
    download("config.json")
    download(WEIGHTS[0])
    assert set(look_up("owner/model", offline=True).files) == {"config.json", WEIGHTS[0]}
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert set(look_up("owner/model").files) == {"config.json", WEIGHTS[0]}
    with pytest.raises(UnreachableError, match="`owner/model` has not been downloaded"):
        look_up("owner/model", revision="v1")


@pytest.mark.parametrize(
    ("name", "token", "message", "hint"),
    [
        ("gated", None, "access to `owner/gated` is not granted for this account", "accept the terms at {url}/owner/g"),
        ("private", None, "there is no `owner/private` on the Hub, or it is private", "check the spelling; for"),
        ("missing", None, "there is no `owner/missing` on the Hub, or it is private", "check the spelling"),
        ("missing", TOKEN, "there is no `owner/missing` on the Hub, or it is private", "check the spelling"),
        ("model", "hf_old", "the Hub does not accept this token", "run `hf auth login` again, or set `HF_TOKEN`"),
        ("forbidden", None, "the Hub answered 403 for `owner/forbidden`, and there is no token to show it", "a fire"),
        ("forbidden", TOKEN, "this token may not read `owner/forbidden`", "use a token with read access"),
        ("a--b", None, "`owner/a--b` cannot be a Hub id", KINDS),
    ],
)
def test_what_is_refused(
    use_hub: UseHub, monkeypatch: pytest.MonkeyPatch, name: str, token: str | None, message: str, hint: str
) -> None:
    with hub(
        model=Repository(files=FILES),
        gated=Repository(files=FILES, gated=True),
        private=Repository(files=FILES, private=True),
        forbidden=Repository(files=FILES, status=403),
    ) as server:
        use_hub(server)
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(WeightsError) as raised:
            look_up(f"owner/{name}").read("config.json")
        assert raised.value.message == message
        assert (raised.value.hint or "").startswith(hint.format(url=server.url))
        assert not isinstance(raised.value, UnreachableError)
        if name in ("gated", "private"):
            monkeypatch.setenv("HF_TOKEN", TOKEN)
            assert look_up(f"owner/{name}").read("config.json") == FILES["config.json"]


def test_a_revision_that_is_not_there(server: Hub) -> None:
    with pytest.raises(WeightsError, match="`owner/model` has no revision `v9`"):
        look_up("owner/model", revision="v9")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_that_is_busy_is_asked_again(
    use_hub: UseHub, no_waiting: list[float], caplog: pytest.LogCaptureFixture, status: int
) -> None:
    statuses = {"api": [status], "resolve": [status, status]}
    with hub(model=Repository(files=FILES, statuses=statuses)) as server:
        use_hub(server)
        assert look_up("owner/model").read("config.json") == FILES["config.json"]
    assert no_waiting == [1.0, 1.0, 3.0]
    notes = [f"the Hub answered {status} for `owner/model`; it is asked again in {wait} s" for wait in (1, 1, 3)]
    assert caplog.messages == notes


def test_a_hub_that_stays_ill_is_not_asked_for_ever(use_hub: UseHub, no_waiting: list[float]) -> None:
    with hub(broken=Repository(files=FILES, status=500), busy=Repository(files=FILES, status=429)) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match="the Hub answered 500 for `owner/broken`"):
            look_up("owner/broken")
        with pytest.raises(WeightsError, match="too many requests"):
            look_up("owner/busy")
        assert len(server.requests) == 6


@pytest.mark.parametrize(
    "listing",
    [
        b"<html>Please sign in</html>",
        b'{"code": 404}',
        b"[]",
        b'{"id": "owner/model", "siblings": []}',
        b'{"id": "owner/model", "sha": "../../elsewhere", "siblings": []}',
        b'{"id": "owner/model", "sha": "a", "siblings": [{"rfilename": 5}]}',
        b'{"id": "owner/model", "sha": "a", "siblings": [], "cardData": [1]}',
        b'{"id": "owner/model", "sha": "a", "siblings": "config.json"}',
        b'{"id": "owner/model", "sha": "a", "siblings": [], "createdAt": "yesterday"}',
        b'{"id": "\xff"}',
        b"[" * 100_000,
        b'{"id": "owner/model", "sha": "a", "siblings": [{"rfilename": "config.json", "size": 1, "blobId": "../b"}]}',
        b'{"id": "owner/model", "sha": "a", "siblings": [{"rfilename": "config.json", "size": 1, "blobId": [1]}]}',
    ],
)
def test_what_answers_in_the_place_of_the_hub_is_called_so(server: Hub, listing: bytes) -> None:
    """A network that wants a login first, or another service at `HF_ENDPOINT`: no bug of this program."""
    download("config.json")
    server.repositories["owner/model"].listing = listing
    with pytest.raises(UnreachableError, match=f"what answers at {server.url} is not the Hub"):
        look_up("owner/model", revision="v1")
    assert set(look_up("owner/model").files) == {"config.json"}, "the cache is used, as without a network"


@pytest.mark.parametrize("size", [b'"3"', b"-1", b"3.5", b"true", b"[3]"])
def test_a_size_that_is_none_is_an_error(use_hub: UseHub, size: bytes) -> None:
    listing = b'{"id": "owner/model", "sha": "a", "siblings": [{"rfilename": "config.json", "size": %b}]}' % size
    with hub(model=Repository(files=FILES, listing=listing)) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match=f"{server.url} does not say how large `config.json` is"):
            look_up("owner/model")


def test_nobody_answers(use_hub: UseHub) -> None:
    use_hub(url := nobody())
    with pytest.raises(UnreachableError, match=f"no answer from {url}"):
        look_up("owner/model")


def test_a_file_of_another_size_in_the_cache_is_named(server: Hub) -> None:
    path = download(WEIGHTS[0])
    path.resolve().write_bytes(b"short")
    with pytest.raises(WeightsError, match=f"`{path}` has 5 bytes, where the Hub says 5120") as raised:
        look_up("owner/model")
    stored = path.resolve()
    assert raised.value.hint == f"delete `{stored}`, then run the same command again"
    stored.unlink()
    assert not look_up("owner/model").files[WEIGHTS[0]].is_stored
    assert download(WEIGHTS[0]).read_bytes() == FILES[WEIGHTS[0]]


def test_a_hub_that_fails_holds_nothing_up_where_the_cache_has_enough(use_hub: UseHub, no_waiting: list[float]) -> None:
    def enough(cached: Found) -> bool:
        return WEIGHTS[0] in cached.files

    remote = Repository(files=FILES)
    with hub(model=remote) as server:
        use_hub(server)
        download("config.json")
        remote.statuses["api"] = [503]
        assert look_up("owner/model", enough=enough).offline_reason is None
        assert no_waiting == [1.0]  # it was asked a second time
        download(WEIGHTS[0])
        for status in (503, 429, 401):
            remote.statuses["api"] = [status]
            cached = look_up("owner/model", enough=enough)
            assert set(cached.files) == {"config.json", WEIGHTS[0]}
            assert cached.offline_reason is not None
        assert no_waiting == [1.0]
        assert look_up("owner/model", enough=enough).offline_reason is None
        server.requests.clear()
        assert look_up("owner/model", revision=COMMIT, enough=enough).commit == COMMIT
        assert server.requests == []
        removed = folder_of("owner/model") / "refs" / "v9"
        removed.parent.mkdir(exist_ok=True)
        removed.write_text(COMMIT)
        assert look_up("owner/model", revision="v9", offline=True).commit == COMMIT
        with pytest.raises(WeightsError, match="has no revision `v9`"):
            look_up("owner/model", revision="v9", enough=enough)


def test_what_the_cache_knows_by_its_commit_only(server: Hub) -> None:
    assert look_up("owner/model").cached_directory is None
    path = Path(hf_hub_download("owner/model", "config.json", revision=COMMIT))
    assert look_up("owner/model").cached_directory is None
    assert look_up("owner/model", revision=COMMIT).cached_directory == path.parent
    download("config.json")
    assert look_up("owner/model").cached_directory == path.parent


def test_a_small_file_that_is_damaged_on_the_way_is_an_error(use_hub: UseHub) -> None:
    with hub(model=Repository(files=FILES, wrong={"config.json"})) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match="`config.json` of `owner/model` is damaged"):
            look_up("owner/model").read("config.json")


def test_a_file_that_the_repository_does_not_have(use_hub: UseHub) -> None:
    with hub(model=Repository(files={})) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match="`owner/model` has no `config.json`"):
            look_up("owner/model").read("config.json")


def test_a_file_without_any_hash_goes_by_its_size() -> None:
    assert RemoteFile(name="a", nbytes=1).matches(b"x")
    assert not RemoteFile(name="a", nbytes=1).matches(b"xy")


def test_a_small_file_of_gigabytes_is_not_asked_for() -> None:
    large = RemoteFile(name="config.json", nbytes=MAX_SMALL + 1)
    repository = Found(name="owner/model", revision="main", commit=COMMIT, files={large.name: large})
    with pytest.raises(WeightsError, match="`config.json` of `owner/model` is too large: it has 100 MB"):
        repository.read("config.json")


def test_a_tokenizer_of_gigabytes_is_refused_before_anything_is_fetched(use_hub: UseHub) -> None:
    with hub(model=Repository(files=FILES, sizes={"tokenizer.json": 3 * 10**9, WEIGHTS[0]: 10**10})) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match="`tokenizer.json` of `owner/model` is too large: it has 3.0 GB"):
            look_up("owner/model")
        assert server.requests == ["GET api/models/owner/model/revision/main"]
        server.repositories["owner/model"].sizes.pop("tokenizer.json")
        assert look_up("owner/model").files[WEIGHTS[0]].nbytes == 10**10


def test_every_wait_is_short() -> None:
    assert sum(WAITS) < 10


QUANTIZE, RUN = ["quantize", "owner/model"], ["run", "-m", "owner/model", "Hi."]


@pytest.mark.parametrize(
    ("command", "endpoint"),
    [
        (QUANTIZE, "localhost:8000"),
        (QUANTIZE, "http://localhost:80000"),
        (QUANTIZE, "http://[localhost"),
        (QUANTIZE, "http://.localhost"),
        (QUANTIZE, f"http://{'x' * 64}"),
        (QUANTIZE, "http://local\u200bhost"),
        (RUN, "localhost:8000"),
    ],
)
def test_an_endpoint_that_is_no_address_is_named(cli: Cli, use_hub: UseHub, command: list[str], endpoint: str) -> None:
    use_hub(endpoint)
    done = cli(*command, stdin=b"")
    message = printable(f"error: `HF_ENDPOINT={endpoint}` is not a valid address")
    assert (done.code, done.stderr.splitlines()[0]) == (2, message)


@pytest.mark.parametrize("variable", ["HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"])
@pytest.mark.parametrize("value", ["10s", "", "-1", "9" * 20])
def test_a_time_limit_that_is_none_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """The Hub's client raises an error when it is imported, or when it fetches; that used to be reported as a bug."""
    monkeypatch.setenv(variable, value)
    done = cli(*QUANTIZE, stdin=b"")
    message = f"error: `{variable}={value}` is not a valid time limit"
    assert (done.code, done.stderr.splitlines()[0]) == (2, message)


def test_no_token_at_all(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN_PATH", os.devnull)
    assert look_up("owner/model").commit == COMMIT
