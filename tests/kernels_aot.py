"""Compiles every kernel for the cards that there are, without one, and reports what each takes: `make kernels-aot`.

Registers, spilled bytes and shared memory are what the machine code says, read back from it with `cuobjdump`; Triton
ships that and the assembler. It says nothing about speed. Exits with 1 where a kernel spills, takes more shared memory
than the card has, or does not compile.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CARDS = {80: "A100", 86: "RTX 30", 89: "RTX 40", 90: "H100, H200", 100: "B200", 120: "RTX 50"}
SHARED = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory that a block may take at most (CUDA programming guide, technical specifications)."""

POINTERS = {
    "bf16": "*bf16",
    "fp16": "*fp16",
    "fp32": "*fp32",
    "i8": "*i8",
    "u8": "*u8",
    "i32": "*i32",
    "i64": "*i64",
    "i1": "*i1",
}


@dataclass(frozen=True, kw_only=True)
class Build:
    """One kernel with its types and constants, at the shapes of the released model.

    Attributes:
        module, kernel: where it is.
        name: what the report calls it.
        pointers: types of its pointers; integers are all other arguments that are no constants.
        floats: arguments that are fp32 numbers.
        aligned: integers that are multiples of 16 there.
    """

    module: str
    kernel: str
    name: str
    pointers: dict[str, str]
    constants: dict[str, Any]
    floats: tuple[str, ...] = ()
    aligned: tuple[str, ...] = ()
    warps: int = 4
    stages: int = 3


@dataclass(frozen=True, kw_only=True)
class Use:
    """What the machine code of a build takes; bytes of local memory are what it spilled."""

    registers: int
    spilled: int
    shared: int
    seconds: float = field(compare=False)

    def fits(self, card: int) -> bool:
        """Whether nothing is spilled and the card has the shared memory."""
        return not self.spilled and self.shared <= 1024 * SHARED[card]

    def words(self, *, fits: bool) -> str:
        """Registers, and what does not fit."""
        if fits:
            return f"{self.registers}"
        return f"{self.registers} ({self.spilled})" if self.spilled else f"{self.shared / 1024:.0f} KiB"


def builds() -> list[Build]:
    """Every kernel in every variant that a released recipe uses."""
    return [*_joints(), *_attention(), *_logits(), *_experts(), *_decode(), *_linear(), *_embedding(), *_soft()]


