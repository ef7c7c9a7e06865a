"""The rules of `--device` and `--dtype`, and how much memory there is."""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from localdiff.doctor.torch_devices import Device, check_devices
from localdiff.engine import Engine, opening
from localdiff.errors import LocaldiffError, ResourceError, UsageError
from localdiff.load import (
    devices,
    further_devices,
    load_model,
    memory_plan,
    open_weights,
    plan_memory,
    resolve_device,
    resolve_dtype,
)
from localdiff.load.stored import StoredWeights
from localdiff.load.threads import SMALL
from quant.gpus import seen_gpus, why_unseen, why_unusable
from tests.checkpoints.layouts import Spec, write_checkpoint

CPU = torch.device("cpu")
SPEC = Spec(layers="sf", vocab=32, hidden=32, mlp=16, canvas=4)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> StoredWeights:
    return open_weights(write_checkpoint(SPEC, tmp_path_factory.mktemp("written")))


def test_free_memory_of_the_cpu_is_known_on_linux() -> None:
    if not Path("/proc/meminfo").exists():
        pytest.skip("no /proc/meminfo")
    free = devices.free_bytes(CPU)
    assert free is not None
    assert 1e6 < free < 1e14


def test_free_memory_of_the_cpu_is_what_is_left_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "host_memory", lambda: (10_000, 7_000))
    assert devices.free_bytes(CPU) == 7_000


def test_free_memory_of_other_devices_is_unknown() -> None:
    assert devices.free_bytes(torch.device("mps")) is None


@pytest.mark.parametrize(("fraction", "expected"), [(1.0, 7_000), (0.8, 7_000), (0.6, 5_000), (0.05, 0)])
def test_free_memory_of_a_gpu_is_what_this_process_may_still_take(
    monkeypatch: pytest.MonkeyPatch, fraction: float, expected: int
) -> None:
    """Of 10,000 bytes others hold 2,000, and this process 2,000, 1,000 of which its allocator can reuse."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (6_000, 10_000))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(is_integrated=0))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1_000)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: fraction)
    assert devices.free_bytes(torch.device("cuda", 0)) == expected


def test_a_gpu_that_others_have_filled_has_no_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has not even room for the context that asking needs."""

    def refuse(device: torch.device) -> tuple[int, int]:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=10_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
    assert devices.free_bytes(torch.device("cuda", 0)) == 0


@pytest.mark.parametrize(
    ("shares", "is_limited", "residence"),
    [(False, False, "streamed"), (True, False, "from files"), (True, True, "streamed")],
)
def test_layers_are_streamed_from_no_memory_that_the_gpu_takes(
    weights: StoredWeights, monkeypatch: pytest.MonkeyPatch, shares: bool, is_limited: bool, residence: str
) -> None:
    """A GPU that shares the machine's memory may take all of it, unless it is limited."""
    card = torch.device("cuda", 0)
    free = 10**12
    monkeypatch.setattr(memory_plan, "free_bytes", lambda device: free)
    monkeypatch.setattr(memory_plan, "shares_host_memory", lambda device: shares)
    needed = plan_memory(weights, card, torch.bfloat16, context=64).needed
    limit = needed - 1 if is_limited else None
    free = 2 * needed if is_limited else needed - 1
    plan = plan_memory(weights, card, torch.bfloat16, context=64, max_memory=limit, may_offload=True)
    assert plan.placement.residence == residence


def test_a_gpu_that_shares_the_memory_of_the_machine_may_take_more_than_is_free_of_it(
    weights: StoredWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_plan, "free_bytes", lambda device: 10**9 if device == CPU else 10**12)
    monkeypatch.setattr(memory_plan, "shares_host_memory", lambda device: True)
    assert plan_memory(weights, torch.device("cuda", 0), torch.bfloat16, context=64).host_free == 0


