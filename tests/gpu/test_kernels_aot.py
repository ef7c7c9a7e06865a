"""What `make kernels-aot` compiles, and what it detects: spills, too much memory, numbers that the host waits for."""

from __future__ import annotations

import ast
import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

import quant
from quant.cuda.tiles import MmaKind
from tests.gpu.kernels import needs_triton

if TYPE_CHECKING:
    import triton.language as tl

pytestmark = needs_triton


@pytest.mark.slow
def test_the_released_model_waits_for_nothing_and_stays_on_its_card() -> None:
    """Runs its passes over tensors without numbers; `make kernels-aot` does so for all recipes, and compiles."""
    from tests.gpu.specializations import WAYS, launched

    kernels = {launch.kernel for launch in launched(WAYS[1:2], sm_counts=[128])}
    assert {"linear_kernel", "gate_up_kernel", "attention_kernel", "decide_kernel", "soft_kernel"} < kernels


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["bf16", "4bit", "4bit-small", "int8"])
def test_kernels_of_the_released_model_can_be_held_against_the_plain_path(recipe: str) -> None:
    """As on loading to a card, but over tensors without numbers: both ways give results of the same shapes."""
    from localdiff.denoising import StepPath, kernel_comparisons
    from tests.gpu import specializations as on_cards
    from tests.models.steps import step_parity

    path = StepPath(static=True, logits=True)
    held = []

    def assert_shapes(name: str, compute: Any, expected: Any) -> float:
        held.append(name)
        for ours, theirs in zip(compute(), expected, strict=True):
            assert (ours.shape, ours.device) == (theirs.shape, theirs.device)
        return 0.0

    with (
        mock.patch("quant.cuda.tiles.mma_kind", lambda _: "wgmma"),
        mock.patch("quant.cuda.tiles.sm_count", lambda _: 132),
        mock.patch.object(kernel_comparisons, "assert_parity", assert_shapes),
        mock.patch.object(kernel_comparisons, "assert_decided_alike", lambda *_: None),
        on_cards.noted(),
        on_cards.without_numbers(),
    ):
        step_parity(on_cards.on_card(on_cards.kinds_of_layers(), recipe, {}), path)
    assert held.count("fused projections") == 12, (
        "of both kinds of layers, attention and the dense MLP, of both kinds of steps and a short piece"
    )
    assert held.count("gated projections") == (0 if recipe == "bf16" else 6), "of the dense MLP"


@pytest.mark.slow
@pytest.mark.parametrize(("mma_kind", "sms", "expected"), [("mma.sync", 128, 34), ("wgmma", 132, 45)])
def test_few_kernels_are_compiled_before_a_first_run(mma_kind: MmaKind, sms: int, expected: int) -> None:
    """The numbers in `docs/gpu.md`: for a plain step, a step with a commit, and one with the end of a prompt."""
    from tests.gpu import specializations as on_cards

    with (
        mock.patch("quant.cuda.tiles.sm_count", lambda _: sms),
        mock.patch("quant.cuda.tiles.mma_kind", lambda _: mma_kind),
        on_cards.noted() as launches,
        on_cards.without_numbers(),
    ):
        network = on_cards.on_card(on_cards.kinds_of_layers(), "4bit", {})
        for rows in (0, 256, 512):
            on_cards.take_step(network, rows)
    assert len(launches) == expected


@pytest.mark.parametrize("fault", ["a number on the host", "a tensor on the host", "a launch with one", "on any card"])
def test_what_would_wait_or_fail_on_a_card_is_seen(fault: str) -> None:
    from quant.cuda.rows import quantize_groups
    from tests.gpu.specializations import NOWHERE, noted, without_numbers

    with noted(), without_numbers():
        there, here = torch.empty(4, 64, device=NOWHERE), torch.zeros(4, 64)
        faults = {
            "a number on the host": lambda: bool(there.sum() > 0),
            "a tensor on the host": lambda: there + here,
            "a launch with one": lambda: quantize_groups(here),
            "on any card": lambda: quantize_groups(there),
        }
        with pytest.raises((RuntimeError, DataDependentOutputException)):
            faults[fault]()
        with torch.cuda.device_of(there):
            quantize_groups(there)


def test_every_launch_says_whether_products_and_sums_may_become_one() -> None:
    """Triton 3.9 warns if a launch does not say so, because later versions fuse only if asked to."""
    root = Path(quant.__file__).parents[1]
    sources = [path.read_text() for package in ("localdiff", "quant") for path in (root / package).rglob("*.py")]
    launches = [
        call
        for source in sources
        if "kernel[" in source
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Subscript)
        and "kernel" in ast.unparse(call.func.value)
    ]
    assert len(launches) > 20
    for launch in launches:
        assert "enable_fp_fusion" in {keyword.arg for keyword in launch.keywords}, ast.unparse(launch.func)