def _joints() -> Iterator[Build]:
    from localdiff.kernels.joints import BLOCK

    module = "localdiff.kernels.joint_kernels"
    row: dict[str, Any] = {"floats": ("eps", "router_factor"), "aligned": ("width",), "warps": 8}
    wide = {"WIDTH": 4096}
    close = ("x", "dense", "routed", "dense_weight", "routed_weight", "both_weight") + (
        "canvas_scalar",
        "encoder_scalar",
        "out",
    )
    for kernel, pointers in (
        ("norm_kernel", ("x", "weight", "out")),
        (
            "after_attention_kernel",
            ("x", "y", "attention_weight", "dense_weight", "routed_weight", "router_scale")
            + ("stream", "dense", "routed", "scored"),
        ),
    ):
        types = dict.fromkeys(pointers, "bf16")
        name = kernel.removesuffix("_kernel").replace("_", " ")
        yield Build(module=module, kernel=kernel, name=f"joints: {name}", pointers=types, constants=wide, **row)
    for top_k in (0, 8):
        yield Build(
            module=module,
            kernel="close_kernel",
            name="joints: close" + f", {top_k} experts summed" * (top_k > 0),
            pointers=dict.fromkeys(close, "bf16") | {"is_canvas": "i1", "share": "fp32"},
            constants=wide | {"TOP_K": top_k},
            **row,
        )
    for size in (256, 512):
        pointers = ("q", "k", "v", "q_weight", "k_weight", "cosines", "sines", "q_out", "k_out", "v_out")
        yield Build(
            module=module,
            kernel="heads_kernel",
            name=f"joints: heads of {size}",
            pointers=dict.fromkeys(pointers, "bf16"),
            constants={"SIZE": size, "HALF": size // 2},
            floats=("eps",),
            aligned=("q_row", "k_row", "v_row"),
            warps=1,
        )
    yield Build(
        module=module,
        kernel="gated_kernel",
        name="joints: gated",
        pointers=dict.fromkeys(("gate", "up", "out"), "bf16"),
        constants={"BLOCK": BLOCK},
        aligned=("gate_row", "up_row", "width"),
    )
    yield Build(
        module=module,
        kernel="choose_kernel",
        name="joints: choose",
        pointers={"scores": "bf16", "scale": "bf16", "index": "i64", "weight": "fp32"},
        constants={"TOP_K": 8, "EXPERTS": 128},
        aligned=("experts",),
        warps=1,
    )


def _attention() -> Iterator[Build]:
    from localdiff.kernels.attention import MOST_SPLITS, STAGES, WARPS, tile_of

    module = "localdiff.kernels.attention_kernels"
    read = dict.fromkeys(("q", "new_keys", "new_values", "keys", "values"), "bf16") | {"length": "i32"}
    heads = 16
    for kind, size, group, splits in itertools.chain(
        (("sliding", 256, 2, splits) for splits in (1, 2)), (("full", 512, 8, splits) for splits in (1, 2))
    ):
        tile = tile_of(size)
        yield Build(
            module=module,
            kernel="attention_kernel",
            name=f"attention, {kind}" + f", {splits} splits" * (splits > 1),
            pointers=read | {"out": "bf16" if splits == 1 else "fp32", "peaks": "fp32", "masses": "fp32"},
            constants={
                "WINDOWED": kind == "sliding",
                "HEADS": heads,
                "GROUP": group,
                "SIZE": size,
                "WIDTH": size,
                "SPLITS": splits,
                "ROWS": tile.rows,
                "KEYS": tile.keys,
            },
            aligned=("rows", "commit_rows", "q_row", "q_head", "new_row", "new_head", "cached_head"),
            warps=WARPS,
            stages=STAGES,
        )
    yield Build(
        module=module,
        kernel="write_kernel",
        name="attention, commit rows written",
        pointers=dict.fromkeys(("new_keys", "new_values", "keys", "values"), "bf16") | {"length": "i32"},
        constants={"SIZE": 512, "WIDTH": 512},
        aligned=("commit_rows", "new_row", "new_head", "cached_head"),
        warps=1,
    )
    yield Build(
        module=module,
        kernel="combine_kernel",
        name="attention, splits combined",
        pointers={"partial": "fp32", "peaks": "fp32", "masses": "fp32", "out": "bf16"},
        constants={"SIZE": 512, "WIDTH": 512, "SPLITS": MOST_SPLITS},
        aligned=("pairs",),
    )


def _logits() -> Iterator[Build]:
    from localdiff.kernels.logits import BLOCK, WARPS

    module = "localdiff.kernels.logits_kernels"
    read = {"logits": "bf16", "temperature": "fp32"}
    partials = dict.fromkeys(("peak", "mass", "weighted", "stored_mass"), "fp32") | {"place": "i32"}
    shape: dict[str, Any] = {"floats": ("softcap",), "aligned": ("row_stride", "vocab_size", "blocks"), "warps": WARPS}
    constants: dict[str, Any] = {"CAPPED": True, "BLOCK": BLOCK}
    yield Build(
        module=module, kernel="partials_kernel", name="logits", pointers=read | partials, constants=constants, **shape
    )
    found = dict.fromkeys(("uniforms", "entropy", "argmax_prob", "log_normalizer"), "fp32")
    found |= {"argmax": "i64", "sampled": "i64"}
    yield Build(
        module=module,
        kernel="summary_kernel",
        name="logits, summary",
        pointers=read | partials | found,
        constants=constants | {"SAMPLED": True, "BLOCKS": 64},
        **shape,
    )
    yield Build(
        module=module, kernel="process_kernel", name="logits, processed", pointers=read, constants=constants, **shape
    )
    yield Build(
        module="localdiff.kernels.decision_kernels",
        kernel="decide_kernel",
        name="decision",
        pointers=dict.fromkeys(("controls", "fresh", "draft", "run", "outcome"), "i32")
        | {"entropy": "fp32", "argmax_prob": "fp32", "argmax": "i64", "sampled": "i64", "canvas": "i64"},
        constants={"POSITIONS": 256, "CHUNK": 32},
        aligned=("length",),
        warps=8,
    )


def _experts() -> Iterator[Build]:
    from quant.cuda.experts import COMBINED, MANY_ROWS, ROWS, STAGES, WARPS

    module = "quant.cuda.expert_kernels"
    routed = dict.fromkeys(("order", "block_expert", "block_start", "block_count"), "i32")
    yield Build(
        module=module,
        kernel="route_kernel",
        name="routing",
        pointers=routed | {"index": "i64"},
        constants={"ROWS": 16, "PAIRS": 2048, "BINS": 256, "BLOCKS": 256},
        aligned=("pairs", "experts", "blocks"),
        warps=8,
    )
    for codec, activations, rows in (
        ("w4", "a16", ROWS["a16"]),
        ("w4", "a16", MANY_ROWS),
        ("w4", "a8", ROWS["a8"]),
        ("w4", "a8", MANY_ROWS),
        ("w8", "a16", ROWS["a16"]),
        ("w8", "a16", MANY_ROWS),
        ("w8", "a8", ROWS["a8"]),
        ("w8", "a8", MANY_ROWS),
        ("w16", "a16", ROWS["a16"]),
        ("w16", "a16", MANY_ROWS),
    ):
        int8 = activations == "a8"
        codes = {"w4": "u8", "w8": "i8", "w16": "bf16"}[codec]
        weights = {"codes": codes, "scales": "bf16", "levels": "i8" if int8 else "fp32"}
        x, scales = ("i8", "fp32") if int8 else ("bf16", "bf16")
        constants = {"NF4": codec == "w4", "INT8": int8, "PERMUTED": True, "ROWS": rows, "COLUMNS": 64}
        name = f"{codec}{activations}, {rows} rows"
        yield Build(
            module=module,
            kernel="gate_up_kernel",
            name=f"gate, up {name}",
            pointers=routed | weights | {"x": x, "x_scales": scales, "hidden": x, "hidden_scales": scales},
            constants=constants | {"COMPUTE": "bf16"},
            aligned=("width", "inner"),
            warps=WARPS,
            stages=STAGES,
        )
        yield Build(
            module=module,
            kernel="down_kernel",
            name=f"down {name}",
            pointers=routed | weights | {"hidden": x, "hidden_scales": scales, "outputs": "bf16"},
            constants=constants,
            aligned=("width", "inner"),
            warps=WARPS,
            stages=STAGES,
        )
    yield Build(
        module=module,
        kernel="combine_kernel",
        name="experts combined",
        pointers={"outputs": "bf16", "weight": "fp32", "combined": "bf16"},
        constants={"TOP_K": 8, "COLUMNS": COMBINED},
        aligned=("width",),
    )
    yield Build(
        module="quant.cuda.row_kernels",
        kernel="quantize_kernel",
        name="rows to int8",
        pointers={"x": "bf16", "codes": "i8", "scales": "fp32"},
        constants={"GROUPS": 4},
        aligned=("width",),
        warps=2,
    )


def _decode() -> Iterator[Build]:
    from quant.cuda.decode import GROUPS

    for is_tiled in (False, True):
        yield Build(
            module="quant.cuda.decode_kernels",
            kernel="decode_kernel",
            name="decode nf4" + ", tiled" * is_tiled,
            pointers={"codes": "u8", "scales": "bf16", "levels": "fp32", "out": "bf16"},
            constants={"TILED": is_tiled, "GROUPS": GROUPS},
            aligned=("count", "code_row", "code_group"),
        )


def _linear() -> Iterator[Build]:
    from quant.cuda.linear import COLUMNS, GATED_TILES, STAGES, TILES

    tiles = [
        (activations, gated, *tile)
        for activations, with_gate in GATED_TILES.items()
        for gated, some in ((False, TILES), (True, with_gate))
        for tile in some
    ]
    for codec, (activations, gated, rows, warps) in itertools.product(("w4", "w8"), tiles):
        int8 = activations == "a8"
        yield Build(
            module="quant.cuda.linear_kernels",
            kernel="linear_kernel",
            name=f"linear {codec}{activations}" + ", gated" * gated + f", {rows} rows",
            pointers={
                "x": "i8" if int8 else "bf16",
                "x_scales": "fp32" if int8 else "bf16",
                "codes": "u8" if codec == "w4" else "i8",
                "scales": "bf16",
                "levels": "i8" if int8 else "fp32",
                "out": "bf16",
            },
            constants={"NF4": codec == "w4", "INT8": int8, "GATED": gated, "PERMUTED": True}
            | {"ROWS": rows, "COLUMNS": COLUMNS},
            aligned=("rows", "width", "out_width", "code_row", "code_group"),
            warps=warps,
            stages=STAGES,
        )


def _embedding() -> Iterator[Build]:
    from quant.cuda.embedding import IDS, STAGES
    from quant.cuda.linear import TILES

    for rows, warps in TILES:
        yield Build(
            module="quant.cuda.embedding_kernels",
            kernel="soft_kernel",
            name=f"soft embedding, {rows} rows",
            pointers={"logits": "bf16", "log_normalizer": "fp32", "codes": "i8", "scales": "bf16", "partial": "fp32"},
            constants={"COMPUTE": "bf16", "ROWS": rows, "IDS": IDS},
            aligned=("rows", "vocab_size", "width", "row_stride", "share"),
            warps=warps,
            stages=STAGES,
        )


def _soft() -> Iterator[Build]:
    from quant.cuda.soft import BLOCK, CAPACITY, COLUMNS, ENTRIES

    module = "quant.cuda.soft_kernels"
    read = {"logits": "bf16", "log_normalizer": "fp32", "counts": "i32", "masses": "fp32"}
    shape: dict[str, Any] = {"aligned": ("row_stride", "vocab_size", "blocks"), "floats": ("threshold",), "warps": 8}
    yield Build(
        module=module,
        kernel="count_kernel",
        name="probable ids, counted",
        pointers=read,
        constants={"BLOCK": BLOCK},
        **shape,
    )
    yield Build(
        module=module,
        kernel="collect_kernel",
        name="probable ids, collected",
        pointers=read | {"ids": "i32", "probabilities": "fp32", "totals": "i32", "tails": "fp32"},
        constants={"BLOCK": BLOCK, "BLOCKS": 64, "CAPACITY": CAPACITY},
        **shape,
    )
    yield Build(
        module=module,
        kernel="mean_kernel",
        name="soft embedding, sparse",
        pointers={
            "ids": "i32",
            "probabilities": "fp32",
            "totals": "i32",
            "tails": "fp32",
            "codes": "i8",
            "scales": "bf16",
            "mean": "fp32",
            "soft": "bf16",
        },
        constants={"CAPACITY": CAPACITY, "ENTRIES": ENTRIES, "COLUMNS": COLUMNS},
        aligned=("width",),
    )


def compiled(build: Build, card: int) -> Use:
    """Compiles one kernel for one kind of card."""
    import importlib

    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    began = time.perf_counter()
    kernel = getattr(importlib.import_module(build.module), build.kernel)
    constants = dict(build.constants)
    if "COMPUTE" in constants:
        constants["COMPUTE"] = tl.bfloat16
    signature = {}
    for name in kernel.arg_names:
        other = "fp32" if name in build.floats else "i32"
        signature[name] = "constexpr" if name in constants else POINTERS.get(build.pointers.get(name, ""), other)
    aligned = {*build.pointers, *build.aligned}
    attributes = {(place,): [["tt.divisibility", 16]] for place, name in enumerate(kernel.arg_names) if name in aligned}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    options = {"num_warps": build.warps, "num_stages": build.stages}
    made = triton.compile(source, target=GPUTarget("cuda", card, 32), options=options)
    return _use(made.asm["cubin"], made.metadata.shared, time.perf_counter() - began)


def _use(cubin: bytes, shared: int, seconds: float) -> Use:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True)
    return use_of(told.stdout + told.stderr, shared=shared, seconds=seconds)


