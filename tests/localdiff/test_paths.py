"""Where things live, for every way in which a user may have said so."""

from __future__ import annotations

from pathlib import Path

import pytest

from localdiff import paths


@pytest.mark.parametrize(
    ("env", "models", "config", "state"),
    [
        (
            {"HOME": "/h"},
            "/h/.local/share/localdiff/models",
            "/h/.config/localdiff",
            "/h/.local/state/localdiff",
        ),
        (
            {"HOME": "/h", "XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"},
            "/d/localdiff/models",
            "/c/localdiff",
            "/s/localdiff",
        ),
        ({"HOME": "/h", "XDG_DATA_HOME": "relative"}, "/h/.local/share/localdiff/models", "/h/.config/localdiff", None),
        ({"HOME": "/h", "XDG_DATA_HOME": "/d", "LOCALDIFF_HOME": "/l"}, "/l/models", "/l", "/l"),
    ],
)
def test_own_files(env: dict[str, str], models: str, config: str, state: str | None) -> None:
    assert paths.models_dir(env) == Path(models)
    assert paths.config_dir(env) == Path(config)
    if state is not None:
        assert paths.state_dir(env) == Path(state)


@pytest.mark.parametrize(
    ("env", "cache"),
    [
        ({"HOME": "/h"}, "/h/.cache/huggingface/hub"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x", "HF_HOME": "/f"}, "/f/hub"),
        ({"HOME": "/h", "HF_HOME": "/f", "HF_HUB_CACHE": "/c"}, "/c"),
        ({"HOME": "/h", "LOCALDIFF_HOME": "/l"}, "/h/.cache/huggingface/hub"),
    ],
)
def test_the_cache_of_the_hub_is_never_moved(env: dict[str, str], cache: str) -> None:
    assert paths.hub_cache_dir(env) == Path(cache)
