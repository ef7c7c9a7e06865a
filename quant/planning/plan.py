"""A plan: how a recipe stores each tensor of a checkpoint, from file headers alone.

Knows names, shapes and bytes; reads no weights and writes nothing. A plan is shown to the user before anything happens,
and a job then carries it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from quant.codecs import CODECS
from quant.codecs.codec import SOURCE_DTYPES
from quant.dtypes import HEADER_DTYPES
from quant.errors import RecipeError
from quant.files.manifest import stored_parts
from quant.files.reader import SLICE_BYTES
from quant.files.source import HeaderEntry, SourceFile, StoredTensor
from quant.files.writer import Layout
from quant.recipe import Recipe, Scheme
from quant.released import released_shapes

CLASSES = {
    "experts": "model.decoder.layers.*.experts.*",
    "attention": "model.decoder.layers.*.self_attn.?_proj.weight",
    "dense MLP": "model.decoder.layers.*.mlp.*",
    "embedding and head": "model.decoder.embed_tokens.weight",
    "self-conditioning": "model.decoder.self_conditioning.*_proj.weight",
    "vision": "model.encoder.*vision*",
    "norms, router, scalars": "*",
}
"""Tensor classes in the order in which they are tried and shown."""

_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_BUFFERS_PER_SLICE = 9
"""Working memory of a slice in units of its source bytes: itself, its codes, three fp32 copies to measure the error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTensor:
    """A tensor of the source, its scheme, and what is stored of it."""

    source: StoredTensor
    scheme: Scheme
    parts: tuple[HeaderEntry, ...]

    @property
    def name(self) -> str:
        """Its name in the source."""
        return self.source.name

    @property
    def stored_bytes(self) -> int:
        """Bytes of what is stored."""
        return sum(part.nbytes for part in self.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedShard:
    """One shard of the output.

    Attributes:
        file: its name.
        source: the file it is made from.
        tensors: what it stores, in the order of the source.
        layout: where their parts lie.
    """

    file: str
    source: SourceFile
    tensors: tuple[PlannedTensor, ...]
    layout: Layout

    @property
    def nbytes(self) -> int:
        """Its size, header included."""
        return self.layout.nbytes


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassTotal:
    """Sums over the tensors of one class, and the schemes that they have."""

    tensors: int
    source_bytes: int
    stored_bytes: int
    schemes: frozenset[Scheme]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A recipe applied to a checkpoint.

    Attributes:
        recipe: with its layer numbers filled in.
        tensors: every tensor of the source, dropped ones included.
        shards: the output's shards; none where only the model's description is known.
    """

    recipe: Recipe
    tensors: tuple[PlannedTensor, ...]
    shards: tuple[PlannedShard, ...]

    @property
    def source_bytes(self) -> int:
        """Bytes of all tensors of the source, or of the files to be read where they are known."""
        if self.shards:
            return sum(shard.source.nbytes for shard in self.shards)
        return sum(tensor.source.nbytes for tensor in self.tensors)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all stored tensors: the weights that a model of this recipe holds."""
        return sum(tensor.stored_bytes for tensor in self.tensors)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Names that are not stored, sorted."""
        return tuple(sorted(tensor.name for tensor in self.tensors if tensor.scheme == "drop"))

    def by_class(self) -> dict[str, ClassTotal]:
        """Totals of each tensor class that occurs."""
        members: dict[str, list[PlannedTensor]] = {name: [] for name in CLASSES}
        for tensor in self.tensors:
            members[tensor_class(tensor.name)].append(tensor)
        return {
            name: ClassTotal(
                tensors=len(group),
                source_bytes=sum(tensor.source.nbytes for tensor in group),
                stored_bytes=sum(tensor.stored_bytes for tensor in group),
                schemes=frozenset(tensor.scheme for tensor in group),
            )
            for name, group in members.items()
            if group
        }


def make_plan(recipe: Recipe, files: Iterable[SourceFile]) -> Plan:
    """The plan for weight files whose headers are known.

    Raises:
        RecipeError: a tensor has no rule, or cannot be stored as its rule says.
    """
    files = tuple(files)
    resolved = recipe.resolved(tensor.name for file in files for tensor in file.tensors)
    planned = {file.name: tuple(_planned(resolved, tensor) for tensor in file.tensors) for file in files}
    stored = {file.name: tuple(tensor for tensor in planned[file.name] if tensor.scheme != "drop") for file in files}
    sources = [file for file in files if stored[file.name]]
    shards = tuple(
        PlannedShard(
            file=f"model-{number:05d}-of-{len(sources):05d}.safetensors",
            source=file,
            tensors=stored[file.name],
            layout=Layout.of(part for tensor in stored[file.name] for part in tensor.parts),
        )
        for number, file in enumerate(sources, 1)
    )
    tensors = tuple(tensor for file in files for tensor in planned[file.name])
    return Plan(recipe=resolved, tensors=tensors, shards=shards)


def describe_plan(recipe: Recipe, tensors: Iterable[StoredTensor] | None = None) -> Plan:
    """The plan for tensors known only by name and shape; for the released checkpoint by default.

    Raises:
        RecipeError: as `make_plan`.
    """
    if tensors is None:
        shapes = released_shapes().items()
        tensors = (StoredTensor(name=name, dtype="BF16", shape=shape, file="", start=0) for name, shape in shapes)
    all_tensors = tuple(tensors)
    resolved = recipe.resolved(tensor.name for tensor in all_tensors)
    return Plan(recipe=resolved, tensors=tuple(_planned(resolved, tensor) for tensor in all_tensors), shards=())


def tensor_class(name: str) -> str:
    """The key of `CLASSES` that a tensor belongs to."""
    return next(label for label, pattern in CLASSES.items() if fnmatchcase(name, pattern))


def working_bytes(workers: int) -> int:
    """Peak memory that a job allocates for weights, with `workers` slices being encoded and as many waiting."""
    return SLICE_BYTES * workers * (_BUFFERS_PER_SLICE + 1)


def _planned(recipe: Recipe, tensor: StoredTensor) -> PlannedTensor:
    scheme = recipe.scheme(tensor.name)
    if scheme == "drop":
        return PlannedTensor(source=tensor, scheme=scheme, parts=())
    if scheme in CODECS and HEADER_DTYPES[tensor.dtype] not in SOURCE_DTYPES:
        raise RecipeError(
            f"`{tensor.name}` has the type {tensor.dtype}, which is not quantized to {scheme}",
            "quantize the original weights (BF16, F16 or F32)",
        )
    try:
        parts = stored_parts(tensor.name, scheme, tensor.shape, tensor.dtype)
    except ValueError as error:
        raise RecipeError(
            f"`{tensor.name}` cannot be stored as {scheme} ({error})", "recipe `bf16` keeps every tensor as it is"
        ) from error
    return PlannedTensor(source=tensor, scheme=scheme, parts=parts)


def is_shard_name(name: str) -> bool:
    """Whether a file has a name that a plan gives to a shard."""
    return _SHARD.fullmatch(name) is not None
