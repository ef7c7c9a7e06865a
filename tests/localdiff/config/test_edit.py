"""Changes of `config.toml` as text: the setting changes, and nothing else does."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localdiff.config.edit import edited
from localdiff.config.keys import Value
from localdiff.errors import UsageError

FILE = """\
# my settings
model = "demo"  # the small one

# how it generates
[generate]
steps = 32 # not too many
system = '''
Be # brief.
'''  # why not
"""


@pytest.mark.parametrize(
    ("name", "value", "old", "new"),
    [
        ("generate.steps", 16, "steps = 32 # not", "steps = 16 # not"),
        ("generate.system", 'a "b" # c', "'''\nBe # brief.\n'''  # why", '"a \\"b\\" # c"  # why'),
        ("model", "é\n", '"demo"  # the', '"é\\n"  # the'),
        ("context", 99, "# the small one\n", "# the small one\ncontext = 99\n"),
        ("generate.think", True, "# why not\n", "# why not\nthink = true\n"),
        ("ui.fps", 3.5, "# why not\n", "# why not\n\n[ui]\nfps = 3.5\n"),
        ("generate.steps", None, "steps = 32 # not too many\n", ""),
        ("model", None, 'model = "demo"  # the small one\n', ""),
        ("generate.seed", None, "", ""),
    ],
)
def test_one_statement_changes(name: str, value: Value | None, old: str, new: str) -> None:
    assert edited(FILE, name, value) == FILE.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "name", "result"),
    [
        ("", "model", 'model = "x"\n'),
        ("", "ui.palette", '[ui]\npalette = "x"\n'),
        ("# mine", "model", '# mine\nmodel = "x"\n'),
        ("[ui]", "model", 'model = "x"\n\n[ui]\n'),
        ("# mine\n\n# look\n[ui]\n", "model", '# mine\n\nmodel = "x"\n\n# look\n[ui]\n'),
        ("ui.fps = 1\n[generate]\n", "model", 'ui.fps = 1\nmodel = "x"\n[generate]\n'),
        ("# look\n[ui]\nfps = 3\n[generate]\n", "model", 'model = "x"\n\n# look\n[ui]\nfps = 3\n[generate]\n'),
        ("[generate]\n[ui]\nfps = 3\n", "generate.system", '[generate]\nsystem = "x"\n[ui]\nfps = 3\n'),
        ("generate.system = 1\n", "generate.system", 'generate.system = "x"\n'),
        ("ui.fps = 1\n# look\n[generate]\n", "ui.color", 'ui.fps = 1\nui.color = "x"\n# look\n[generate]\n'),
        ("[ui]\nfps = 3\n\n# look\n[generate]\n", "ui.palette", '[ui]\nfps = 3\npalette = "x"\n\n# look\n[generate]\n'),
        ("generate = { system = 'a' } # here\n", "generate.system", 'generate = { system = "x" } # here\n'),
        ("generate = {}\n", "generate.system", 'generate = {system = "x"}\n'),
        ("context = 1\r\n[ui]\r\n", "model", 'context = 1\r\nmodel = "x"\r\n[ui]\r\n'),
        ("[ui]\r\nfps = 3\r\n", "generate.system", '[ui]\r\nfps = 3\r\n\r\n[generate]\r\nsystem = "x"\r\n'),
        ("# mine\n[ui]\r\n", "ui.palette", '# mine\n[ui]\r\npalette = "x"\n'),
    ],
)
def test_where_a_setting_goes(text: str, name: str, result: str) -> None:
    assert edited(text, name, "x") == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("generate.steps = 1\n", ""),
        ("generate.steps = 1\ncontext = 9\ngenerate.cap = 2\n", "context = 9\ngenerate.cap = 2\n"),
        ("generate = { steps = 1, cap = 2 } # here\n", "generate = {  cap = 2 } # here\n"),
        ("[generate]\r\nsteps = '''\r\n'''\r\n# here\r\n", "[generate]\r\n# here\r\n"),
    ],
)
def test_a_setting_is_taken_out_of_every_kind_of_table(text: str, result: str) -> None:
    assert edited(text, "generate.steps", None) == result


@pytest.mark.parametrize("value", ["x", None])
@pytest.mark.parametrize("text", ["generate = 3\n", "[[generate]]\nsystem = 'a'\n"])
def test_what_is_not_a_table_is_refused(text: str, value: Value | None) -> None:
    with pytest.raises(UsageError, match="`generate.system` cannot be changed"):
        edited(text, "generate.system", value)


@pytest.mark.parametrize("text", ["[ui.fps]\nx = 1\n", "[[ui.fps]]\n", "[ui]\nfps.x = 1\nfps.y = 2\n", "[model]\n"])
def test_a_setting_does_not_replace_a_table(text: str) -> None:
    name = "model" if "model" in text else "ui.fps"
    with pytest.raises(UsageError, match=f"`{name}` cannot be changed"):
        edited(text, name, 10)
    assert tomllib.loads(edited(text, name, None)) in ({}, {"ui": {}})


_VALUES = st.sampled_from(["1", '"#"', '"""a\n# b\n[c]\nk0 = 1"""', "'''\n#\n'''", "[1,\n  2, # two\n]", "{ a = 1 }"])


@given(
    values=st.lists(_VALUES, min_size=1, max_size=6),
    comments=st.lists(st.sampled_from(["", " # k1 = 2", "#"]), min_size=6, max_size=6),
    number=st.integers(0, 7),
    value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(-9, 9), st.text()),
)
def test_all_others_stay(values: list[str], comments: list[str], number: int, value: Value | None) -> None:
    lines = [f"k{at} = {text}{comments[at]}\n" for at, text in enumerate(values)]
    before = "".join(lines)
    try:
        after = edited(before, f"k{number}", value)
    except UsageError:
        assert number < len(values)
        assert values[number].startswith("{")
        return
    content = tomllib.loads(before) | {f"k{number}": value}
    assert tomllib.loads(after) == {name: found for name, found in content.items() if found is not None}
    assert all(line in after for at, line in enumerate(lines) if at != number)
    if value is not None and number < len(values):
        assert comments[number] in after
