"""Plays a scripted run in the terminal at hand: what the live canvas looks like, without a model.

    python -m tests.bench.live_demo [--script latin|cjk|emoji|hostile] [--palette dark] [--rate 8] [--line] …

Run it in windows of several sizes, resize them meanwhile, press Ctrl-Z, kill it: the screen has to be clean afterwards.
With stdout in a file or a pipe the text goes there, exact, and the canvas stays on stderr.
"""

from __future__ import annotations

import argparse
import sys
import time

from localdiff.events import DenoiseStep, TextCommitted
from localdiff.ui.live import LiveView
from localdiff.ui.terminal import is_same_terminal, live_mode
from localdiff.view.palette import PALETTE_NAMES
from tests.fakes_canvas import SCRIPTS, Script


def main() -> None:
    """Parse options and play."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", choices=SCRIPTS, default="latin")
    parser.add_argument("--palette", choices=PALETTE_NAMES, default="auto")
    parser.add_argument("--canvas", type=int, default=128, help="positions in a canvas")
    parser.add_argument("--rate", type=float, default=8.0, help="denoise steps a second")
    parser.add_argument("--fps", type=float, default=20.0)
    parser.add_argument("--stop-at", type=int, default=0, help="hold still for good after so many steps")
    parser.add_argument("--repeat", type=int, default=1, help="times that the text is repeated")
    parser.add_argument("--line", action="store_true", help="one status line")
    parser.add_argument("--slow", type=float, default=0.0)
    options = parser.parse_args()
    mode = live_mode("line" if options.line else "on", stream=sys.stderr, env={})
    script = Script(text=SCRIPTS[options.script] * options.repeat, canvas=options.canvas, steps_per_second=options.rate)
    steps = 0
    if mode == "off":
        sys.exit("stderr should be a terminal")
    is_one_screen = is_same_terminal(sys.stdout, sys.stderr)
    with LiveView(
        stream=sys.stderr,
        piece_of=script.vocabulary.piece,
        is_special=script.vocabulary.is_special,
        prints_text=is_one_screen,
        mode=mode,
        palette=options.palette,
        fps=options.fps,
        slow=options.slow,
        keyboard=sys.stdin,
    ) as live:
        for event in script.events():
            live.on_event(event)
            if isinstance(event, TextCommitted) and not is_one_screen:
                sys.stdout.write(event.text)
                sys.stdout.flush()
            if isinstance(event, DenoiseStep):
                steps += 1
                time.sleep(1e6 if steps == options.stop_at else 1 / options.rate)


if __name__ == "__main__":
    main()
