"""`localdiff config`, and settings at work in `run`: precedence up to the flag, and errors that name the place."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localdiff.checkpoints import model_store
from localdiff.cli import weights as cli_weights
from localdiff.commands.config import set_setting
from localdiff.commands.model_choice import ModelChoice
from localdiff.commands.quantize.command import QuantizeRequest
from localdiff.commands.run import RunRequest
from localdiff.ui.output import Output, Stream
from localdiff.view.widths import text_width
from quant.cpu.native.build import cache_dir as native_cache_dir
from tests.fakes.engine import ScriptedEngine
from tests.screens.processes import Cli


@pytest.fixture
def asked(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunRequest]:
    """Runs `localdiff run` with a configuration file, and returns what the command was asked for."""
    monkeypatch.setattr(model_store, "default_model", lambda: "demo")

    def run(text: str, *arguments: str, **streams: str) -> RunRequest:
        (home / "config.toml").write_text(text)
        requests: list[RunRequest] = []

        def load(request: object, _progress: object) -> ScriptedEngine:
            assert isinstance(request, RunRequest)
            requests.append(request)
            return ScriptedEngine()

        result = cli("run", "hi", *arguments, load=load, **streams)  # type: ignore[arg-type]
        assert result.code == 0, result.stderr
        return requests[0]

    return run


EVERYTHING = """
model = "some/model"
device = "cpu"
dtype = "fp32"
max_memory = "3GB"
context = 99
[generate]
max_tokens = 7
system = "Be brief."
think = true
steps = 5
cap = 4
entropy_bound = 0.3
t_min = 0.1
t_max = 0.2
stability = 2
confidence = 0.01
seed = 12
[ui]
live = "line"
palette = "mono"
fps = 3
color = "never"
"""


def test_the_file_sets_what_is_not_typed(asked: Callable[..., RunRequest]) -> None:
    request = asked(EVERYTHING)
    assert request.choice == ModelChoice(model="some/model", device="cpu", dtype="fp32", max_memory=3 * 10**9)
    options = request.options
    assert (options.context_size, options.max_tokens, options.system, options.think) == (99, 7, "Be brief.", True)
    assert (options.steps, options.cap, options.entropy_bound, options.seed) == (5, 4, 0.3, 12)
    assert (options.t_min, options.t_max, options.stability, options.confidence) == (0.1, 0.2, 2, 0.01)
    assert (request.live.requested, request.live.preferred) == (None, "line")
    assert (request.live.palette, request.live.fps, request.live.color) == ("mono", 3, "never")


def test_a_flag_wins_over_a_variable_and_that_over_the_file(
    asked: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "[generate]\nsteps = 1\ncap = 1\nseed = 1\nthink = true\n"
    monkeypatch.setenv("LOCALDIFF_STEPS", "2")
    monkeypatch.setenv("LOCALDIFF_CAP", "2")
    options = asked(text, "--steps", "3", "--no-think").options
    assert (options.steps, options.cap, options.seed, options.think) == (3, 2, 1, False)


@pytest.mark.parametrize(
    ("text", "arguments", "schedule"),
    [
        ("temperature = 0.5", ["--t-min", "0.1"], (None, 0.1, None)),
        ("temperature = 0", ["--t-min", "0.1"], (0, 0.1, None)),
        ("t_min = 0.1\nt_max = 0.9", ["--temperature", "0.5"], (0.5, None, None)),
        ("t_min = 0.1\nt_max = 0.9", ["--temperature", "0"], (0, 0.1, 0.9)),
        ("t_min = 0.1", ["--t-max", "0.9"], (None, 0.1, 0.9)),
        ("temperature = 0.5\nt_min = 0.1", ["--temperature", "0.7"], (0.7, None, None)),
        ("t_min = 0.9\nt_max = 0.5", ["--t-min", "0.1"], (None, 0.1, 0.5)),
    ],
)
def test_a_flag_puts_out_of_force_what_it_excludes(
    asked: Callable[..., RunRequest], text: str, arguments: list[str], schedule: tuple[float | None, ...]
) -> None:
    options = asked(f"[generate]\n{text}\n", *arguments).options
    assert (options.temperature, options.t_min, options.t_max) == schedule


@pytest.mark.parametrize("text", ["t_max = 0.9", "temperature = 0\nt_max = 0.9"])
def test_what_a_flag_puts_out_of_force_excludes_nothing(
    asked: Callable[..., RunRequest], cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("LOCALDIFF_TEMPERATURE", "0.5")
    options = asked(f"[generate]\n{text}\n", "--t-min", "0.1").options
    assert (options.temperature, options.t_min, options.t_max) == (0 if "temperature" in text else None, 0.1, 0.9)
    result = cli("run", "--t-min", "1", "hi")
    line = 2 + text.count("\n")
    assert f"error: `--t-min 1` must be <= t_max=0.9\nhint: `t_max` is set in {home / 'config.toml'}:{line}\n" in (
        result.stderr
    )


def test_the_recipe_of_quantize(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[QuantizeRequest] = []
    monkeypatch.setattr(cli_weights, "quantize", lambda request, *_, **__: requests.append(request) or 0)
    (home / "config.toml").write_text('recipe = "int8"\n')
    assert cli("quantize", "--dry-run").code == 0
    assert cli("quantize", "--dry-run", "--recipe", "mixed").code == 0
    assert [request.recipe for request in requests] == ["int8", "mixed"]


def test_a_canvas_that_is_wished_for_is_no_error_in_a_pipe(asked: Callable[..., RunRequest], cli: Cli) -> None:
    assert asked('[ui]\nlive = "on"\n').live.preferred == "on"
    result = cli("run", "--live", "on", "hi")
    assert result.code == 2
    assert "has nowhere to draw" in result.stderr


def test_the_colour_of_the_file_wins_over_no_color(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config.toml").write_text('[ui]\ncolor = "always"\n')
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" in cli("run", "-f", "/no/such/file").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["config"],
        ["config", "set", "no-such-key", "1"],
        ["doctor", "--quick"],
        ["models", "rm", "nothing"],
        ["trace", "check", "/no/such/file"],
        ["trace", "diff", "/no/such/file", "example"],
        ["trace", "pair", "-f", "/no/such/file"],
        ["bench", "step", "--layers", "1"],
        ["bench", "quality", "demo"],
        ["replay", "/no/such/file"],
        ["quantize", "/no/such/file"],
        ["chat", "--no-such-option"],
        ["no-such-command"],
    ],
    ids=" ".join,
)
def test_every_command_has_the_colour_of_the_settings(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    def colored() -> bool:
        result = cli(*arguments)
        return "\x1b[" in result.stdout + result.stderr

    assert not colored()
    (home / "config.toml").write_text('[ui]\ncolor = "always"\n')
    assert colored()
    monkeypatch.setenv("LOCALDIFF_COLOR", "never")
    assert not colored()


def test_settings_that_cannot_be_read_stop_no_command_that_takes_none(cli: Cli, home: Path) -> None:
    (home / "config.toml").write_text('[ui]\ncolor = "pink"\n')
    assert cli("models").code == 0
    assert cli("config", "unset", "ui.color").code == 0


def test_an_error_about_a_value_says_where_it_was_set(cli: Cli, home: Path) -> None:
    (home / "config.toml").write_text("[generate]\nt_min = 0.9\n")
    result = cli("run", "-m", "demo", "--t-max", "0.5", "hi")
    assert result.code == 2
    assert result.stderr == (
        f"error: t_min=0.9 must be <= `--t-max 0.5`\nhint: `t_min` is set in {home / 'config.toml'}:2\n"
    )


def test_it_says_so_after_what_else_helps(cli: Cli, home: Path) -> None:
    (home / "config.toml").write_text("[generate]\nt_min = 0\n")
    result = cli("run", "-m", "demo", "--t-max", "1e-6", "hi")
    hint = f"raise one of the two, or take fewer steps; `t_min` is set in {home / 'config.toml'}:2"
    assert result.stderr.endswith(f"\nhint: {hint}\n")


@pytest.mark.parametrize(
    ("setting", "arguments", "message"),
    [
        ('model = "nonexistent"', [], "`nonexistent` is neither"),
        ('device = "cuda:99"', ["-m", "demo"], "there is no "),
        ('max_memory = "1KB"', ["-m", "demo", "--device", "cpu"], "`bf16` takes "),
    ],
)
def test_an_error_about_what_is_not_here_says_where_it_was_asked_for(
    cli: Cli, home: Path, setting: str, arguments: list[str], message: str
) -> None:
    (home / "config.toml").write_text(setting + "\n")
    result = cli("run", *arguments, "hi")
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.endswith(f"; `{setting.split()[0]}` is set in {home / 'config.toml'}:1\n")
    assert "is set in" not in cli("run", "-m", "no/such", "--offline", "--device", "cpu", "hi").stderr


def test_a_recipe_in_an_error_is_not_taken_for_the_dtype(cli: Cli, home: Path) -> None:
    (home / "config.toml").write_text('max_memory = "1KB"\ndtype = "bf16"\n')
    result = cli("run", "-m", "demo", "--device", "cpu", "hi")
    assert result.stderr.startswith("error: `bf16` takes ")
    assert "`max_memory` is set in" in result.stderr and "`dtype` is set in" not in result.stderr


@pytest.mark.parametrize("arguments", [["run", "hi"], ["config"]])
def test_a_file_that_is_wrong_stops_the_commands_that_take_it(cli: Cli, home: Path, arguments: list[str]) -> None:
    (home / "config.toml").write_text("stepps = 3\n")
    result = cli(*arguments)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: {home / 'config.toml'}:1: there is no setting `stepps`\nhint: did you mean `generate.steps`?\n"
    )


@pytest.mark.parametrize("arguments", [["run", "--help"], ["--version"], ["config", "paths"], ["replay", "--help"]])
def test_a_file_that_is_wrong_stops_nothing_else(cli: Cli, home: Path, arguments: list[str]) -> None:
    (home / "config.toml").write_text("stepps = 3\n")
    assert cli(*arguments).code == 0


def test_every_setting_is_listed_with_its_origin(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config.toml").write_text('model = "demo"\n[generate]\nsystem = "a\\u001b[2Jb"\n')
    monkeypatch.setenv("LOCALDIFF_STEPS", "12")
    rows = {line.split()[0]: line.split()[1:] for line in cli("config").stdout.splitlines()}
    assert rows["model"] == ["demo", f"{home}/config.toml:1"]
    assert rows["generate.steps"] == ["12", "LOCALDIFF_STEPS"]
    assert rows["context"] == ["8192", "default"]
    assert rows["generate.system"] == ["a\\x1b[2Jb", f"{home}/config.toml:3"]
    assert rows["generate.cap"] == ["(none)", "default"]


def test_the_list_counts_columns_and_not_characters(cli: Cli, home: Path) -> None:
    (home / "config.toml").write_text(f'model = "{"模" * 15}"\n', encoding="utf-8")
    origins = [text_width(line[: line.rindex("default")]) for line in listed(cli) if line.endswith("default")]
    place = f"{home / 'config.toml'}:1"
    (model,) = (line for line in listed(cli) if line.startswith("model "))
    assert {text_width(model[: model.index(place)]), *origins} == {origins[0]}


def listed(cli: Cli) -> list[str]:
    return cli("config").stdout.splitlines()


def test_text_of_no_character_is_shown_as_such(cli: Cli, home: Path) -> None:
    assert cli("config", "set", "generate.system", "").stdout.split()[:2] == ["generate.system", '""']


def test_the_list_as_json(cli: Cli, home: Path) -> None:
    (home / "config.toml").write_text("context = 5\n")
    content = json.loads(cli("config", "--json").stdout)
    assert content["context"] == {"value": 5, "origin": "file", "where": f"{home}/config.toml:1"}
    assert content["generate.steps"] == {"value": None, "origin": "default", "where": "default"}


@pytest.mark.parametrize(("name", "meant"), [("STEP", "STEPS"), ("GENERATE_SEED", "SEED")])
def test_a_variable_that_nobody_reads_is_warned_about(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(f"LOCALDIFF_{name}", "3")
    result = cli("config")
    assert result.code == 0
    assert result.stderr == f"warning: unknown variable LOCALDIFF_{name}\nhint: did you mean LOCALDIFF_{meant}?\n"


def test_set_and_unset_change_one_line_of_the_file(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "config.toml"
    assert cli("config", "set", "generate.steps", "16").stdout == f"generate.steps  16  {file}:2\n"
    assert cli("config", "set", "generate.think", "yes").stdout == f"generate.think  true  {file}:3\n"
    assert file.read_text() == "[generate]\nsteps = 16\nthink = true\n"
    assert cli("config", "unset", "generate.steps").stdout == "generate.steps  (as the model says)  default\n"
    assert file.read_text() == "[generate]\nthink = true\n"
    monkeypatch.setenv("LOCALDIFF_THINK", "no")
    assert cli("config", "set", "generate.think", "on").stdout == "generate.think  false  LOCALDIFF_THINK\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_the_folders_of_the_file_are_for_their_owner_alone(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "new" / "home"))
    assert cli("config", "set", "generate.steps", "16").code == 0
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new", "new/home")] == [0o700, 0o700]


def test_a_setting_is_set_without_stdout_too(home: Path) -> None:
    stdout = Stream(file=io.StringIO(), name="stdout", missing=True)
    assert set_setting(Output(stdout=stdout, stderr=Stream(file=io.StringIO())), "device", "cpu") == 0
    assert (home / "config.toml").read_text() == 'device = "cpu"\n'


def test_a_variable_that_is_wrong_does_not_undo_what_was_set(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "config.toml"
    monkeypatch.setenv("LOCALDIFF_STEPS", "x")
    result = cli("config", "set", "generate.steps", "12")
    assert (result.code, result.stdout) == (0, f"generate.steps  12  {file}:2\n")
    assert result.stderr == "warning: LOCALDIFF_STEPS=x must be a whole number\n"
    assert cli("config", "unset", "generate.steps").code == 0
    assert file.read_text() == "[generate]\n"


def test_a_home_that_cannot_be_made_is_a_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", "/proc/nowhere")
    result = cli("config", "set", "generate.steps", "12")
    assert result.code == 2
    assert "`/proc/nowhere/config.toml` cannot be written: No such file" in result.stderr


def test_a_home_whose_name_is_no_text_is_shown_all_the_same(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "h\udcff"))
    done = cli("config", "set", "generate.steps", "12")
    assert (done.code, done.stdout.split()[:2]) == (0, ["generate.steps", "12"])
    assert "h\\xff/config.toml" in cli("config").stdout
    assert cli("config", "unset", "generate.steps").code == 0


def test_set_takes_a_file_of_windows(cli: Cli, home: Path) -> None:
    file = home / "config.toml"
    file.write_bytes(b"\xef\xbb\xbfcontext = 9\r\n[ui]\r\n")
    assert cli("config", "set", "model", "a\x7fb").stdout == f"model  a\\x7fb  {file}:2\n"
    assert file.read_bytes() == b'context = 9\r\nmodel = "a\\u007fb"\r\n[ui]\r\n'


def test_a_setting_needs_no_table(cli: Cli, home: Path) -> None:
    file = home / "config.toml"
    assert cli("config", "set", "seed", "3").stdout == f"generate.seed  3  {file}:2\n"
    assert cli("config", "set", "max-tokens", "64").stdout == f"generate.max_tokens  64  {file}:3\n"
    assert cli("config", "unset", "seed").stdout == "generate.seed  (drawn for every run)  default\n"
    assert file.read_text() == "[generate]\nmax_tokens = 64\n"


def test_what_is_in_the_wrong_table_is_removed_first(cli: Cli, home: Path) -> None:
    file = home / "config.toml"
    file.write_text("seed = 3\n[generate]\nseed = 4\n")
    assert "`seed` belongs under [generate]" in cli("config", "set", "seed", "5").stderr
    assert cli("config", "unset", "seed").code == 0
    assert file.read_text() == "[generate]\nseed = 4\n"


def test_set_keeps_a_link_and_the_mode_of_the_file(cli: Cli, home: Path, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles.toml"
    kept.write_text("# mine\n")
    kept.chmod(0o640)
    (home / "config.toml").symlink_to(kept)
    assert cli("config", "set", "model", "demo").code == 0
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ('# mine\nmodel = "demo"\n', 0o640)
    assert (home / "config.toml").is_symlink()


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["step", "3"], "there is no setting `step`", "did you mean `generate.steps`?"),
        (["STEPS", "3"], "there is no setting `STEPS`", "did you mean `generate.steps`?"),
        (["ui.steps", "3"], "there is no setting `ui.steps`", "did you mean `generate.steps`?"),
        (["steps", "0"], "`generate.steps 0` must be >= 1", "what it sets: maximum denoise steps per block"),
        (["ui.pallette", "dark"], "there is no setting `ui.pallette`", "did you mean `ui.palette`?"),
        (["xyzzy", "1"], "there is no setting `xyzzy`", "`localdiff config` lists every setting"),
        (["generate.steps", "0"], "`generate.steps 0` must be >= 1", "what it sets: maximum denoise steps per block"),
        (["model", " "], "`model ' '` must name a model", "what it sets: model that answers"),
        (["max_memory", "lots"], "`max_memory lots` is not an amount of memory", ""),
        (["max_memory", "-5"], "`max_memory -5` is not an amount of memory", ""),
        (
            ["generate.temperature", "0.5"],
            "temperature=0.5 excludes t_min=0.1",
            "`localdiff config unset generate.t_min` removes the other",
        ),
        (["model", "\udcff"], "the value of `model` is not text: its character 1", "the file of settings is UTF-8"),
        (["generate.system", "a\udcffb"], "the system prompt is not text: its character 2", "a system prompt is"),
    ],
)
def test_what_cannot_be_set_leaves_the_file_as_it_was(
    cli: Cli, home: Path, arguments: list[str], message: str, hint: str
) -> None:
    file = home / "config.toml"
    file.write_text("[generate]\nt_min = 0.1\n")
    result = cli("config", "set", *arguments)
    assert (result.code, result.stdout) == (2, "")
    assert f"error: {message}" in result.stderr
    assert f"hint: {hint}" in result.stderr
    assert file.read_text() == "[generate]\nt_min = 0.1\n"


def test_several_slips_are_taken_out_one_after_the_other(cli: Cli, home: Path) -> None:
    file = home / "config.toml"
    file.write_text("[generate]\nsteps = 'x'\nseed = -1\n")
    result = cli("config", "unset", "generate.steps")
    assert (result.code, result.stdout) == (0, "generate.steps  (as the model says)  default\n")
    assert result.stderr == f"warning: {file}:2: seed=-1 must be >= 0\n"
    result = cli("config", "unset", "generate.seed")
    assert (result.code, result.stderr) == (0, "")
    assert file.read_text() == "[generate]\n"


def test_what_is_no_setting_can_be_taken_out(cli: Cli, home: Path) -> None:
    file = home / "config.toml"
    file.write_text("foo = 1\n[generate]\nsteps = 4\nxyzzy = 2\n\n[bar]\nbaz = 1\n")
    for name, next_warning in (
        ("foo", f"warning: {file}:3: there is no setting `xyzzy` in [generate]\n"),
        ("generate.xyzzy", f"warning: {file}:4: there is no table `[bar]`\n"),
        ("bar", ""),
    ):
        result = cli("config", "unset", name)
        assert (result.code, result.stdout) == (0, f"{name}  (no setting)  removed from {file}\n")
        assert result.stderr == next_warning
    assert file.read_text().strip() == "[generate]\nsteps = 4"
    result = cli("config", "unset", "generate")
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: `generate` is a table of settings\nhint: its settings are `generate.")
    assert "`generate.steps`" in result.stderr
    assert file.read_text().strip() == "[generate]\nsteps = 4"


def test_a_key_of_a_table_that_is_none_of_ours_can_be_taken_out(cli: Cli, home: Path) -> None:
    file = home / "config.toml"
    file.write_text("[generat]\nx = 1\ninner.y = 2\n\n# the screen\n[ui]\nfps = 3\n")
    for name in ("generat.x", "generat.inner"):
        assert cli("config").code == 2
        result = cli("config", "unset", name)
        assert (result.code, result.stdout) == (0, f"{name}  (no setting)  removed from {file}\n")
    assert (result.stderr, cli("config").code) == ("", 0)
    assert file.read_text() == "[generat]\n\n# the screen\n[ui]\nfps = 3\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [("[generat]\nx = 1\n", "generat.y"), ('"generat.x" = 1\n', "generat.x"), ("model.x = 1\n", "model.x")],
)
def test_what_the_file_does_not_hold_or_a_setting_is_no_unknown_key(cli: Cli, home: Path, text: str, name: str) -> None:
    file = home / "config.toml"
    file.write_text(text)
    assert cli("config", "unset", name).stderr.startswith(f"error: there is no setting `{name}`\n")
    assert file.read_text() == text


def test_any_of_three_that_exclude_each_other_may_be_taken_out(cli: Cli, home: Path) -> None:
    file = home / "config.toml"
    file.write_text("[generate]\ntemperature = 0.5\nt_min = 0.1\nt_max = 0.4\n")
    assert "warning: temperature=0.5 excludes t_max=0.4\n" in cli("config", "unset", "generate.t_min").stderr
    assert cli("config", "unset", "generate.t_max").stderr == ""
    assert file.read_text() == "[generate]\ntemperature = 0.5\n"


def test_set_repairs_a_value_and_names_another_that_is_wrong(cli: Cli, home: Path) -> None:
    file = home / "config.toml"
    file.write_text("context = 'x'\n")
    assert cli("config", "set", "context", "99").code == 0
    assert file.read_text() == "context = 99\n"
    file.write_text("stepps = 3\n")
    assert f"{file}:1: there is no setting `stepps`" in cli("config", "set", "context", "99").stderr
    for slip, message in (
        ("steps = 'x'", "steps='x' must be a whole"),
        ("temperature = nan", "temperature=nan must be"),
    ):
        file.write_text(f"[generate]\n{slip}\n")
        done = cli("config", "set", "context", "99")  # which goes above it
        assert done.stderr.startswith(f"error: {file}:2: {message}")
    file.write_text("context = \n")
    assert "is not TOML" in cli("config", "set", "context", "99").stderr


def test_columns_of_long_paths_are_aligned(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", f"/{'a' * 60}")
    monkeypatch.setenv("HF_HUB_CACHE", "/cache")
    lines = cli("config", "paths").stdout.splitlines()
    assert len({re.search(r"  (LOCALDIFF_HOME|HF_HUB_CACHE)", line).start() for line in lines[:4]}) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("arguments", [["paths", "--json"], ["--json", "paths"]])
def test_paths(cli: Cli, home: Path, arguments: list[str]) -> None:
    content = json.loads(cli("config", *arguments).stdout)
    assert content["config"] == str(home / "config.toml")
    assert content["models"] == str(home / "models")
    assert content["state"] == str(home)
    assert content["downloads"].endswith("hub")
    assert content["kernels"] == str(native_cache_dir())
    assert os.fspath(home / "config.toml") in cli("config", "paths").stdout
    assert "LOCALDIFF_HOME" in cli("config", "paths").stdout
