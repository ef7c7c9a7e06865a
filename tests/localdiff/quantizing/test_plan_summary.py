"""The plan in words: all of it, and what depends on the circumstances."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from localdiff.doctor.recipes import account_of
from localdiff.hub.problems import UnreachableError
from localdiff.machine.disk_space import Mount
from localdiff.quantizing import planned_job
from localdiff.quantizing.memory_to_run import accounts, alternative_recipe
from localdiff.quantizing.plan_summary import Download, PlanSummary
from localdiff.quantizing.request import QuantizeRequest
from localdiff.sizes import shown_size
from quant.files.source import read_source
from quant.planning.encoder import Encoder, Gpu
from quant.planning.plan import describe_plan, make_plan
from quant.recipe import RECIPES
from tests.checkpoints.weights import write_small_weights

GB = 10**9
HUB = Download(files=11, nbytes=52 * GB, missing=2, missing_bytes=9 * GB, place=Path("/hub"), streamed=False)

RELEASED = """\
google/diffusiongemma-26B-A4B-it @ 1a2b3c4d → 4bit

  download   52.0 GB in 11 files: 9 here already, 2 to fetch (9.0 GB) into /hub, where they stay
  write      15.4 GB into /models/x-4bit
  disk       /home needs 24.4 GB, 212.0 GB free
  device     cpu, 2 cores; no GPU needed
  memory     about 600 MB while working
  to run     GPU memory of 17.6 GB at 8k or 18.1 GB at 32k context
             there is no GPU here that torch can use, as `localdiff doctor` explains
             a CPU runs it too, slowly: memory of 16.1 GB at 8k or 16.6 GB at 32k context (24.0 GB are free)

                          tensors  published     4bit  GPU at 8k  GPU at 32k
  experts                      60    45.7 GB  12.9 GB    12.9 GB     12.9 GB
  attention                   115     2.2 GB   1.1 GB     1.1 GB      1.1 GB
  dense MLP                    90     1.1 GB   552 MB     552 MB      552 MB
  embedding and head            1     1.5 GB   761 MB     761 MB      761 MB
  self-conditioning             3      36 MB    18 MB      18 MB       18 MB
  vision                      356     1.1 GB        -          -           -
  norms, router, scalars      422      23 MB    23 MB      23 MB       23 MB"""


@pytest.fixture(scope="module")
def summary() -> PlanSummary:
    plan = describe_plan(RECIPES["4bit"])
    return PlanSummary(
        title="google/diffusiongemma-26B-A4B-it @ 1a2b3c4d",
        plan=plan,
        output=Path("/models/x-4bit"),
        download=HUB,
        mounts=(Mount(path=Path("/home"), needed=24_400_000_000, free=212 * GB),),
        finished=0,
        working=600_000_000,
        device="cpu, 2 cores; no GPU needed",
        accounts=accounts(plan, {}),
        gpu=None,
        host_free=24 * GB,
    )


def test_the_released_model(summary: PlanSummary) -> None:
    lines = summary.lines()
    expected = RELEASED.splitlines()
    for line, wanted in zip(lines, expected, strict=False):
        if not line.startswith("  to run"):
            assert line == wanted
    assert [line.split("  ")[1] for line in lines[len(expected) :]] == [
        "keys and values",
        "buffers of a step",
        "driver, allocator",
        "all",
    ]
    total = accounts(summary.plan, {})
    assert lines[-1].split()[-4:] == [f"{total[8192].total / 1e9:.1f}", "GB", f"{total[32768].total / 1e9:.1f}", "GB"]
    assert f"{total[8192].total / 1e9:.1f} GB at 8k or {total[32768].total / 1e9:.1f} GB at 32k" in "\n".join(lines)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_lines_are_broken_between_words_to_fit_a_terminal(summary: PlanSummary, width: int) -> None:
    lines = replace(summary, remarks=("Mind the gap between this train and the platform.",)).lines(width)
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()).startswith("google/diffusiongemma-26B-A4B-it @ 1a2b3c4d → 4bit download")
    assert any(line.startswith("  vision: tensors 356, published") for line in lines) == (width < 80)


@pytest.mark.parametrize(
    ("download", "text"),
    [
        (None, "nothing: the weights are in a local directory"),
        (replace(HUB, missing=0, missing_bytes=0), "52.0 GB in 11 files, all here already"),
        (replace(HUB, missing=11), "52.0 GB in 11 files into /hub, where they stay"),
        (replace(HUB, missing=11, streamed=True), "52.0 GB in 11 files into /hub, each deleted after it is read"),
        (replace(HUB, files=1, missing=1), "52.0 GB in 1 file into /hub, where they stay"),
        (replace(HUB, files=0, missing=0), "52.0 GB into /hub, where they stay"),
    ],
)
def test_the_download(summary: PlanSummary, download: Download | None, text: str) -> None:
    assert f"  download   {text}" in replace(summary, download=download).lines()


@pytest.mark.parametrize(
    ("free", "text"),
    [
        (80, "fits cuda:0 (RTX, 80.0 GB of 96.0 GB free)"),
        (17.9, "fits cuda:0 (RTX, 17.9 GB of 96.0 GB free)"),
        (17.3, "fits cuda:0 (RTX, 17.3 GB of 96.0 GB free) up to 8k context, not beyond"),
        (
            8,
            "does not fit cuda:0 (RTX, 8.0 GB of 96.0 GB free); some layers will stay in host memory, which is slower",
        ),
    ],
)
def test_the_card_that_is_there(summary: PlanSummary, free: float, text: str) -> None:
    card = Gpu(device="cuda:0", name="RTX", total=96 * GB, free=round(free * GB))
    assert f"             {text}" in replace(summary, gpu=card).lines()


@pytest.mark.parametrize(
    ("free", "text"),
    [
        (None, "16.6 GB at 32k context"),
        (16.3, "16.6 GB at 32k context (16.3 GB are free)"),
        (8, "16.6 GB at 32k context (8.0 GB are free; the rest is read from the disk in every pass)"),
    ],
)
def test_the_memory_of_a_machine_without_a_card(summary: PlanSummary, free: float | None, text: str) -> None:
    lines = replace(summary, host_free=free and round(free * GB)).lines()
    assert f"             a CPU runs it too, slowly: memory of 16.1 GB at 8k or {text}" in lines
    card = Gpu(device="cuda:0", name="RTX", total=24 * GB, free=23 * GB)
    assert not any("CPU" in line for line in replace(summary, gpu=card).lines())


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_a_cpu_takes_is_what_the_doctor_says_of_it(summary: PlanSummary, recipe: str) -> None:
    plan = describe_plan(RECIPES[recipe])
    needed = account_of(plan, 8192, torch.device("cpu")).total
    lines = replace(summary, plan=plan, accounts=accounts(plan, {})).lines()
    assert any(f"memory of {shown_size(needed)} at 8k" in line for line in lines)


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_fits_a_card_is_what_the_doctor_says_of_it(summary: PlanSummary, recipe: str) -> None:
    """The loader counts in the same way: what a process finds free no longer includes its CUDA context."""
    plan = describe_plan(RECIPES[recipe])
    least = account_of(plan, 8192, torch.device("cuda", 0)).total
    for free, fits in ((least, True), (least - 1, False)):
        card = Gpu(device="cuda:0", name="RTX", total=96 * GB, free=free)
        shown = replace(summary, plan=plan, accounts=accounts(plan, {}), gpu=card).lines()
        assert any(line.strip().startswith("fits cuda:0") for line in shown) is fits


def test_a_card_that_another_recipe_fits(summary: PlanSummary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "RTX")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(is_integrated=0))

    def fitting(*free: float, recipe: str = "4bit") -> str:
        card = Gpu(device="cuda:0", name="RTX", total=96 * GB, free=round(free[0] * GB))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (round(free[index] * GB), 96 * GB))
        further = tuple(torch.device("cuda", index) for index in range(1, len(free)))
        encoder = Encoder(requested="auto", device=torch.device("cuda", 0), gpu=card, further=further)
        error = UnreachableError("no network")
        request = QuantizeRequest(model="x", output=Path("/x"))
        shown = planned_job.offline_summary(request, describe_plan(RECIPES[recipe]), encoder, error)
        return next(line for line in shown.lines() if "fit" in line)

    assert fitting(15.9).endswith("; recipe `4bit-small` does")
    assert fitting(20, recipe="int8").endswith("; recipe `4bit` does"), "the largest that fits"
    assert fitting(14).endswith("which is slower")
    assert "fits cuda:0" in fitting(20)
    assert "fits cuda:0" in fitting(20, 24), "the first is taken, where it has the room"
    assert "fits cuda:2" in fitting(11.8, 8, 24)
    assert fitting(11.8, 15.9).endswith("; recipe `4bit-small` does")
    assert fitting(11.8, 8).endswith("some layers will go to other GPUs, or stay in host memory, which is slower")


@pytest.mark.parametrize(("free", "streams", "said"), [(80, False, False), (60, False, True), (60, True, False)])
def test_a_plan_without_the_hub_names_stream_where_the_disk_is_too_small(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, streams: bool, said: bool
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free * GB))
    monkeypatch.setattr("localdiff.paths.hub_cache_dir", lambda: tmp_path / "hub")  # on the same disk
    request = QuantizeRequest(model="x", output=tmp_path / "x", stream=streams)
    encoder = Encoder(requested="cpu", device=torch.device("cpu"), gpu=None)
    summary = planned_job.offline_summary(request, describe_plan(RECIPES["4bit"]), encoder, None)
    assert any("`--stream` takes less disk" in remark for remark in summary.remarks) == said


def test_no_context_is_longer_than_the_model_takes(summary: PlanSummary) -> None:
    def shown(longest: int) -> str:
        limited = accounts(summary.plan, {"text_config": {"max_position_embeddings": longest}})
        return "\n".join(replace(summary, accounts=limited).lines())

    assert " GB at 8k context" in shown(8192) and "GPU at 8k\n" in shown(8192) and "32k" not in shown(8192)
    assert "GPU at 8k  GPU at 16k\n" in shown(16_384)
    assert "GPU at 8k  GPU at 32k\n" in shown(262_144)
    assert " GB at 1,000 context" in shown(1000)


def test_what_is_finished_and_how_many_files(tmp_path: Path, summary: PlanSummary) -> None:
    plan = make_plan(RECIPES["4bit"], read_source(write_small_weights(tmp_path / "model")))
    lines = replace(summary, plan=plan, finished=1).lines()
    assert any("in 2 files into /models/x-4bit; 1 of them is finished" in line for line in lines), lines


def test_remarks_come_last(summary: PlanSummary) -> None:
    assert replace(summary, remarks=("Mind the gap.",)).lines()[-2:] == ["", "Mind the gap."]


def test_the_home_directory_is_short(summary: PlanSummary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/models")
    assert "  write      15.4 GB into ~/x-4bit" in summary.lines()


def test_no_other_recipe_is_named_for_a_card_that_this_one_fits() -> None:
    card = Gpu(device="cuda:0", name="RTX", total=96 * GB, free=80 * GB)
    assert alternative_recipe(describe_plan(RECIPES["4bit"]), {}, card) is None


@pytest.mark.parametrize("config", [{"text_config": {"sliding_window": 2048}}, {"canvas_length": 512}], ids=str)
def test_sizes_in_the_config_count(config: dict[str, object]) -> None:
    plan = describe_plan(RECIPES["4bit"])
    assert accounts(plan, config)[8192].total > accounts(plan, {})[8192].total
