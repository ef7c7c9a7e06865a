"""What recipes need, as the memory account says, compared with what a device has."""

from __future__ import annotations

from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from localdiff.doctor import torch_devices
from localdiff.doctor.recipes import LONG_CONTEXT, check_recipes, recipe_to_make
from localdiff.doctor.torch_devices import Device, check_devices, devices
from localdiff.memory_account import SLACK, SLACK_BESIDES_CONTEXT, MemoryAccount, held_by_plan
from quant.planning.plan import describe_plan
from quant.recipe import RECIPES


def device(name: str, free: float | None) -> Device:
    nbytes = None if free is None else int(free * 1e9)
    return Device(device=torch.device(name), title="a device", total=nbytes, free=nbytes)


def test_a_card_of_18_gb_holds_what_it_is_said_to_hold() -> None:
    """Of 18 GB on an H100, CUDA's context takes 0.56 before anybody can ask what is free."""
    (finding,) = check_recipes([device("cuda:0", 17.44)], context=8192)
    assert finding.status == "ok"
    assert finding.facts["fit"] == ["4bit", "4bit-small"]
    account = MemoryAccount.of(held_by_plan(describe_plan(RECIPES["4bit"])), context=8192)
    assert finding.facts["needed_bytes"]["4bit"]["8192"] == account.total - SLACK + SLACK_BESIDES_CONTEXT
    assert len(finding.details) == len(RECIPES)
    assert finding.details[0].startswith("4bit ")
    assert finding.details[0].endswith("fits at 8,192")


def test_a_long_context_may_not_fit() -> None:
    for context, verdict in ((8192, "fits at 8,192"), (LONG_CONTEXT, "fits")):
        needed = MemoryAccount.of(held_by_plan(describe_plan(RECIPES["4bit"])), context=context).total
        (finding,) = check_recipes([device("cuda:0", (needed + 1e8) / 1e9)], context=8192)
        assert finding.details[0].endswith(f": {verdict}")


@pytest.mark.parametrize(("name", "advice"), [("cuda:0", "stay in host memory"), ("cpu", "close other programs")])
def test_a_small_device_is_warned_about(name: str, advice: str) -> None:
    (finding,) = check_recipes([device(name, 6)], context=8192)
    assert finding.status == "warn"
    assert "no recipe fits at 8,192 tokens of context: 4bit-small takes" in finding.text
    assert advice in (finding.advice or "")


def test_a_limit_counts_as_the_memory_of_a_device() -> None:
    (finding,) = check_recipes([device("cuda:0", 18)], context=8192, limit=1000)
    assert finding.status == "warn"
    assert finding.text.startswith("1 KB allowed by `max_memory`, and no recipe fits")
    assert finding.advice == "a larger `max_memory` holds one"
    assert (finding.facts["free_bytes"], finding.facts["usable_bytes"]) == (18 * 10**9, 1000)
    (finding,) = check_recipes([device("cuda:0", 6)], context=8192, limit=1000)
    assert "stay in host memory" in (finding.advice or "")  # no limit would be large enough
    (finding,) = check_recipes([device("cuda:0", 18)], context=8192, limit=10**12)
    assert finding.text.startswith("18.0 GB free, which holds 4bit")


