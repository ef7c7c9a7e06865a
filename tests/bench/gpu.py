"""Everything that needs a GPU, on a machine that has one and little else: `make bench-gpu`, or this module by itself.

    python -m tests.bench.gpu        everything, in this order, which puts first what matters most
    python -m tests.bench.gpu steps --recipe 4bit --context 8192 32768 --vram-limit 18GB
    python -m tests.bench.gpu --total 9 --results results.jsonl        nine minutes of it; again, the next nine

    device    which card this is
    steps    `localdiff bench step` with random weights, a process for each context and recipe
    checks    the tests marked `gpu`: whole steps, replays, the same bits for a seed, memory that does not grow
    kernels    what each kernel takes in a step as it is replayed, for the first recipe and context
    repeats    one block many times, replayed: the same bits, for the first recipe and context
    layer    the experts of one layer of the released shape: each kernel's variant, and `grouped_mm` of torch in bf16
    limits    the experts' two products with one cost at a time taken away: what they wait for
    dense    a linear layer: decoded and multiplied, and each kernel's variant
    embedding    the output head and the soft embedding: decoded and multiplied, and from the codes
    attention    a layer of each kind: the kernel and the plain way, and how far apart their answers are
    stream    a step with layers that are streamed from host memory, for the first recipe and context
    tests    the kernels' tests, compiled: some two hundred compilations
    tiles    what each of these products would take with tiles other than the chosen ones
    tune    `localdiff tune` for the first recipe and context; later steps on this machine use what it finds
    transformers    a step of `transformers` in bf16, eager and compiled, and of each recipe, with the same layers

Each part is a process of its own, and so is every measured step: whatever one of them leaves or breaks on the card is
gone with its process. A part that is not done after `--minutes` is killed; in `steps` and `transformers` the limit is
for each measurement. After `--total` minutes everything is killed. With `--results` each figure is a line of a file as
soon as it is measured, and what the file has is not measured again, nor (without `--again`) what failed or did not fit:
the same command goes on where it was stopped. Lines of another card, torch, Triton or commit do not count.
Needs torch and Triton, for the steps also safetensors and rich, and for the tests what tests need; a part that lacks a
package is left out, and the output says so.
`--vram-limit` caps torch's allocator, so that a large card behaves like a small one, and the peak that is reported is
the whole device's: context, libraries and workspaces included, and whatever else was on it before.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from quant.gpus import why_unseen
from tests.bench.gpu_peak import DevicePeak
from tests.bench.gpu_process import NOT_FINISHED, UNFINISHED, Limits, end_with_parent, ended
from tests.bench.gpu_products import ROWS, clock, dense, embedding, layer
from tests.bench.gpu_results import Results

TESTS = ("tests/localdiff/denoising", "tests/localdiff/kernels", "tests/quant/cuda", "tests/gpu/test_kernels_aot.py")
CHECKS = (
    *TESTS,
    "tests/localdiff/load/test_hooks.py",
    "tests/localdiff/load/test_streaming.py",
    "tests/quant/modules/test_modules.py",
    "tests/quant/codecs/test_nf4.py",
    "tests/localdiff/load/test_full_width.py",
)
"""Where all tests marked `gpu` are; the last one writes 6 GB first, so it comes after all the others."""
PARTS = (
    "device",
    "steps",
    "checks",
    "kernels",
    "repeats",
    "layer",
    "limits",
    "dense",
    "embedding",
    "attention",
    "stream",
    "tests",
    "tiles",
    "tune",
    "transformers",
)
NEEDED: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("steps", "tune"), ("safetensors", "rich")),  # to read weights, and to write a table
    **dict.fromkeys(("kernels", "repeats", "stream", "transformers"), ("safetensors",)),
    **dict.fromkeys(("checks", "tests"), ("pytest", "hypothesis")),
}
"""Part → packages without which it is left out."""
OF_PROCESSES = ("steps", "transformers")
RECIPES, CONTEXTS = ("4bit", "4bit-small", "int8"), (8192, 1024, 32768)
HANGS = 120
"""Seconds after which the place where a test hangs is printed: a kernel that never ends says nothing."""
_QUERY = "driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"


def main(arguments: Sequence[str]) -> int:
    """Runs the parts that were asked for, going on after failures; returns 1 if one of them failed."""
    options = _options(arguments)
    if options.here is not None:
        end_with_parent()
        return part_here(options.here, options)
    if not torch.cuda.is_available():
        print(f"there is no CUDA device here: {why_unseen()}", file=sys.stderr)
        return 1
    failed, left = [], []
    for name in options.parts or PARTS:
        if not (_is_over(name, options) or _is_left_out(name)):
            failure = _failure(name, options)
            if failure == NOT_FINISHED or (_limits(options).is_up and (failure is not None or name in OF_PROCESSES)):
                left.append(name)
            elif failure is not None:
                failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", flush=True)
    if left:
        print(f"\nthe time is up before the end of: {', '.join(left)}; the same command goes on there", flush=True)
    return int(bool(failed))


def _is_over(name: str, options: argparse.Namespace) -> bool:
    """Whether a part has been done before; `steps` and `transformers` track each of their measurements instead."""
    is_over = name not in OF_PROCESSES and _results(options).has(_part_key(name, options))
    if is_over:
        print(f"\n== {name}: in {options.results} already", flush=True)
    return is_over


def _is_left_out(name: str) -> bool:
    """Whether a part lacks a package; it does not count as done, so a later call tries it once the package is there."""
    lacking = [package for package in NEEDED.get(name, ()) if importlib.util.find_spec(package) is None]
    if lacking:
        print(f"\n== {name}\nleft out: there is no {' and no '.join(lacking)} here", flush=True)
    return bool(lacking)


def _part_key(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """A part's key in the file: what was done for one recipe or one list of contexts counts for no other."""
    key: dict[str, Any] = {"part": name}
    if name in ("kernels", "repeats", "stream", "tune"):
        key |= {"recipe": options.recipe[0], "context": options.context[0], "steps": options.steps}
    elif name in ("attention", "tiles"):
        key["context"] = options.context
    if name == "tiles" and options.product:
        key["product"] = options.product
    return key


