"""The emulated GPU with small programs of its own; `test_gpu` tests that it runs what Triton compiles."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.gpu.ptx.machine import Machine
from tests.gpu.ptx.matrices import first_operand, result, second_operand
from tests.gpu.ptx.memory import GlobalMemory, MemoryFault
from tests.gpu.ptx.numbers import from_bf16, to_bf16
from tests.gpu.ptx.races import Clock, Race, Watch
from tests.gpu.ptx.syntax import parse
from tests.gpu.ptx.warpgroup import places

THREADS = 64
START = 0x10000
"""Where the input of a program is; its output follows."""
SHARED = 1024
"""Bytes of shared memory that a launch asks for."""

U32 = st.integers(0, 2**32 - 1)


def run(body: str, data: NDArray[np.uint32] | None = None, *, blocks: int = 1) -> NDArray[np.uint32]:
    """What a program writes, one number per thread: it finds its thread in %r1, and that thread's input in %r2."""
    count = THREADS * blocks
    given = np.zeros(count, np.uint32) if data is None else np.resize(data, count).astype(np.uint32)
    written = np.zeros(count, np.uint32)
    text = f"""
.visible .entry probe(
	.param .u64 .ptr .global .align 1 probe_param_0
)
.reqntid {THREADS}
{{
	.reg .pred 	%p<9>;
	.reg .b16 	%rs<9>;
	.reg .b32 	%r<29>;
	.reg .b64 	%rd<9>;
$L__func_begin0:
	mov.u32 	%r1, %tid.x;
	mov.u32 	%r27, %ctaid.x;
	mad.lo.s32 	%r26, %r27, {THREADS}, %r1;
	ld.param.b64 	%rd1, [probe_param_0];
	mad.wide.u32 	%rd2, %r26, 4, %rd1;
	ld.global.b32 	%r2, [%rd2];
{body}
	st.global.b32 	[%rd2+{4 * count}], %r28;
	ret;
$L__func_end0:
}}
"""
    memory = GlobalMemory([(START, given.view(np.uint8)), (START + 4 * count, written.view(np.uint8))])
    places_in_grid = [(block, 0, 0) for block in range(blocks)]
    parameters = {"probe_param_0": np.array([START], np.uint64)}
    Machine(parse(text), places_in_grid, (blocks, 1, 1), parameters, memory, SHARED).run()
    return written


def floats(*values: float) -> NDArray[np.uint32]:
    return np.array(values, np.float32).view(np.uint32)


@given(first=U32, second=U32, digits=st.lists(st.integers(0, 15), min_size=4, max_size=4))
def test_bytes_are_permuted(first: int, second: int, digits: list[int]) -> None:
    choice = sum(digit << 4 * place for place, digit in enumerate(digits))
    found = run(f"prmt.b32 %r28, %r2, {second}, {choice};", np.array([first]))[0]
    pool = [*first.to_bytes(4, "little"), *second.to_bytes(4, "little")]
    expected = [(255 if pool[d & 7] & 128 else 0) if d & 8 else pool[d & 7] for d in digits]
    assert list(int(found).to_bytes(4, "little")) == expected


@given(value=U32, place=st.integers(0, 31), count=st.integers(1, 32))
def test_bits_are_extracted(value: int, place: int, count: int) -> None:
    count = min(count, 32 - place)
    bits = value >> place & (1 << count) - 1
    signed = (bits - (1 << count) if bits >> count - 1 else bits) % 2**32
    assert run(f"bfe.u32 %r28, %r2, {place}, {count};", np.array([value]))[0] == bits
    assert run(f"bfe.s32 %r28, %r2, {place}, {count};", np.array([value]))[0] == signed
    for sign, expected in (("u", bits), ("s", signed)):
        both = f"mov.b64 %rd3, {{%r2, %r2}}; bfe.{sign}64 %rd4, %rd3, {place + 32}, {count}; cvt.u32.u64 %r28, %rd4;"
        assert run(both, np.array([value]))[0] == expected


def test_both_halves_of_a_product() -> None:
    assert run("mul.hi.u32 %r28, %r2, 0x55555556;", np.array([14]))[0] == 14 // 3
    assert run("mul.hi.s32 %r28, %r2, 0x55555556;", np.array([-14]).astype(np.uint32))[0] == 2**32 - 5
    assert run("mul.lo.s32 %r28, %r2, 3;", np.array([-14]).astype(np.uint32))[0] == 2**32 - 42


