"""Downloads, in processes of their own, with everything that a network does to them."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from huggingface_hub.utils import WeakFileLock, http_backoff

from localdiff import __version__
from localdiff.errors import LocaldiffError, WeightsError
from localdiff.hub import worker
from localdiff.hub.cache import unfinished_file
from localdiff.hub.downloads import Downloads
from localdiff.hub.listing import look_up
from localdiff.hub.problems import UnreachableError
from localdiff.hub.repository import Repository as Found
from localdiff.hub.retries import OUTAGE_WAITS, wait_out_outages
from localdiff.hub.worker import Notes, Reports, progress_bar
from tests.fakes.download_log import DownloadLog
from tests.fakes.hub import COMMIT, TOKEN, Hub, Repository, hub, nobody
from tests.localdiff.conftest import UseHub
from tests.screens.processes import ROOT, wait_until

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
FILES = {
    "config.json": b"{}",
    FIRST: bytes(range(256)) * 4000,
    SECOND: b"1" * 500_000,
}
BLOBS = "hf/hub/models--owner--model/blobs"
SHA256 = hashlib.sha256(FILES[FIRST]).hexdigest()


@pytest.fixture
def log() -> DownloadLog:
    return DownloadLog()


@pytest.fixture
def server(use_hub: UseHub) -> Iterator[Hub]:
    with hub(model=Repository(files=dict(FILES))) as running:
        use_hub(running)
        yield running


def first_of(repository: Found, log: DownloadLog, *, directory: Path | None = None) -> Path:
    """Where the first file is, once it has arrived."""
    with Downloads(repository, log, directory=directory, workers=1) as downloads:
        path = downloads.wait(FIRST)
    assert path
    return path


def test_files_come_in_order_and_are_in_the_shared_cache(server: Hub, log: DownloadLog, tmp_path: Path) -> None:
    with Downloads(look_up("owner/model"), log, workers=1) as downloads:
        downloads.prefetch([FIRST, SECOND])
        paths = [downloads.wait(name) for name in (SECOND, FIRST, FIRST, "config.json")]
    assert paths[0] and paths[0].read_bytes() == FILES[SECOND]
    snapshot = tmp_path / "hf" / "hub" / "models--owner--model" / "snapshots" / COMMIT
    assert paths == [snapshot / SECOND, snapshot / FIRST, snapshot / FIRST, snapshot / "config.json"]
    assert log.fetched == [FIRST, SECOND, "config.json"]
    assert log.bytes[FIRST][-1] == len(FILES[FIRST])
    assert server.fetched() == [FIRST, SECOND]
    # and now nothing needs to be fetched any more
    assert look_up("owner/model").files[FIRST].local_path == snapshot / FIRST


def test_the_hub_is_told_who_asks(server: Hub, log: DownloadLog) -> None:
    repository = look_up("owner/model")
    repository.read_part(FIRST, 8)
    with Downloads(repository, log) as downloads:
        for name in ("config.json", FIRST):
            downloads.wait(name)
    assert {agent.partition(";")[0] for agent in server.user_agents} == {f"localdiff/{__version__}"}


def test_files_of_a_directory_of_our_own_are_not_in_the_cache(server: Hub, log: DownloadLog, tmp_path: Path) -> None:
    with Downloads(look_up("owner/model"), log, directory=tmp_path / "scratch", workers=1) as downloads:
        assert downloads.wait(FIRST) == tmp_path / "scratch" / FIRST
    assert (tmp_path / "scratch" / FIRST).read_bytes() == FILES[FIRST]
    assert not (tmp_path / "hf" / "hub").exists()


def test_which_file_comes_is_told_before_any_of_it_is_there(server: Hub, log: DownloadLog) -> None:
    server.repositories["owner/model"].stalls = {FIRST: [0] * 9}
    with Downloads(look_up("owner/model"), log, workers=1) as downloads:
        downloads.prefetch([FIRST])
        wait_until(lambda: FIRST in log.bytes)
        assert log.bytes[FIRST] == [0]


@pytest.mark.parametrize("how", ["cuts", "resets", "stalls"])
def test_a_connection_that_breaks_goes_on_where_it_was(
    server: Hub, log: DownloadLog, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1")  # by default 10 s
    content = bytes(range(256)) * 90_000
    server.repositories["owner/model"] = repository = Repository(files={FIRST: content})
    getattr(repository, how)[FIRST] = [21_500_000]
    found = first_of(look_up("owner/model"), log).read_bytes()
    assert hashlib.sha256(found).digest() == hashlib.sha256(content).digest()
    assert server.fetched() == [FIRST, FIRST]
    assert server.sent < len(content) * (1.6 if how == "resets" else 1.1), "what is under way is lost with a reset"
    assert log.notes == [f"the connection broke off: `{FIRST}` goes on in 1 s"]


@pytest.mark.parametrize("error", [ConnectionResetError(), LocalEntryNotFoundError("no answer to a HEAD request")])
def test_a_line_that_is_down_is_waited_for(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    if not isinstance(error, ConnectionError):
        error.__cause__ = httpx2.ConnectError("refused")
    furthest = [0, 0, 0, 5, *[5] * 99]  # the second try brings five bytes, and no other brings more

    def download() -> None:
        raise error

    with pytest.raises(type(error)):
        wait_out_outages(download, FIRST, lambda: furthest.pop(0))
    assert waited == [OUTAGE_WAITS[0], *OUTAGE_WAITS]
    with pytest.raises(ValueError, match="no outage"):
        wait_out_outages(lambda: int("no outage"), FIRST, lambda: 0)
    assert len(waited) == len(OUTAGE_WAITS) + 1


def test_a_server_without_ranges_that_cuts_each_try_at_the_same_byte_is_given_up(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    repository = server.repositories["owner/model"]
    repository.cuts, repository.ranges = {FIRST: [300_000] * 99}, False
    request = {"repository": "owner/model", "name": FIRST, "revision": COMMIT, "directory": None, "hashed": False}
    request |= {"sha256": SHA256, "nbytes": len(FILES[FIRST])}
    bar = progress_bar(reports := Reports(io.StringIO()))
    with pytest.raises(httpx2.RemoteProtocolError):
        wait_out_outages(lambda: worker._download(request, bar), FIRST, lambda: reports.furthest)
    assert waited == list(OUTAGE_WAITS)


def test_a_server_that_knows_no_ranges_begins_anew(server: Hub, log: DownloadLog) -> None:
    server.repositories["owner/model"].cuts = {FIRST: [300_000]}
    server.repositories["owner/model"].ranges = False
    assert first_of(look_up("owner/model"), log).read_bytes() == FILES[FIRST]
    assert log.bytes[FIRST][-1] == len(FILES[FIRST])


@pytest.mark.parametrize("statuses", [{"cdn": [429]}, {"resolve": [500, 500]}], ids=str)
def test_a_hub_that_is_busy_is_asked_again(server: Hub, log: DownloadLog, statuses: dict[str, list[int]]) -> None:
    repository = look_up("owner/model")
    server.repositories["owner/model"].statuses = statuses
    assert first_of(repository, log).read_bytes() == FILES[FIRST]
    assert log.notes


def test_a_hub_that_fails_once_where_a_file_is_asked_for_ends_no_job(server: Hub, log: DownloadLog) -> None:
    """The client gives up on this, however many gigabytes came before."""
    repository = look_up("owner/model")
    server.repositories["owner/model"].statuses = {"cdn": [503]}
    assert first_of(repository, log).read_bytes() == FILES[FIRST]
    assert server.fetched() == [FIRST, FIRST]
    assert log.notes == ["the Hub answered 503 for `owner/model`; it is asked again in 1 s"]


@pytest.mark.slow  # the client waits between its tries
def test_a_file_that_is_always_cut_short_is_an_error_and_goes_on_in_the_end(server: Hub, log: DownloadLog) -> None:
    server.repositories["owner/model"].truncated = True
    with (
        Downloads(look_up("owner/model"), log, workers=1) as downloads,
        pytest.raises(WeightsError, match="`owner/model` could not be fetched"),
    ):
        downloads.wait(FIRST)
    server.repositories["owner/model"].truncated = False
    assert first_of(look_up("owner/model"), log).read_bytes() == FILES[FIRST]


@pytest.mark.parametrize("status", [401, 403])
def test_an_address_of_a_file_that_has_expired_is_no_matter_of_tokens(
    server: Hub, log: DownloadLog, status: int
) -> None:
    repository = look_up("owner/model")
    server.repositories["owner/model"].statuses = {"cdn": [status] * 4}
    answered = pytest.raises(WeightsError, match=f"the Hub answered {status} for `owner/model`")
    with Downloads(repository, log, workers=1) as downloads:
        with answered as raised:
            downloads.wait(FIRST)
        assert "run the same command again" in (raised.value.hint or "")
        assert downloads.wait(SECOND), "another address is asked for"
    assert server.fetched() == [FIRST] * 3 + [SECOND] * 2


def test_each_file_has_its_own_error(server: Hub, log: DownloadLog) -> None:
    repository = look_up("owner/model")
    server.repositories["owner/model"].gated = True
    with Downloads(repository, log, workers=1) as downloads:
        with pytest.raises(WeightsError, match="access to `owner/model` is not granted") as raised:
            downloads.wait(FIRST)
        assert raised.value.exit_code == 3
        assert f"{server.url}/owner/model" in (raised.value.hint or "")
        server.repositories["owner/model"].gated = False
        assert downloads.wait(SECOND)


def test_a_token_opens_what_is_gated_and_goes_to_no_other_host(
    server: Hub, log: DownloadLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    server.repositories["owner/model"].gated = True
    with Downloads(look_up("owner/model"), log, workers=1) as downloads:
        assert downloads.wait(FIRST)


@pytest.mark.parametrize("name", ["../../../../../outside", "{directory}/outside", "..", ""])
def test_a_hash_that_is_a_path_leads_nowhere(server: Hub, log: DownloadLog, tmp_path: Path, name: str) -> None:
    """The client names files by it, and would write wherever an impostor of the Hub wants it to."""
    server.repositories["owner/model"].hashes = {FIRST: name.format(directory=tmp_path)}
    with (
        Downloads(look_up("owner/model"), log, workers=1) as downloads,
        pytest.raises(WeightsError, match=f"what answers at {server.url} is not the Hub"),
    ):
        downloads.wait(FIRST)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_disk_that_refuses_is_worded(server: Hub, log: DownloadLog, tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("a file where the directory should be")
    with (
        Downloads(look_up("owner/model"), log, directory=tmp_path / "scratch", workers=1) as downloads,
        pytest.raises(LocaldiffError, match="`owner/model` could not be fetched") as raised,
    ):
        downloads.wait(FIRST)
    assert str(tmp_path / "scratch") in (raised.value.hint or "")


PARENT = f"""
from localdiff.hub.cache import linked_sha256, unfinished_file
from localdiff.hub.downloads import Downloads
from localdiff.hub.listing import look_up
from tests.fakes.download_log import DownloadLog