def _failure(name: str, options: argparse.Namespace) -> str | None:
    """Runs a part in a process of its own; returns why it failed, or None."""
    print(f"\n== {name}", flush=True)
    limits = _limits(options)
    if limits.is_up:
        print("no time is left", flush=True)
        return "no time is left"
    command = [sys.executable, "-m", "tests.bench.gpu", *options.typed, "--here", name, "--until", str(options.until)]
    if options.results is not None:  # a path as seen from here
        command += ["--results", str(options.results)]
    failure = ended(command, seconds=None if name in OF_PROCESSES else limits.left).failure
    if failure is not None:
        print(f"{name}: {failure}", flush=True)
    if failure == NOT_FINISHED:
        return failure
    if name not in OF_PROCESSES and not (failure is not None and limits.is_up):
        _results(options).add(_part_key(name, options), failure=failure)
    return failure


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(seconds=60 * options.minutes, until=options.until)


def _results(options: argparse.Namespace) -> Results:
    return Results(options.results, again=options.again)


def part_here(name: str, options: argparse.Namespace) -> int:
    """Runs a part, or one of its steps, in this process and imports only what it needs; returns 1 if it failed."""
    results, recipe, context, count = _results(options), options.recipe[0], options.context[0], options.steps
    match name:
        case "device":
            return device(results)
        case "steps":
            return steps(options)
        case "step":
            return step_here(options)
        case "checks":
            return run_tests("gpu", CHECKS)
        case "kernels":
            from tests.bench.gpu_kernels import kernels

            return kernels(recipe, context, count, results)
        case "repeats":
            from tests.bench.gpu_repeats import repeats

            return repeats(recipe, context, results)
        case "layer":
            return layer(results)
        case "limits":
            from tests.bench.gpu_limits import limits

            return limits(results, torch.device("cuda"))
        case "dense":
            return dense(results)
        case "embedding":
            return embedding(results)
        case "attention":
            from tests.bench.gpu_attention import attention

            return attention(options.context, ROWS, results)
        case "stream":
            from tests.bench.gpu_stream import stream

            return stream(recipe, context, count, results)
        case "tests":
            return run_tests("not gpu and not slow", TESTS)
        case "tiles":
            from tests.bench.gpu_tiles import time_tiles

            return time_tiles([context], results, torch.device("cuda"), options.product)
        case "tune":
            return tune_here(recipe, context, _limits(options).left, results)
        case _:
            from tests.bench.gpu_transformers import against_transformers

            recipes = ["bf16", *options.recipe]
            return against_transformers(recipes, options.context, count, limits=_limits(options), results=results)


