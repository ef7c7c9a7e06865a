"""`python -m tests.bench.quality_table [--write]`: what each number format costs the demo model in answers.

Writes the variants of `tests.bench.quality_variants`, compares each with the bf16 weights as `localdiff bench quality`
does, and prints a table for each variant and the one of `docs/quantization.md`; `--write` puts that one into the page.
The questions are shared out over processes with one thread each, and every process runs the passes of several runs as
one (`tests.bench.batching`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from localdiff.bench.quality.comparison import WALKS, Comparison, Row, compare, tabulate
from localdiff.bench.quality.questions import Question, skill_questions
from localdiff.bench.quality.report import table, with_margin
from localdiff.demo.skills import SKILLS
from localdiff.engine import Engine
from localdiff.fetching.source import find_source
from localdiff.identity import DEMO
from localdiff.options import GenerateOptions
from quant.jobs.pool import available_workers
from tests.bench.batching import run_batched
from tests.bench.quality_variants import write_variants

PAGE = Path(__file__).parents[2] / "docs" / "quantization.md"
HEAD = (
    "| weights | score | change | steps per block | change | divergence | same draft | same answer |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)
LABELS = {
    "int8": "`int8`",
    "mixed": "`mixed`",
    "4bit": "`4bit`",
    "4bit-nf4": "`4bit` with nf4 experts in all layers",
    "4bit-small": "`4bit-small`",
    "absmax-nf4": "bitsandbytes' absmax NF4 on everything",
}
"""Directory of a variant → its name in the table."""
LONGEST = 512
"""Most tokens of an answer: the longest answer that the demo model was trained on has 418."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What one process does: every `processes`-th question, from `number` on.

    Attributes:
        folder: where the variants are.
    """

    number: int
    processes: int
    model: str
    folder: str
    variants: tuple[str, ...]
    skills: tuple[str, ...]
    count: int
    seeds: int
    width: int

    @property
    def questions(self) -> list[Question]:
        """Its questions."""
        return skill_questions(self.skills, self.count)[self.number :: self.processes]


def work(share: Share) -> list[Comparison]:
    """Compare every variant with the model."""
    load = partial(Engine.load, device="cpu")
    return list(
        compare(
            partial(load, share.model),
            [partial(load, str(Path(share.folder, name))) for name in share.variants],
            share.questions,
            [GenerateOptions(seed=seed, max_tokens=LONGEST) for seed in range(share.seeds)],
            _teller(share.number),
            walks=-(-WALKS // share.processes),
            runner=partial(run_batched, width=share.width),
        )
    )


def merged(shares: Sequence[Share], parts: Sequence[Comparison]) -> Comparison:
    """The shares of one comparison put together."""
    groups = [question.group for share in shares for question in share.questions]
    pairs = [pair for part in parts for pair in part.pairs]
    return replace(parts[0], pairs=pairs, rows=tabulate(groups, pairs))


def page_table(rows: Mapping[str, Row]) -> list[str]:
    """The lines of the table; `rows` has for each variant its row over all questions."""
    first = next(iter(rows.values()))
    own = [_percent(first.score.mean) if first.score else "", "", f"{first.steps.mean:.2f}", *[""] * 4]
    cells = [["`bf16`", *own], *([LABELS[name], *_cells(row)] for name, row in rows.items())]
    return [*HEAD, *(f"| {' | '.join(line)} |" for line in cells)]


def with_table(page: str, lines: Sequence[str], measured: str) -> str:
    """The page with new lines in place of the table under `HEAD`, and a sentence after it on how it was measured."""
    old = page.splitlines()
    start = old.index(HEAD[0])
    end = old.index("", start)
    if old[end + 1].startswith("Measured with "):
        end = old.index("", end + 1)
    wrapped = textwrap.wrap(measured, 120, break_on_hyphens=False)
    return "\n".join([*old[:start], *lines, "", *wrapped, *old[end:]]) + "\n"


def _cells(row: Row) -> list[str]:
    score = "" if row.score is None or row.score_change is None else _percent(row.score.mean + row.score_change.mean)
    change = row.score_change.scaled(100) if row.score_change else None
    steps = row.steps_change.scaled(100)
    return [
        score,
        "" if change is None else with_margin(change, "+.1f"),
        f"{row.steps.mean * (1 + row.steps_change.mean):.2f}",
        f"{with_margin(steps, '+.1f')} %",
        with_margin(row.divergence, ".4f"),
        _percent(row.agreement.mean),
        _percent(row.same.mean),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _teller(number: int) -> Callable[[str], None]:
    told = 0.0

    def tell(words: str) -> None:
        nonlocal told
        if time.monotonic() > told + 30:
            told = time.monotonic()
            print(f"[{number}] {words}", file=sys.stderr, flush=True)

    return tell


def main() -> None:
    """Measure, print, and perhaps write."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.quality_table", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=DEMO)
    parser.add_argument("--skills", nargs="+", choices=sorted(SKILLS), default=list(SKILLS))
    parser.add_argument("--count", type=int, default=100, help="prompts of each skill")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--variants", nargs="+", choices=list(LABELS), default=list(LABELS))
    parser.add_argument("--processes", type=int, default=available_workers(torch.device("cpu")))
    parser.add_argument("--width", type=int, default=16, help="runs that share their passes")
    parser.add_argument("--write", action="store_true", help="put the table into docs/quantization.md")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        write_variants(find_source(arguments.model).directory, Path(folder))
        shares = [
            Share(
                number=number,
                processes=arguments.processes,
                model=arguments.model,
                folder=folder,
                variants=tuple(arguments.variants),
                skills=tuple(arguments.skills),
                count=arguments.count,
                seeds=arguments.seeds,
                width=arguments.width,
            )
            for number in range(arguments.processes)
        ]
        with ProcessPoolExecutor(
            arguments.processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=torch.set_num_threads,
            initargs=(1,),
        ) as pool:
            found = list(pool.map(work, shares))
    rows = {}
    for name, *parts in zip(arguments.variants, *found, strict=True):
        comparison = merged(shares, parts)
        rows[name] = comparison.rows[-1]
        print(f"{name}: {table(comparison)}\n")
    everything = next(iter(rows.values()))
    measured = (
        f"Measured with `python -m tests.bench.quality_table`: {everything.questions} prompts of "
        f"{len(arguments.skills)} skills, {arguments.seeds} seeds each, "
        f"{comparison.second.dtype} on {comparison.hardware}, "
        f"{arguments.processes} such processes, {(time.monotonic() - began) / 60:.0f} minutes."
    )
    lines = page_table(rows)
    print("\n".join([*lines, "", measured]))
    if arguments.write:
        PAGE.write_text(with_table(PAGE.read_text(), lines, measured))


if __name__ == "__main__":
    main()
