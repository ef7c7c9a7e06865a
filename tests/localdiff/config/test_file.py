"""`config.toml`: the line of every entry, and a message for everything that can be wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localdiff.config.file import line_of, read_file
from localdiff.errors import UsageError

WHOLE = '''\
# my settings
model = "demo"
context = 4096

[generate]
steps = 32       # fewer
system = """
[ui]
live = "on"
"""

"t_min" = 0.3
[ui]
live = "off"
'''


def read(tmp_path: Path, text: str) -> dict[str, tuple[object, int]]:
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode())
    entries = read_file(path, "config.toml")
    return {name: (entry.value, int(entry.where.removeprefix("config.toml:"))) for name, entry in entries.items()}


def test_entries_and_their_lines(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE) == {
        "model": ("demo", 2),
        "context": (4096, 3),
        "generate.steps": (32, 6),
        "generate.system": ('[ui]\nlive = "on"\n', 7),
        "generate.t_min": (0.3, 12),
        "ui.live": ("off", 14),
    }


def test_other_ways_to_write_the_same(tmp_path: Path) -> None:
    assert read(tmp_path, 'generate.steps = 8\r\nui = { live = "line", fps = 5 }\r\n') == {
        "generate.steps": (8, 1),
        "ui.live": ("line", 2),
        "ui.fps": (5, 2),
    }
    assert read(tmp_path, "\ufeffcontext = 100") == {"context": (100, 1)}
    assert read(tmp_path, "") == {}


@pytest.mark.parametrize("text", ["[xyzzy]\n# steps = 4\n", "[xyzzy.inner]", "xyzzy = {}", "[generate.xyzzy]", "[ui]"])
def test_a_table_without_a_key_sets_nothing(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == {}


def test_no_file_is_no_settings(tmp_path: Path) -> None:
    assert read_file(tmp_path / "config.toml", "config.toml") == {}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("contxt = 1", "config.toml:1: there is no setting `contxt`", "did you mean `context`?"),
        ("\n[generate]\nstep = 1", "config.toml:3: there is no setting `step` in [generate]", "did you mean `steps`?"),
        ("steps = 1", "config.toml:1: there is no setting `steps`", "`steps` belongs under [generate]"),
        ("[ui]\nmodel = 'm'", "config.toml:2: there is no setting `model` in [ui]", "`model` belongs above the first"),
        (
            "entropybound = 1",
            "config.toml:1: there is no setting `entropybound`",
            "did you mean `generate.entropy_bound`",
        ),
        ("[ui]\nmodle = 1", "config.toml:2: there is no setting `modle` in [ui]", "did you mean `model`, above the"),
        ("xyzzy = 1", "config.toml:1: there is no setting `xyzzy`", "`localdiff config unset xyzzy` removes it"),
        ("'x y' = 1", "config.toml:1: there is no setting `x y`", "remove it in an editor"),
        ("'ui.x' = 1", "config.toml:1: there is no setting `ui.x`", "remove it in an editor"),
        ("\n\n[generat]\nsteps = 1", "config.toml:3: there is no table `[generat]`", "did you mean `[generate]`?"),
        ("[xyzzy]\na = 1", "config.toml:1: there is no table `[xyzzy]`", "the tables are [generate] and [ui]"),
        (
            "[generate.xyzzy]\nsteps = 1",
            "config.toml:1: there is no setting `xyzzy` in [generate]",
            "`localdiff config unset generate.xyzzy` removes it",
        ),
        (
            "generate = 3",
            "config.toml:1: `generate` is a table, not a setting",
            "write `[generate]` on a line of its own",
        ),
        ("[[ui]]\nfps = 3", "config.toml:1: `ui` is a table, not a setting", "write `[ui]` on a line of its own"),
        ("[ui]\nfps = true", "config.toml:2: fps=true must be a number", "what it sets: maximum frames per second"),
        (
            "context = '8k'",
            "config.toml:1: context='8k' must be a whole number",
            "what it sets: maximum tokens of prompt",
        ),
        (
            "a = 1\na = 2\n",
            "config.toml is not TOML: cannot overwrite a value (at line 2, column 6)",
            "a setting may be there only once",
        ),
        (
            "[ui]\n[ui]\n",
            "config.toml is not TOML: cannot declare `[ui]` twice (at line 2, column 4)",
            "a `[table]` may be there only once",
        ),
        (
            "ui.fps = 1\n[ui]\n",
            "config.toml is not TOML: cannot declare `[ui]` twice (at line 2, column 4)",
            "a `[table]` may be there only once, and not beside a line of `table.key = VALUE`",
        ),
        ("model = 2026-01-01", "config.toml:1: model=2026-01-01 must be text in quotes", "what it sets"),
        ("model = 07:32:00", "config.toml:1: model=07:32:00 must be text in quotes", "what it sets"),
        (
            "live off",
            "config.toml is not TOML: expected '=' after a key in a key/value pair (at line 1, column 6)",
            "a setting is one line of `KEY = VALUE`",
        ),
        ("[ui]\nfps = 1" + 400 * "0", f"config.toml:2: fps={10**400} must be a finite number >= 0.1", "what it sets"),
        ("live = off", "config.toml is not TOML: invalid value (at line 1, column 8)", "text needs quotes"),
    ],
    ids=lambda text: text[:40],
)
def test_what_can_be_wrong(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert caught.value.message == message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config.toml cannot be read: Is a directory"):
        read_file(tmp_path, "config.toml")
    path = tmp_path / "config.toml"
    path.write_bytes(b"model = '\xff'")
    with pytest.raises(UsageError, match="not text in UTF-8"):
        read_file(path, "config.toml")


_VALUES = st.sampled_from(["1", '"text"', '"""a\n# b\n[c]\nk0 = 1"""', "'''\n\n'''", "[1,\n  2, # two\n]", "{ a = 1 }"])


@given(values=st.lists(_VALUES, min_size=1, max_size=8), gaps=st.lists(st.sampled_from(["", "\n", "# k1 = 2\n"])))
def test_the_line_is_the_one_on_which_the_key_was_written(values: list[str], gaps: list[str]) -> None:
    text, lines = "", []
    for number, value in enumerate(values):
        text += gaps[number] if number < len(gaps) else ""
        lines.append(text.count("\n") + 1)
        text += f"k{number} = {value}\n"
    assert [line_of(text, (f"k{number}",)) for number in range(len(values))] == lines
