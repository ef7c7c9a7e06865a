"""The tensors of a checkpoint under their published names, however they are stored.

    published      NAME                                      as it is
    quantized      NAME.codes, NAME.scales, a manifest       as it is: the modules decode what they need
    bitsandbytes   NAME and NAME.absmax, NAME.quant_map, …   decoded while it is read

Knows the three forms and how to tell them apart; knows nothing about modules or devices. A quantized directory is
read only through its manifest: the version, and exactly the parts that it lists, are checked before a tensor is handed
out. Hashes are left to `localdiff quantize --verify-only`, which reads every byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from localdiff.checkpoint_files import CHECK_PERMISSIONS, CONFIG
from localdiff.errors import WeightsError
from localdiff.identity import PUBLISHED
from localdiff.load.checkpoint import Checkpoint
from localdiff.load.matching import DECODER, ENCODER
from localdiff.model.config import ModelConfig
from quant import MANIFEST_FILE
from quant.codecs.bitsandbytes_tensor import BitsandbytesTensor, bitsandbytes_names
from quant.dtypes import HEADER_DTYPES
from quant.errors import QuantError
from quant.files.manifest import Manifest, read_manifest
from quant.hashing import file_sha256
from quant.jobs.unfinished import is_unfinished

KEEP = "keep"
BITSANDBYTES_RECIPE = "bitsandbytes"
_AGAIN = "run the `localdiff quantize` command that made it again"
_NO_WEIGHTS = "quantized weights are read from what `localdiff quantize` or bitsandbytes wrote"
_DAMAGED = f"{_AGAIN}: from the same source, only what is damaged is rebuilt"
_SAME_IN_SOURCE = f"its source checkpoint has the same fault: repair the source, then {_AGAIN}"


class StoredWeights:
    """A checkpoint as published: every tensor is under its own name. The classes of the other forms derive from it.

    Attributes:
        checkpoint: the stored tensors.
        recipe: name of the recipe, as shown to users.
        names: the names that their manifest gives the model, if there is one.
        shapes: published name → shape of the weight, whatever it is stored as.
    """

    recipe = PUBLISHED
    names: tuple[str, ...] = ()

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.shapes: Mapping[str, tuple[int, ...]] = {name: checkpoint.shape(name) for name in checkpoint.names()}

    def scheme(self, name: str) -> str:
        """`keep`, or the codec that a module must decode the tensor with."""
        del name
        return KEEP

    def remedy(self, files: Sequence[str]) -> str | None:
        """What to do about files that cannot be used, if the directory itself tells."""
        del files
        return None

    @contextmanager
    def reading(self, *files: str) -> Iterator[None]:
        """Context in which files beside the weights are read.

        Raises:
            WeightsError: one was raised inside; for a quantized directory it says what rebuilds the files.
        """
        try:
            yield
        except WeightsError as error:
            if error.hint != CHECK_PERMISSIONS and (hint := self.remedy(files)) is not None:
                raise WeightsError(error.message, hint) from error
            raise

    def config(self) -> ModelConfig:
        """The model's configuration.

        Raises:
            WeightsError: it is damaged, or another model's.
        """
        with self.reading(CONFIG):
            return ModelConfig.from_dict(self.checkpoint.config())

    def parts(self, name: str, dtype: torch.dtype) -> dict[str, Tensor]:
        """The parts that fill a parameter, on the CPU: suffix (`.codes`, `.scales`, or none) → tensor.

        A tensor that is kept has dtype `dtype`; where it is stored in that dtype, its memory is the mapped file.
        Codes and scales are always mapped.

        Raises:
            WeightsError: the tensor cannot be read, or holds integers.
        """
        source_dtype = self.checkpoint.dtype(name)
        if not source_dtype.is_floating_point:
            raise WeightsError(f"`{name}` holds {str(source_dtype).removeprefix('torch.')}, not weights", _NO_WEIGHTS)
        return {"": self.checkpoint.tensor(name).to(dtype)}

    def nbytes(self, name: str, dtype: torch.dtype) -> int:
        """Bytes of all parts of a tensor."""
        return math.prod(self.shapes[name]) * dtype.itemsize

    def is_mapped(self, name: str, dtype: torch.dtype) -> bool:
        """Whether a CPU uses the tensor mapped from the file, without memory of its own."""
        return self.checkpoint.dtype(name) == dtype

    def text_parameters(self) -> int:
        """Number of weights that are stored for the text model, copies of tied ones included."""
        return sum(math.prod(shape) for name, shape in self.shapes.items() if name.startswith((DECODER, ENCODER)))


class QuantizedWeights(StoredWeights):
    """Weights that `localdiff quantize` wrote, read by its manifest."""

    def __init__(self, checkpoint: Checkpoint, manifest: Manifest) -> None:
        self.checkpoint = checkpoint
        self.recipe = manifest.recipe.name
        self.names = () if manifest.model is None else (manifest.model,)
        self.shapes = {name: entry.shape for name, entry in manifest.tensors.items()}
        self._entries = manifest.tensors
        self._files = manifest.files

    def remedy(self, files: Sequence[str]) -> str | None:
        listed = [name for name in files if name in self._files]
        if not listed:
            return None
        return _SAME_IN_SOURCE if all(map(self._is_intact, listed)) else self.checkpoint.remedy

    def _is_intact(self, file: str) -> bool:
        """Whether a file is what `localdiff quantize` wrote, so that it would write the same again."""
        path = self.checkpoint.directory / file
        try:
            return path.is_file() and file_sha256(path) == self._files[file].sha256
        except OSError:
            return False

    def scheme(self, name: str) -> str:
        return self._entries[name].scheme

    def parts(self, name: str, dtype: torch.dtype) -> dict[str, Tensor]:
        if self.scheme(name) == KEEP:
            return super().parts(name, dtype)
        parts = self._entries[name].parts(name)
        return {part.name.removeprefix(name): self.checkpoint.tensor(part.name) for part in parts}

    def nbytes(self, name: str, dtype: torch.dtype) -> int:
        if self.scheme(name) == KEEP:
            return super().nbytes(name, dtype)
        return sum(part.nbytes for part in self._entries[name].parts(name))

    def is_mapped(self, name: str, dtype: torch.dtype) -> bool:
        return self.scheme(name) != KEEP or super().is_mapped(name, dtype)


class BitsandbytesWeights(StoredWeights):
    """A checkpoint whose linear layers bitsandbytes quantized to 4 bits; statistics plain or quantized too.

    Raises:
        WeightsError: a tensor's description cannot be read.
    """

    recipe = BITSANDBYTES_RECIPE

    def __init__(self, checkpoint: Checkpoint, part_names: Mapping[str, Mapping[str, str]]) -> None:
        self.checkpoint = checkpoint
        self._part_names = part_names
        parts = {stored for tensor in part_names.values() for stored in tensor.values()}
        shapes = {name: checkpoint.shape(name) for name in checkpoint.names() if name not in parts}
        self.shapes = shapes | {name: self._tensor(name).shape for name in part_names}

    def parts(self, name: str, dtype: torch.dtype) -> dict[str, Tensor]:
        return {"": self._tensor(name).decode(dtype)} if name in self._part_names else super().parts(name, dtype)

    def is_mapped(self, name: str, dtype: torch.dtype) -> bool:
        return name not in self._part_names and super().is_mapped(name, dtype)

    def _tensor(self, name: str) -> BitsandbytesTensor:
        parts = {part: self.checkpoint.tensor(stored) for part, stored in self._part_names[name].items()}
        try:
            return BitsandbytesTensor.read(name, parts)
        except QuantError as error:
            raise WeightsError(error.message, error.hint) from error


def open_weights(directory: Path | str) -> StoredWeights:
    """The weights of a directory, in whichever form they are stored.

    Raises:
        WeightsError: there are none, they are unfinished, or they contradict their manifest.
    """
    directory = Path(directory)
    if is_unfinished(directory):
        raise WeightsError(f"`{directory}` is an unfinished quantization", f"{_AGAIN} to finish it")
    quantized = (directory / MANIFEST_FILE).exists()
    checkpoint = Checkpoint(directory)
    if quantized:
        manifest = _manifest(directory)
        require_listed(checkpoint, manifest)
        return QuantizedWeights(checkpoint, manifest)
    names = checkpoint.names()
    if any(name.endswith(".codes") and f"{name.removesuffix('.codes')}.scales" in names for name in names):
        raise WeightsError(
            f"`{directory}` holds quantized weights and no `{MANIFEST_FILE}`",
            f"fetch that file too, or delete the directory and {_AGAIN}",
        )
    part_names = bitsandbytes_names(names)
    return BitsandbytesWeights(checkpoint, part_names) if part_names else StoredWeights(checkpoint)


def _manifest(directory: Path) -> Manifest:
    try:
        return read_manifest(directory)
    except QuantError as error:
        raise WeightsError(error.message, error.hint) from error


def require_listed(checkpoint: Checkpoint, manifest: Manifest) -> None:
    """Refuses a checkpoint whose headers do not describe exactly the tensors of its manifest.

    Raises:
        WeightsError: a tensor is missing, is not listed, or has another shape or dtype.
    """
    try:
        listed = {part.name: part for name, entry in manifest.tensors.items() for part in entry.parts(name)}
    except ValueError as error:
        raise WeightsError(
            f"`{MANIFEST_FILE}` lists a tensor that cannot be stored that way ({error})", _AGAIN
        ) from error
    present = set(checkpoint.names())
    for problem, names in (("lacks", listed.keys() - present), ("does not list", present - listed.keys())):
        if names:
            subject = f"`{checkpoint.directory}`" if problem == "lacks" else f"`{MANIFEST_FILE}`"
            raise WeightsError(f"{subject} {problem} `{min(names)}`", _DAMAGED)
    for name, part in listed.items():
        if checkpoint.shape(name) != part.shape or checkpoint.dtype(name) != HEADER_DTYPES[part.dtype]:
            raise WeightsError(f"`{name}` is not stored as `{MANIFEST_FILE}` says", _DAMAGED)