with Downloads(look_up("owner/model"), DownloadLog(), workers=1) as downloads:
    downloads.wait("{FIRST}")
"""


@pytest.mark.parametrize("how", ["stopped", "interrupted", "killed"])
def test_a_file_that_was_on_its_way_goes_on_in_the_next_run(
    server: Hub, log: DownloadLog, tmp_path: Path, how: str
) -> None:
    content = random.Random(0).randbytes(22_000_000)
    repository = server.repositories["owner/model"] = Repository(files={FIRST: content}, slow={FIRST: 0.002})
    blobs, sha256 = tmp_path / BLOBS, hashlib.sha256(content).hexdigest()
    unfinished = unfinished_file(blobs, sha256)

    def has_begun() -> bool:
        return unfinished.exists() and unfinished.stat().st_size > 10_000_000

    if how == "killed":
        parent = subprocess.Popen([sys.executable, "-c", PARENT], env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=ROOT)
        wait_until(has_begun)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    elif how == "interrupted":
        with pytest.raises(KeyboardInterrupt), Downloads(look_up("owner/model"), log, workers=1) as downloads:
            downloads.prefetch([FIRST])
            wait_until(has_begun)
            raise KeyboardInterrupt
    else:
        with Downloads(look_up("owner/model"), log, workers=1) as downloads:
            assert downloads.wait(FIRST, stopped=has_begun) is None
    repository.slow.clear()
    here = unfinished.stat().st_size
    assert here < len(content)
    listed = look_up("owner/model")
    assert listed.files[FIRST].missing == len(content) - here
    server.sent, log = 0, DownloadLog()
    assert first_of(listed, log).read_bytes() == content
    assert server.sent < len(content) - here + 1_000_000, "and some that the first one had no time for"
    assert (log.bytes[FIRST][0], log.bytes[FIRST][-1]) == (0, len(content) - here)
    assert [file.name for file in blobs.iterdir()] == [sha256]


def test_another_program_that_fetches_the_same_file_is_waited_for_and_named(
    server: Hub, log: DownloadLog, tmp_path: Path
) -> None:
    lock = tmp_path / "hf/hub/.locks/models--owner--model" / f"{SHA256}.lock"
    lock.parent.mkdir(parents=True)
    with Downloads(look_up("owner/model"), log, workers=1) as downloads:
        with WeakFileLock(lock):  # as any program takes it that uses the Hub's client
            downloads.prefetch([FIRST])
            wait_until(lambda: log.notes != [])
            assert server.fetched() == []
        path = downloads.wait(FIRST)
    assert log.notes == [f"another process is fetching `{FIRST}`, which may take long: it is waited for"]
    assert path and path.read_bytes() == FILES[FIRST]


def leave(folder: Path, content: bytes) -> Path:
    """What an earlier process had fetched of the first file."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished_file(folder, SHA256).write_bytes(content)
    return unfinished_file(folder, SHA256)


