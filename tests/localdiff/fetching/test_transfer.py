"""The progress of a download, as reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.errors import WeightsError
from localdiff.fetching.source import find_source
from localdiff.fetching.transfer import transfer
from localdiff.hub import repository
from localdiff.hub.downloads import Downloads
from localdiff.hub.listing import look_up
from localdiff.load_progress import tell_nobody
from tests.fakes.hub import COMMIT, Repository, hub
from tests.localdiff.conftest import UseHub

FILES = {"config.json": b"{}", "model.safetensors": b"1" * 200_000}


@pytest.mark.parametrize(
    "sizes",
    [{name: len(data) for name, data in FILES.items()}, dict.fromkeys(FILES, 0)],
    ids=["all to fetch", "stored already"],
)
def test_the_share_grows_to_one(use_hub: UseHub, sizes: dict[str, int]) -> None:
    told: list[tuple[str, float]] = []
    with hub(model=Repository(files=FILES)) as server:
        use_hub(server)
        transfer(look_up("owner/model"), sizes, lambda *what: told.append(what))
        assert server.fetched() == ["model.safetensors"]
    assert {stage for stage, _ in told} == {"download"}
    shares = [share for _, share in told]
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert len(shares) > 1, "while it is waited for, too"


def test_what_the_client_reports_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Reporting(Downloads):
        def _work(self) -> None:
            while (name := self._next()) is not None:
                self._observer.on_note(f"the connection broke off at {name}")
                self._fetches[name].set_result(Path(COMMIT, name))

    monkeypatch.setattr("localdiff.fetching.transfer.Downloads", Reporting)
    model = repository.Repository(name="owner/model", revision="main", commit=COMMIT, files={})
    transfer(model, dict.fromkeys(FILES, 1), tell_nobody)
    assert caplog.messages == [f"the connection broke off at {name}" for name in FILES]


def test_what_does_not_hash_to_what_was_published_is_not_kept(use_hub: UseHub) -> None:
    name, sizes = "model.safetensors", {name: len(data) for name, data in FILES.items()}
    with hub(model=Repository(files=FILES, wrong={name})) as server:
        cache = use_hub(server)
        with pytest.raises(WeightsError, match=f"(?m)^`{name}` of `owner/model` is damaged$") as caught:
            transfer(look_up("owner/model"), sizes, tell_nobody)
        assert caught.value.hint == f"`{name}` was downloaded damaged and was deleted: run the same command again"
        server.repositories["owner/model"].wrong.clear()
        again = look_up("owner/model")
        assert (again.files[name].local_path, again.files[name].is_stored) == (None, False)
        transfer(again, sizes, tell_nobody)
    assert (cache / "models--owner--model" / "snapshots" / COMMIT / name).read_bytes() == FILES[name]


def test_a_mirror_that_hands_out_another_commit_is_found_out(use_hub: UseHub) -> None:
    sizes = {name: len(data) for name, data in FILES.items()}
    with hub(model=Repository(files=FILES, says={"resolve": "c" * 40})) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match="(?m)^`owner/model` was changed on the Hub while it was downloaded$"):
            transfer(look_up("owner/model"), sizes, tell_nobody)  # its branch may have changed
        words = f"^what answers at {server.url} hands out another commit of `owner/model` than the one it is asked for"
        for revision, names in ((COMMIT, FILES), ("main", ["model.safetensors"])):
            with pytest.raises(WeightsError, match=words):
                transfer(look_up("owner/model", revision=revision), dict.fromkeys(names, 0), tell_nobody)


def test_a_repository_that_changes_during_the_download_is_an_error(
    use_hub: UseHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then its branch leads to another commit than the one listed."""
    files = {path.name: path.read_bytes() for path in DEMO_DIRECTORY.iterdir()}
    monkeypatch.setattr(repository.Repository, "cached_directory", property(lambda _: None))
    with hub(model=Repository(files=files)) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match="was changed on the Hub while it was downloaded"):
            find_source("owner/model")
