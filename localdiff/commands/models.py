"""`localdiff models`: lists and removes the quantized models on this machine.

Knows columns and the question asked before something is deleted; `checkpoints.stored_model` defines what a model is.
"""

from __future__ import annotations

from localdiff import paths
from localdiff.checkpoints import model_store
from localdiff.checkpoints.stored_model import StoredModel, remedy
from localdiff.errors import INTERRUPTED, UsageError
from localdiff.machine.output_lock import is_locked, locked
from localdiff.quoting import printable
from localdiff.sizes import shown_size
from localdiff.ui.output import AskUser, Output
from localdiff.ui.question import confirmed
from localdiff.view.columns import aligned
from quant.names import output_directory

HEAD = ("name", "recipe", "size", "verified")


def list_models(output: Output, *, as_json: bool) -> int:
    """Print a table of the models, or one JSON object, on stdout; returns 0."""
    models = model_store.stored_models()
    if as_json:
        content = {"models": [_object(model) for model in models]}
        output.stdout.write_json(content)
        return 0
    if not models:
        folder = printable(str(paths.models_dir()))
        output.stderr.say(f"There is no quantized model in {folder}; `localdiff quantize` makes one.")
        return 0
    rows = [HEAD, *(_row(model) for model in models)]
    lines = aligned(rows, "<<><", width=output.stdout.room, headed=True)
    output.stdout.write("".join(f"{line}\n" for line in lines))
    for model in models:
        if model.state == "running":
            output.stderr.say(printable(f"{model.name}: `localdiff quantize` is working on it"))
        elif model.state != "finished":
            output.stderr.say(printable(f"{model.name}: {model.problem or 'unfinished'}; {remedy(model)}"))
    return 0


def remove_model(name: str, output: Output, *, ask: AskUser | None, yes: bool) -> int:
    """Delete a model after asking.

    Returns:
        0, or 130 if the user said no.

    Raises:
        UsageError: there is no such model, a job is working on it, or nobody can say yes.
        ResourceError: the disk fails.
    """
    model = model_store.find(name)
    target = output_directory(model.directory)
    if is_locked(target):
        raise UsageError(f"`localdiff quantize` is working on `{target.name}`", "stop it first, or wait until it ends")
    leads_to = model.directory.resolve() if model.directory.is_symlink() else None
    what = shown_size(model.nbytes) if leads_to is None else f"a link to {leads_to}, which is kept"
    question = printable(f"Delete {model.directory} ({what})?")
    if not yes and not confirmed(ask, question, otherwise="`--yes` deletes without asking"):
        output.stderr.say("Nothing was done.")
        return INTERRUPTED
    with locked(target):
        model_store.remove(model)
    output.stderr.say(printable(f"Deleted {name}: {'freed' if leads_to is None else 'it was'} {what}."))
    return 0


def _object(model: StoredModel) -> dict[str, str | int | None]:
    return {
        "name": model.name,
        "directory": str(model.directory),
        "state": model.state,
        "problem": model.problem,
        "recipe": model.recipe,
        "bytes": model.nbytes,
        "verified": None if model.verified is None else model.verified.isoformat(),
    }


def _row(model: StoredModel) -> tuple[str, str, str, str]:
    when = "not here" if model.verified is None else model.verified.astimezone().strftime("%Y-%m-%d %H:%M")
    state = when if model.state == "finished" else model.state
    return printable(model.name), printable(model.recipe or "-"), shown_size(model.nbytes), state