@pytest.mark.parametrize("lacking", [{"size", "lfs"}, {"lfs"}], ids=["size and hash", "hash"])
def test_what_was_left_of_a_file_goes_on_where_the_listing_has_no_hash_of_it(
    server: Hub, log: DownloadLog, tmp_path: Path, lacking: set[str]
) -> None:
    """As with some mirrors; the client's own downloads would start over, so a request for the file tells its hash."""
    listed = {"rfilename": FIRST, "size": len(FILES[FIRST]), "blobId": "b" * 40, "lfs": {}}
    files = [{key: value for key, value in listed.items() if key not in lacking}, {"rfilename": "config.json"}]
    listing = {"id": "owner/model", "sha": COMMIT, "siblings": files}
    server.repositories["owner/model"].listing = json.dumps(listing).encode()
    leave(tmp_path / BLOBS, FILES[FIRST][:900_000])
    found = look_up("owner/model")
    assert found.files[FIRST].missing == len(FILES[FIRST]) - 900_000
    assert first_of(found, log).read_bytes() == FILES[FIRST]
    assert server.sent < 200_000


def test_what_was_left_beside_an_output_goes_on_too(server: Hub, log: DownloadLog, tmp_path: Path) -> None:
    left = leave(tmp_path / "scratch", FILES[FIRST][:900_000])
    path = first_of(look_up("owner/model"), log, directory=tmp_path / "scratch")
    assert path.read_bytes() == FILES[FIRST]
    assert server.sent < 200_000
    assert not left.exists()


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(FILES[FIRST][:900_000] + b"x", id="damaged"),
        pytest.param(FILES[FIRST] + b"x", id="longer"),
        pytest.param(b"x" * len(FILES[FIRST]), id="another one"),
    ],
)
def test_what_was_left_and_is_no_part_of_the_file_is_fetched_anew(
    server: Hub, log: DownloadLog, tmp_path: Path, left: bytes
) -> None:
    unfinished = leave(tmp_path / BLOBS, left)
    assert first_of(look_up("owner/model"), log).read_bytes() == FILES[FIRST]
    assert not unfinished.exists()


