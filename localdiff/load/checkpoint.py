"""Named tensors of a checkpoint directory, read one at a time.

Knows safetensors files, their index and the JSON files beside them; does not know what a tensor is for.
Opening a checkpoint reads headers only: a tensor's bytes are mapped when it is requested, and paged in when
they are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from localdiff.checkpoint_files import CONFIG, GENERATION_CONFIG, read_object, require_readable, require_utf8
from localdiff.errors import WeightsError
from quant import MANIFEST_FILE
from quant.dtypes import HEADER_DTYPES
from quant.errors import SourceError
from quant.files.source import INDEX_FILE, PULL, is_pointer, weight_files, weight_map

_INCOMPLETE = "download the checkpoint again, or point to a complete copy"
_REBUILT = "the `localdiff quantize` that made it rebuilds what is damaged, from the same source"


class Checkpoint:
    """The tensors and JSON files of one directory: a single `model.safetensors`, or an index with shards.

    Raises:
        WeightsError: the directory, its `config.json` or its weights are missing; a file is damaged; a shard
            is missing, may not be read, or lacks a tensor that the index lists.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        if not self.directory.is_dir():
            what = "is not a directory" if self.directory.exists() else "does not exist"
            raise WeightsError(
                f"the model directory `{self.directory}` {what}",
                "give a directory that holds `config.json` and `.safetensors` files",
            )
        self._config = self._read_json(CONFIG)
        self._files: dict[str, Any] = {}
        self._file_of = self._locate()

    def config(self) -> dict[str, Any]:
        """`config.json`, parsed."""
        return self._config

    def generation_config(self) -> dict[str, Any]:
        """`generation_config.json`, parsed; empty where the checkpoint has none.

        Raises:
            WeightsError: the file is not a JSON object.
        """
        if not (self.directory / GENERATION_CONFIG).exists():
            return {}
        return self._read_json(GENERATION_CONFIG)

    def names(self) -> tuple[str, ...]:
        """Every tensor's name, sorted."""
        return tuple(sorted(self._file_of))

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, from the header."""
        return tuple(self._file(name).get_slice(name).get_shape())

    def dtype(self, name: str) -> torch.dtype:
        """Stored dtype of a tensor, from the header.

        Raises:
            WeightsError: a dtype that this loader does not support.
        """
        type_name = self._file(name).get_slice(name).get_dtype()
        if type_name not in HEADER_DTYPES:
            raise WeightsError(f"tensor `{name}` has the type {type_name}, which localdiff does not read")
        return HEADER_DTYPES[type_name]

    def tensor(self, name: str) -> Tensor:
        """The tensor as stored, on the CPU.

        Its memory is the mapped file (private: writing to it changes no file), except where the file places
        it at an address that is misaligned for its dtype; then it is copied.

        Raises:
            WeightsError: there is no such tensor, or its dtype is not supported.
        """
        self.dtype(name)
        tensor: Tensor = self._file(name).get_tensor(name)
        return tensor if tensor.data_ptr() % tensor.element_size() == 0 else tensor.clone()

    def _file(self, name: str) -> Any:
        if name not in self._file_of:
            raise WeightsError(f"the checkpoint `{self.directory}` has no tensor `{name}`", self.remedy)
        return self._files[self._file_of[name]]

    def _locate(self) -> dict[str, str]:
        """File of every tensor; opens every file, which checks its header against its size."""
        try:
            index = weight_map(self.directory)
        except SourceError as error:
            require_readable(self.directory / INDEX_FILE)
            raise WeightsError(error.message, self.remedy) from error
        names_by_shard = {shard: set(self._open(shard)) for shard in weight_files(index)}
        for name, shard in index.items():
            if name not in names_by_shard[shard]:
                raise WeightsError(f"`{shard}` lacks `{name}`, which `{INDEX_FILE}` lists", self.remedy)
        unlisted = {name: shard for shard, names in names_by_shard.items() for name in names}
        return unlisted | index

    @property
    def _is_quantized(self) -> bool:
        return (self.directory / MANIFEST_FILE).exists()

    @property
    def remedy(self) -> str:
        """What to do about a file that is missing or damaged."""
        return _REBUILT if self._is_quantized else _INCOMPLETE

    def _open(self, file: str) -> list[str]:
        path = self.directory / file
        if not path.is_file():
            raise WeightsError(f"the weight file `{path}` is missing", self.remedy)
        require_readable(path)
        require_utf8(path, "rename the folder, or give a path relative to it")
        try:
            if is_pointer(path):
                raise WeightsError(f"`{path}` is only a pointer of Git LFS to the weights", PULL)
            handle: Any = safe_open(path, framework="pt", device="cpu")
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"the weight file `{path}` is damaged or cut short ({error})", self.remedy) from error
        self._files[file] = handle
        names: list[str] = handle.keys()
        return names

    def _read_json(self, file: str) -> dict[str, Any]:
        try:
            return read_object(self.directory / file, self.remedy)
        except FileNotFoundError as error:
            raise WeightsError(
                f"`{self.directory}` has no `{file}`",
                self.remedy if self._is_quantized else "give the directory that the checkpoint was saved to",
            ) from error