def tune_here(recipe: str, context: int, seconds: float, results: Results) -> int:
    """Searches for faster tiles in four fifths of the time; if that is too little, the next call goes on with it."""
    from localdiff.bench.step.subject import random_subject
    from localdiff.bench.tuning.candidates import tile_name
    from localdiff.bench.tuning.report_text import table
    from localdiff.bench.tuning.search import product_name
    from localdiff.bench.tuning.tune import tune
    from localdiff.commands.tune import TUNED_LAYERS

    make = random_subject(recipe=recipe, layers=TUNED_LAYERS, context=context, device="cuda:0", dtype="auto")
    products: set[str] = set()

    def progress(text: str) -> None:
        product, tile, _ = text.partition(", tile ")
        if tile and product not in products:
            products.add(product)
            print(f"  {text}", flush=True)

    tuning = tune(make, context=context, seconds=0.8 * seconds, progress=progress)
    model = f"random weights in {recipe}, {TUNED_LAYERS} layers, {context:,} tokens of context"
    print(table(tuning, model), flush=True)
    for one in tuning.outcome.found:
        key = {"part": "tune", "name": product_name(one.product), "tile": tile_name(one.tile)}
        results.add(key, usual=tile_name(one.usual), share=one.share)
    results.add({"part": "tune", "name": "all"}, usual=tuning.outcome.usual, tuned=tuning.outcome.tuned)
    return UNFINISHED if tuning.outcome.left else 0


