"""Weight files for a job: who they belong to, and which of them are deleted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from localdiff.errors import WeightsError
from localdiff.hub import downloads
from localdiff.hub.cache import folder_of, unfinished_file
from localdiff.hub.downloads import Downloads
from localdiff.hub.large_file import XET_BYTES
from localdiff.quantizing.origin import Origin, find_origin
from localdiff.quantizing.planned_job import PlannedJob
from localdiff.quantizing.weight_fetcher import WeightFetcher
from quant.errors import SourceError
from quant.files.reader import SourceReader
from quant.files.source import SourceFile, SourceStoppedError
from quant.planning.encoder import Encoder
from quant.planning.plan import make_plan
from quant.recipe import RECIPES
from tests.checkpoints.weights import write_small_weights
from tests.fakes.download_log import DownloadLog
from tests.fakes.hub import Hub, Repository, hub
from tests.localdiff.conftest import UseHub

RECIPE = RECIPES["4bit"]
FIRST = "model-00001-of-00003.safetensors"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = write_small_weights(tmp_path / "small")
    (directory / "tokenizer.json").write_text("{}" * 1000)
    return directory


@pytest.fixture
def server(directory: Path, use_hub: UseHub) -> Iterator[Hub]:
    with hub(small=Repository(files={path.name: path.read_bytes() for path in directory.iterdir()})) as running:
        use_hub(running)
        yield running


def read(file: SourceFile, path: Path) -> str:
    with SourceReader(file, path) as reader:
        return reader.sha256()


def first(origin: Origin) -> SourceFile:
    return next(file for file in origin.files if file.name == FIRST)


def downloads_of(origin: Origin, directory: Path | None = None) -> Downloads:
    assert origin.repository is not None
    return Downloads(origin.repository, DownloadLog(), directory=directory, workers=1)


def in_the_cache() -> Path:
    """Where the first file is, once it has arrived."""
    with downloads_of(find_origin("owner/small", RECIPE)) as downloads:
        path = downloads.wait(FIRST)
    assert path is not None
    return path


def test_a_directory_s_files_are_where_they_are(directory: Path) -> None:
    origin = find_origin(str(directory), RECIPE)
    fetching = WeightFetcher(origin, None, scratch=None, stopped=lambda: False)
    fetching.begin([])
    with fetching.open(first(origin)) as path:
        assert path == directory / FIRST
    assert path.exists()
    assert fetching.read("tokenizer.json") == b"{}" * 1000


def test_files_of_the_hub_stay_in_its_cache(server: Hub, tmp_path: Path) -> None:
    origin = find_origin("owner/small", RECIPE)
    with downloads_of(origin) as downloads:
        fetching = WeightFetcher(origin, downloads, scratch=None, stopped=lambda: False)
        fetching.begin([FIRST])
        with fetching.open(first(origin)) as path:
            assert read(first(origin), path)
        assert fetching.read("tokenizer.json") == b"{}" * 1000
    assert path.exists() and path.is_relative_to(tmp_path / "hf")
    again = find_origin("owner/small", RECIPE)
    assert again.local_path(first(again)) == path
    assert again.repository is not None and again.repository.files["config.json"].local_path is not None


def test_streaming_deletes_what_it_fetched_and_nothing_else(server: Hub, tmp_path: Path) -> None:
    origin = find_origin("owner/small", RECIPE)
    scratch = tmp_path / "out.partial" / "source.partial"
    unfinished = scratch / ".cache" / "huggingface" / "download" / "x.incomplete"
    unfinished.parent.mkdir(parents=True)
    unfinished.touch()
    with downloads_of(origin, scratch) as downloads:
        fetching = WeightFetcher(origin, downloads, scratch=scratch, stopped=lambda: False)
        fetching.begin([FIRST])
        assert not unfinished.exists()
        assert server.fetched() == []
        with fetching.open(first(origin)) as path:
            assert path == scratch / FIRST
            assert read(first(origin), path)
        assert not path.exists()
        assert fetching.read("tokenizer.json") == b"{}" * 1000
    assert not (tmp_path / "hf" / "hub").exists()


def test_waiting_ends_when_the_job_is_stopped(server: Hub) -> None:
    server.repositories["owner/small"].pace = 0.5
    origin = find_origin("owner/small", RECIPE)
    with downloads_of(origin) as downloads:
        fetching = WeightFetcher(origin, downloads, scratch=None, stopped=lambda: True)
        with pytest.raises(SourceStoppedError), fetching.open(first(origin)):
            pass


@pytest.mark.parametrize("streams", [False, True])
def test_a_file_that_came_damaged_is_deleted_so_that_the_next_run_fetches_it(
    server: Hub, tmp_path: Path, streams: bool
) -> None:
    server.repositories["owner/small"].wrong = {FIRST}
    scratch = tmp_path / "scratch" if streams else None
    for damaged in (True, False):
        origin = find_origin("owner/small", RECIPE)
        assert origin.local_path(first(origin)) is None
        with downloads_of(origin, scratch) as downloads:
            fetching = WeightFetcher(origin, downloads, scratch=scratch, stopped=lambda: False)
            if damaged:
                with pytest.raises(SourceError, match="SHA-256") as raised, fetching.open(first(origin)) as path:
                    read(first(origin), path)
                assert "was deleted: run the same command again" in (raised.value.hint or "")
                assert not path.exists()
                server.repositories["owner/small"].wrong = set()
            else:
                with fetching.open(first(origin)) as path:
                    assert read(first(origin), path) == first(origin).sha256


def test_a_damaged_file_of_the_cache_is_named_and_kept(server: Hub) -> None:
    cached = in_the_cache()
    content = bytearray(cached.read_bytes())
    content[-1] ^= 1
    cached.resolve().write_bytes(content)
    origin = find_origin("owner/small", RECIPE)
    fetching = WeightFetcher(origin, None, scratch=None, stopped=lambda: False)
    with pytest.raises(SourceError, match="SHA-256") as raised, fetching.open(first(origin)) as path:
        read(first(origin), path)
    assert raised.value.hint == f"delete `{cached.resolve()}`, then run the same command again"
    assert cached.exists()


def test_a_file_without_a_hash_is_damaged_where_it_has_another_size(server: Hub) -> None:
    cached = in_the_cache()
    origin = find_origin("owner/small", RECIPE)
    cached.resolve().write_bytes(cached.read_bytes()[:-1])
    fetching = WeightFetcher(origin, None, scratch=None, stopped=lambda: False)
    with pytest.raises(SourceError) as raised, fetching.open(replace(first(origin), sha256=None)):
        raise SourceError("it is cut short", "look at it")
    assert raised.value.hint == f"delete `{cached.resolve()}`, then run the same command again"


def planned(origin: Origin, folder: Path, *, streams: bool) -> PlannedJob:
    return PlannedJob(
        origin=origin,
        plan=make_plan(RECIPE, origin.files),
        target=folder / "out",
        streams=streams,
        force=False,
        damaged={},
        encoder=Encoder(requested="cpu", device=torch.device("cpu"), gpu=None, further=()),
        show=lambda done, total: None,
    )


@pytest.mark.parametrize(("streams", "here"), [(False, 1000), (True, 0)])
def test_what_the_cache_has_of_an_unfinished_file_is_not_to_fetch(
    server: Hub, tmp_path: Path, streams: bool, here: int
) -> None:
    content = server.repositories["owner/small"].files[FIRST]
    part = unfinished_file(folder_of("owner/small") / "blobs", hashlib.sha256(content).hexdigest())
    part.parent.mkdir(parents=True)
    part.write_bytes(content[:1000])
    origin = find_origin("owner/small", RECIPE)
    assert planned(origin, tmp_path, streams=streams).to_fetch[FIRST] == len(content) - here


@pytest.mark.parametrize(("streams", "processes"), [(False, 2), (True, 1)])
def test_the_plan_counts_the_memory_of_downloads(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streams: bool, processes: int
) -> None:
    job = planned(find_origin("owner/small", RECIPE), tmp_path, streams=streams)
    monkeypatch.setattr(downloads, "xet_remedy", lambda: "`pip install hf-xet`")
    without = job.summary().working
    monkeypatch.setattr(downloads, "xet_remedy", lambda: None)
    assert job.summary().working - without == processes * XET_BYTES


def test_a_file_that_is_gone_meanwhile_is_an_error_and_no_bug(server: Hub) -> None:
    cached = in_the_cache()
    origin = find_origin("owner/small", RECIPE)
    cached.unlink()
    fetching = WeightFetcher(origin, None, scratch=None, stopped=lambda: False)
    with pytest.raises(SourceError, match="cannot be read"), fetching.open(first(origin)) as path:
        read(first(origin), path)


def test_errors_that_another_download_would_not_cure_keep_the_file(server: Hub) -> None:
    origin = find_origin("owner/small", RECIPE)
    with downloads_of(origin) as downloads:
        fetching = WeightFetcher(origin, downloads, scratch=None, stopped=lambda: False)
        with pytest.raises(SourceError, match="not finite") as raised, fetching.open(first(origin)) as path:
            raise SourceError("`x` holds values that are not finite", "as it was")
        assert raised.value.hint == "as it was"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == first(origin).sha256


def small_file(name: str) -> bytes:
    """A file beside the weights, read by a job that has just seen the listing."""
    origin = find_origin("owner/small", RECIPE)
    with downloads_of(origin) as downloads:
        return WeightFetcher(origin, downloads, scratch=None, stopped=lambda: False).read(name)


def test_a_small_file_that_came_damaged_is_refused_and_fetched_again_by_the_next_run(server: Hub) -> None:
    server.repositories["owner/small"].wrong = {"tokenizer.json"}
    with pytest.raises(WeightsError, match="`tokenizer.json` of `owner/small` is damaged") as raised:
        small_file("tokenizer.json")
    assert "was deleted: run the same command again" in (raised.value.hint or "")
    server.repositories["owner/small"].wrong = set()
    assert small_file("tokenizer.json") == b"{}" * 1000


def test_a_branch_that_moves_on_during_the_download_is_not_called_damage(server: Hub) -> None:
    repository = server.repositories["owner/small"]
    origin = find_origin("owner/small", RECIPE)
    repository.newer, repository.changed = "b" * 40, {"config.json": repository.files["config.json"] + b" "}
    with downloads_of(origin) as downloads:
        fetching = WeightFetcher(origin, downloads, scratch=None, stopped=lambda: False)
        with pytest.raises(WeightsError, match="`owner/small` was changed on the Hub while it was downloaded"):
            fetching.read("config.json")
