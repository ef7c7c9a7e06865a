"""The command line of conversations: `localdiff chat`.

Knows option names and help texts; computes nothing, and loads what it needs when it runs.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from localdiff.cli import options
from localdiff.cli.configured import GENERATING, configured, live_setting, origins_of
from localdiff.cli.exits import decide_streams
from localdiff.config import is_set
from localdiff.options import GenerateOptions

app = typer.Typer()

_SESSION = "Session"


@app.command("chat", cls=configured(*GENERATING))
@options.grouped
def chat_command(
    context: typer.Context,
    *,
    resume: Annotated[
        bool, typer.Option("-c", "--continue", help="Continue the last session.", rich_help_panel=_SESSION)
    ] = False,
    session: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Continue the session of this name, or start it.", rich_help_panel=_SESSION),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the saved sessions, and start no chat.", rich_help_panel=_SESSION)
    ] = False,
    no_history: Annotated[
        bool,
        typer.Option(
            "--no-history",
            help="Save neither what is typed nor the answers, unless asked to: by /save, /trace, --record, or a /copy "
            "that the terminal's clipboard cannot take. LOCALDIFF_NO_HISTORY=1 does the same.",
            rich_help_panel=_SESSION,
        ),
    ] = False,
    no_markdown: Annotated[
        bool,
        typer.Option("--no-markdown", help="Show answers without rendering Markdown.", rich_help_panel=options.OUTPUT),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=options.file_name,
            help="Write a trace of the latest answer to FILE as it is generated, for `localdiff replay`, replacing a "
            "trace that is there. It contains the conversation and is readable only by its owner.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    record_top_k: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Include the N most probable tokens of every position in traces.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = 0,
    color: options.Color = None,
    model: options.ModelOptions,
    answer: options.AnswerOptions,
    live: options.Live = None,
    palette: options.Palette = "auto",
    fps: options.Fps = 20.0,
) -> int:
    """Talk to a model.

    Every turn is saved automatically; -c continues the last session. Ctrl-C stops a reply. In the chat, /help lists
    keys and commands.
    """
    from localdiff.chat.settings import DisplaySettings
    from localdiff.commands.chat.command import chat, list_sessions
    from localdiff.commands.chat.request import TYPED, ChatRequest
    from localdiff.commands.live import LiveOptions
    from localdiff.commands.model_choice import ModelChoice
    from localdiff.commands.record import RecordOptions

    streams = decide_streams(context, color)
    if list_:
        return list_sessions(streams)
    preferred = live_setting(context)
    request = ChatRequest(
        options=GenerateOptions(**asdict(answer), record_top_k=record_top_k),
        choice=ModelChoice(**asdict(model)),
        live=LiveOptions(requested=live, preferred=preferred, palette=palette, fps=fps, color=color),
        display=DisplaySettings(
            live=live or preferred or "auto", think="show" if answer.think else "off", markdown=not no_markdown
        ),
        origins=origins_of(context, typed=TYPED) | ({"markdown": TYPED} if no_markdown else {}),
        resume=resume,
        session=session,
        record=RecordOptions(file=record),
        private=no_history or is_set("LOCALDIFF_NO_HISTORY"),
    )
    stdin = None if sys.stdin is None else sys.stdin.buffer
    return chat(request, streams, stdin=stdin)