def test_shifts_by_more_than_there_are_bits() -> None:
    value = np.array([0x80000001])
    assert run("shl.b32 %r28, %r2, 32;", value)[0] == 0
    assert run("shr.u32 %r28, %r2, 40;", value)[0] == 0
    assert run("shr.s32 %r28, %r2, 40;", value)[0] == 0xFFFFFFFF


def test_quotients_are_rounded_toward_zero() -> None:
    data = np.array([-7, 7, -(2**31), 2**31 - 1], np.int32).view(np.uint32)
    assert run("div.s32 %r28, %r2, 3;", data)[:4].view(np.int32).tolist() == [-2, 2, -715827882, 715827882]
    assert run("rem.s32 %r28, %r2, 3;", data)[:4].view(np.int32).tolist() == [-1, 1, -2, 1]
    assert run("div.s32 %r28, %r2, -3;", data)[:4].view(np.int32).tolist() == [2, -2, 715827882, -715827882]
    assert run("div.u32 %r28, %r2, 3;", data)[2] == 2**31 // 3


def test_denormal_numbers_count_as_zero_where_the_name_says_so() -> None:
    """Both inputs and results."""
    data = floats(1e-39, -1e-39, 1e-20)
    assert run("mul.f32 %r28, %r2, 0f3F800000;", data)[:2].tolist() == data[:2].tolist()
    assert run("mul.ftz.f32 %r28, %r2, 0f3F800000;", data)[:3].tolist() == [0, 2**31, data[2]]
    assert run("mul.ftz.f32 %r28, %r2, %r2;", data)[2] == 0
    assert run("ex2.approx.ftz.f32 %r28, %r2;", floats(-127.0, -126.0))[:2].view(np.float32).tolist() == [0, 2.0**-126]


@pytest.mark.parametrize(
    ("instruction", "source"),
    [
        ("shfl.sync.bfly.b32 %r28, %r2, 5, 31, -1;", lambda lane: lane ^ 5),
        ("shfl.sync.up.b32 %r28, %r2, 3, 0, -1;", lambda lane: lane - 3 if lane >= 3 else lane),
        ("shfl.sync.down.b32 %r28, %r2, 3, 31, -1;", lambda lane: lane + 3 if lane < 29 else lane),
        ("shfl.sync.idx.b32 %r28, %r2, 18, 0x101f, -1;", lambda lane: lane // 16 * 16 + 2),
        ("shfl.sync.idx.b32 %r28, %r2, %r1, 31, -1;", lambda lane: lane),
    ],
)
def test_lanes_of_a_warp_exchange_numbers(instruction: str, source: object) -> None:
    assert callable(source)
    data = np.arange(THREADS, dtype=np.uint32) + 7
    expected = [data[lane // 32 * 32 + source(lane % 32)] for lane in range(THREADS)]
    assert run(instruction, data).tolist() == expected


def test_an_exchange_with_lanes_that_are_elsewhere_is_refused() -> None:
    body = """
	setp.lt.u32 %p1, %r1, 5;
	@%p1 bra $L__there;
	shfl.sync.bfly.b32 %r28, %r2, 1, 31, -1;
$L__there:
"""
    with pytest.raises(RuntimeError, match="elsewhere"):
        run(body)


def test_a_lane_that_an_exchange_does_not_name_may_not_take_part() -> None:
    with pytest.raises(RuntimeError, match="does not name it"):
        run("shfl.sync.idx.b32 %r28, %r2, 0, 31, 0xffff;")
    half = "setp.lt.u32 %p1, %r1, 16; @%p1 redux.sync.max.s32 %r28, %r2, 0xffff; @!%p1 mov.b32 %r28, 0;"
    assert run(half, np.arange(THREADS))[:17].tolist() == [15] * 16 + [0]


def test_votes_and_sums_of_a_warp() -> None:
    data = np.arange(THREADS, dtype=np.uint32)
    odd = "and.b32 %r3, %r2, 1; setp.ne.b32 %p1, %r3, 0; vote.sync.ballot.b32 %r28, %p1, -1;"
    assert set(run(odd, data).tolist()) == {0xAAAAAAAA}
    sums = run("redux.sync.add.s32 %r28, %r2, -1;", data)
    assert sums[0] == sum(range(32)) and sums[32] == sum(range(32, 64))


@given(values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8))
def test_rounding_to_bf16_is_that_of_torch(values: list[float]) -> None:
    single = np.array(values, np.float32)
    expected = torch.tensor(single).bfloat16().float().numpy()
    assert np.array_equal(from_bf16(to_bf16(single)), expected)


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3))
def test_a_fused_product_in_bf16_is_rounded_once(values: list[float]) -> None:
    bits = to_bf16(np.array(values, np.float32)).astype(np.uint32)
    a, b, c = from_bf16(bits).tolist()
    both = " ".join(f"mov.b16 %rs{place}, {number};" for place, number in enumerate(bits.tolist(), 1))
    found = int(run(f"{both} fma.rn.bf16 %rs4, %rs1, %rs2, %rs3; cvt.u32.u16 %r28, %rs4;")[0])
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = [from_bf16(np.array([found + step], np.uint16))[0] for step in (-1, 0, 1) if 0 <= found + step < 2**16]
    error = abs(Fraction(float(from_bf16(np.array([found], np.uint16))[0])) - exact)
    assert error == min(abs(Fraction(float(value)) - exact) for value in near if np.isfinite(value))