def test_a_page_of_a_firewall_takes_nothing_of_what_was_left(server: Hub, log: DownloadLog, tmp_path: Path) -> None:
    left, repository = leave(tmp_path / BLOBS, FILES[FIRST][:900_000]), server.repositories["owner/model"]
    repository.page = b"<html>blocked"
    with pytest.raises(WeightsError, match=f"`owner/model` could not be fetched: `{FIRST}` comes with 13 bytes"):
        first_of(look_up("owner/model"), log)
    assert left.read_bytes() == FILES[FIRST][:900_000]
    repository.page = None
    assert first_of(look_up("owner/model"), log).read_bytes() == FILES[FIRST]
    assert server.sent < 200_000


def test_what_was_left_whole_and_not_hashed_is_hashed_and_not_fetched(
    server: Hub, log: DownloadLog, tmp_path: Path
) -> None:
    leave(tmp_path / BLOBS, FILES[FIRST])
    assert first_of(look_up("owner/model"), log).read_bytes() == FILES[FIRST]
    assert server.fetched() == []


def test_what_was_left_of_a_file_that_has_changed_is_no_part_of_the_new_one(
    server: Hub, log: DownloadLog, tmp_path: Path
) -> None:
    left = leave(tmp_path / BLOBS, FILES[FIRST][:900_000])
    server.repositories["owner/model"].files[FIRST] = changed = FILES[FIRST][::-1]
    assert first_of(look_up("owner/model"), log).read_bytes() == changed
    assert left.exists(), "somebody may ask for the other revision again; `hf cache prune` deletes it"


