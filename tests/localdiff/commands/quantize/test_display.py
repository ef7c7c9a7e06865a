"""What is shown while a job runs."""

from __future__ import annotations

from localdiff.commands.quantize.display import Display
from quant.jobs.events import BytesDone, FileChecked, JobStarted, ShardStarted, ShardWritten, TensorDone


class FakeProgress:
    """Remembers what it was told to show."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def start(self, name: str, total: int, *, whole: bool = False) -> None:
        self.calls.append(("start", name, total, whole))

    def show(self, name: str, done: int, detail: str = "") -> None:
        self.calls.append(("show", name, done, detail))

    def end(self, name: str) -> None:
        self.calls.append(("end", name))

    def note(self, text: str) -> None:
        self.calls.append(("note", text))

    def take(self) -> list[tuple[object, ...]]:
        calls, self.calls = self.calls, []
        return calls


def test_a_download_shows_the_whole_and_each_file() -> None:
    progress = FakeProgress()
    display = Display(progress, {"a": 100, "b": 50}, to_check={"s1": 50, "s2": 20})
    assert progress.take() == [("start", "fetch", 150, True)]
    display.on_bytes("a", 30)
    display.on_bytes("b", 10)
    display.on_bytes("config.json", 7)  # small files are not worth a line
    assert progress.take() == [
        ("start", "a", 100, False),
        ("show", "a", 30, ""),
        ("show", "fetch", 30, ""),
        ("start", "b", 50, False),
        ("show", "b", 10, ""),
        ("show", "fetch", 40, ""),
    ]
    display.on_bytes("a", 0)
    display.on_fetched("b")
    assert progress.take()[-3:] == [("show", "b", 50, ""), ("show", "fetch", 50, ""), ("end", "b")]
    display.on_fetched("config.json")
    display.on_note("the connection broke off")
    assert progress.take() == [("note", "note: the connection broke off")]


def test_nothing_is_said_of_downloads_where_there_are_none() -> None:
    progress = FakeProgress()
    Display(progress, {}, to_check={"s1": 50, "s2": 20})
    assert progress.take() == []


def test_a_job_shows_where_it_is_and_what_was_lost_most() -> None:
    progress = FakeProgress()
    display = Display(progress, {}, to_check={"s1": 50, "s2": 20})
    for event in (
        JobStarted(source_bytes=300),
        ShardStarted(shard="s1", source_bytes=200),
        BytesDone(name="model.decoder.layers.3.mlp.up_proj.weight", source_bytes=80),
        TensorDone(error=0.083),
        BytesDone(name="model.decoder.norm.weight", source_bytes=20),
        ShardWritten(source="f1", source_sha256="0" * 64),
        ShardStarted(shard="s2", source_bytes=100),
        BytesDone(name="x", source_bytes=100),
        FileChecked(file="s1", nbytes=50, problem=None),
        FileChecked(file="s2", nbytes=20, problem=None),
        FileChecked(file="config.json", nbytes=5, problem=None),
    ):
        display.on_event(event)
    calls = [call for call in progress.take() if call[0] != "end"]
    assert calls == [
        ("start", "quantize", 300, True),
        ("show", "quantize", 80, "layers.3.mlp.up_proj"),
        ("show", "quantize", 100, "worst error 8.3 %   norm"),
        ("show", "quantize", 200, ""),
        ("show", "quantize", 300, "worst error 8.3 %   x"),
        ("start", "check", 70, True),
        ("show", "check", 50, "s1"),
        ("start", "check", 70, True),
        ("show", "check", 70, "s2"),
        ("start", "check", 70, True),
        ("show", "check", 70, "config.json"),
    ]


def test_a_job_with_nothing_left_to_do_has_no_bar() -> None:
    progress = FakeProgress()
    Display(progress, {}, to_check={"s1": 50, "s2": 20}).on_event(JobStarted(source_bytes=0))
    assert [call for call in progress.take() if call[0] == "start"] == []