def test_floats_become_integers_toward_zero_and_within_their_range() -> None:
    data = floats(-1.9, 1.9, 3e9, -3e9, float("nan"))
    found = run("cvt.rzi.s32.f32 %r28, %r2;", data)[:5].view(np.int32)
    assert found.tolist() == [-1, 1, 2**31 - 1, -(2**31), 0]


def test_a_small_integer_in_a_register_keeps_its_sign() -> None:
    found = run("cvt.s8.s32 %rs1, %r2; cvt.rn.f32.s16 %r28, %rs1;", np.array([0x1FF, 0x17F]))
    assert found[:2].view(np.float32).tolist() == [-1.0, 127.0]
    found = run("cvt.s8.s32 %rs1, %r2; cvt.rn.bf16.s16 %rs2, %rs1; cvt.u32.u16 %r28, %rs2;", np.array([0x1FF, 0x17F]))
    assert from_bf16(found[:2].astype(np.uint16)).tolist() == [-1.0, 127.0]


def test_sums_of_halves_carry_nothing_from_one_to_the_other() -> None:
    assert run("add.s16x2 %r28, %r2, 0x00018002;", np.array([0x7FFFFFFF]))[0] == 0x80008001


def test_comparisons_with_nan() -> None:
    data = floats(float("nan"), 1.0)
    assert run("setp.lt.f32 %p1, %r2, 0f40000000; selp.b32 %r28, 1, 0, %p1;", data)[:2].tolist() == [0, 1]
    assert run("setp.ltu.f32 %p1, %r2, 0f40000000; selp.b32 %r28, 1, 0, %p1;", data)[:2].tolist() == [1, 1]
    assert run("setp.num.f32 %p1, %r2, %r2; selp.b32 %r28, 1, 0, %p1;", data)[:2].tolist() == [0, 1]
    assert run("setp.nan.f32 %p1, %r2, 0f40000000; selp.b32 %r28, 1, 0, %p1;", data)[:2].tolist() == [1, 0]
    assert run("max.f32 %r28, %r2, 0f40000000;", data)[:2].view(np.float32).tolist() == [2.0, 2.0]
    with_nan = run("max.NaN.f32 %r28, %r2, 0f40000000;", data)[:2].view(np.float32)
    assert np.isnan(with_nan[0]) and with_nan[1] == 2.0


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_two_comparisons_at_once(kind: str) -> None:
    """The predicate of the low half comes first."""
    one, nan = (0x3F80, 0x7FC0) if kind == "bf16" else (0x3C00, 0x7E00)
    data = np.array([0, one, one << 16, nan | one << 16])
    body = "setp.{}.{}x2 %p1|%p2, %r2, 0; selp.b32 %r3, 1, 0, %p1; selp.b32 %r4, 2, 0, %p2; or.b32 %r28, %r3, %r4;"
    assert run(body.format("gt", kind), data)[:4].tolist() == [0, 1, 2, 2]
    assert run(body.format("gtu", kind), data)[:4].tolist() == [0, 1, 2, 3]
    assert run("mov.b32 %r28, 5;" + body.format("gt", kind).replace(" %r2, 0;", " 0, %r2;"), data)[:4].sum() == 0