@pytest.mark.parametrize(
    ("weights", "cuda", "has_tool", "visible", "told"),
    [
        (SMALL, None, True, None, "is built without CUDA"),
        (SMALL - 1, None, True, None, None),
        (SMALL, None, False, None, None),
        (SMALL, "13.0", True, None, "its driver is new enough for CUDA 13.0"),
        (SMALL, "13.0", True, "0", "CUDA 13.0, and that `CUDA_VISIBLE_DEVICES` names it"),
        (SMALL, "13.0", True, "", None),
        (SMALL, "13.0", True, "-1", None),
        (SMALL, "13.0", False, None, None),
    ],
)
def test_a_gpu_that_this_torch_cannot_use(
    monkeypatch: pytest.MonkeyPatch,
    weights: int,
    cuda: str | None,
    has_tool: bool,
    visible: str | None,
    told: str | None,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(devices.shutil, "which", lambda _: "/usr/bin/nvidia-smi" if has_tool else None)
    warning = devices.unused_gpu(weights)
    assert warning is None if told is None else told in str(warning)


def test_a_driver_that_is_too_old_is_told_of_where_its_tool_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 12020).")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", refuse)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(devices.shutil, "which", lambda _: None)
    assert "the driver is too old for CUDA 13.0: update it to 580 or newer" in str(devices.unused_gpu(SMALL))


def test_loading_says_so(
    weights: StoredWeights, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "unused_gpu", lambda _: "the GPU is not used")
    monkeypatch.setattr(opening, "load_model", lambda *_, **__: (_ for _ in ()).throw(ResourceError("stopped", "")))
    monkeypatch.setattr(opening, "resolve_device", lambda _: CPU)
    for device, told in (("cpu", []), ("auto", ["the GPU is not used"])):
        with pytest.raises(ResourceError, match="stopped"):
            Engine.load(weights.checkpoint.directory, device=device, offline=True, context_size=64)
        assert caplog.messages == told


@pytest.mark.parametrize(
    ("device", "where", "max_memory", "may_offload"),
    [
        ("auto", "cuda:0", None, True),
        ("auto", "cpu", None, False),
        ("cuda", "cuda:0", None, False),
        ("cuda", "cuda:0", 10**9, True),
    ],
)
def test_layers_stay_in_host_memory_only_where_nobody_named_a_device_or_a_limit_was_given(
    weights: StoredWeights,
    monkeypatch: pytest.MonkeyPatch,
    gpus: Callable[[int], None],
    device: str,
    where: str,
    max_memory: int | None,
    may_offload: bool,
) -> None:
    asked = {}

    def plan(*_: object, **given: object) -> None:
        asked.update(given)
        raise ResourceError("stopped", "")

    gpus(2)
    monkeypatch.setattr(opening, "plan_memory", plan)
    monkeypatch.setattr(opening, "resolve_device", lambda _: torch.device(where))
    with pytest.raises(ResourceError, match="stopped"):
        Engine.load(weights.checkpoint.directory, device=device, offline=True, max_memory=max_memory, context_size=77)
    assert asked == {
        "further": further_devices(device),
        "context": 77,
        "max_memory": max_memory,
        "may_offload": may_offload,
        "adapter": None,
    }


def test_text_parameters_leave_vision_out(weights: StoredWeights) -> None:
    model = load_model(plan_memory(weights, CPU, torch.float32)).network
    assert weights.text_parameters() == sum(parameter.numel() for parameter in model.parameters())


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def have(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "init", lambda: None)

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    return have


def test_auto_device_is_the_first_gpu_or_the_cpu(gpus: Callable[[int], None]) -> None:
    gpus(0)
    assert resolve_device("auto") == CPU
    gpus(2)
    assert resolve_device("auto") == torch.device("cuda:0")