def test_a_launch_finds_what_was_compiled_ahead() -> None:
    """Triton's cache finds a kernel by the hashes of its source and its options; the test compares both."""
    jit, compiler = pytest.importorskip("triton.runtime.jit"), pytest.importorskip("triton.compiler")
    backends = pytest.importorskip("triton.backends.compiler")
    if not hasattr(jit.JITFunction, "_pack_args"):
        pytest.skip("this Triton prepares launches in another way")
    from tests.gpu.kernels_aot import options_of, source_of
    from tests.gpu.specializations import Launch

    kernel = jit.JITFunction(_kernel, do_not_specialize=("length",), do_not_specialize_on_alignment=("stride",))
    target = backends.GPUTarget("cuda", 90, 32)
    backend = compiler.make_backend(target)
    bind = jit.create_function_from_signature(kernel.signature, kernel.params, backend)
    x = torch.zeros(64)
    settings: dict[str, Any] = {"num_warps": 8, "num_stages": 2, "maxnreg": 128}
    tensors = x, x[4:], x[1:], x > 0
    for numbers in itertools.product(tensors, (1, 16, 17, 2**31, 0.5, None, True), (1, 16), (1, 16, 48)):
        given = {"debug": kernel.debug or False, "instrumentation_mode": "", **settings}
        bound, told, options = bind(*numbers, SIZE=64, **given)
        packed, signature, constants, attributes = kernel._pack_args(backend, given, bound, told, options)
        theirs = compiler.ASTSource(kernel, signature, constants, attributes)
        launch = Launch.of(kernel, numbers, {"SIZE": 64, **settings})
        assert source_of(launch, kernel, target).hash() == theirs.hash(), numbers
        assert backend.parse_options(options_of(launch)).hash() == packed.hash()


def _kernel(x: Any, number: Any, length: Any, stride: Any, SIZE: tl.constexpr) -> None:
    """Has one parameter of each kind."""


@pytest.mark.slow
@pytest.mark.parametrize(("plain", "of_few"), [("", "*i32"), ("byte-table", "*fp32")])
def test_blocks_of_few_rows_have_a_table_of_bytes(monkeypatch: pytest.MonkeyPatch, plain: str, of_few: str) -> None:
    """On Hopper, unless a switch disables it; larger blocks have no room for the table."""
    from quant.cuda import experts
    from tests.gpu.specializations import launched

    monkeypatch.setattr(experts, "is_interpreted", lambda _: False)
    launches = launched([("4bit", {"LOCALDIFF_CUDA_PLAIN": plain})], "wgmma", [132])
    nf4 = [
        (launch.kernel, dict(launch.constants)["ROWS"], dict(launch.types)["levels"])
        for launch in launches
        if launch.kernel in ("gate_up_kernel", "down_kernel") and dict(launch.constants)["NF4"]
    ]
    for kernel in ("gate_up_kernel", "down_kernel"):
        found = {(rows, levels) for name, rows, levels in nf4 if name == kernel}
        assert found == {(32, of_few), (64, "*fp32")}


@pytest.mark.slow
def test_names_tell_launches_apart() -> None:
    from tests.gpu.kernels_aot import names
    from tests.gpu.specializations import WAYS, launched

    named = names(launched(WAYS[1:2], sm_counts=[128]))
    assert len(set(named)) == len(named)
    assert {"layer_ops: route, parts 1", "layer_ops: route, parts 11"} < set(named)


def test_spills_are_seen() -> None:
    """The tool's output for a kernel that spills is read as a spill; other kernels alone would not show that."""
    from tests.gpu.kernels_aot import use_of

    line = " Function f:\n  REG:255 STACK:96 SHARED:0 LOCAL:0 CONSTANT[0]:380 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    use = use_of(line, shared=4, seconds=0.5)
    assert (use.registers, use.spilled, use.shared) == (255, 96, 4)
    assert not use.fits(90)


def test_too_much_shared_memory_is_seen() -> None:
    from tests.gpu.kernels_aot import Use

    use = Use(registers=100, spilled=0, shared=120_000, seconds=0.5)
    assert [use.fits(card) for card in (80, 86, 90, 120, 121)] == [True, False, True, False, False]
    assert use.fits(103) and use.fits(110)
    assert use.words(fits=False) == "117 KiB"


def test_what_the_code_declares_counts_too() -> None:
    """Triton does not know about it: it asks the driver for more than 48 KiB only if its own part exceeds that."""
    from tests.gpu.kernels_aot import use_of

    line = " Function f:\n  REG:95 STACK:0 SHARED:33792 LOCAL:0 CONSTANT[0]:648 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    assert use_of(line, shared=12_544, seconds=0.5).fits(90)
    third_stage = use_of(line, shared=20_992, seconds=0.5)
    assert not third_stage.fits(90) and third_stage.words(fits=False) == "52 KiB"
    assert use_of(line.replace("33792", "1024"), shared=49_152, seconds=0.5).fits(90)
    assert use_of(line, shared=50_000, seconds=0.5).fits(90)
    assert not use_of(line, shared=200_000, seconds=0.5).fits(90)


def test_too_much_tensor_memory_is_seen() -> None:
    from tests.gpu.kernels_aot import Use

    use = Use(registers=4, spilled=0, shared=98_000, columns=544, seconds=0.5)
    assert not use.fits(100)
    assert use.words(fits=False) == "544 columns"
    assert replace(use, columns=512).fits(100)