def test_negative_zero_is_less_than_zero() -> None:
    zeros = np.array([0, 2**31])
    assert run("max.f32 %r28, %r2, 0f80000000;", zeros)[:2].tolist() == [0, 2**31]
    assert run("max.f32 %r28, %r2, 0f00000000;", zeros)[:2].tolist() == [0, 0]
    assert run("min.f32 %r28, %r2, 0f00000000;", zeros)[:2].tolist() == [0, 2**31]


LOOP = """
	mov.b32 %r28, 0;
$L__again:
	add.s32 %r28, %r28, 1;
	setp.lt.u32 %p1, %r28, %r2;
	@%p1 bra $L__again;
	add.s32 %r28, %r28, 100;
"""


def test_threads_go_round_a_loop_as_often_as_each_needs() -> None:
    data = np.arange(1, 2 * THREADS + 1, dtype=np.uint32) % 7 + 1
    assert run(LOOP, data, blocks=2).tolist() == (data + 100).tolist()


EXCHANGED = """
	shl.b32 %r3, %r1, 2;
	xor.b32 %r4, %r3, 128;
	{first}
	st.shared.b32 [%r3], %r2;
	{second}
	ld.shared.b32 %r28, [%r4];
"""


def test_a_barrier_is_waited_for_by_threads_that_come_by_different_ways() -> None:
    """Two warps, one of which arrives late, read each other's numbers."""
    late = "setp.lt.u32 %p1, %r1, 32; @%p1 bra $L__early; add.s32 %r2, %r2, 1;\n$L__early:\n"
    data = np.arange(THREADS, dtype=np.uint32) * 2
    found = run(EXCHANGED.format(first=late, second="bar.sync 0;"), data)
    assert found.tolist() == [*(data[32:] + 1), *data[:32]]


@pytest.mark.parametrize("second", ["", "bar.warp.sync -1;"])
def test_shared_memory_without_a_barrier_is_a_race(second: str) -> None:
    """A barrier within a warp does not order two warps."""
    with pytest.raises(Race, match="reads what warp . wrote"):
        run(EXCHANGED.format(first="", second=second))


def test_what_others_still_read_may_not_be_overwritten() -> None:
    body = EXCHANGED.format(first="", second="bar.sync 0;")
    with pytest.raises(Race, match="writes what warp"):
        run(body + "st.shared.b32 [%r3], %r28;")
    run(body + "bar.sync 0; st.shared.b32 [%r3], %r28;")


@pytest.mark.parametrize("writer", [0, 1])
def test_what_several_warps_read_at_once_none_of_them_may_overwrite(writer: int) -> None:
    """Whichever of the warps is noted last."""
    body = f"""
	setp.eq.b32 %p1, %r1, 0;
	@%p1 st.shared.b32 [0], %r2;
	bar.sync 0;
	ld.shared.b32 %r28, [0];
	setp.eq.b32 %p2, %r1, {32 * writer};
	@%p2 st.shared.b32 [0], 7;
"""
    with pytest.raises(Race, match="writes what several others read"):
        run(body)


def test_two_warps_may_write_the_same_number_but_not_different_ones() -> None:
    """One after the other, and in one instruction."""
    later = "setp.lt.u32 %p1, %r1, 32; @%p1 st.shared.b32 [0], {}; @!%p1 st.shared.b32 [0], {}; mov.b32 %r28, 0;"
    run(later.format(5, 5))
    with pytest.raises(Race, match="writes what warp"):
        run(later.format(5, 6))
    with pytest.raises(Race, match="different numbers"):
        run("st.shared.b32 [0], %r1; mov.b32 %r28, 0;")


def test_what_another_block_of_the_launch_writes_may_not_be_read() -> None:
    """Not even after a barrier, which orders only threads of one block."""
    other = f"xor.b32 %r3, %r26, {THREADS}; mad.wide.u32 %rd3, %r3, 4, %rd1; st.global.b32 [%rd2], %r1; bar.sync 0;"
    with pytest.raises(Race, match="reads what warp . wrote"):
        run(other + "ld.global.b32 %r28, [%rd3];", blocks=2)


