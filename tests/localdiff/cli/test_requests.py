"""Options that several commands share reach the request, every one of them."""

from __future__ import annotations

from dataclasses import fields

import pytest
import typer

from localdiff.cli.requests import GENERATION_FIELDS, MODEL_FIELDS, generate_options, model_choice
from localdiff.commands.model_choice import ModelChoice
from localdiff.options import GenerateOptions


def context_with(**parameters: object) -> typer.Context:
    context = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None)))
    context.params = parameters
    return context


def test_a_parameter_sets_the_field_of_its_name() -> None:
    context = context_with(max_tokens=5, prompt="Hi", model="demo", max_memory="3GB", steps=9)
    assert generate_options(context, "max_tokens") == GenerateOptions(max_tokens=5)
    assert model_choice(context, "model", "max_memory") == ModelChoice(model="demo", max_memory=3_000_000_000)


def test_one_that_was_renamed_is_not_dropped() -> None:
    with pytest.raises(KeyError, match="max_tokens"):
        generate_options(context_with(limit=5), "max_tokens")


def test_the_names_are_all_fields_but_two() -> None:
    assert {*GENERATION_FIELDS, "noise", "tool_calls"} == {field.name for field in fields(GenerateOptions)}
    assert set(MODEL_FIELDS) == {field.name for field in fields(ModelChoice)}
