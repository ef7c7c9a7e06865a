"""`localdiff trace`: diff, check and pair, over scripted models and, at the end, the demo model."""

from __future__ import annotations

import dataclasses
import io
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.commands import loading, trace_check, trace_pair
from localdiff.commands.model_choice import ModelChoice
from localdiff.errors import LocaldiffError, ResourceError, TraceError, UsageError, WeightsError
from localdiff.events import BlockCommitted, DenoiseStep, Event
from localdiff.identity import ModelIdentity
from localdiff.options import GenerateOptions
from localdiff.trace.header import Adapter, Header, Message
from localdiff.trace.reader import read_trace
from localdiff.ui import status
from localdiff.ui.output import Output, Stream
from quant.errors import RecipeError
from quant.files.manifest import FileEntry, read_manifest
from quant.hashing import file_sha256
from tests.checkpoints.manifest import MANIFEST
from tests.checkpoints.weights import write_small_weights
from tests.fakes.engine import IDENTITY, Block, ScriptedEngine
from tests.fakes.traces import HEADER, condensing, record, recorded, word_pieces
from tests.screens.processes import CapturedStream, Cli


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_bytes(recorded())
    return path


@pytest.fixture
def streams() -> Output:
    return Output(stdout=Stream(file=CapturedStream()), stderr=Stream(file=CapturedStream()))


def check(request: trace_check.CheckRequest, output: Output, load: Any) -> int:
    """What the command does with a model of the test's own."""
    with mock.patch.object(trace_check, "load_run", load):
        return trace_check.trace_check(request, output)


def pair(request: trace_pair.PairRequest, output: Output, load: Any, stdin: io.BytesIO | None = None) -> int:
    """The same."""
    with mock.patch.object(trace_pair, "load_paired", load):
        return trace_pair.trace_pair(request, output, stdin=stdin)


def text_of(stream: Stream) -> str:
    assert isinstance(stream.file, CapturedStream)
    return stream.file.text()