@pytest.mark.parametrize("between", ["", "bar.sync 0;"])
def test_what_several_blocks_read_none_of_them_may_write(between: str) -> None:
    """Whichever read last, and whatever barriers it has passed: the others may not have read yet."""
    body = f"ld.global.b32 %r28, [%rd1]; {between} setp.eq.b32 %p1, %r26, {THREADS}; @%p1 st.global.b32 [%rd1], %r1;"
    with pytest.raises(Race):
        run(body + "mov.b32 %r28, 0;", np.array([7]), blocks=2)


def test_what_any_warp_of_a_group_wrote_the_group_reads_after_a_barrier() -> None:
    """Its first warp is no exception: the other warps have not waited for it."""
    clock, watch = Clock(128, 128, 0), Watch(64)
    first, start, changes = np.array([0]), np.array([8]), np.array([[True]])
    watch.write(clock, first, start, 2, changes)
    with pytest.raises(Race, match="a warpgroup reads what warp 0 wrote"):
        watch.read_together(clock, 0, start)
    clock.passed(None)
    watch.read_together(clock, 0, start)
    with pytest.raises(Race, match="writes what several others read"):
        watch.write(clock, first, start, 2, changes)
    clock.passed(None)
    watch.write(clock, first, start, 2, changes)


def test_blocks_have_shared_memory_of_their_own() -> None:
    data = np.arange(2 * THREADS, dtype=np.uint32)
    found = run(EXCHANGED.format(first="", second="bar.sync 0;"), data, blocks=2)
    assert found.tolist() == (data ^ 32).tolist()


def test_an_atomic_sum_gives_each_thread_what_was_there() -> None:
    for name in ("atom.shared.add.u32", "atom.relaxed.sys.shared.add.u32"):
        body = f"st.shared::cta.b32 [16], 0; bar.sync 0; {name} %r28, [16], 2;"
        assert sorted(run(body).tolist()) == list(range(0, 2 * THREADS, 2))


COPY = """
	shl.b32 %r3, %r1, 2;
	cp.async.ca.shared.global [ %r3 + 0 ], [ %rd2 + 0 ], 0x4, {read};
	cp.async.commit_group;
	{wait}
	ld.shared.b32 %r28, [%r3];
"""


def test_a_copy_is_there_when_it_has_been_waited_for() -> None:
    data = np.arange(THREADS, dtype=np.uint32)
    assert run(COPY.format(wait="cp.async.wait_group 0;", read=4), data).tolist() == data.tolist()
    assert not run(COPY.format(wait="cp.async.wait_group 0;", read=0), data).any(), "what is masked is zero"


@pytest.mark.parametrize("wait", ["", "cp.async.wait_group 1;"])
def test_a_copy_that_is_read_too_early_is_nan(wait: str) -> None:
    found = run(COPY.format(wait=wait, read=4), np.arange(THREADS, dtype=np.uint32))
    assert np.isnan(found.view(np.float32)).all()
    assert np.isnan(from_bf16(found.astype(np.uint16))).all()


@pytest.mark.parametrize(
    "access",
    [
        f"ld.global.b32 %r28, [%rd2+{8 * THREADS}];",
        "ld.global.b32 %r28, [%rd2+-4];",
        "mov.b64 %rd3, -4; ld.global.b32 %r28, [%rd3];",
        f"st.global.v2.b32 [%rd1+{8 * THREADS - 4}], {{ %r1, %r2 }};",
        "add.s64 %rd3, %rd2, 2; ld.global.b32 %r28, [%rd3];",
        "ld.shared.b32 %r28, [1024];",
        "ld.shared.b32 %r28, [6];",
        "mov.b32 %r3, -4; st.shared.b32 [%r3], %r2;",
        f"add.s64 %rd3, %rd1, {8 * THREADS}; cp.async.ca.shared.global [ 0 + 0 ], [ %rd3 + 0 ], 0x4, 4;",
    ],
    ids=[
        "behind",
        "before",
        "behind all",
        "half behind",
        "between",
        "shared",
        "shared, between",
        "shared, before",
        "by a copy",
    ],
)
def test_no_access_is_outside_of_what_is_allocated(access: str) -> None:
    with pytest.raises(MemoryFault):
        run(access + " mov.b32 %r28, 0;")


def test_what_a_cache_is_to_fetch_is_allocated_and_changes_nothing() -> None:
    fetched = "prefetch.global.L2 [%rd2{}]; mov.b32 %r28, %r2;"
    data = np.arange(THREADS) + 7
    assert (run(fetched.format(""), data) == data).all()
    with pytest.raises(MemoryFault):
        run(fetched.format(f"+{8 * THREADS}"))
    with pytest.raises(NotImplementedError):
        run("prefetch.local.L1 [%rd2]; mov.b32 %r28, 0;")


