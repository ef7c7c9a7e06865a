"""What was measured on a card: a line of JSON per measurement, on disk at once; and the tables made of these lines.

    python -m tests.bench.gpu_results results.jsonl      the tables of docs/performance.md

A process that is killed leaves what it has measured, and what is in the file is not measured again on the same card
with the same torch, Triton and commit. Tables are made on any machine, without torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.gpu_card import card

SWITCHES = "LOCALDIFF_CUDA_"
CHOSEN = "chosen"
"""Stands in place of a tile: the tile that a step takes."""
SHORT = 60
"""Characters of a kernel's name that are shown: names of torch's templates have hundreds."""
_KEYS = ("part", "recipe", "context", "steps", "vram_limit", "way", "product", "name", "tile", "switches")
"""What tells one measurement from another on the same card."""
_CARD = ("gpu", "torch", "triton", "commit")
"""The keys of `card`."""


class Results:
    """Measurements as lines of a file; without a file, nothing is kept.

    Args:
        again: whether what failed or was left out counts as not tried.
    """

    def __init__(self, path: Path | None, *, again: bool = False) -> None:
        self.path, self._again = path, again

    def add(self, key: Mapping[str, Any], **figures: Any) -> None:
        """Appends a line, which is on disk when this method returns."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            if self._is_cut():
                file.write("\n")
            file.write(json.dumps({**_here(key), **figures}, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def has(self, key: Mapping[str, Any]) -> bool:
        """Whether this was tried here, with the same switches."""
        return self.line_of(key) is not None

    def line_of(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The line of what was tried here, with the same switches; None if there is none."""
        sought = _key_of(_here(key))
        tried = (line for line in self.lines() if _key_of(line) == sought)
        return next((line for line in tried if not (self._again and _has_no_figure(line))), None)

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines of the file, without a line that was cut short by a kill."""
        if self.path is None or not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                found = json.loads(line)
            except json.JSONDecodeError:
                continue
            if isinstance(found, dict):
                yield found

    def _is_cut(self) -> bool:
        """Whether the last line has no end, as after a kill in the middle of writing it."""
        assert self.path is not None
        return self.path.exists() and self.path.read_bytes()[-1:] not in (b"", b"\n")


def _here(key: Mapping[str, Any]) -> dict[str, Any]:
    """A key with the card, the versions, and the environment variables that select code paths, if there are any."""
    switches = {name: value for name, value in sorted(os.environ.items()) if name.startswith(SWITCHES) and value}
    return {**key, **card(), **({"switches": switches} if switches else {})}


def _has_no_figure(line: Mapping[str, Any]) -> bool:
    """Whether the measurement failed, or did not fit."""
    return bool(line.get("failure") or line.get("left_out"))


def _key_of(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: line[name] for name in (*_KEYS, *_CARD) if line.get(name) is not None}


def tables(lines: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: all tables of what was measured, for each card, its versions and the commit."""
    of_card: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        of_card.setdefault(tuple(str(line.get(name) or "") for name in _CARD), []).append(line)
    made = ((_words_of_card(*names), _tables_of_card(several)) for names, several in of_card.items())
    return "\n\n".join(f"{words}\n\n{tables}".lstrip() for words, tables in made if tables)


def _words_of_card(gpu: str, torch: str, triton: str, commit: str) -> str:
    """A heading; empty if nothing is known."""
    named = {"torch": torch, "Triton": triton, "commit": commit}
    words = [gpu, *(f"{name} {word}" for name, word in named.items() if word)]
    return "### " + ", ".join(filter(None, words)) if any(words) else ""


def _tables_of_card(lines: Sequence[Mapping[str, Any]]) -> str:
    """Steps, those beside `transformers`, single products, kernels of a step, what other tiles take, and failures."""
    timed = _of_most_steps([line for line in lines if "step_seconds" in line])
    steps = [line for line in timed if line.get("part") == "steps"]
    beside = [line for line in timed if line.get("part") == "transformers"]
    single = [line for line in lines if "microseconds" in line and "tile" not in line]
    last = {json.dumps(_key_of(line)): line for line in lines}
    failed = [line for line in last.values() if line.get("failure")]
    made = [
        _table(
            ("GPU", "recipe", "context", "ms per step", "tok/s at 16 steps", "peak GB"),
            [
                (
                    _hardware(line),
                    f"`{line['recipe']}`{_words_of_switches(line)}",
                    f"{line['context']:,}",
                    f"{1000 * line['step_seconds']:.2f}",
                    f"{line['tok_per_s']['16']:,.0f}",
                    f"{line['whole_device_peak_bytes'] / 1e9:.1f}",
                )
                for line in sorted(steps, key=lambda line: (line["recipe"], line["context"]))
            ],
        ),
        _table(
            ("a step of", "layers", "context", "ms", "peak GB"),
            [
                (
                    f"{line['way']}{_words_of_switches(line)}",
                    f"{line['layers']}",
                    f"{line['context']:,}",
                    f"{1000 * line['step_seconds']:.2f}",
                    f"{line['peak_bytes'] / 1e9:.1f}",
                )
                for line in sorted(beside, key=lambda line: (line["context"], line["way"]))
            ],
        ),
        _table(
            ("part", "what", "µs", "10th to 90th percentile"),
            [
                (
                    line["part"],
                    f"{line['name']}{_words_of_switches(line)}",
                    f"{line['microseconds']:.1f}",
                    f"{line['low']:.1f} to {line['high']:.1f}",
                )
                for line in single
            ],
        ),
        *_kernels(lines),
        _table(("product", "µs", "fastest tile", "µs"), list(_fastest(lines))),
        "\n".join(
            f"failed: {' '.join(str(line[name]) for name in _KEYS if line.get(name) is not None)}: {line['failure']}"
            for line in failed
        ),
    ]
    return "\n\n".join(part for part in made if part)


def _of_most_steps(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without measurements that were also made with more steps, and the same otherwise."""
    keys = [json.dumps({**_key_of(line), "steps": None}) for line in lines]
    most: dict[str, int] = {}
    for key, line in zip(keys, lines, strict=True):
        most[key] = max(most.get(key, 0), line.get("steps", 0))
    return [line for key, line in zip(keys, lines, strict=True) if line.get("steps", 0) == most[key]]


def _kernels(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The kernels of each recipe and context that was profiled, the longest first."""
    profiled: dict[str, dict[str, Mapping[str, Any]]] = {}
    for line in lines:
        if "total_microseconds" in line:
            of = f"a step of `{line['recipe']}`{_words_of_switches(line)}, {line['context']:,} tokens of context:"
            kernel = json.dumps([line.get(name) for name in ("name", "grid", "block", "registers", "shared")])
            profiled.setdefault(of, {})[kernel] = line  # profiled again, it still counts once
    for of, found in profiled.items():
        rows = [
            (
                f"`{line['name'][:SHORT]}`",
                words_of_grid(line.get("grid")),
                f"{line['launches']:.1f}",
                f"{line['total_microseconds']:.1f}",
            )
            for line in sorted(found.values(), key=lambda line: -line["total_microseconds"])
        ]
        yield f"{of}\n\n{_table(('kernel', 'grid', 'launches a step', 'µs together'), rows)}"


def _fastest(lines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """For each product, what the chosen tile takes, and the fastest tile."""
    products: dict[str, dict[str, float]] = {}
    for line in lines:
        if "tile" in line and "microseconds" in line:
            name = f"{line['name']}{_words_of_switches(line)}"
            products.setdefault(name, {})[line["tile"]] = line["microseconds"]
    for name, taken in products.items():
        tile = min(taken, key=lambda tile: taken[tile])
        chosen = f"{taken[CHOSEN]:.1f}" if CHOSEN in taken else ""
        yield name, chosen, tile, f"{taken[tile]:.1f}"


def words_of_grid(grid: Sequence[int] | None) -> str:
    """Programs of a launch, without trailing axes of size 1; empty for a copy."""
    if grid is None:
        return ""
    axes = max((place for place, size in enumerate(grid, start=1) if size != 1), default=1)
    return " × ".join(str(size) for size in grid[:axes])


def _hardware(line: Mapping[str, Any]) -> str:
    limit = line.get("vram_limit")
    return line["hardware"] if limit is None else f"{line['hardware']}, no more than {limit}"


def _words_of_switches(line: Mapping[str, Any]) -> str:
    return "".join(f", {name.removeprefix(SWITCHES)}={value}" for name, value in line.get("switches", {}).items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def main(arguments: Sequence[str]) -> int:
    """Prints the tables of a file; returns 2 if none is named, or it does not exist."""
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        print("usage: python -m tests.bench.gpu_results FILE, one that `--results FILE` has written", file=sys.stderr)
        return 2
    print(tables(list(Results(Path(arguments[0])).lines())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
