"""Models that are still on the Hub: what is refused before anything is fetched, what is asked, and what is shown."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.commands import loading
from localdiff.download_plan import DownloadPlan
from localdiff.engine import Engine
from tests.fakes.hub import COMMIT, Hub, Repository, hub, nobody
from tests.localdiff.conftest import SetFree, UseHub
from tests.screens.processes import Cli, environment, terminal

FILES = {path.name: path.read_bytes() for path in DEMO_DIRECTORY.iterdir()}
WEIGHTS = "model.safetensors"
RUN = ("run", "-m", "owner/demo", "--device", "cpu", "--max-tokens", "16", "--seed", "1", "Say hello.")


def huge() -> Repository:
    """The demo model with a vision tower of more than a gigabyte, of which no byte exists."""
    length = int.from_bytes(FILES[WEIGHTS][:8], "little")
    header = json.loads(FILES[WEIGHTS][8 : 8 + length])
    begin = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    tower = {"dtype": "BF16", "shape": [600_000_000], "data_offsets": [begin, begin + 1_200_000_000]}
    text = json.dumps(header | {"model.encoder.vision_tower.std_bias": tower}).encode()
    content = len(text).to_bytes(8, "little") + text
    return Repository(files=FILES | {WEIGHTS: content}, sizes={WEIGHTS: len(content) + begin + 1_200_000_000})


@pytest.fixture
def server(use_hub: UseHub) -> Iterator[Hub]:
    llama = json.dumps({"model_type": "llama"}).encode()
    with hub(
        demo=Repository(files=FILES), llama=Repository(files=FILES | {"config.json": llama}), huge=huge()
    ) as running:
        use_hub(running)
        yield running


def env() -> dict[str, str]:
    """The environment for a process, with the server of the test as `use_hub` has set it."""
    names = ("HF_ENDPOINT", "HF_HOME", "NO_PROXY")
    return environment(**{name: os.environ[name] for name in names})


def test_another_kind_of_model_is_refused_before_anything_is_fetched(cli: Cli, server: Hub, tmp_path: Path) -> None:
    for command in ("run", "bench step"):
        words = [*command.split(), "-m", "owner/llama", *(["hi"] if command == "run" else [])]
        result = cli(*words, stdin=b"")
        assert (result.code, result.stdout) == (3, "")
        assert result.stderr == (
            "error: `owner/llama` is a `llama` model, not a `diffusion_gemma`\n"
            "hint: localdiff reads DiffusionGemma models only\n"
        )
    assert server.fetched() == []
    assert not (tmp_path / "hf").exists()


def test_a_disk_that_is_too_small(cli: Cli, server: Hub, set_free: SetFree) -> None:
    set_free(10**6)
    result = cli(*RUN, stdin=b"")
    assert result.code == 4
    assert "not enough disk space in " in result.stderr
    assert "hint: `HF_HOME` moves the download\n" in result.stderr
    assert server.fetched() == []


def test_memory_that_is_too_small(cli: Cli, server: Hub) -> None:
    result = cli(*RUN, "--max-memory", "1MB", stdin=b"")
    assert result.code == 4
    assert "`cpu` has 1 MB available" in result.stderr
    assert WEIGHTS not in server.fetched()


def test_a_device_that_is_not_there(cli: Cli, server: Hub) -> None:
    assert cli("run", "-m", "owner/demo", "--device", "mps", "hi", stdin=b"").code == 4
    assert server.requests == []


def test_what_is_missing_on_the_hub(cli: Cli, server: Hub) -> None:
    demo = server.repositories["owner/demo"]
    for name, words in {WEIGHTS: "is not a model that localdiff", "tokenizer.json": "cannot be run"}.items():
        demo.files = {other: data for other, data in FILES.items() if other != name}
        result = cli(*RUN, stdin=b"")
        assert result.code == 3
        assert result.stderr.startswith(f"error: `owner/demo` has no `{name}`")
        assert words in result.stderr
    assert server.fetched() == []


def test_a_program_is_told_the_plan_and_may_refuse(server: Hub, tmp_path: Path) -> None:
    plans: list[DownloadPlan] = []

    def refuse(plan: DownloadPlan) -> None:
        plans.append(plan)
        raise PermissionError

    with pytest.raises(PermissionError):
        Engine.load("owner/demo", device="cpu", confirm=refuse)
    assert server.fetched() == []
    (plan,) = plans
    assert (plan.model, plan.revision, plan.device) == ("owner/demo", COMMIT, "cpu")
    assert (plan.files, plan.nbytes) == (len(FILES), sum(map(len, FILES.values())))
    assert plan.place == tmp_path / "hf" / "hub"
    assert not plan.continues
    assert plan.needed is not None and plan.needed > len(FILES[WEIGHTS])
    assert plan.quantized is not None and plan.quantized < len(FILES[WEIGHTS])
    engine = Engine.load("owner/demo", device="cpu", confirm=plans.append)
    assert (engine.identity.model, engine.identity.revision) == ("owner/demo", COMMIT)
    Engine.load("owner/demo", device="cpu", confirm=plans.append)
    assert len(plans) == 2  # what is here is not asked about


def test_in_pipes_a_large_download_needs_a_word(cli: Cli, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LARGE", 1000)
    for command in (RUN, ("chat", "-m", "owner/demo", "--device", "cpu")):
        result = cli(*command, stdin=b"")
        assert (result.code, result.stdout) == (2, "")
        plan, *rest = result.stderr.splitlines()
        assert plan.startswith(f"owner/demo @ {COMMIT[:8]}: downloads 7 MB in 6 files into ")
        assert "of memory on cpu, where" in plan
        assert rest[-2:] == [
            "error: cannot ask for confirmation: stdin or stderr is not a terminal",
            "hint: `--yes` downloads without asking",
        ]
    assert server.fetched() == []
    result = cli(*RUN, "--yes", stdin=b"")
    assert result.code == 0 and result.stdout
    assert result.stderr.startswith(plan.partition(", where")[0]), "how much memory is free changes meanwhile"
    assert "Fetching" not in result.stderr and "\r" not in result.stderr
    assert cli(*RUN, "-q", stdin=b"").stderr == ""


def test_what_was_begun_is_continued_without_asking(cli: Cli, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*RUN, stdin=b"").code == 0  # not large
    monkeypatch.setattr(loading, "LARGE", 1000)
    link = next(Path(os.environ["HF_HOME"]).rglob("tokenizer.json"))
    link.resolve().unlink()
    link.unlink()
    result = cli(*RUN, stdin=b"")
    assert result.code == 0
    assert "downloads 52 KB in 1 file into" in result.stderr


def test_a_new_commit_with_the_same_weights_is_no_download(
    cli: Cli, server: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cli(*RUN, stdin=b"").code == 0
    cached = tmp_path / "hf" / "hub" / "models--owner--demo"
    (cached / "snapshots" / COMMIT).rename(cached / "snapshots" / ("b" * 40))
    (cached / "refs" / "main").write_text("b" * 40)
    monkeypatch.setattr(loading, "LARGE", 1000)
    server.requests.clear()
    result = cli(*RUN, stdin=b"")
    assert result.code == 0
    assert "downloads" not in result.stderr
    assert server.fetched() == []


def test_what_is_here_costs_one_request_or_none(
    cli: Cli, server: Hub, use_hub: UseHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cli(*RUN, stdin=b"")
    assert first.code == 0, first.stderr
    assert set(server.fetched()) == {WEIGHTS, "tokenizer.json"}
    server.requests.clear()
    assert cli(*RUN, stdin=b"").stdout == first.stdout
    assert server.requests == ["GET api/models/owner/demo/revision/main"]
    for more in (["--revision", COMMIT], ["--offline"]):
        server.requests.clear()
        assert cli(*RUN, *more, stdin=b"").stdout == first.stdout
        assert server.requests == []
    server.repositories["owner/demo"].status = 503
    naps: list[float] = []
    monkeypatch.setattr(time, "sleep", naps.append)
    assert cli(*RUN, stdin=b"").stdout == first.stdout
    assert len(server.requests) == 1  # tried once
    use_hub(nobody())
    assert cli(*RUN, stdin=b"").stdout == first.stdout
    assert not naps, "nobody waits before a second try"


def test_on_a_terminal_one_line_says_how_far_it_is_and_goes(server: Hub) -> None:
    server.repositories["owner/demo"].slow = {WEIGHTS: 0.003}
    window = terminal(*RUN, env=env(), columns=100)
    assert window.finish() == 0
    assert b"downloading owner/demo: " in window.raw
    for bar in (b"Fetching", b"Reconstruct", b"Download complete", b"it/s"):
        assert bar not in window.raw
    assert not any("loading" in line for line in window.lines()), window.lines()


def test_ctrl_c_ends_a_download_and_the_next_run_continues(cli: Cli, server: Hub) -> None:
    server.repositories["owner/demo"].slow = {WEIGHTS: 0.2}
    window = terminal(*RUN, env=env())
    window.wait_for("downloading owner/demo: ")
    window.wait_until(lambda: WEIGHTS in server.fetched(), WEIGHTS)
    window.type(b"\x03")
    assert window.finish() == 130
    assert window.lines() == ["Stopped. Finished files are kept; the same command continues."]
    server.repositories["owner/demo"].slow = {}
    server.requests.clear()
    assert cli(*RUN, stdin=b"").code == 0
    assert server.fetched() == [WEIGHTS]


@pytest.mark.parametrize("command", [("run", "hi"), pytest.param(("chat",), marks=pytest.mark.slow)])
def test_a_no_to_the_question_fetches_nothing(command: tuple[str, ...], server: Hub, tmp_path: Path) -> None:
    window = terminal(*command, "-m", "owner/huge", "--device", "cpu", env=env(), columns=200)
    window.wait_for("Download? [Y/n]")
    assert window.lines()[0].startswith(f"owner/huge @ {COMMIT[:8]}: downloads 1.2 GB in 6 files into ")
    window.type(b"n\n")
    assert window.finish() == 130
    assert window.lines()[-1] == "Nothing was downloaded."
    assert not any("loading" in line for line in window.lines())
    assert server.fetched() == []
    assert not (tmp_path / "hf").exists()
