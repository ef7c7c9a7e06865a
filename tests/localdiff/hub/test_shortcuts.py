"""Ways to fetch a large file that may fail without ending a download: `hf_xet`, and functions of the Hub's client."""

from __future__ import annotations

import hashlib
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants, file_download
from huggingface_hub.utils import _http
from huggingface_hub.utils._xet_progress_reporting import XetDownloadProgressReporter

from localdiff.errors import WeightsError
from localdiff.hub import large_file, worker
from localdiff.hub.cache import linked_sha256, unfinished_file
from localdiff.hub.downloads import Downloads, worker_environment
from localdiff.hub.listing import look_up
from localdiff.hub.worker import progress_bar
from tests.fakes.download_log import DownloadLog
from tests.fakes.hub import COMMIT, Hub, Repository, hub, nobody
from tests.localdiff.conftest import UseHub

NAME = "model.safetensors"
CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
BLOBS = "hf/hub/models--owner--model/blobs"

HALF = CONTENT[: len(CONTENT) // 2]
SESSION = """
class XetFileInfo:
    def __init__(self, hash, size): pass
class XetSession:
    def sigint_abort(self): pass
"""
STREAM = """
    def new_download_stream_group(self, **_): return self
    def download_stream(self, info, start): return iter([bytes(range(256)) * 2000])
"""
CHANGED = {
    "of another machine": "raise OSError('wrong ELF class')",
    "without sessions": "def download_files(*_): raise AssertionError",
    "without streams": SESSION,
    "other arguments": SESSION + "    def new_download_stream_group(self, *, url): raise AssertionError",
    "fails at once": SESSION + "    def new_download_stream_group(self, **_): raise RuntimeError('no such host')",
    "panics": SESSION + "    def new_download_stream_group(self, **_): raise BaseException('panic')",
    "ends early": SESSION + STREAM,
}


class Reports:
    """Takes the reports of a process that fetches."""

    def __init__(self) -> None:
        self.furthest = 0
        self.bytes: list[int] = []

    def send(self, **content: int) -> None:
        self.bytes.append(content["bytes"])


@pytest.fixture
def server(use_hub: UseHub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.delenv("HF_HUB_DISABLE_XET", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setattr(large_file, "_silent", threading.Event())
    with hub(model=Repository(files={"config.json": b"{}", NAME: CONTENT})) as running:
        use_hub(running)
        running.repositories["owner/model"].xet = f"{running.url}/xet"
        yield running


def fetched(log: DownloadLog) -> Path:
    """Where the file is, once another process has fetched it."""
    with Downloads(look_up("owner/model"), log, workers=1) as downloads:
        path = downloads.wait(NAME)
    assert path and path.read_bytes() == CONTENT
    return path


def fetched_here(directory: Path | None = None) -> Path:
    """The same, fetched by this process, where a test can replace what is used."""
    request = {
        "repository": "owner/model",
        "name": NAME,
        "revision": COMMIT,
        "directory": None if directory is None else str(directory),
        "sha256": SHA256,
        "nbytes": len(CONTENT),
        "hashed": True,
    }
    path = worker._download(request, progress_bar(Reports()))  # type: ignore[arg-type]
    assert path.read_bytes() == CONTENT
    return path


@pytest.mark.parametrize("left", [0, 300_000])
def test_what_comes_through_hf_xet_goes_on_too(server: Hub, tmp_path: Path, left: int) -> None:
    pytest.importorskip("hf_xet")
    blobs, log = tmp_path / BLOBS, DownloadLog()
    blobs.mkdir(parents=True)
    unfinished_file(blobs, SHA256).write_bytes(CONTENT[:left])
    assert linked_sha256(fetched(log)) == SHA256
    assert server.fetched() == [], "not by plain HTTP"
    assert (log.bytes[NAME][0], log.bytes[NAME][-1]) == (0, len(CONTENT) - left)


@pytest.mark.parametrize(
    ("variable", "value", "found"),
    [("HOME", "/", "400000000 1"), (next(iter(large_file.XET_LIMITS)), "2gb", "2000000000 1")],
    ids=["our limits", "the user's"],
)
def test_hf_xet_holds_little_of_a_file_in_memory_and_begins_with_one_piece(
    variable: str, value: str, found: str
) -> None:
    pytest.importorskip("hf_xet")
    names = "reconstruction.download_buffer_size", "client.ac_initial_download_concurrency"
    asks = f"import hf_xet; print(*map(hf_xet.XetConfig().get, {names}))"
    env = worker_environment({variable: value})
    answer = subprocess.run([sys.executable, "-c", asks], env=env, capture_output=True, check=True, text=True).stdout
    assert answer == f"{found}\n"


def test_who_wants_hf_xet_to_be_fast_at_any_cost_gets_that() -> None:
    assert not worker_environment({"HF_XET_HIGH_PERFORMANCE": "1"}).keys() & large_file.XET_LIMITS


@pytest.mark.parametrize("source", CHANGED.values(), ids=CHANGED)
def test_any_other_hf_xet_costs_only_speed(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], source: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "hf_xet.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "other")
    monkeypatch.setenv("LOCALDIFF_DEBUG", "1")
    log = DownloadLog()
    fetched(log)
    assert server.fetched() == [NAME]
    assert server.sent < 1.1 * (len(CONTENT) - (len(HALF) if STREAM in source else 0))
    assert log.notes == []
    assert "`hf_xet` failed" in capfd.readouterr().err


def test_without_hf_xet_plain_http_is_used(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hf_xet", None)
    monkeypatch.setattr(large_file, "find_spec", lambda name: None)
    fetched_here()
    assert server.fetched() == [NAME]


def test_hf_xet_that_reaches_nobody_costs_only_speed(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hf_xet")
    monkeypatch.setenv("HF_XET_CLIENT_RETRY_MAX_ATTEMPTS", "1")  # otherwise it goes on for minutes
    monkeypatch.setenv("HF_XET_CLIENT_RETRY_BASE_DELAY", "100ms")
    server.repositories["owner/model"].xet = nobody()
    fetched(DownloadLog())
    assert server.fetched() == [NAME]


def test_hf_xet_that_stalls_is_given_up(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("hf_xet")
    caplog.set_level(logging.INFO, "localdiff")
    monkeypatch.setattr(large_file, "STALLED", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server.repositories["owner/model"].xet = f"http://127.0.0.1:{silent.getsockname()[1]}"
        fetched_here()
        fetched_here(tmp_path / "once-more")
    assert server.fetched() == [NAME, NAME]
    assert caplog.text.count("`hf_xet` failed (nothing came for 1 s)") == 1, "the second file does without it at once"


def test_what_hf_xet_has_brought_before_it_hangs_is_kept(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_file, "STALLED", 0.2)
    aborted, over = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        yield HALF
        over.wait(60)  # some versions are not woken by `sigint_abort`

    group = SimpleNamespace(download_stream=lambda info, start: pieces())
    session = SimpleNamespace(sigint_abort=aborted.set, new_download_stream_group=lambda **_: group)
    fake = ModuleType("hf_xet")
    fake.__spec__ = ModuleSpec("hf_xet", None)
    fake.XetSession, fake.XetFileInfo = lambda: session, lambda *_: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hf_xet", fake)
    fetched_here()
    assert server.sent < 1.1 * (len(CONTENT) - len(HALF))
    assert aborted.wait(10)
    assert not large_file._silent.is_set(), "it may bring the next file"
    over.set()


def _other_metadata(*_: object, **__: object) -> object:
    return SimpleNamespace(hash=SHA256)


def _no_arguments() -> bool:
    return True


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("module", "name", "other"),
    [
        pytest.param(huggingface_hub.utils, "http_stream_backoff", None, id="a function is gone"),
        pytest.param(huggingface_hub.utils, "http_stream_backoff", _no_arguments, id="takes other arguments"),
        pytest.param(huggingface_hub, "get_hf_file_metadata", _other_metadata, id="returns another object"),
    ],
)
def test_a_client_of_another_version_fetches_the_file_itself(
    server: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: ModuleType,
    name: str,
    other: object,
    streams: bool,
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    if other is None:
        monkeypatch.delitem(vars(module), name, raising=False)  # the module looks its names up when they are wanted
        monkeypatch.delattr(_http, name)
    else:
        monkeypatch.setattr(module, name, other)
    caplog.set_level(logging.INFO, "localdiff")
    directory = tmp_path / "scratch" if streams else None
    path = fetched_here(directory)
    assert path == tmp_path / "scratch" / NAME if streams else linked_sha256(path) == SHA256
    assert ("left to the Hub's client" in caplog.text) is not (streams and other is _other_metadata)


def test_what_the_client_fetches_by_itself_is_hashed_too(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", _other_metadata)
    server.repositories["owner/model"].wrong = {NAME}
    with pytest.raises(WeightsError, match=f"`{NAME}` of `owner/model` is damaged"):
        fetched_here()
    assert list((tmp_path / BLOBS).iterdir()) == []


def test_a_client_without_the_function_that_is_replaced_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(file_download, "get_hf_file_metadata")
    worker._require_names()
    assert not hasattr(file_download, "get_hf_file_metadata")


def test_the_client_s_other_protocol_reports_its_bytes_too() -> None:
    """`hf_xet`, through which the real Hub is read, reports its bytes to this class."""
    reports = Reports()

    def report(done: int) -> SimpleNamespace:
        return SimpleNamespace(
            total_bytes=900,
            total_bytes_completed=done,
            total_bytes_completion_rate=1.0,
            total_transfer_bytes_completed=done // 2,
            total_transfer_bytes_completion_rate=None,
        )

    with XetDownloadProgressReporter(
        reconstruction_desc="x",
        total=900,
        log_level=30,
        tqdm_class=progress_bar(reports),  # type: ignore[arg-type]
    ) as reporter:
        reporter.update_progress(report(300))
        reporter.update_progress(report(900))
    assert reports.bytes[-1] == 900
