"""Locations on disk.

Knows `LOCALDIFF_HOME`, the XDG base directories and the Hub's own variables; knows nothing about what is stored there
and never creates anything. Every function takes the environment, so that tests need not touch the real one.

| what | where |
|---|---|
| quantized weights | `$XDG_DATA_HOME/localdiff/models` |
| configuration | `$XDG_CONFIG_HOME/localdiff` |
| history, sessions, traces | `$XDG_STATE_HOME/localdiff` |
| downloaded weights | the cache that all tools of the Hub share; it is never moved |

`LOCALDIFF_HOME` puts the first three into one folder; it is a full path, or begins with `~`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from localdiff.errors import UsageError


def models_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of quantized weights, one folder per model."""
    return _base(env, "XDG_DATA_HOME", ".local/share") / "models"


def config_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of `config.toml`."""
    return _base(env, "XDG_CONFIG_HOME", ".config")


def state_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of history, sessions and traces."""
    return _base(env, "XDG_STATE_HOME", ".local/state")


def hub_cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The download cache of `huggingface_hub`, by that library's own rules (`huggingface_hub/constants.py`)."""
    caches = env.get("XDG_CACHE_HOME", os.path.join(_home(env), ".cache"))
    home = _filled_in(env.get("HF_HOME", os.path.join(caches, "huggingface")))
    older = env.get("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub"))
    return Path(_filled_in(env.get("HF_HUB_CACHE", older)))


def is_same(one: str | Path, other: str | Path) -> bool:
    """Whether two names, as typed, refer to one file; symbolic links are followed, and hard links are the same file."""
    with suppress(OSError):  # one of them does not exist, or cannot be inspected
        return os.path.samefile(expanded(one), expanded(other))
    # Unlike `Path.resolve`, this does not raise for a link that leads to itself.
    return os.path.realpath(expanded(one)) == os.path.realpath(expanded(other))


def expanded(path: Path | str) -> Path:
    """A path with the home directory in place of a leading `~` or `~name`; an unknown user name stays as it is."""
    return Path(os.path.expanduser(path))


def nearest(directory: Path) -> Path:
    """The directory, or the nearest one above it that exists."""
    place = directory.absolute()
    # Not pathlib's `is_dir`, which raises for a folder that may not be searched.
    while not os.path.isdir(place) and place != place.parent:
        place = place.parent
    return place


def obstacle(directory: Path) -> Path | None:
    """What is in the way of the directory, or of one above it: a file, or a dangling link; None if nothing is."""
    place = directory.absolute()
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    return None if os.path.isdir(place) else place


def shown(path: Path, env: Mapping[str, str] = os.environ) -> str:
    """A path for display, with `~` in place of the home directory."""
    home = _home(env)
    return str("~" / path.relative_to(home)) if path.is_relative_to(home) and path != home else str(path)


def _base(env: Mapping[str, str], variable: str, default: str) -> Path:
    if home := env.get("LOCALDIFF_HOME"):
        if not expanded(home).is_absolute():
            # With a relative one, models and sessions would vanish whenever the working directory changes.
            beginning = "a drive, such as `C:\\`," if sys.platform == "win32" else "`/`"
            raise UsageError(f"`LOCALDIFF_HOME={home}` is not a full path", f"it begins with {beginning} or `~`")
        return expanded(home)
    value = Path(env.get(variable, ""))  # a relative one is to be ignored, as the specification says
    return (value if value.is_absolute() else _home(env) / default) / "localdiff"


def _home(env: Mapping[str, str]) -> Path:
    """The folder that Python takes for `~`; on Windows, `HOME`, which some shells set to another folder, is ignored.

    Raises:
        UsageError: there is none, for example for a user id in a container that has no name.
    """
    variable = "USERPROFILE" if sys.platform == "win32" else "HOME"
    try:
        return Path(env.get(variable) or Path.home())
    except RuntimeError as error:
        reason = f"`{variable}` is not set, and the system knows no home directory of this user"
        raise UsageError(reason, "set it to a directory that this user may write to") from error


def _filled_in(path: str) -> str:
    """A path with `~` and environment variables expanded."""
    return os.path.expandvars(os.path.expanduser(path))
