"""`localdiff trace pair`: one prompt, two models, the same noise, and how the answers differ.

The two are recipes of the same weights, or a model without and with an adapter; they are loaded one after the other,
so that each has the device to itself. Knows which weights recipes mean and where traces go; compares nothing itself.
"""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

from localdiff.checkpoints.model_store import quantized_directory
from localdiff.checkpoints.stored_model import is_finished, output_name
from localdiff.commands.loading import Loading, hashing_shown_by
from localdiff.commands.model_choice import ModelChoice
from localdiff.commands.output_file import output_file
from localdiff.commands.prompt import read_prompt, reading, remark_on_input
from localdiff.commands.record import RecordOptions, trace_file
from localdiff.commands.trace_diff import Form, diff_form, write_diff
from localdiff.errors import INTERRUPTED, UsageError, WeightsError
from localdiff.events import DenoiseStep, Event
from localdiff.identity import PUBLISHED
from localdiff.options import DRAWN_SEED_BITS, GenerateOptions
from localdiff.paths import expanded
from localdiff.quoting import printable, shell_word
from localdiff.trace.reader import read_trace
from localdiff.trace.trace import Trace
from localdiff.ui.interrupt import cancel_on_interrupt, interruptible
from localdiff.ui.output import Output
from localdiff.ui.status import StatusLine, progress_of, status_line
from quant import QuantError, recipe_named
from quant.released import MODEL

if TYPE_CHECKING:
    from localdiff.engine import Engine

BASE, ADAPTED = "base", "adapted"
"""Labels of a model without its adapter and with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairRequest:
    """What the command line asks for.

    Attributes:
        recipes: two recipes, separated by a comma; None if an adapter is chosen.
        options: settings of both runs; a seed that is not given is drawn once.
        prompt, file: as for a run.
        choice: the model whose weights are used, and the adapter that one of the runs has.
        keep: folder to keep the two traces in.
        to, output: as for `trace diff`.
    """

    recipes: str | None
    options: GenerateOptions
    choice: ModelChoice = ModelChoice(model=MODEL)
    prompt: str | None = None
    file: str | None = None
    keep: Path | None = None
    to: Form | None = None
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two models.

    Attributes:
        label: its name in the comparison, and the name of its trace in the `keep` folder.
        choice: its weights, and the adapter added to them.
    """

    label: str
    choice: ModelChoice


Run: TypeAlias = Callable[[str, GenerateOptions, threading.Event], Iterator[Event]]


def load_paired(request: PairRequest, side: Side, loading: Loading) -> tuple[Engine, Run]:
    """A model, and a run of it under paired noise; torch is not imported before this."""
    engine = side.choice.load(context_size=request.options.context_size, loading=loading)
    from localdiff.trace.runs import paired

    return engine, lambda prompt, options, cancel: paired(engine, prompt, options, cancel=cancel)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    """What both runs share."""

    request: PairRequest
    prompt: str
    output: Output
    status: StatusLine
    cancel: threading.Event

    def record(self, side: Side, file: Path) -> Trace:
        """The trace of one of the two; its model is freed when this returns."""
        choice, options = side.choice, self.request.options
        name = f"{choice.model} with {choice.adapter}" if choice.adapter else str(choice.model)
        # Nobody needs to know about a trace in a temporary folder.
        trace_output = self.output if self.request.keep is not None else replace(self.output, quiet=True)
        with trace_file(RecordOptions(file=file), trace_output, folder="--keep") as trace:
            assert trace is not None
            loading = Loading(self.status, name, self.output, yes=choice.yes)
            engine, run = load_paired(self.request, side, loading)
            observer = trace.observer(engine, self.prompt, options, hashing_shown_by(self.status), noise="paired")
            tell = progress_of(self.output, self.status)
            for event in run(self.prompt, options, self.cancel):
                observer.on_event(event)
                if isinstance(event, DenoiseStep):
                    tell(f"{printable(name)}: block {event.block}, step {event.step}")
            self.status.clear()
        return read_trace(file)


