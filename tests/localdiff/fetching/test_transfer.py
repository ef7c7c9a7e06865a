"""How far a download is, as it is told."""

from __future__ import annotations

import pytest

from localdiff.fetching.transfer import transfer
from localdiff.hub.repository import look_up
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