def test_a_file_is_that_of_the_listed_commit_though_its_branch_has_moved_on(server: Hub, log: DownloadLog) -> None:
    listed, repository = look_up("owner/model"), server.repositories["owner/model"]
    repository.newer, repository.changed = "f" * 40, {FIRST: FILES[FIRST][::-1]}
    assert first_of(listed, log).read_bytes() == FILES[FIRST]
    assert server.fetched() == [FIRST], "not the newer one before it"


def test_what_a_mirror_has_by_another_name_is_hashed_too(server: Hub, log: DownloadLog, tmp_path: Path) -> None:
    repository, name = server.repositories["owner/model"], "b" * 64
    repository.hashes, repository.wrong = {FIRST: name}, {FIRST}
    blobs = tmp_path / BLOBS
    with Downloads(look_up("owner/model"), log, workers=1, hashed=True) as downloads:
        with pytest.raises(WeightsError, match=f"(?m)^`{FIRST}` of `owner/model` is damaged$"):
            downloads.wait(FIRST)
        assert list(blobs.iterdir()) == []
    repository.wrong.clear()
    with Downloads(look_up("owner/model"), log, workers=1, hashed=True) as downloads:
        path = downloads.wait(FIRST)
    assert path and path.read_bytes() == FILES[FIRST]
    assert [file.name for file in blobs.iterdir()] == [name]


@pytest.mark.parametrize("mirror", [{"hashes": {FIRST: "b" * 64}}, {"has_sizes": False}])
def test_a_connection_to_a_mirror_that_is_cut_goes_on_where_it_was(
    server: Hub, log: DownloadLog, mirror: dict[str, Any]
) -> None:
    server.repositories["owner/model"] = Repository(files=dict(FILES), cuts={FIRST: [900_000]}, **mirror)
    assert first_of(look_up("owner/model"), log).read_bytes() == FILES[FIRST]
    assert server.sent < 1.2 * len(FILES[FIRST])


@pytest.mark.parametrize("name", ["config.json", FIRST])
def test_what_a_killed_process_of_the_client_has_left_goes_once_its_file_is_here(
    server: Hub, log: DownloadLog, tmp_path: Path, name: str
) -> None:
    listed = look_up("owner/model")
    stored = str(listed.files[name].sha256 or listed.files[name].blob)
    blobs = tmp_path / BLOBS
    blobs.mkdir(parents=True)
    (blobs / f"{stored}.0123abcd.incomplete").write_bytes(b"half")
    (blobs / f"{'c' * 64}.0123abcd.incomplete").write_bytes(b"half of another one")
    (blobs / f"{stored}.4567abcd.incomplete").mkdir()  # cannot be deleted, like a file of another user
    with Downloads(listed, log, workers=1) as downloads:
        downloads.wait(name)
    left = {stored, f"{'c' * 64}.0123abcd.incomplete", f"{stored}.4567abcd.incomplete"}
    assert {file.name for file in blobs.iterdir()} == left