def test_lanes_that_a_predicate_excludes_access_nothing() -> None:
    guarded = f"setp.eq.b32 %p1, %r1, 99; mov.b32 %r28, 3; @%p1 ld.global.b32 %r28, [%rd2+{8 * THREADS}];"
    assert set(run(guarded).tolist()) == {3}


def test_a_pause_changes_nothing() -> None:
    assert set(run("mov.b32 %r28, 3; setp.eq.b32 %p1, %r1, 0; @%p1 nanosleep.u32 0;").tolist()) == {3}


FOUR, TWO = "{%r3, %r4, %r5, %r6}", "{%r3, %r4}"


@pytest.mark.parametrize(
    "what",
    [
        "frobnicate.b32 %r28, %r2;",
        "cvt.rp.f32.s32 %r28, %r2;",
        "prmt.b32.b4e %r28, %r2, 0, 0;",
        "add.sat.s32 %r28, %r2, %r2;",
        "fma.rz.f32 %r28, %r2, %r2, %r2;",
        "fma.rn.f64 %rd3, %rd2, %rd2, %rd2;",
        "cvt.rz.bf16.f32 %rs1, %r2;",
        "cvt.rzi.f32.f32 %r28, %r2;",
        "cvt.rzi.s64.f32 %rd3, %r2;",
        "setp.lt.f16x2 %p1, %r2, %r2;",
        "redux.sync.and.b32 %r28, %r2, -1;",
        "shfl.down.b32 %r28, %r2, 1, 31;",
        "vote.sync.any.pred %p1, %p2, -1;",
        "bar.red.popc.u32 %r28, 0, %p1;",
        "bar.sync 1;",
        "bar.sync 0, 32;",
        "@%p1 bar.sync 0;",
        "barrier.cluster.arrive;",
        "ld.shared::cluster.b32 %r28, [0];",
        "ld.b32 %r28, [%rd2];",
        "ld.param.b64 %rd3, [probe_param_0+8];",
        "atom.shared.add.f32 %r28, [0], %r2;",
        "atom.acquire.shared.add.u32 %r28, [0], %r2;",
        "cp.async.ca.shared.global [0], [%rd2], 4, 4, %rd3;",
        "cp.async.wait_all;",
        "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {%r28}, [0];",
        f"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {FOUR}, {FOUR}, {TWO}, {FOUR};",
        f"mma.sync.aligned.m16n8k16.col.col.f32.bf16.bf16.f32 {FOUR}, {FOUR}, {TWO}, {FOUR};",
        f"mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {FOUR}, {TWO}, {TWO}, {FOUR}, %r7, 0;",
        f"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {FOUR}, %rd1, %rd2, %r7, 0, 1, 1, 1, 0, 0;",
        f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {FOUR}, %rd1, %rd2, 1, -1, 1, 0, 0;",
    ],
)
def test_unknown_instructions_are_refused(what: str) -> None:
    """The same for forms of known instructions whose modifiers would otherwise be ignored."""
    with pytest.raises(NotImplementedError):
        run(what)


@pytest.mark.parametrize(
    "what", ["setp.eq.b32 %p1, %p2, 0;", "mov.b64 %rd3, %r2;", "mov.b64 %r28, %rd2;", "selp.b32 %r28, %r2, %r2, %r2;"]
)
def test_registers_of_another_type_are_refused(what: str) -> None:
    with pytest.raises(TypeError):
        run(what)


def test_a_name_of_two_types_and_a_label_of_two_places_are_refused() -> None:
    """Scopes are dropped, so inline code must declare the same names wherever it is pasted."""
    run("{ .reg .b32 code; mov.b32 code, 1; } { .reg .b32 code; mov.b32 %r28, 2; }")
    with pytest.raises(ValueError, match="two types"):
        run("{ .reg .b32 code; mov.b32 code, 1; } { .reg .b16 code; mov.b16 code, 1; }")
    with pytest.raises(ValueError, match="two places"):
        run("$L__here:\n add.s32 %r28, %r2, 1;\n$L__here:\n")


