"""Which origin wins, and how an origin is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from localdiff.config import KEYS, file, is_set, load_settings, strange_variables
from localdiff.errors import UsageError


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": "/bin"}


def write(env: dict[str, str], text: str) -> None:
    path = Path(env["HOME"]) / ".config" / "localdiff" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_nobody_said_anything(env: dict[str, str]) -> None:
    settings = load_settings(env)
    assert list(settings) == list(KEYS)
    assert {setting.origin for setting in settings.values()} == {"default"}
    assert settings["context"].value == 8192
    assert settings["generate.steps"].value is None
    assert settings.explicit_value("context") is None


def test_a_variable_wins_over_the_file(env: dict[str, str]) -> None:
    write(env, 'context = 100\n[generate]\nsteps = 8\n[ui]\nlive = "off"\n')
    settings = load_settings(env | {"LOCALDIFF_STEPS": "9", "LOCALDIFF_LIVE": ""})
    assert (settings["context"].value, settings["context"].where) == (100, "~/.config/localdiff/config.toml:1")
    assert (settings["generate.steps"].value, settings["generate.steps"].where) == (9, "LOCALDIFF_STEPS")
    assert (settings["ui.live"].value, settings["ui.live"].origin) == ("off", "file")
    assert settings.explicit_value("generate.steps") == 9


def test_no_line_is_looked_for_until_it_is_asked_for(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[tuple[str, ...]] = []

    def line_of(_text: str, key_path: tuple[str, ...]) -> int:
        looked_for.append(key_path)
        return 2

    write(env, "[generate]\nsteps = 8\nseed = 1\n")
    monkeypatch.setattr(file, "line_of", line_of)
    settings = load_settings(env)
    assert settings["generate.steps"].value == 8 and not looked_for
    assert settings["generate.steps"].where.endswith(":2") and looked_for == [("generate", "steps")]


def test_a_variable_that_makes_no_sense(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="(?m)^LOCALDIFF_STEPS=many must be a whole number$") as caught:
        load_settings(env | {"LOCALDIFF_STEPS": "many"})
    assert caught.value.hint == "what it sets: maximum denoise steps per block; `unset LOCALDIFF_STEPS`"
    with pytest.raises(UsageError, match="(?m)^LOCALDIFF_MAX_MEMORY=5Q is not an amount of memory$") as caught:
        load_settings(env | {"LOCALDIFF_MAX_MEMORY": "5Q"})
    assert caught.value.hint == "give a number and a unit, for example `10GB` or `16GiB`"
    with pytest.raises(UsageError, match="(?m)^LOCALDIFF_MODEL=' ' must name a model$"):
        load_settings(env | {"LOCALDIFF_MODEL": " "})


@pytest.mark.parametrize(
    ("text", "variables", "kept"),
    [
        ("temperature = 0.5", {"LOCALDIFF_T_MIN": "0.1"}, {"generate.t_min"}),
        ("t_min = 0.1\nt_max = 0.9", {"LOCALDIFF_TEMPERATURE": "0.5"}, {"generate.temperature"}),
        ("t_min = 0.1", {"LOCALDIFF_TEMPERATURE": "0"}, {"generate.t_min", "generate.temperature"}),
        ("temperature = 0", {"LOCALDIFF_T_MIN": "0.1"}, {"generate.t_min", "generate.temperature"}),
        ("t_min = 0.1", {"LOCALDIFF_T_MAX": "0.9"}, {"generate.t_min", "generate.t_max"}),
    ],
)
def test_a_stronger_origin_puts_out_of_force_what_it_excludes(
    env: dict[str, str], text: str, variables: dict[str, str], kept: set[str]
) -> None:
    write(env, f"[generate]\n{text}\n")
    settings = load_settings(env | variables)
    assert {name for name in settings if settings.explicit_value(name) is not None} == kept


@pytest.mark.parametrize(
    ("text", "variables", "message", "hint"),
    [
        (
            "temperature = 0.5\nt_min = 0.1",
            {},
            "temperature=0.5 excludes t_min=0.1",
            "`t_min` is set in ~/.config/localdiff/config.toml:3; "
            "`temperature` is set in ~/.config/localdiff/config.toml:2",
        ),
        (
            "t_max = 0.1",
            {"LOCALDIFF_T_MIN": "0.2"},
            "t_min=0.2 must be <= t_max=0.1",
            "`t_max` is set in ~/.config/localdiff/config.toml:2; `t_min` is set in LOCALDIFF_T_MIN",
        ),
    ],
)
def test_values_that_do_not_go_together(
    env: dict[str, str], text: str, variables: dict[str, str], message: str, hint: str
) -> None:
    write(env, f"[generate]\n{text}\n")
    with pytest.raises(UsageError) as caught:
        load_settings(env | variables)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_variables_that_nobody_reads() -> None:
    env = {"LOCALDIFF_STEP": "1", "LOCALDIFF_HOME": "/x", "LOCALDIFF_QQ": "1", "LOCALDIFF_SEED": "1", "_LOCALDIFF": "1"}
    assert strange_variables(env) == (("LOCALDIFF_QQ", None), ("LOCALDIFF_STEP", "LOCALDIFF_STEPS"))


@pytest.mark.parametrize("text", ["", " ", "0", "no", "No", "off", "FALSE"])
def test_a_variable_that_is_off(text: str) -> None:
    assert not is_set("LOCALDIFF_DEBUG", {"LOCALDIFF_DEBUG": text})
    assert not is_set("LOCALDIFF_DEBUG", {})


@pytest.mark.parametrize("text", ["1", "true", "Yes", "on", "2", "please"])
def test_a_variable_that_is_on(text: str) -> None:
    assert is_set("LOCALDIFF_DEBUG", {"LOCALDIFF_DEBUG": text})