def test_diff_as_text_and_as_a_page(cli: Cli, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes(recorded(seed=3))
    result = cli("trace", "diff", str(file), str(other))
    assert (result.code, result.stderr) == (0, "")
    assert "The runs begin from different noise and diverge in block 1 at step 1" in result.stdout
    page = tmp_path / "diff.html"
    assert cli("trace", "diff", str(file), str(other), "-o", str(page)).stdout == ""
    assert page.read_text() == cli("trace", "diff", str(file), str(other), "--to", "html").stdout
    assert page.read_text().startswith("<!doctype html>")
    assert cli("trace", "diff", str(file), str(other), "--to", "html", terminals="stdout").code == 2
    assert cli("trace", "diff", str(file), str(tmp_path / "none")).code == 2
    monkeypatch.setenv("COLUMNS", "50")
    on_terminal = cli("trace", "diff", str(file), str(other), terminals="stdout").stdout
    assert "\nThe runs begin from different noise and diverge in\nblock 1 at step 1" in on_terminal


def test_check_of_a_whole_a_torn_and_a_changed_trace(cli: Cli, file: Path) -> None:
    sha256 = read_trace(file).sha256
    result = cli("trace", "check", str(file))
    assert (result.code, result.stdout) == (0, f"{file}: 2 blocks, 12 steps, SHA-256 {sha256}\n")
    data = file.read_bytes()
    file.write_bytes(data[: len(data) * 2 // 3])
    torn = cli("trace", "check", str(file))
    assert torn.code == 5
    assert "ends early" in torn.stderr
    file.write_bytes(data.replace(b'"seed":0', b'"seed":9'))
    assert cli("trace", "check", str(file)).code == 5


def test_standard_input_is_one_trace(cli: Cli, file: Path) -> None:
    result = cli("trace", "diff", "-", "-", stdin=file.read_bytes())
    assert result.code == 2
    assert result.stderr.startswith("error: standard input has one trace, and is named twice\n")


@pytest.mark.parametrize("option", ["-m", "--adapter", "--device"])
def test_check_does_not_ignore_what_is_for_a_rerun(cli: Cli, file: Path, option: str) -> None:
    result = cli("trace", "check", str(file), option, "cpu")
    assert (result.code, result.stdout) == (2, "")
    assert f"`{option}` says how to run it again, and nothing is run\nhint: add `--rerun`" in result.stderr


class Rerun:
    """A model that repeats a trace, or changes steps of it."""

    def __init__(self, identity: ModelIdentity, change: bool = False) -> None:
        self.identity = identity
        self.change = change
        self.asked: list[trace_check.CheckRequest] = []

    def __call__(
        self, request: trace_check.CheckRequest, _header: Header, _progress: object
    ) -> tuple[ModelIdentity, trace_check.Run]:
        self.asked.append(request)
        return self.identity, self.run

    def run(self, _cancel: threading.Event) -> Iterator[Event]:
        for event in condensing():
            if self.change and isinstance(event, DenoiseStep) and event.step == 2:
                event = dataclasses.replace(event, temperature=9.0)
            yield event


def nameless(file: Path) -> None:
    """Writes the trace without hashes, so that any model will do."""
    header = dataclasses.replace(HEADER, model=dataclasses.replace(HEADER.model, weights=None, tokenizer=None))
    file.write_bytes(recorded(header))


def test_rerun_says_that_all_is_the_same(file: Path, streams: Output) -> None:
    nameless(file)
    request = trace_check.CheckRequest(file=str(file), rerun=True)
    assert check(request, streams, Rerun(IDENTITY)) == 0
    assert text_of(streams.stdout).endswith("rerun on cpu: every value of 21 events is the same\n")


def test_rerun_and_pair_tell_in_a_log_where_they_are(
    file: Path, quantized: Path, streams: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "MIN_SECONDS", 0.0)
    nameless(file)
    check(trace_check.CheckRequest(file=str(file), rerun=True), streams, Rerun(IDENTITY))
    assert text_of(streams.stderr) == "rerunning: block 1, step 1\n"
    pair(pair_request(), streams, PairLoad())
    assert text_of(streams.stderr).splitlines()[1:] == ["demo: block 1, step 1", "demo-4bit: block 1, step 1"]


def test_rerun_names_the_first_difference(file: Path, streams: Output) -> None:
    nameless(file)
    request = trace_check.CheckRequest(file=str(file), rerun=True)
    with pytest.raises(TraceError, match="block 1, step 2: `temperature` is 0.78") as caught:
        check(request, streams, Rerun(IDENTITY, change=True))
    assert "a made-up machine" in str(caught.value.hint)
    assert "; other devices and versions round differently; on a CPU the last bits depend on " in str(caught.value.hint)
    assert str(caught.value.hint).endswith("so that a difference is normal there")


def test_a_later_reply_of_a_chat_may_differ_on_the_same_machine(file: Path, streams: Output) -> None:
    messages = (Message(role="user", content="Hi"), Message(role="assistant", content="Hello."))
    plain = dataclasses.replace(HEADER.model, weights=None, tokenizer=None)
    header = dataclasses.replace(HEADER, model=plain, messages=messages)
    file.write_bytes(recorded(header))
    request = trace_check.CheckRequest(file=str(file), rerun=True)
    with pytest.raises(TraceError) as caught:
        check(request, streams, Rerun(IDENTITY, change=True))
    assert ", and so does a chat, which reads its context in pieces; " in str(caught.value.hint)


def test_rerun_of_a_run_that_was_stopped(file: Path, streams: Output) -> None:
    nameless(file)
    trace = read_trace(file)
    steps = [index for index, event in enumerate(trace.events) if isinstance(event, DenoiseStep)]
    events = list(trace.events[: steps[-1]])  # its last step was never taken
    whole = [event for event in events if isinstance(event, BlockCommitted)]
    last = next(event for event in reversed(trace.events) if isinstance(event, BlockCommitted))
    assert trace.finished is not None
    events.append(dataclasses.replace(last, token_ids=(), reason="cancelled", steps=last.steps - 1))
    kept = tuple(token for event in whole for token in event.token_ids)
    events.append(dataclasses.replace(trace.finished, reason="cancelled", token_ids=kept))
    file.write_bytes(record(events, trace.header, pieces=word_pieces()))
    request = trace_check.CheckRequest(file=str(file), rerun=True)
    assert check(request, streams, Rerun(IDENTITY)) == 0
    assert text_of(streams.stdout).endswith("events, up to where the run was stopped, is the same\n")
    with pytest.raises(TraceError, match="block 1, step 2: `temperature`"):
        check(request, streams, Rerun(IDENTITY, change=True))


def test_rerun_refuses_other_weights(file: Path, streams: Output, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("other")
    load = Rerun(dataclasses.replace(IDENTITY, directory=tmp_path))
    for model, hint in ((None, "`-m` names the model that has them"), ("other", "leave out `-m`")):
        request = trace_check.CheckRequest(file=str(file), model=model, rerun=True)
        with pytest.raises(WeightsError, match="`scripted` has other weights than the run was recorded with") as caught:
            check(request, streams, load)
        assert caught.value.hint == hint


def test_a_rerun_that_is_stopped_says_nothing_about_the_trace(file: Path, streams: Output) -> None:
    class Stopped(Rerun):
        def run(self, cancel: threading.Event) -> Iterator[Event]:
            cancel.set()
            yield from list(super().run(cancel))[:3]

    nameless(file)
    request = trace_check.CheckRequest(file=str(file), rerun=True)
    assert check(request, streams, Stopped(IDENTITY)) == 130
    assert len(text_of(streams.stdout).splitlines()) == 1


@pytest.mark.parametrize(
    ("asked", "loaded"),
    [
        ({}, {}),
        ({"offline": True}, {"offline": True}),
        ({"model": "other", "device": "cpu"}, {"model": "other", "device": "cpu", "revision": None}),
        ({"adapter": "other"}, {"adapter": "other"}),
    ],
)
def test_rerun_loads_what_the_trace_names_unless_told_otherwise(
    streams: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], loaded: dict[str, Any]
) -> None:
    header = dataclasses.replace(
        HEADER,
        model=dataclasses.replace(
            HEADER.model, revision="abc", adapter=Adapter(name="lora", files=None), activations="int8"
        ),
        machine=dataclasses.replace(HEADER.machine, device="cuda"),
    )
    (tmp_path / "run.jsonl").write_bytes(recorded(header))
    choices: list[tuple[ModelChoice, int]] = []

    def load(choice: ModelChoice, *, context_size: int, loading: object) -> None:
        choices.append((choice, context_size))
        raise WeightsError("it is not here")

    monkeypatch.setattr(ModelChoice, "load", load)
    request = trace_check.CheckRequest(file=str(tmp_path / "run.jsonl"), rerun=True, **asked)
    with pytest.raises(WeightsError, match="it is not here"):
        trace_check.trace_check(request, streams)
    named = ModelChoice(
        model="scripted", adapter="lora", revision="abc", device="cuda", dtype="fp32", activations="int8"
    )
    assert choices == [(dataclasses.replace(named, **loaded), HEADER.context_size)]


def test_rerun_adds_no_adapter_to_a_run_that_had_none(file: Path, streams: Output) -> None:
    load = Rerun(IDENTITY)
    request = trace_check.CheckRequest(file=str(file), rerun=True, adapter="sudoku")
    with pytest.raises(UsageError, match="was recorded without an adapter"):
        check(request, streams, load)
    assert not load.asked


def test_rerun_shows_how_far_large_weights_are_hashed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(loading, "LARGE", 0)
    screen = Stream(file=CapturedStream(terminal=True), terminal=True, moving=True)
    streams = Output(stdout=Stream(file=CapturedStream()), stderr=screen)
    nameless(file)
    identity = dataclasses.replace(IDENTITY, directory=tmp_path)
    check(trace_check.CheckRequest(file=str(file), rerun=True), streams, Rerun(identity))
    assert "hashing weights 2/2 bytes" in text_of(screen)


def pair_request(**fields: object) -> trace_pair.PairRequest:
    choice = ModelChoice(model=fields.pop("model", "demo"), adapter=fields.pop("adapter", None))  # type: ignore[arg-type]
    settings: dict[str, object] = {"recipes": "bf16,4bit", "options": GenerateOptions(seed=5), "prompt": "hi"}
    return trace_pair.PairRequest(choice=choice, **(settings | fields))  # type: ignore[arg-type]


@pytest.fixture
def quantized(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a quantized demo model, of which only the manifest exists."""
    home = tmp_path / "home"
    directory = home / "models" / "demo-4bit"
    directory.mkdir(parents=True)
    write_manifest(directory, "demo", DEMO_DIRECTORY)
    monkeypatch.setenv("LOCALDIFF_HOME", str(home))
    return directory


def write_manifest(directory: Path, model: str, source: Path) -> None:
    """Writes a manifest of weights that were made from those of `source`, with `model` as their name."""
    sources = {
        path.name: FileEntry(nbytes=path.stat().st_size, sha256=file_sha256(path))
        for path in source.glob("*.safetensors")
    }
    manifest = dataclasses.replace(MANIFEST, model=model, revision=None, sources=sources, dropped=())
    (directory / "quant.json").write_text(manifest.to_text())


class PairLoad:
    """Loads two scripted models; the second says something else."""

    def __init__(self) -> None:
        self.models: list[str] = []
        self.revisions: list[str | None] = []
        self.adapters: list[str | None] = []
        self.options: list[GenerateOptions] = []

    def __call__(
        self, _request: trace_pair.PairRequest, side: trace_pair.Side, _progress: object
    ) -> tuple[ScriptedEngine, trace_pair.Run]:
        model = side.choice.model
        assert model is not None
        self.models.append(model)
        self.revisions.append(side.choice.revision)
        self.adapters.append(side.choice.adapter)
        text = "Hello." if len(self.models) == 1 else "Hallo."
        engine = ScriptedEngine(blocks=(Block(text=text),), identity=dataclasses.replace(IDENTITY, model=model))

        def run(prompt: str, options: GenerateOptions, cancel: threading.Event) -> Iterator[Event]:
            self.options.append(options)
            return engine.generate(prompt, options, cancel=cancel)

        return engine, run


def test_pair_runs_both_with_one_seed_and_compares(quantized: Path, streams: Output, tmp_path: Path) -> None:
    load = PairLoad()
    request = pair_request(keep=tmp_path, options=GenerateOptions())
    assert pair(request, streams, load) == 0
    assert load.models == ["demo", "demo-4bit"]
    assert load.options[0] == load.options[1]
    assert load.options[0].seed is not None
    said = text_of(streams.stdout)
    assert said.startswith("A  bf16  demo, bf16 · seed ")
    assert "Committed tokens, without ends: 5 the same, 1 changed" in said
    for name in ("bf16.jsonl", "4bit.jsonl"):
        assert read_trace(tmp_path / name).header.sampler.noise == "paired"
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_pair_runs_a_model_without_an_adapter_and_with_it(streams: Output, tmp_path: Path) -> None:
    load = PairLoad()
    request = pair_request(recipes=None, adapter="sudoku", keep=tmp_path)
    assert pair(request, streams, load) == 0
    assert load.models == ["demo", "demo"]
    assert load.adapters == [None, "sudoku"]
    assert text_of(streams.stdout).startswith("A  base     demo, bf16 · seed 5")
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["adapted.jsonl", "base.jsonl"]


def test_pair_ends_where_a_trace_cannot_be_written(quantized: Path, streams: Output, tmp_path: Path) -> None:
    """At once: any further answer would have nothing to be compared with."""
    told: list[Event] = []

    class Watched(PairLoad):
        def __call__(self, *asked: Any) -> tuple[ScriptedEngine, trace_pair.Run]:
            engine, run = super().__call__(*asked)

            def watched(*arguments: Any) -> Iterator[Event]:
                for event in run(*arguments):
                    told.append(event)
                    yield event

            return engine, watched

    (tmp_path / "bf16.jsonl").symlink_to("/dev/full")
    load = Watched()
    with pytest.raises(ResourceError, match="`.*bf16.jsonl` cannot be written: No space left on device") as caught:
        pair(pair_request(keep=tmp_path), streams, load)
    assert caught.value.hint == "`--keep` may name one on another disk"
    assert (load.models, len(told)) == (["demo"], 1)


def test_a_pair_replaces_traces_and_nothing_else(quantized: Path, streams: Output, tmp_path: Path) -> None:
    assert pair(pair_request(keep=tmp_path), streams, PairLoad()) == 0
    assert pair(pair_request(keep=tmp_path), streams, PairLoad()) == 0
    notes = tmp_path / "bf16.jsonl"
    notes.write_text("notes of mine")
    with pytest.raises(UsageError, match="`.*bf16.jsonl` exists and is not a trace") as caught:
        pair(pair_request(keep=tmp_path), streams, PairLoad())
    assert caught.value.hint == "`--keep` replaces only traces: give it another name"
    assert notes.read_text() == "notes of mine"


def test_a_pair_that_is_stopped_compares_nothing(quantized: Path, streams: Output, tmp_path: Path) -> None:
    class Stopped(PairLoad):
        def __call__(self, *asked: Any) -> tuple[ScriptedEngine, trace_pair.Run]:
            engine, run = super().__call__(*asked)

            def stopped(prompt: str, options: GenerateOptions, cancel: threading.Event) -> Iterator[Event]:
                cancel.set()
                return run(prompt, options, cancel)

            return engine, stopped

    load = Stopped()
    assert pair(pair_request(keep=tmp_path), streams, load) == 130
    assert load.models == ["demo"]
    assert text_of(streams.stdout) == ""


def test_pair_keeps_nothing_unless_asked(quantized: Path, streams: Output, tmp_path: Path) -> None:
    page = tmp_path / "pair.html"
    request = pair_request(output=page)
    assert pair(request, streams, PairLoad()) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert text_of(streams.stdout) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "pair.html"]


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"recipes": None}, UsageError, "a pair is two recipes, or a model without and with an adapter"),
        ({"adapter": "sudoku"}, UsageError, "a pair is two recipes, or a model without and with an adapter"),
        ({"recipes": None, "adapter": "nowhere"}, WeightsError, "there is no adapter `nowhere`"),
        ({"recipes": "bf16"}, UsageError, "`--recipes bf16` does not name two recipes"),
        ({"recipes": "4bit,4bit"}, UsageError, "does not name two recipes"),
        ({"recipes": "bf16,4bit,int8"}, UsageError, "does not name two recipes"),
        ({"recipes": "bf16,int8"}, WeightsError, "there are no `int8` weights of `demo` here"),
        ({"model": "demo-4bit"}, UsageError, "`demo-4bit` is already quantized"),
        ({"model": ""}, WeightsError, "`` is neither `demo`, nor a quantized model"),
        ({"model": "./slip"}, WeightsError, "no such directory: `./slip`"),
        ({"recipes": "bf16,../x"}, RecipeError, "there is no recipe `../x`"),
        ({"recipes": "bf16,foo"}, RecipeError, "there is no recipe `foo`"),
        ({"output": Path("pair.pdf")}, UsageError, "`pair.pdf` does not say what to write"),
        ({"keep": Path(__file__)}, UsageError, "is not a folder"),
        ({"keep": Path("/no/such/folder")}, UsageError, "there is no folder `/no/such/folder`"),
        ({"output": Path("/no/such/folder/pair.html")}, UsageError, "there is no folder `/no/such/folder`"),
    ],
)
def test_what_cannot_be_paired(
    quantized: Path, streams: Output, fields: dict[str, object], kind: type[LocaldiffError], words: str
) -> None:
    """This is said before the prompt is read: whatever writes into the pipe may take minutes."""
    load = PairLoad()
    with pytest.raises(kind) as caught:
        pair(pair_request(**fields), streams, load, stdin=io.BytesIO(b"no text: \xff"))
    assert words in caught.value.message
    assert caught.value.hint
    assert load.models == []


def test_what_only_has_the_name_of_a_recipe_of_the_model_is_not_paired_with_it(
    quantized: Path, streams: Output, tmp_path: Path
) -> None:
    """A name is the last part of an id or of a path, which different models may share."""

    def refused(model: str, words: str) -> None:
        load = PairLoad()
        with pytest.raises(WeightsError, match=words) as caught:
            pair(pair_request(model=model), streams, load)
        assert caught.value.hint == f"`localdiff quantize {model} --recipe 4bit --force` replaces it"
        assert load.models == []

    mine = write_small_weights(tmp_path / "mine" / "demo")
    refused("x/demo", "`demo-4bit` was made from `demo`, not from `x/demo`")
    refused(str(mine), "`demo-4bit` was made ")
    directory = quantized.rename(quantized.with_name("small-4bit"))
    one, other = (write_small_weights(tmp_path / f"{seed}" / "small", seed=seed) for seed in range(2))
    write_manifest(directory, "small", one)
    request = pair_request(model=str(one))
    assert pair(request, streams, PairLoad()) == 0
    refused(str(other), "`small-4bit` was made before `.*` changed")
    write_manifest(directory, "y/small", one)
    assert pair(pair_request(model="y/small"), streams, PairLoad()) == 0
    refused("x/small", "`small-4bit` was made from `y/small`, not from `x/small`")
    manifest = read_manifest(directory)
    int8 = dataclasses.replace(manifest, recipe=dataclasses.replace(manifest.recipe, name="int8"))
    (directory / "quant.json").write_text(int8.to_text())
    refused("y/small", "`small-4bit` was made as `int8`, not as `4bit`")
    (directory / "quant.json").write_text("{}")
    with pytest.raises(WeightsError, match=r"`quant.json` is damaged"):
        pair(pair_request(model="y/small"), streams, PairLoad())


def test_both_sides_of_a_pair_have_the_commit_of_the_weights_that_are_here(quantized: Path, streams: Output) -> None:
    directories = {recipe: quantized.with_name(f"small-{recipe}") for recipe in ("4bit", "int8")}
    for recipe, directory in directories.items():
        recipe_of_it = dataclasses.replace(MANIFEST.recipe, name=recipe)
        manifest = dataclasses.replace(MANIFEST, model="y/small", revision="a" * 40, recipe=recipe_of_it)
        directory.mkdir()
        (directory / "quant.json").write_text(manifest.to_text())
    for recipes, revisions in (("bf16,4bit", ["a" * 40, None]), ("int8,bf16", [None, "a" * 40])):
        load = PairLoad()
        request = pair_request(model="y/small", recipes=recipes)
        assert pair(request, streams, load) == 0
        assert load.revisions == revisions
    (directories["int8"] / "quant.json").write_text(
        dataclasses.replace(read_manifest(directories["int8"]), revision="b" * 40).to_text()
    )
    with pytest.raises(WeightsError, match=f"`small-int8` was made from revision {'b' * 40}") as caught:
        pair(pair_request(model="y/small", recipes="4bit,int8"), streams, PairLoad())
    assert (caught.value.hint or "").startswith(
        f"`localdiff quantize y/small --recipe int8 --revision {'a' * 40} --force`"
    )


def test_the_command_that_makes_what_is_missing_can_be_copied(
    quantized: Path, streams: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my model").mkdir()
    with pytest.raises(WeightsError) as caught:
        pair(pair_request(model="my model", recipes="bf16,int8"), streams, PairLoad())
    assert caught.value.hint == "`localdiff quantize 'my model' --recipe int8` makes them"


def test_the_demo_model_is_recorded_checked_and_run_again(cli: Cli, tmp_path: Path) -> None:
    """The real model of this package through the real command line."""
    file = tmp_path / "demo.jsonl"
    arguments = ["--record", str(file), "--record-top-k", "3", "--gold", "planet"]
    result = cli("run", "-m", "demo", "--seed", "3", "--max-tokens", "96", *arguments, "Spell the word planet.")
    assert result.code == 0
    trace = read_trace(file)
    assert trace.header.is_demo
    assert trace.header.model.weights is not None
    assert trace.header.record_top_k == 3
    assert all(len(row) == 3 for row in trace.blocks[0].steps[0].top_ids)
    assert trace.text() == result.stdout
    again = cli("trace", "check", str(file), "--rerun", "-q")  # where it takes a second, it tells
    assert (again.code, again.stderr) == (0, "")
    assert again.stdout.endswith(f"every value of {len(trace.events)} events is the same\n")