def test_two_programs_that_want_the_same_file_fetch_it_once(server: Hub) -> None:
    server.repositories["owner/model"].pace = 0.01
    with ExitStack() as stack:
        both = [stack.enter_context(Downloads(look_up("owner/model"), DownloadLog(), workers=1)) for _ in range(2)]
        for downloads in both:
            downloads.prefetch([FIRST])
        paths = [downloads.wait(FIRST) for downloads in both]
    assert paths[0] is not None and paths[0] == paths[1]
    assert paths[0].read_bytes() == FILES[FIRST]
    assert server.fetched() == [FIRST]


def test_without_symlinks_a_file_is_where_the_client_looks_for_it(
    server: Hub, log: DownloadLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where most users may not create any."""
    monkeypatch.setenv("HF_HUB_DISABLE_SYMLINKS", "1")
    path = first_of(look_up("owner/model"), log)
    assert path.read_bytes() == FILES[FIRST] and not path.is_symlink()
    assert not list((tmp_path / BLOBS).iterdir())
    assert look_up("owner/model").files[FIRST].local_path == path
    assert server.fetched() == [FIRST]


def test_a_process_that_talks_nonsense_is_an_error_and_nobody_waits_for_ever(
    server: Hub, log: DownloadLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    with Downloads(look_up("owner/model"), log, workers=1) as downloads, pytest.raises(LocaldiffError):
        downloads.wait(FIRST)


def test_an_observer_that_fails_is_an_error_and_nobody_waits_for_ever(server: Hub, log: DownloadLog) -> None:
    def closed(name: str) -> None:
        raise BrokenPipeError(name)

    log.on_fetched = closed  # type: ignore[method-assign]
    with Downloads(look_up("owner/model"), log, workers=1) as downloads:
        downloads.prefetch(FILES)
        for name in FILES:
            with pytest.raises(LocaldiffError, match="could not be fetched: BrokenPipeError"):
                downloads.wait(name)


def test_a_process_that_dies_is_an_error_that_can_be_tried_again(server: Hub, log: DownloadLog) -> None:
    server.repositories["owner/model"].pace = 0.5
    with Downloads(look_up("owner/model"), log, workers=1) as downloads:
        downloads.prefetch([FIRST])
        wait_until(lambda: FIRST in server.fetched())
        downloads._processes[0].kill()
        with pytest.raises(UnreachableError, match="ended early"):
            downloads.wait(FIRST)
        server.repositories["owner/model"].pace = 0
        assert downloads.wait(SECOND)


def test_a_note_is_the_last_line_of_what_the_client_says(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    notes = Notes(Reports(stream))
    for message in ("It failed.\nTrying again.\n", "\n", "", "503 from http://me:word@hub.test/a"):
        notes.emit(logging.LogRecord("hub", logging.WARNING, "", 0, message, (), None))
    notes.emit(logging.LogRecord("hub", logging.INFO, "", 0, "of interest", (), None))
    sent = [json.loads(line)["note"] for line in stream.getvalue().splitlines()]
    assert sent == ["Trying again.", "503 from http://****@hub.test/a"]
    assert capsys.readouterr().err == "of interest\n"


def test_a_line_that_is_down_is_not_told_of_with_each_try_of_the_client(
    use_hub: UseHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_hub(nobody())
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    reports = Reports(stream := io.StringIO())
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "handlers", [Notes(reports)])
    with pytest.raises(httpx2.ConnectError):
        http_backoff("HEAD", nobody(), max_retries=2)
    assert stream.getvalue() == ""
    assert "refused' thrown while requesting HEAD" in capsys.readouterr().err
