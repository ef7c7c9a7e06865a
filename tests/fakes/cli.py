"""The real command line with a scripted engine, as a process: `python -m tests.fakes.cli SCRIPT ARGUMENTS…`.

SCRIPT is a JSON object: fields of `ScriptedEngine`, with blocks as objects, whose text is repeated `times` times, and
an error as its message; or, where it says `canvas`, fields of `CanvasPlayer`; or, where it says `replies`, fields of
`ScriptedChatModel` for a chat, and how many seconds `loading` takes.
To look at the live canvas without a model:

    python -m tests.fakes.cli '{"canvas": "latin", "length": 256, "rate": 4}' run -m demo hi
"""

from __future__ import annotations

import functools
import json
import sys
import time

from localdiff import cli
from localdiff.commands import run as commands_run
from localdiff.commands.chat import command as commands_chat
from localdiff.commands.chat.command import chat
from localdiff.commands.run import GeneratingEngine, run
from localdiff.errors import ResourceError
from tests.fakes.chat_model import ScriptedChatModel, chat_model_of
from tests.fakes.engine import Block, ScriptedEngine
from tests.fakes.player import CanvasPlayer


def engine_of(script: dict[str, object]) -> GeneratingEngine:
    """The engine that a script describes."""
    if "canvas" in script:
        return CanvasPlayer(**script)  # type: ignore[arg-type, return-value]  # it is never recorded
    described = script.pop("blocks", [{"text": "Hello."}])
    assert isinstance(described, list)
    blocks = tuple(Block(text=block.pop("text", "") * block.pop("times", 1), **block) for block in described)
    if "error" in script:
        script["error"] = ResourceError(str(script["error"]))
    return ScriptedEngine(blocks=blocks, **script)  # type: ignore[arg-type]


def main() -> None:
    script = json.loads(sys.argv[1])
    if "replies" in script:
        loading = script.pop("loading", 0.0)
        model = chat_model_of(script)

        def load(_request: object, _progress: object) -> ScriptedChatModel:
            time.sleep(loading)
            return model

        commands_chat.chat = functools.partial(chat, load=load)
    else:
        engine = engine_of(script)
        commands_run.run = functools.partial(run, load=lambda _request, _progress: engine)
    cli.main(sys.argv[2:])


if __name__ == "__main__":
    main()