@pytest.mark.parametrize(("has_bf16", "fact"), [(False, "emulated"), (True, "in hardware")])
def test_bf16_is_in_hardware_where_there_are_instructions_for_it(
    has_bf16: bool, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With AVX-512, torch says that oneDNN supports bf16, whether or not the CPU has instructions for it."""
    monkeypatch.setattr(torch_devices, "has_bf16_matmul", lambda: has_bf16)
    (finding,) = check_devices([device("cpu", 20)], gpus=0)
    assert finding.facts["bf16"] == fact


@pytest.mark.parametrize(
    ("free", "statuses", "recipe"),
    [
        ([24.7], ["ok"], "4bit"),
        ([16.1], ["ok"], "4bit-small"),
        ([16.1, 24.7], ["ok", "ok"], "4bit"),
        ([11.8], ["warn"], "4bit-small"),
        ([11.8, 16.1], ["ok", "ok"], "4bit-small"),
        ([11.8, 8], ["warn", "warn"], "4bit-small"),
    ],
)
def test_what_several_cards_hold_and_what_to_make_for_them(free: list[float], statuses: list[str], recipe: str) -> None:
    cards = [device(f"cuda:{index}", each) for index, each in enumerate(free)]
    findings = check_recipes([*cards, device("cpu", 64)], context=8192)
    assert [finding.status for finding in findings] == [*statuses, "ok"]
    assert recipe_to_make("4bit", findings) == recipe
    if free == [11.8, 16.1]:
        assert findings[0].text.endswith("4bit-small takes 15.6 GB; `cuda:1` holds one") and not findings[0].advice
    for finding in findings:
        assert ("to the other GPUs" in (finding.advice or "")) == (free == [11.8, 8] and finding.status == "warn")


def test_without_a_card_the_recipe_is_one_that_the_cpu_holds() -> None:
    assert recipe_to_make("bf16", check_recipes([device("cpu", 20)], context=8192)) == "4bit"
    assert recipe_to_make("bf16", check_recipes([device("cpu", 8)], context=8192)) == "bf16"
    assert recipe_to_make("bf16", []) == "bf16"


def test_a_limit_that_a_user_set_makes_no_recipe_a_smaller_one() -> None:
    assert recipe_to_make("4bit", check_recipes([device("cuda:0", 24)], context=8192, limit=10 * 10**9)) == "4bit"


def test_a_device_that_does_not_say_is_left_out() -> None:
    assert check_recipes([device("mps", None)], context=8192) == []


def test_devices_of_this_machine() -> None:
    found = devices()
    assert {one.device.type for one in found} >= {"cpu"}
    (finding,) = check_devices(found, gpus=0)
    assert finding.status == "ok"
    assert finding.facts["auto"] == str(found[0].device)


def test_a_card_in_the_memory_of_the_machine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    card = torch.device("cuda", 0)
    spark = SimpleNamespace(name="NVIDIA GB10", major=12, minor=1, total_memory=128 * 10**9, is_integrated=1)
    monkeypatch.setattr(torch_devices, "usable_gpus", lambda: (card,))
    monkeypatch.setattr(torch_devices, "free_bytes", lambda device: 100 * 10**9)
    monkeypatch.setattr(torch_devices, "resolve_device", lambda name: card)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: spark)
    assert devices()[0].title == "NVIDIA GB10, compute 12.1, shares the memory"


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a card here")
def test_a_card_that_torch_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    (finding,) = check_devices(devices(), gpus=1)
    assert finding.status == "warn"
    assert "built for the CPU only" in (finding.advice or "")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (finding,) = check_devices(devices(), gpus=2)
    assert "there are 2 GPUs that torch does not see" in finding.text
    assert "driver" in (finding.advice or "")


def test_a_driver_that_is_broken_has_cards_to_count_and_none_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML counts them for torch, which knows even without a driver which GPUs it was built for."""
    refusal = mock.Mock(side_effect=RuntimeError("CUDA unknown error"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "compute_120"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", refusal)
    (finding,) = check_devices(devices(), gpus=1)
    assert finding.status == "warn"
    assert "a GPU that torch does not see" in finding.text and "driver" in (finding.advice or "")


def test_a_card_that_torch_has_no_code_for_is_not_computed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "compute_120"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GTX 1080")
    found = devices()
    assert "cuda" not in {one.device.type for one in found}
    (finding,) = check_devices(found, gpus=1)
    assert (finding.status, finding.facts["auto"]) == ("warn", str(found[0].device))
    assert finding.text.endswith("has no code for GTX 1080 (compute capability 6.1)")
    assert "whl/cu126" in (finding.advice or "")
    (finding,) = check_devices([device("cuda:1", 24), *found], gpus=2)
    assert (finding.status, finding.advice) == ("ok", None), "that build may have no code for the one that is used"
    assert "has no code for GTX 1080" in finding.text