def test_a_kernel_may_declare_shared_memory() -> None:
    """It comes before what the launch asks for; each piece has one name, because scopes are dropped."""
    body = """
	{
	.shared .align 16 .b32 table[64];
	mov.u32 %r3, table;
	shl.b32 %r4, %r1, 2;
	add.u32 %r4, %r4, %r3;
	st.shared.b32 [%r4], %r2;
	}
	bar.sync 0;
	ld.shared.b32 %r28, [%r4];
"""
    data = np.arange(THREADS) + 7
    assert (run(body, data) == data).all()
    assert (run("mov.u32 %r28, global_smem;") == 0).all()
    assert (run(".shared .align 16 .b32 table[63]; mov.u32 %r28, global_smem;") == 256).all()
    place = f".shared .align 16 .b32 table[64]; mov.u32 %r3, {256 + SHARED - 4}; st.shared.b32 [%r3{{}}], 0;"
    run(place.format("") + "mov.b32 %r28, 0;")
    with pytest.raises(MemoryFault):
        run(place.format("+4"))
    with pytest.raises(ValueError, match="two pieces"):
        run("{ .shared .align 16 .b32 table[64]; } { .shared .align 16 .b32 table[64]; }")
    with pytest.raises(ValueError, match="known kind"):
        run(".shared .align 128 .b32 table[64];")


def test_what_was_never_written_is_nan() -> None:
    assert np.isnan(run("mov.b32 %r28, %r9;").view(np.float32)).all()
    assert np.isnan(run("ld.shared.b32 %r28, [512];").view(np.float32)).all()


def test_a_matrix_product_of_a_warp() -> None:
    """Rows of 16 bytes through shared memory, as in kernels: `ldmatrix` distributes them as `mma` expects."""
    body = """
	shl.b32 %r3, %r1, 2;
	st.shared.b32 [%r3], %r2;
	bar.sync 0;
	and.b32 %r4, %r1, 7;
	shl.b32 %r5, %r4, 4;
	ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r6}, [%r5];
	mov.b32 %r7, 0;
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
		{%r8, %r9, %r10, %r11}, {%r6, %r7, %r7, %r7}, {%r6, %r7}, {%r7, %r7, %r7, %r7};
	mov.b32 %r28, %r8;
"""
    numbers = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    bits = to_bf16(numbers).reshape(-1).view(np.uint32)
    found = run(body, np.resize(bits, THREADS)).view(np.float32)[:32].reshape(8, 4)
    rounded = from_bf16(to_bf16(numbers))
    assert np.allclose(found, (rounded @ rounded.T)[:, ::2], atol=1e-5)


@pytest.mark.parametrize("kind", ["bf16", "f16", "s8", "tf32"])
def test_every_element_of_a_matrix_is_in_one_register(kind: str) -> None:
    """Also, a lane's last element is where the PTX ISA says: group is the lane's number // 4, thread its remainder."""
    first, second, sums = first_operand(kind), second_operand(kind), result("f32")
    for fragment in (first, second, sums, result("s32", 256)):
        found = fragment.rows * fragment.shape[1] + fragment.columns
        assert sorted(found.ravel().tolist()) == list(range(fragment.shape[0] * fragment.shape[1]))
    group, thread = 29 // 4, 29 % 4
    depth = {"bf16": 2 * thread + 9, "f16": 2 * thread + 9, "s8": 4 * thread + 19, "tf32": thread + 4}[kind]
    assert (first.rows[29, -1], first.columns[29, -1]) == (group + 8, depth)
    assert (second.rows[29, -1], second.columns[29, -1]) == (depth, group)
    assert (sums.rows[29].tolist(), sums.columns[29].tolist()) == ([7, 7, 15, 15], [2, 3, 2, 3])


@given(start=st.integers(0, 7).map(lambda block: 1024 * block), mode=st.sampled_from([(1, 128), (2, 64), (3, 32)]))
def test_rows_of_a_swizzled_matrix_keep_their_bytes(start: int, mode: tuple[int, int]) -> None:
    """Eight rows form a pattern of eight times the row's width, in which no two elements share a place."""
    code, width = mode
    descriptor = start >> 4 | (8 * width >> 4) << 32 | code << 62
    found = places(descriptor, 16, width // 2, 2, transposed=False) - start
    assert sorted(found.ravel().tolist()) == list(range(0, 16 * width, 2))
    assert (found[:8] < 8 * width).all() and (found // width % 8 == np.arange(16)[:, None] % 8).all()