def test_what_torch_says_of_gpus_that_it_has_no_code_for_is_left_to_us(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example of an old GPU for the screens next to the computing one: every command would begin with warnings."""

    def warning(value: object) -> Callable[[], object]:
        def call() -> object:
            warnings.warn("Found GPU0 …\nThe following list shows …", stacklevel=2)
            return value

        return call

    gpus(1)
    monkeypatch.setattr(torch.cuda, "is_available", warning(True))
    monkeypatch.setattr(torch.cuda, "init", warning(None))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert resolve_device("auto") == torch.device("cuda:0")
        assert not shown
        torch.cuda.init()
        assert len(shown) == 1


def test_two_threads_that_look_for_gpus_leave_warnings_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a program loads two models at once."""
    both, first_is_done, inside = threading.Barrier(2, timeout=0.2), threading.Event(), list[threading.Thread]()

    def is_available() -> bool:
        inside.append(threading.current_thread())
        with suppress(threading.BrokenBarrierError):  # if the second one waits for the first
            both.wait()
            if threading.current_thread() is inside[1]:
                first_is_done.wait(10)
        return False

    def look() -> None:
        seen_gpus()
        first_is_done.set()

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    before = [*warnings.filters]
    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [*warnings.filters] == before


def test_auto_may_use_every_other_gpu(gpus: Callable[[int], None]) -> None:
    gpus(3)
    assert further_devices("auto") == (torch.device("cuda:1"), torch.device("cuda:2"))
    assert further_devices("cuda:1") == ()
    gpus(0)
    assert further_devices("auto") == ()


def test_beside_a_gpu_that_is_partitioned_there_is_no_other(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML counts both, and torch asks it until CUDA is initialized."""

    def capability(device: torch.device) -> tuple[int, int]:
        assert device.index == 0, "invalid device ordinal"
        return 9, 0

    def uninitialized() -> None:
        gpus(2)
        monkeypatch.setattr(torch.cuda, "init", lambda: gpus(1))

    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_90"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    uninitialized()
    assert resolve_device("auto") == torch.device("cuda:0")
    uninitialized()
    assert further_devices("auto") == ()
    uninitialized()
    with pytest.raises(ResourceError, match="no `cuda:1` here"):
        resolve_device("cuda:1")


def test_a_named_gpu(gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(2)
    assert resolve_device("cuda") == torch.device("cuda:0")
    assert resolve_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ResourceError, match="no `cuda:2` here"):
        resolve_device("cuda:2")
    gpus(1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(ResourceError, match="no `cuda:1` here") as error:
        resolve_device("cuda:1")
    assert error.value.hint == "the last of 1 is `cuda:0`, as `CUDA_VISIBLE_DEVICES` numbers them"


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
@pytest.mark.parametrize(
    ("built_with", "visible", "hint"),
    [
        (None, None, f"`{sys.executable} -m pip install torch --index-url https://download.pytorch.org/whl/cu130 "),
        ("13.0", None, "its driver is new enough for CUDA 13.0, or use `--device cpu`"),
        ("13.0", "7", "that `CUDA_VISIBLE_DEVICES` names it, or use `--device cpu`"),
        ("13.0", "", "`CUDA_VISIBLE_DEVICES` hides every GPU"),
    ],
)
def test_no_gpu(
    gpus: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    built_with: str | None,
    visible: str | None,
    hint: str,
) -> None:
    gpus(0)
    monkeypatch.setattr(torch.version, "cuda", built_with)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(ResourceError, match="no CUDA device") as caught:
        resolve_device(name)
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def refuse_all_gpus(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """Makes CUDA fail to start, with this message; `is_available` only says no, and raises nothing."""

    def refuse() -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "init", refuse)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (
            "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver …",
            r"^the driver is too old for CUDA 13\.0: update it to 580 or newer, or, for a GPU older .*/whl/cu126 ",
        ),
        (
            "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver …",
            r"^the driver is too old for CUDA 13\.0: update it to 580 or newer(, or use `--device cpu`)?$",
        ),
        (
            "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable …",
            r"once the machine has slept: .*`sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm`",
        ),
        ("Unexpected error. Error 803: driver mismatch.\nat x.cpp", r"\(torch says: .*Error 803: driver mismatch\)"),
    ],
)
def test_why_a_driver_does_not_start_is_said(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, said: str, hint: str
) -> None:
    gpus(0)
    refuse_all_gpus(monkeypatch, said)
    with pytest.raises(ResourceError, match="no CUDA device") as caught:
        resolve_device("cuda")
    assert re.search(hint, caught.value.hint or "") and (caught.value.hint or "").endswith(", or use `--device cpu`")
    (finding,) = check_devices([Device(device=CPU, title="CPU", total=1, free=1)], gpus=1)
    assert re.search(hint, finding.advice or "")


@pytest.mark.parametrize(
    ("said", "wsl"),
    [
        ("The NVIDIA driver on your system is too old (found version 12020).", "update it in Windows to 580 or newer"),
        ("CUDA unknown error - this may be due to", "once the machine has slept: run `wsl --shutdown` in Windows"),
    ],
)
def test_in_wsl_the_driver_is_the_one_of_windows(
    gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, said: str, wsl: str
) -> None:
    gpus(0)
    refuse_all_gpus(monkeypatch, said)
    assert wsl not in why_unseen()
    monkeypatch.setattr("platform.release", lambda: "6.6.87.2-microsoft-standard-WSL2")
    assert wsl in why_unseen() and "modprobe" not in why_unseen()


@pytest.mark.parametrize(
    ("driver", "advice"),
    [
        (None, "cu130 --force-reinstall` installs one for GPUs, with driver 580 or newer"),
        ("unknown", "cu130 --force-reinstall` installs one for GPUs"),
        ("580.65.06", "cu130 --force-reinstall` installs one for GPUs"),
        ("570.86.10", "update the driver (570.86.10) to 580 or newer and run `"),
        ("525.60.13", "update the driver (525.60.13) to 580 or newer and run `"),
        ("470.256.02", "update the driver (470.256.02) to 580 or newer and run `"),
    ],
)
def test_the_build_that_a_driver_can_take(monkeypatch: pytest.MonkeyPatch, driver: str | None, advice: str) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert advice in why_unseen(driver)
    assert ("cu126" in why_unseen(driver)) == (driver in ("570.86.10", "525.60.13"))


@pytest.mark.parametrize(
    ("system", "rocm", "advice"),
    [
        ("Darwin", None, "macOS has no CUDA: `--device mps` names the GPU of a Mac"),
        ("Linux", "7.0", "this torch is built for AMD GPUs: check that `rocminfo` lists yours"),
    ],
)
def test_no_build_for_nvidia_is_named_where_it_would_be_of_no_use(
    monkeypatch: pytest.MonkeyPatch, system: str, rocm: str | None, advice: str
) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", rocm)
    monkeypatch.setattr("platform.system", lambda: system)
    assert why_unseen().startswith(advice)


class TestGpusThatThisTorchHasNoCodeFor:
    """For example a GTX 1080 with a build for CUDA 13: every operation fails on it."""

    @pytest.fixture(autouse=True)
    def capabilities(self, gpus: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
        """Those of all GPUs of the machine; the first is too old."""
        found = [(6, 1), (8, 9), (5, 0), (12, 0)]
        gpus(len(found))
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "sm_90", "sm_120", "compute_120"])
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: found[device.index])
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"card {device.index}")
        return found

    def test_auto_means_the_others(self) -> None:
        assert resolve_device("auto") == torch.device("cuda", 1)
        assert further_devices("auto") == (torch.device("cuda", 3),)
        assert devices.unused_gpu(SMALL) is None

    def test_one_that_is_named_is_refused(self) -> None:
        with pytest.raises(ResourceError, match=r"no code for card 0 \(compute capability 6\.1\)") as caught:
            resolve_device("cuda")
        assert "whl/cu126" in str(caught.value.hint) and "`--device cpu`" in str(caught.value.hint)
        assert resolve_device("cuda:3") == torch.device("cuda", 3)

    def test_where_there_is_no_other_the_cpu_computes_and_it_is_said(self, gpus: Callable[[int], None]) -> None:
        gpus(1)
        assert resolve_device("auto") == CPU
        assert further_devices("auto") == ()
        assert "no code for card 0" in str(devices.unused_gpu(SMALL))
        assert devices.unused_gpu(SMALL - 1) is None

    @pytest.mark.parametrize(
        ("built", "capability", "remedy"),
        [
            (["sm_80", "sm_90"], (8, 9), None),
            (["sm_86"], (8, 0), "whl/cu126"),
            (["sm_80", "sm_90"], (12, 0), "whl/cu130"),
            (["sm_80", "sm_90", "sm_100", "sm_110", "sm_120"], (12, 1), None),
            (["sm_90a", "compute_90"], (12, 0), None),
            (["sm_120"], (13, 0), "whl/cu130"),
            (["gfx942"], (9, 4), None),
            ([], (6, 1), None),
        ],
    )
    def test_code_runs_on_later_gpus_of_its_generation_and_ptx_on_all_later_ones(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capabilities: list[tuple[int, int]],
        built: list[str],
        capability: tuple[int, int],
        remedy: str | None,
    ) -> None:
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: built)
        capabilities[0] = capability
        unusable = why_unusable(torch.device("cuda", 0))
        assert unusable is None if remedy is None else remedy in str(unusable and unusable.remedy)


def test_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ResourceError, match="no MPS device"):
        resolve_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("mps") == torch.device("mps")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "", "CPU"])
def test_a_device_that_does_not_exist_anywhere(name: str) -> None:
    with pytest.raises(UsageError, match="must be auto, cpu, cuda"):
        resolve_device(name)


@pytest.mark.parametrize(
    ("device", "limit", "expected"),
    [
        ("cuda:0", 4e9, torch.bfloat16),
        ("mps", 4e9, torch.bfloat16),
        ("cpu", 4e9, torch.float32),
        ("cpu", 0, torch.bfloat16),
    ],
)
def test_auto_dtype(
    weights: StoredWeights, monkeypatch: pytest.MonkeyPatch, device: str, limit: float, expected: torch.dtype
) -> None:
    monkeypatch.setattr(devices, "_MAX_FP32_BYTES", limit)
    assert resolve_dtype("auto", torch.device(device), weights) is expected


def test_auto_dtype_turns_at_four_gigabytes(weights: StoredWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    for parameters, expected in ((999_999_999, torch.float32), (1_000_000_000, torch.bfloat16)):
        monkeypatch.setattr(StoredWeights, "text_parameters", lambda _, count=parameters: count)
        assert resolve_dtype("auto", CPU, weights) is expected


def test_a_named_dtype(weights: StoredWeights) -> None:
    assert resolve_dtype("bf16", CPU, weights) is torch.bfloat16
    assert resolve_dtype("fp32", torch.device("cuda:0"), weights) is torch.float32


@pytest.mark.parametrize(("name", "reason"), [("fp16", "activations pass 65,504"), ("int3", "must be one of auto")])
def test_a_refused_dtype(weights: StoredWeights, name: str, reason: str) -> None:
    with pytest.raises(LocaldiffError, match=reason) as caught:
        resolve_dtype(name, CPU, weights)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("variable", "value"),
    [("LOCALDIFF_CUDA_PLAIN", "stp"), ("LOCALDIFF_CPU_PATH", "quick"), ("LOCALDIFF_CPU_NATIVE", "never")],
)
def test_a_switch_that_says_nothing_known_is_the_users(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError, match=value) as error:
        Engine.load("demo", device="cpu", context_size=64)
    assert error.value.hint is not None and "environment variable" in error.value.hint