def device(results: Results) -> int:
    """Which card this is, what is free on it, and what an almost empty launch takes."""
    free, total = torch.cuda.mem_get_info()
    major, minor = torch.cuda.get_device_capability()
    versions = [f"torch {torch.__version__}", f"CUDA {torch.version.cuda}"]
    if importlib.util.find_spec("triton") is not None:
        import triton

        versions.append(f"Triton {triton.__version__}")
    print(f"{torch.cuda.get_device_name()}, sm_{major}{minor}, {', '.join(versions)}")
    print(f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free", flush=True)
    if (tool := shutil.which("nvidia-smi")) is not None:
        found = subprocess.run([tool, f"--query-gpu={_QUERY}", "--format=csv"], capture_output=True, text=True)
        print(found.stdout, end="", flush=True)
        results.add({"part": "device", "name": "nvidia-smi"}, csv=found.stdout.splitlines())
    from quant.cuda.support import why_unsupported

    number = torch.zeros(1, device="cuda")
    clock("device", "next to nothing, which is in all figures", lambda: number.add_(1), results)
    lack = why_unsupported(torch.device("cuda", 0))
    if lack is not None:
        print(f"no kernel runs here, so the rest would time the plain path: {lack.reason}; {lack.remedy}", flush=True)
    return int(lack is not None)


def run_tests(marked: str, where: Sequence[str]) -> int:
    """Tests with a mark, in parallel where pytest-xdist is installed; a file that cannot be imported fails alone."""
    side_by_side = ["--numprocesses", str(min(8, os.cpu_count() or 1))]
    has_xdist = importlib.util.find_spec("xdist") is not None
    import pytest

    options = ["-q", "--continue-on-collection-errors", "-p", "tests.bench.gpu_tests", "-m", marked]
    options += ["-o", f"faulthandler_timeout={HANGS}", *(side_by_side if has_xdist else [])]
    return int(pytest.main([*options, *where]))


def steps(options: argparse.Namespace) -> int:
    """Runs a process for each context and recipe, so that one that does not fit leaves nothing behind."""
    failed, limits, results = 0, _limits(options), _results(options)
    for context in options.context:
        for recipe in options.recipe:
            if limits.is_up:
                return int(failed > 0)
            key = _step_key(recipe, context, options)
            print(f"\n{recipe}, {context:,} tokens of context", flush=True)
            if results.has(key):
                print(f"  in {options.results} already", flush=True)
                continue
            command = [sys.executable, "-m", "tests.bench.gpu", "--here", "step", "--recipe", recipe]
            command += ["--context", str(context), "--steps", str(options.steps)]
            if options.vram_limit is not None:
                command += ["--vram-limit", options.vram_limit]
            if options.results is not None:
                command += ["--results", str(options.results)]
            known = len(list(results.lines()))
            failure = ended(command, seconds=limits.left).failure
            if failure is not None:
                print(f"  {failure}", flush=True)
                failed += 1
                if not limits.is_up and len(list(results.lines())) == known:  # the child may have recorded why
                    results.add(key, failure=failure)
    return int(failed > 0)


def _step_key(recipe: str, context: int, options: argparse.Namespace) -> dict[str, Any]:
    of = {"part": "steps", "recipe": recipe, "context": context}
    return {**of, "steps": options.steps, "vram_limit": options.vram_limit}


def step_here(options: argparse.Namespace) -> int:
    """Measures in this process, under the limit, and records the device's peak; what is too large is left out."""
    from localdiff.bench.step.report_text import json_line, table
    from localdiff.bench.step.run import run
    from localdiff.bench.step.subject import random_subject
    from localdiff.errors import ResourceError
    from localdiff.sizes import parse_size

    recipe, context, vram_limit = options.recipe[0], options.context[0], options.vram_limit
    key, results = _step_key(recipe, context, options), _results(options)
    device = torch.device("cuda", 0)
    total = torch.cuda.get_device_properties(device).total_memory
    try:
        # The estimate refuses what does not fit the card; whether it fits under a limit is what this measures.
        make = random_subject(recipe=recipe, layers=30, context=context, device="cuda:0", dtype="auto")
        if vram_limit is not None:
            limit = parse_size(vram_limit, "--vram-limit")
            taken = total - torch.cuda.mem_get_info(device)[0]  # includes this process's context
            torch.cuda.set_per_process_memory_fraction(max(0.0, min(1.0, (limit - taken) / total)), device)
        with DevicePeak(device) as peak:
            report = run(context=context, steps=options.steps, make=make)
    except (ResourceError, torch.OutOfMemoryError) as error:
        message = error.message if isinstance(error, ResourceError) else str(error).splitlines()[0]
        if error.__cause__ is not None:  # a kernel failed, or computed wrong numbers
            print(f"failed: {message}")
            results.add(key, failure=message)
            return 1
        print(f"left out: {message}")
        results.add(key, left_out=message)
        return 0
    line = json_line(report, _command(options))
    results.add({**json.loads(line), **key}, whole_device_peak_bytes=peak.nbytes)
    print(table(report))
    print(line)
    print(json.dumps({"device_peak_bytes": peak.nbytes, "vram_limit": vram_limit}), flush=True)
    return 0


def _command(options: argparse.Namespace) -> str:
    """The command that measures this step again, without paths: others read it, and a path may show a home."""
    limit = [] if options.vram_limit is None else ["--vram-limit", options.vram_limit]
    settings = ["--recipe", options.recipe[0], "--context", str(options.context[0]), "--steps", str(options.steps)]
    return " ".join(["python3 -m tests.bench.gpu steps", *settings, *limit])


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Tests and measurements on a GPU.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them, unless given")
    parser.add_argument("--recipe", nargs="+", default=list(RECIPES), metavar="NAME")
    parser.add_argument("--context", nargs="+", type=int, default=list(CONTEXTS), metavar="N")
    parser.add_argument("--steps", type=int, default=32, metavar="N")
    parser.add_argument("--product", nargs="+", default=[], metavar="NAME", help="of tiles, as its lines begin")
    parser.add_argument("--vram-limit", metavar="SIZE", help="as on a card of this size, such as 18GB")
    parser.add_argument(
        "--minutes", type=float, default=10, metavar="N", help="for a part, and for one measurement of a step"
    )
    parser.add_argument("--total", type=float, metavar="N", help="minutes for everything together")
    parser.add_argument("--results", type=Path, metavar="FILE", help="gets a line for each figure; what it has is done")
    parser.add_argument("--again", action="store_true", help="try again what failed or did not fit, by that file")
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--here", choices=(*PARTS, "step"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.typed = arguments
    if options.results is not None:
        options.results = options.results.absolute()
    if options.until is None:
        options.until = float("inf") if options.total is None else time.time() + 60 * options.total
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{unknown.pop()} must be one of {', '.join(PARTS)}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
