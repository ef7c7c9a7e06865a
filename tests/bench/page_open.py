"""`python -m tests.bench.page_open [--blocks 30]`: how large a trace's page is, and how long it takes to open.

A made-up trace with canvases of 256 positions, opened eight times in headless Chromium: seconds from the start of the
load until the page's script has drawn it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from localdiff.machine.hardware import cpu_name
from localdiff.trace.page.page import page
from tests.fakes.traces import condensed
from tests.screens.browser import Browser

OPENINGS = 8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page_open")
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--top-k", type=int, default=0)
    arguments = parser.parse_args()
    html = page(condensed(blocks=arguments.blocks, steps=arguments.steps, length=256, record_top_k=arguments.top_k))
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        file = Path(folder) / "page.html"
        file.write_text(html, encoding="utf-8")
        browser.look()
        seconds = [browser.open(file) for _ in range(OPENINGS)]
    print(f"{cpu_name()}; {arguments.blocks} blocks, {arguments.steps} steps, {len(html.encode()) / 1e6:.2f} MB")
    print(f"open after {min(seconds):.2f} to {max(seconds):.2f} s, median {statistics.median(seconds):.2f} s")


if __name__ == "__main__":
    main()