def trace_pair(request: PairRequest, output: Output, *, stdin: BinaryIO | None) -> int:
    """Answer one prompt twice and compare.

    Returns:
        0, or 130 if the user stopped one of the runs; then nothing is compared.
    """
    sides = _sides(request, output)
    form = diff_form(request.to, request.output, output)
    keep = None if request.keep is None else expanded(request.keep)
    if keep is not None and not keep.is_dir():
        words = f"`{request.keep}` is not a folder" if keep.exists() else f"there is no folder `{request.keep}`"
        raise UsageError(words, "`--keep` takes an existing folder; the traces are named by what was compared")
    file = None
    if request.output is not None:  # checked before the work that would be lost without it
        kept_files = [] if keep is None else [keep / f"{side.label}.jsonl" for side in sides]
        file = output_file(request.output, inputs=[request.file, *kept_files])
    remark = partial(remark_on_input, output)
    prompt = read_prompt(request.prompt, request.file, stdin, partial(reading, output), remark=remark)
    seed = secrets.randbits(DRAWN_SEED_BITS) if request.options.seed is None else request.options.seed
    request = replace(request, options=replace(request.options, seed=seed))
    cancel = threading.Event()
    traces: list[Trace] = []
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localdiff-")))
        status = stack.enter_context(status_line(output))
        stack.enter_context(cancel_on_interrupt(cancel))
        pair = _Pair(request=request, prompt=prompt, output=output, status=status, cancel=cancel)
        for side in sides:
            traces.append(pair.record(side, folder / f"{side.label}.jsonl"))
            if cancel.is_set():
                return INTERRUPTED
        status.clear()
        first, second = sides
        write_diff((traces[0], traces[1]), (first.label, second.label), form, file, output)
    return 0


def _sides(request: PairRequest, output: Output) -> tuple[Side, Side]:
    """The two models, which are checked to exist.

    Raises:
        UsageError: neither two different recipes nor an adapter, or both; or recipes of a quantized model.
        RecipeError: there is no such recipe.
        WeightsError: the weights of a recipe are missing or of another model; or there is no such model or adapter.
    """
    choice = request.choice
    if (request.recipes is None) == (choice.adapter is None):
        raise UsageError(
            "a pair is two recipes, or a model without and with an adapter",
            "give either `--recipes bf16,4bit` or `--adapter NAME`",
        )
    if request.recipes is None:
        choice.check_names()  # before the first run, which would be wasted
        return Side(BASE, replace(choice, adapter=None)), Side(ADAPTED, choice)
    recipes = _two_recipes(request.recipes)
    assert choice.model is not None
    if quantized_directory(choice.model) is not None or is_finished(expanded(choice.model)):
        raise UsageError(f"`{choice.model}` is already quantized", "`-m` takes the model that it was made from")
    choice.check_names()  # a mistyped name must not get the advice to quantize it
    sides: dict[str, Side] = {}
    for recipe in recipes:
        if recipe != PUBLISHED:
            # Made from the same weights: on the Hub, of one commit, the one asked for or that of the first recipe.
            sides[recipe], revision = _quantized(choice, recipe, output)
            choice = replace(choice, revision=revision)
    first, second = (sides.get(recipe) or Side(recipe, choice) for recipe in recipes)
    return first, second


def _two_recipes(text: str) -> list[str]:
    """The two recipes that `--recipes` names."""
    recipes = [recipe.strip() for recipe in text.split(",")]
    if len(recipes) != 2 or len(set(recipes)) != 2 or not all(recipes):
        raise UsageError(f"`--recipes {text}` does not name two recipes", "for example `--recipes bf16,4bit`")
    for recipe in recipes:
        if recipe != PUBLISHED:
            recipe_named(recipe)
    return recipes


def _quantized(choice: ModelChoice, recipe: str, output: Output) -> tuple[Side, str | None]:
    """A recipe of the chosen model, and the commit that it was made from."""
    model = choice.model
    assert model is not None
    name = output_name(model, recipe)
    directory = quantized_directory(name)
    command = f"localdiff quantize {shell_word(model)} --recipe {recipe}"
    if directory is None:
        raise WeightsError(f"there are no `{recipe}` weights of `{model}` here", f"`{command}` makes them")
    with interruptible():
        from localdiff.quantizing.finished import recipe_difference, source_difference
        from quant.files.manifest import read_manifest

    try:
        manifest = read_manifest(directory)
        with status_line(output) as status:
            other = recipe_difference(manifest, recipe) or source_difference(
                manifest, model, choice.revision, hashing_shown_by(status)
            )
    except QuantError as error:
        raise WeightsError(error.message, error.hint) from error
    if other is not None:
        commit = "" if choice.revision is None else f" --revision {shell_word(choice.revision)}"
        raise WeightsError(f"`{name}` {other}", f"`{command}{commit} --force` replaces it")
    return Side(recipe, replace(choice, model=name, revision=None)), manifest.revision
