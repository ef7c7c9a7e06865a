"""Groups of options: every option reaches the request."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Annotated

import typer
from typer.testing import CliRunner

from localdiff.cli.options import AnswerOptions, ModelOptions, grouped
from localdiff.commands.model_choice import ModelChoice
from localdiff.options import CONTEXT_SIZE, GenerateOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Two options."""

    city: str
    street: Annotated[str | None, typer.Option("-s", "--street", metavar="NAME")] = None


def test_every_field_is_an_option_in_its_place_and_comes_back_in_its_group() -> None:
    taken: list[object] = []

    @grouped
    def command(context: typer.Context, *, first: int = 1, place: Place, last: int = 2) -> int:
        taken.append((context.info_name, first, place, last))
        return 0

    app = typer.Typer(add_completion=False)
    app.command("send")(command)
    names = [parameter.name for parameter in typer.main.get_command(app).params]
    assert names == ["first", "city", "street", "last"]
    result = CliRunner().invoke(app, ["Ulm", "-s", "Am Markt", "--first", "5"])
    assert result.exit_code == 0, result.output
    assert taken == [("send", 5, Place(city="Ulm", street="Am Markt"), 2)]


def test_the_groups_have_the_fields_of_requests_with_their_defaults() -> None:
    assert ModelChoice(**asdict(ModelOptions())) == ModelChoice()
    assert GenerateOptions(**asdict(AnswerOptions())) == GenerateOptions(context_size=CONTEXT_SIZE)
    assert {field.name for field in fields(ModelOptions)} == {field.name for field in fields(ModelChoice)}
    # `noise` is for `run`, `record_top_k` has a help text for each command, and tool calls are for programs.
    others = {"noise", "record_top_k", "tool_calls"}
    assert {field.name for field in fields(AnswerOptions)} | others == {field.name for field in fields(GenerateOptions)}
