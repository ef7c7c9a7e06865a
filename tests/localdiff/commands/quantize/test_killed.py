"""`localdiff quantize` as a process, stopped in every way there is; the same command always ends in the same bytes."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.checkpoints.layouts import QUANTIZABLE, write_checkpoint
from tests.checkpoints.quantized import SHARDS, tree
from tests.checkpoints.weights import write_small_weights
from tests.fakes.hub import Hub, Repository, hub
from tests.localdiff.conftest import point_at
from tests.screens.processes import ROOT, TIMEOUT, Cli, Result, environment, terminal, wait_until

FIRST, _, LAST = (f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))

# Requests time out after half a minute, here after ten minutes: a process that ends sooner did not wait for that.
PATIENT = """
from localdiff.hub import listing, repository
listing.TIMEOUT = repository.TIMEOUT = 600
from localdiff.__main__ import main
main()
"""


class Place:
    """A source, a home, and where the result will be."""

    def __init__(self, directory: Path, model: str, env: dict[str, str], server: Hub | None = None) -> None:
        self.directory, self.model, self.env, self.server = directory, model, env, server
        self.models = directory / "home" / "models"
        self.output = self.models / "small-4bit"
        self.partial = self.models / "small-4bit.partial"
        self.arguments = ("quantize", model, "--yes")
        self.program = ("-m", "localdiff")

    def start(self, **options: object) -> subprocess.Popen[bytes]:
        """The command as a process of its own."""
        return subprocess.Popen(
            [sys.executable, *self.program, *self.arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=self.env,
            cwd=ROOT,
            **options,  # type: ignore[call-overload]
        )

    def run(self) -> Result:
        """Runs the same command, however it ends."""
        stdout, stderr = (running := self.start()).communicate(timeout=TIMEOUT)
        return Result(running.returncode, stdout.decode(), stderr.decode())

    def finish(self) -> Result:
        """Runs the same command to its end; nothing stops it, so it needs no process of its own."""
        result = in_this_process(self.directory, self.arguments, self.server)
        assert (result.code, result.stdout) == (0, f"{self.output}\n"), result.stderr
        assert {path.name for path in self.models.iterdir()} == {"small-4bit"}
        return result


def in_this_process(directory: Path, arguments: Sequence[str], server: Hub | None) -> Result:
    """Runs the command with its home, and the cache of the Hub, in a directory."""
    with pytest.MonkeyPatch.context() as patch:
        if server is not None:
            point_at(patch, directory, server)
        patch.setenv("LOCALDIFF_HOME", str(directory / "home"))
        return Cli(patch)(*arguments, stdin=b"")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_weights(tmp_path_factory.mktemp("source") / "small")


@pytest.fixture(scope="module")
def whole(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, bytes]]:
    """What an uninterrupted run writes, from the directory and from the Hub."""
    results = {}
    with hub(small=Repository(files={path.name: path.read_bytes() for path in source.iterdir()})) as server:
        for model in (str(source), "owner/small"):
            directory = tmp_path_factory.mktemp("whole")
            assert in_this_process(directory, ["quantize", model, "--yes"], server).code == 0
            results[model] = tree(directory / "home" / "models" / "small-4bit")
    return results


def settings(server: Hub, directory: Path) -> dict[str, str]:
    return {
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(directory / "hf"),
        "NO_PROXY": "127.0.0.1,localhost",
        "LOCALDIFF_HOME": str(directory / "home"),
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture
def server(source: Path) -> Iterator[Hub]:
    """A Hub that sends only the last file very slowly."""
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    with hub(small=Repository(files=files, slow={LAST: 2.0})) as running:
        yield running


@pytest.fixture
def remote(server: Hub, tmp_path: Path) -> Place:
    return Place(tmp_path, "owner/small", environment(**settings(server, tmp_path)), server)


def until_the_last_file_is_waited_for(place: Place, server: Hub) -> None:
    wait_until(lambda: (place.partial / f"{SHARDS[0]}.json").exists() and LAST in server.fetched())


@pytest.mark.parametrize(
    ("how", "code"),
    [
        pytest.param(signal.SIGKILL, -9, id="kill"),
        pytest.param(signal.SIGTERM, 143, id="term", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, id="int", marks=pytest.mark.slow),
    ],
)
def test_while_it_waits_for_the_hub(
    remote: Place, server: Hub, whole: Mapping[str, Mapping[str, bytes]], how: signal.Signals, code: int
) -> None:
    running = remote.start()
    until_the_last_file_is_waited_for(remote, server)
    running.send_signal(how)
    stdout, stderr = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, stdout) == (code, b"")
    assert stderr.endswith(b"Run the same command to continue.\n") is (how != signal.SIGKILL)
    assert b"Traceback" not in stderr
    if how == signal.SIGINT:
        assert b"Stopped. 1 of 2 output files are finished and kept" in stderr
        assert stderr.endswith(b"Run the same command to continue.\n")
    assert not remote.output.exists()
    server.repositories["owner/small"].slow.clear()
    server.requests.clear()
    assert "1 of them is finished" in remote.finish().stderr
    assert server.fetched() == [LAST]
    assert tree(remote.output) == whole["owner/small"]


@pytest.mark.slow
def test_streaming_is_killed_and_goes_on(
    remote: Place, server: Hub, whole: Mapping[str, Mapping[str, bytes]], tmp_path: Path
) -> None:
    remote.arguments = (*remote.arguments, "--stream")
    running = remote.start()
    until_the_last_file_is_waited_for(remote, server)
    assert not (remote.partial / "source.partial" / FIRST).exists()
    running.kill()
    running.communicate()
    server.repositories["owner/small"].slow.clear()
    remote.finish()
    assert tree(remote.output) == whole["owner/small"]
    assert not (tmp_path / "hf" / "hub" / "models--owner--small").exists()


def test_ctrl_c_on_a_terminal(remote: Place, server: Hub, whole: Mapping[str, Mapping[str, bytes]]) -> None:
    screen = terminal("quantize", "owner/small", env=remote.env, rows=40, columns=110)
    screen.wait_for("Continue? [Y/n]")
    screen.type(b"y\r")
    until_the_last_file_is_waited_for(remote, server)
    screen.wait_for(LAST)
    screen.type(b"\x03")
    assert screen.finish() == 130
    shown = "\n".join(screen.lines())
    assert "1 of 2 output files are finished and kept" in shown, shown
    assert not any("fetch" in line and "MB" in line for line in screen.lines()[-4:])
    assert screen.raw.rfind(b"\x1b[?25h") > screen.raw.rfind(b"\x1b[?25l")
    server.repositories["owner/small"].slow.clear()
    remote.finish()
    assert tree(remote.output) == whole["owner/small"]


@pytest.mark.parametrize(
    ("how", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="int"),
        pytest.param(signal.SIGTERM, 143, id="term", marks=pytest.mark.slow),
    ],
)
def test_a_hub_that_sends_no_headers_holds_up_nobody_who_stops_it(
    remote: Place, server: Hub, how: signal.Signals, code: int
) -> None:
    server.repositories["owner/small"].stalled |= {FIRST, LAST}
    remote.program = ("-c", PATIENT)
    running = remote.start()
    wait_until(lambda: {FIRST, LAST} <= {*server.kept_waiting})
    running.send_signal(how)
    stdout, stderr = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, stdout) == (code, b"")
    assert b"Traceback" not in stderr
    assert not remote.models.exists()


@pytest.mark.slow
def test_no_on_a_terminal(remote: Place, server: Hub) -> None:
    screen = terminal("quantize", "owner/small", env=remote.env, rows=40)
    screen.wait_for("Continue? [Y/n]")
    screen.type(b"n\r")
    assert screen.finish() == 130
    assert server.fetched() == []
    assert not remote.models.exists()


@pytest.fixture
def local(source: Path, tmp_path: Path) -> Place:
    env = environment(LOCALDIFF_HOME=str(tmp_path / "home"), OMP_NUM_THREADS="1")
    return Place(tmp_path, str(source), env)


@pytest.mark.parametrize(
    "limit", [20_000, pytest.param(100, marks=pytest.mark.slow), pytest.param(40_000, marks=pytest.mark.slow)]
)
def test_a_file_that_may_not_grow_is_like_a_full_disk_and_called_what_it_is(
    local: Place, source: Path, whole: Mapping[str, Mapping[str, bytes]], limit: int
) -> None:
    running = local.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    stdout, stderr = running.communicate(timeout=TIMEOUT)
    assert (running.returncode, stdout) == (4, b"")
    assert b"` cannot be written: File too large\n" in stderr
    assert b"hint: write to another disk, or raise the limit, and run the same command again" in stderr
    assert not local.output.exists()
    local.finish()
    assert tree(local.output) == whole[str(source)]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounts a small file system")
def test_a_file_system_that_fills_up(local: Place, source: Path, whole: Mapping[str, Mapping[str, bytes]]) -> None:
    local.models.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", local.models], capture_output=True)
    if mounted.returncode:
        pytest.skip("may not mount")
    try:
        filler = local.models / "filler"
        filler.write_bytes(b"x" * 3_000_000)
        plan = local.run()
        assert plan.code == 4
        assert f"not enough disk space in {local.models}: needs 2 MB, 1 MB free" in plan.stderr
        filler.unlink()
        running = local.start()
        wait_until(lambda: local.partial.exists())
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)
        stdout, stderr = running.communicate(timeout=TIMEOUT)
        assert (running.returncode, stdout) == (4, b"")
        assert b"error: the disk is full while writing `" in stderr
        filler.unlink()
        local.finish()
        assert tree(local.output) == whole[str(source)]
    finally:
        subprocess.run(["umount", local.models], check=True)


@pytest.mark.slow
def test_killed_again_and_again_at_any_moment(local: Place, tmp_path: Path) -> None:
    large = write_checkpoint(replace(QUANTIZABLE, layers="ssf", experts=128, expert_mlp=512), tmp_path / "small")
    local.model = str(large)
    local.arguments = ("quantize", str(large), "--yes")
    local.finish()
    expected = tree(local.output)
    shutil.rmtree(local.output)
    kills = 0
    for attempt in range(40):
        running = local.start()
        started = time.monotonic()
        while running.poll() is None and not (local.partial.exists() and time.monotonic() - started > 1 + attempt / 20):
            time.sleep(0.01)
        if running.poll() is None:
            running.kill()
            kills += 1
        running.communicate()
        if local.output.exists():
            break
    if not local.output.exists():
        local.finish()
    assert kills > 2
    assert tree(local.output) == expected
