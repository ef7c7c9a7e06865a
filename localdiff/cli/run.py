"""The command line of one answer: `localdiff run`.

Knows option names and help texts; computes nothing, and loads what it needs when it runs: help and completion need
none of it.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from localdiff.cli import options
from localdiff.cli.configured import GENERATING, configured, live_setting
from localdiff.cli.exits import decide_streams
from localdiff.cli.problems import is_model
from localdiff.errors import UsageError
from localdiff.identity import DEMO
from localdiff.options import GenerateOptions
from localdiff.quoting import shell_word

app = typer.Typer()


@app.command("run", cls=configured(*GENERATING))
@options.grouped
def run_command(
    context: typer.Context,
    *,
    prompt: options.PromptText = None,
    file: options.PromptFile = None,
    model: options.ModelOptions,
    answer: options.AnswerOptions,
    noise: Annotated[
        Literal["seeded", "reference"],
        typer.Option(
            help="seeded draws from the seed; reference draws exactly as the reference implementation does, "
            "in fp32 on the CPU only, to check against it.",
            rich_help_panel=options.SAMPLER,
        ),
    ] = "seeded",
    output: Annotated[
        Path | None,
        options.output_option(
            "Write the text, or the --json object, to FILE and not to stdout; FILE appears when it is complete.",
            options.OUTPUT,
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object at the end, with text and figures.", rich_help_panel=options.OUTPUT
        ),
    ] = False,
    events: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            parser=options.events_name,
            help="Write every event to FILE as a line of JSON, replacing what is there; - is stdout, which then has "
            "no text.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=options.file_name,
            help="Write a trace of the run to FILE, for `localdiff replay`, replacing a trace that is there. It "
            "contains the prompt and is readable only by its owner.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    record_top_k: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Include the N most probable tokens of every position in the trace and the events.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = 0,
    gold: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The expected answer, kept in the trace.", rich_help_panel=options.OUTPUT),
    ] = None,
    live: options.Live = None,
    palette: options.Palette = "auto",
    fps: options.Fps = 20.0,
    slow: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Wait this long after every step, for watching. The speed is not measured then.",
            rich_help_panel=options.LIVE,
        ),
    ] = 0.0,
    color: options.Color = None,
    stats: Annotated[
        bool,
        typer.Option(
            "--stats", help="Print the footer even if stderr is not a terminal.", rich_help_panel=options.OUTPUT
        ),
    ] = False,
    quiet: options.Quiet = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "-v",
            "--verbose",
            help="Print on stderr the seed, one line per block, and what is of note while the model loads: on a GPU, "
            "which path each part takes.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
) -> int:
    """Answer one prompt.

    The answer goes to stdout, everything else to stderr. Ctrl-C keeps what is finished; twice exits at once.
    """
    from localdiff.checkpoints.model_store import NoModelError
    from localdiff.commands.live import LiveOptions
    from localdiff.commands.model_choice import ModelChoice
    from localdiff.commands.prompt import NoPromptError
    from localdiff.commands.record import RecordOptions
    from localdiff.commands.run import RunRequest, run

    streams = decide_streams(context, color, quiet=quiet, verbose=verbose, stats=stats)
    if quiet and (verbose or stats):
        raise UsageError(f"`-q` and `{'-v' if verbose else '--stats'}` exclude each other", "leave out one of the two")
    if record_top_k and record is None and events is None:
        raise UsageError("`--record-top-k` has nowhere to put them", "add `--record FILE` or `--events FILE`")
    request = RunRequest(
        options=GenerateOptions(**asdict(answer), noise=noise, record_top_k=record_top_k),
        choice=ModelChoice(**asdict(model)),
        record=RecordOptions(file=record, gold=gold),
        live=LiveOptions(
            requested=live, preferred=live_setting(context), palette=palette, fps=fps, slow=slow, color=color
        ),
        prompt=prompt,
        file=file,
        output=output,
        json=json,
        events=events,
    )
    stdin = None if sys.stdin is None else sys.stdin.buffer
    try:
        return run(request, streams, stdin=stdin)
    except NoPromptError as error:
        streams.stderr.write(context.get_usage() + "\n")
        error.hint = f"{error.hint}; `localdiff chat` is for a conversation"
        raise
    except NoModelError as error:
        if prompt is not None and (prompt == "help" or is_model(prompt)):
            named = DEMO if prompt == "help" else shell_word(prompt)
            error.hint = f"`{prompt}` was taken for the prompt: `localdiff run -m {named} 'your prompt'`"
        raise
