"""The real command line with a scripted engine, as a process: `python -m tests.scripted_cli SCRIPT ARGUMENTS…`.

SCRIPT is a JSON object: fields of `ScriptedEngine`, with blocks as objects, whose text is repeated `times` times.
"""

from __future__ import annotations

import functools
import json
import sys

from localdiff import cli
from localdiff.commands.run import run
from tests.fakes import Block, ScriptedEngine


def main() -> None:
    script = json.loads(sys.argv[1])
    blocks = tuple(
        Block(text=block.pop("text", "") * block.pop("times", 1), **block)
        for block in script.pop("blocks", [{"text": "Hello."}])
    )
    engine = ScriptedEngine(blocks=blocks, **script)
    cli.run = functools.partial(run, load=lambda _request: engine)
    cli.main(sys.argv[2:])


if __name__ == "__main__":
    main()
