"""The command line of measurements: `localdiff bench …` and `localdiff tune`.

Knows option names and help texts; computes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from localdiff.cli import options
from localdiff.cli.configured import configured
from localdiff.cli.exits import decide_streams
from localdiff.cli.help import Group
from localdiff.commands.bench_quality import QualityRequest, bench_quality
from localdiff.commands.bench_step import StepRequest, bench_step
from localdiff.commands.model_choice import ModelChoice
from localdiff.commands.tune import TUNED_LAYERS, tune_tiles
from localdiff.options import ANSWER_SIZE, CONTEXT_SIZE, GenerateOptions
from quant import DEFAULT_RECIPE

app = typer.Typer()
bench = typer.Typer(name="bench", cls=Group, help="Measure speed and quality on this machine.")
app.add_typer(bench)

_QUESTIONS = "Questions"
_MEASUREMENT = "Measurement"

_CacheSize: TypeAlias = Annotated[
    int,
    typer.Option("--context", metavar="N", help="Tokens in the cache before the canvas.", rich_help_panel=_MEASUREMENT),
]


@bench.command("step", cls=configured("device", "dtype", "activations"))
def step_command(
    context: typer.Context,
    model: Annotated[
        str | None, options.model_option("Measure this model, named as for run. Default: random weights.")
    ] = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    yes: options.Yes = False,
    random_weights: Annotated[
        bool,
        typer.Option(
            "--random-weights",
            help="Measure random weights of the released model's shape; needs no download.",
            rich_help_panel=options.MODEL,
        ),
    ] = False,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help=f"How random weights are stored; {DEFAULT_RECIPE} by default.",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Make only the first N of the 30 layers of random weights, at least 6, and estimate all times for 30. "
            "It takes less memory, and the result says so.",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    device: options.Device = "auto",
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="Type to compute in: auto, bf16 or fp32.", rich_help_panel=options.MODEL)
    ] = "auto",
    activations: options.Activations = "auto",
    context_size: _CacheSize = 1024,
    steps: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Denoise steps to time, after 2 that are not counted, or 32 where a GPU replays them.",
            rich_help_panel=_MEASUREMENT,
        ),
    ] = 16,
    json: Annotated[
        bool, typer.Option("--json", help="Print only the line of JSON.", rich_help_panel=options.OUTPUT)
    ] = False,
    quiet: options.Quiet = False,
) -> int:
    """Time one denoise step, and show where the time goes.

    Prints the time of every part of a step next to the best that this machine can do, tokens per second at several
    numbers of steps, prefill, memory and load time. In a pipe or a file, a line of JSON comes last.
    """
    streams = decide_streams(context, quiet=quiet)
    request = StepRequest(
        choice=ModelChoice(
            model=model,
            revision=revision,
            offline=offline,
            yes=yes,
            device=device,
            dtype=dtype,
            activations=activations,
        ),
        random_weights=random_weights,
        recipe=recipe,
        context=context_size,
        steps=steps,
        layers=layers,
        json=json,
    )
    return bench_step(request, streams)


@bench.command("quality", cls=configured("device", "dtype", "activations", "max_memory"))
def quality_command(
    context: typer.Context,
    first: Annotated[str, typer.Argument(metavar="A", help="The model that the others are compared with.")],
    others: Annotated[list[str], typer.Argument(metavar="B", help="One or more others. All are named as for run.")],
    skill: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Ask about this skill of the demo model, which has right answers; may be given several times. "
            "All skills by default.",
            rich_help_panel=_QUESTIONS,
        ),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Ask the prompts in FILE instead, one per line; the answers are not scored then.",
            rich_help_panel=_QUESTIONS,
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            metavar="N", help="Maximum number of questions per skill, or from the file.", rich_help_panel=_QUESTIONS
        ),
    ] = 100,
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="How many times to ask each question, each time with different noise.",
            rich_help_panel=_QUESTIONS,
        ),
    ] = 5,
    seed: Annotated[
        int, typer.Option(metavar="N", help="The first seed; the others follow it.", rich_help_panel=_QUESTIONS)
    ] = 0,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of tokens of an answer.", rich_help_panel=_QUESTIONS)
    ] = ANSWER_SIZE,
    context_size: Annotated[
        int,
        typer.Option(
            "--context", metavar="N", help="Maximum tokens of prompt and answer together.", rich_help_panel=_QUESTIONS
        ),
    ] = CONTEXT_SIZE,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    activations: options.Activations = "auto",
    max_memory: options.MaxMemory = None,
    offline: options.Offline = False,
    yes: options.Yes = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print a line of JSON for each B instead of the tables.", rich_help_panel=options.OUTPUT
        ),
    ] = False,
    quiet: options.Quiet = False,
) -> int:
    """Compare the answers of models with those of the first: same prompts, same noise.

    For each skill: how many answers are right, how many denoise steps a block takes, how much the predictions of single
    steps differ where both models see the same canvas (Kullback-Leibler divergence in nats per position, and how often
    the most probable id is the same), and how often the whole answer is the same. Differences are paired by question; ±
    is half of a 95 % interval, or ? where there is none: with fewer than ten questions, or values that never differ.
    One model is loaded at a time.
    """
    streams = decide_streams(context, quiet=quiet)
    request = QualityRequest(
        models=(first, *others),
        skills=tuple(skill or ()),
        count=count,
        prompts=prompts,
        seeds=seeds,
        options=GenerateOptions(max_tokens=max_tokens, context_size=context_size, seed=seed),
        choice=ModelChoice(
            offline=offline, yes=yes, device=device, dtype=dtype, activations=activations, max_memory=max_memory
        ),
        json=json,
    )
    return bench_quality(request, streams)


@app.command("tune", cls=configured("device", "activations"))
def tune_command(
    context: typer.Context,
    recipe: Annotated[
        str, typer.Option(metavar="RECIPE", help="How the random weights are stored.", rich_help_panel=options.MODEL)
    ] = DEFAULT_RECIPE,
    device: options.Device = "auto",
    activations: options.Activations = "auto",
    layers: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Layers of random weights, at least 6; fewer take less memory.",
            rich_help_panel=options.MODEL,
        ),
    ] = TUNED_LAYERS,
    context_size: _CacheSize = 1024,
    minutes: Annotated[
        float,
        typer.Option(
            metavar="N",
            help="Start nothing new after this many minutes; run the same command again to continue.",
            rich_help_panel=_MEASUREMENT,
        ),
    ] = 20.0,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="Delete what was found for this GPU, by an unfinished search, too, and time nothing.",
            rich_help_panel=_MEASUREMENT,
        ),
    ] = False,
    quiet: options.Quiet = False,
) -> int:
    """Time the GPU kernels in other shapes, and keep those that make this GPU faster.

    Takes random weights of the released size, so nothing is downloaded. Every shape is timed in whole steps; those
    that save time are compared with the plain path, and models loaded on this GPU take them from then on. After an
    interruption, the same command continues where it stopped.
    """
    return tune_tiles(
        decide_streams(context, quiet=quiet),
        device=device,
        recipe=recipe,
        activations=activations,
        context=context_size,
        layers=layers,
        minutes=minutes,
        forgets=forget,
    )
