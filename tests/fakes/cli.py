"""The real command line with a scripted engine, as a process: `python -m tests.fakes.cli SCRIPT ARGUMENTS…`.

SCRIPT is a JSON object. It has fields of `ScriptedEngine`, with blocks as objects whose text is repeated `times` times,
and `error` as a message. Or, if it has `canvas`, fields of `CanvasPlayer`. Or, if it has `replies`, fields of
`ScriptedChatModel` for a chat, and in `loading` the seconds that loading takes, or a file that it waits for. Always:
`patience`, seconds within which a second Ctrl-C no longer waits, and `printed`, a file: a canvas that has stepped aside
for a text comes back once the file has that text.
To look at the live canvas without a model:

    python -m tests.fakes.cli '{"canvas": "latin", "length": 256, "rate": 4}' run -m demo hi
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, cast

from localdiff import cli

if TYPE_CHECKING:
    from localdiff.engine import Engine

PATIENCE = 600.0
"""Seconds; longer than any test waits."""


def engine_of(script: dict[str, object]) -> Engine:
    """The engine that a script describes."""
    if "canvas" in script:
        from tests.fakes.player import CanvasPlayer

        return CanvasPlayer(**script)  # type: ignore[arg-type, return-value]  # its runs are never recorded
    from localdiff.errors import ResourceError
    from tests.fakes.engine import Block, ScriptedEngine

    described = script.pop("blocks", [{"text": "Hello."}])
    assert isinstance(described, list)
    blocks = tuple(Block(text=block.pop("text", "") * block.pop("times", 1), **block) for block in described)
    if "error" in script:
        script["error"] = ResourceError(str(script["error"]))
    return cast(Any, ScriptedEngine(blocks=blocks, **script))  # type: ignore[arg-type]


def script_chat(script: dict[str, object]) -> None:
    """Has the model that a script describes answer a chat."""
    from localdiff.commands.chat import command
    from tests.fakes.chat_model import chat_model_of

    loading = script.pop("loading", 0.0)
    model = chat_model_of(script)

    def load(_request: object, _progress: object) -> Any:
        if isinstance(loading, str):
            while not os.path.exists(loading):
                time.sleep(0.01)
        else:
            time.sleep(loading)  # type: ignore[arg-type]
        return model

    command.load_chat_model = load


def script_run(script: dict[str, object]) -> None:
    """Has the engine that a script describes answer a run."""
    from localdiff.commands import run

    engine = engine_of(script)
    run.load_engine = lambda _request, _progress: engine


def step_aside_until(printed: str) -> None:
    """Has a canvas step aside until the reader of a text has printed it, however long that takes.

    Without this the canvas would give up waiting for the terminal after a moment, and come back after another one.
    """
    from localdiff.commands import live as commands_live
    from localdiff.ui import live
    from localdiff.ui.terminal import takes_output

    live._NAP_SECONDS = PATIENCE
    live.takes_output = functools.partial(takes_output, patience=PATIENCE)  # type: ignore[attr-defined]
    view = functools.partial(live.LiveView, clock=lambda: os.path.getsize(printed))
    commands_live.LiveView = view  # type: ignore[attr-defined]


def main() -> None:
    """Imports no more than the command does, because hundreds of tests start this."""
    script = json.loads(sys.argv[1])
    if "patience" in script:
        from localdiff.chat import loop
        from localdiff.ui import interrupt

        loop._PATIENCE = interrupt.IMPATIENCE = script.pop("patience")
    if "printed" in script:
        step_aside_until(script["printed"] if "canvas" in script else script.pop("printed"))
    (script_chat if "replies" in script else script_run)(script)
    cli.main(sys.argv[2:])


if __name__ == "__main__":
    main()