def use_of(told: str, *, shared: int, seconds: float) -> Use:
    """What `cuobjdump -res-usage` tells of one kernel."""
    found = re.search(r"REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", told)
    assert found is not None, told
    registers, stack, local = (int(number) for number in found.groups())
    return Use(registers=registers, spilled=stack + local, shared=shared, seconds=seconds)


def main(cards: list[int]) -> int:
    """Prints a table of registers a kernel and card."""
    os.environ.pop("TRITON_INTERPRET", None)
    began, all_builds, failed = time.perf_counter(), builds(), 0
    print(f"{'registers (spilled bytes)':36}" + "".join(f"{'sm_' + str(card):>11}" for card in cards), flush=True)
    # Processes, since much of a compilation is Python.
    pool = ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
    with pool:
        tasks = [[pool.submit(_told, build, card) for card in cards] for build in all_builds]
        for build, row in zip(all_builds, tasks, strict=True):
            cells = []
            for card, task in zip(cards, row, strict=True):
                use = task.result()
                fits = isinstance(use, Use) and use.fits(card)
                failed += not fits
                cells.append(use if isinstance(use, str) else use.words(fits=fits))
            print(f"{build.name:36}" + "".join(f"{cell:>11}" for cell in cells), flush=True)
    seconds = time.perf_counter() - began
    print(f"{len(all_builds)} kernels for {len(cards)} kinds of cards in {seconds:.0f} s, {failed} do not fit or fail")
    return 1 if failed else 0


def _told(build: Build, card: int) -> Use | str:
    try:
        return compiled(build, card)
    except Exception as error:  # any of the compiler's; the table shows which, and the exit code that there was one
        print(f"{build.name}, sm_{card}: {error}", file=sys.stderr)
        return "fails"


if __name__ == "__main__":
    sys.exit(main([int(card) for card in sys.argv[1:]] or list(CARDS)))
