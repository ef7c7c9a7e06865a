"""Finds a model's directory by the name that the user gives, and fetches it from the Hub if it is not here.

    name ─► here? ─► listing ─► config, headers ─► memory ─► disk ─► question ─► files

Knows the order of these steps: nothing is fetched before it is known that it can be run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from localdiff import paths
from localdiff.checkpoint_files import CONFIG, TEXT_FILES, TOKENIZER
from localdiff.checkpoints.model_reference import ModelSource, resolve_local
from localdiff.download_plan import ConfirmDownload, DownloadPlan, confirm_silently
from localdiff.errors import ResourceError, WeightsError
from localdiff.fetching.contents import headers, missing_files, model_config, weight_map
from localdiff.fetching.transfer import transfer
from localdiff.hub.downloads import require_transferable
from localdiff.hub.listing import look_up
from localdiff.hub.problems import changed_meanwhile
from localdiff.hub.repository import Repository
from localdiff.load import MemoryPlan, StoredWeights, described_weights
from localdiff.load_progress import LoadProgress, tell_nobody
from localdiff.machine.disk_space import mounts, shortage
from quant import DEFAULT_RECIPE, MANIFEST_FILE, recipe_named
from quant.errors import QuantError, RecipeError
from quant.files.manifest import Manifest
from quant.files.source import StoredTensor, check_complete, weight_files
from quant.planning.plan import describe_plan


def find_source(
    reference: str,
    *,
    revision: str | None = None,
    offline: bool = False,
    plan_memory: Callable[[StoredWeights], MemoryPlan] | None = None,
    confirm: ConfirmDownload = confirm_silently,
    progress: LoadProgress = tell_nobody,
) -> ModelSource:
    """Find a model's files, and fetch them from the Hub if they are not here and can be run.

    Args:
        reference: `demo`, a directory, the name of a quantized model in `paths.models_dir()`, or the id of a Hub
            repository such as `owner/name`. A directory takes precedence over all else of the same name but `demo`;
            `./demo` is a directory called demo.
        revision: branch, tag or commit of a Hub repository.
        offline: use only what is in the cache.
        plan_memory: says where the model would be held, from its headers, or refuses it; None if it is not loaded.
        confirm: is told what would be fetched, and may refuse it, too.
        progress: is told how much has been fetched.

    Raises:
        WeightsError: nothing exists under that name, the Hub refuses access, or it is another kind of model.
        UsageError: a revision of something that has none, or `HF_ENDPOINT` is no address.
        ResourceError: it does not fit the disk, or the memory of the device.
    """
    local = resolve_local(reference, revision=revision)
    if local is not None:
        return local
    try:
        repository = look_up(reference, revision=revision, offline=offline, enough=_is_complete)
        if absent := _absent(repository):
            require_transferable(repository, (name for name, nbytes in absent.items() if nbytes))
            _require_room(absent)
            confirm(_plan(repository, absent, plan_memory))
            transfer(repository, absent, progress)
    except QuantError as error:
        raise WeightsError(error.message, error.hint) from error
    directory = repository.cached_directory
    if directory is None:  # `config.json` is fetched by the name of the branch, so that the cache knows the branch
        raise changed_meanwhile(repository.name)
    return ModelSource(directory=directory, name=reference, revision=repository.commit)


def _required(repository: Repository) -> tuple[str, ...]:
    """Files without which no model can be loaded; weights last."""
    return (CONFIG, TOKENIZER, *weight_files(weight_map(repository)))


def _is_complete(repository: Repository) -> bool:
    return all(name in repository.files and repository.files[name].local_path for name in _required(repository))


def _absent(repository: Repository) -> dict[str, int]:
    """Files that have to be fetched, in this order, and how many bytes of each are not in the cache.

    Raises:
        WeightsError: the repository is no model that can be run, or lacks files.
    """
    files = repository.files
    model_config(repository.name, repository.read(CONFIG))
    required = _required(repository)
    if lacking := [name for name in required if name not in files]:
        if lacking == [TOKENIZER] and repository.offline_reason is None:
            raise WeightsError(
                f"`{repository.name}` has no `{TOKENIZER}`, and without one it cannot be run",
                "a fine-tune may have been saved without it: put that of the original model beside its weights",
            )
        raise missing_files(repository, lacking)
    small = [name for name in files if name in TEXT_FILES or name == MANIFEST_FILE or name.endswith(".index.json")]
    absent = [name for name in dict.fromkeys((*small, *required)) if files[name].local_path is None]
    if repository.cached_directory is None and CONFIG not in absent:
        absent.insert(0, CONFIG)  # by the name of its branch, by which it was not fetched yet
    return {name: files[name].missing for name in absent}


def _require_room(absent: Mapping[str, int]) -> None:
    """Refuse what does not fit the disk."""
    short = shortage(mounts([(paths.hub_cache_dir(), sum(absent.values()))]))
    if short is not None:
        raise ResourceError(short, "`HF_HOME` moves the download")


def _plan(
    repository: Repository, absent: Mapping[str, int], plan_memory: Callable[[StoredWeights], MemoryPlan] | None
) -> DownloadPlan:
    """What would be fetched, and what running it needs.

    Raises:
        WeightsError: the model is not complete.
        ResourceError: the model does not fit the device.
    """
    index = weight_map(repository)
    names = weight_files(index)
    config = model_config(repository.name, repository.read(CONFIG))
    files = check_complete(headers(repository, names), index, repository.name)
    tensors = [tensor for file in files for tensor in file.tensors]
    manifest = None
    if MANIFEST_FILE in repository.files:
        # Bytes that are not UTF-8 are damage, too: they are replaced, and then the checksum does not match.
        manifest = Manifest.from_text(repository.read(MANIFEST_FILE).decode("utf-8", "replace"))
    weights = described_weights(repository.name, config, tensors, manifest)
    memory = None if weights is None or plan_memory is None else plan_memory(weights)
    return DownloadPlan(
        model=repository.name,
        revision=repository.commit,
        files=sum(nbytes > 0 for nbytes in absent.values()),
        nbytes=sum(absent.values()),
        place=paths.hub_cache_dir(),
        continues=any(absent.get(name, 0) < repository.files[name].nbytes for name in names),
        device="" if memory is None else str(memory.placement.main),
        needed=None if memory is None else memory.needed,
        free=None if memory is None else memory.free,
        remark=None if memory is None else memory.cost,
        quantized=None if weights is None or manifest is not None else _quantized_bytes(tensors),
    )


def _quantized_bytes(tensors: list[StoredTensor]) -> int | None:
    """Bytes of the weights in the default recipe; None where their widths do not suit it."""
    try:
        return describe_plan(recipe_named(DEFAULT_RECIPE), tensors).stored_bytes
    except RecipeError:
        return None
