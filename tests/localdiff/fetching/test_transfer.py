"""How far a download is, as it is told."""

from __future__ import annotations

import pytest

from localdiff.errors import WeightsError
from localdiff.fetching.source import find_source
from localdiff.fetching.transfer import transfer
from localdiff.hub import repository
from localdiff.hub.repository import look_up
from localdiff.model_reference import DEMO_DIRECTORY
from tests.fakes.hub import Repository, hub
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


def test_a_repository_that_changes_during_the_download_is_an_error(
    use_hub: UseHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its branch leads to another commit then than the one that was listed."""
    files = {path.name: path.read_bytes() for path in DEMO_DIRECTORY.iterdir()}
    monkeypatch.setattr(repository.Repository, "cached_directory", property(lambda _: None))
    with hub(model=Repository(files=files)) as server:
        use_hub(server)
        with pytest.raises(WeightsError, match="was changed on the Hub while it was downloaded"):
            find_source("owner/model")
