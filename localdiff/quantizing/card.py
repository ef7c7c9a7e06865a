"""Documents of a quantized model: model card, notice of changes, licence.

Knows wording; everything follows from the plan and the origin, so that the same job writes the same text. The text
has no time and no path of this machine.
"""

from __future__ import annotations

from pathlib import Path

from localdiff.identity import DEMO
from localdiff.memory_account import MemoryAccount
from localdiff.quantizing.origin import Origin
from localdiff.sizes import shown_size
from quant.planning.plan import ClassTotal, Plan
from quant.released import MODEL

CARD, CHANGES, LICENSE = "README.md", "CHANGES.md", "LICENSE"
APACHE = "apache-2.0"
KNOWN_LICENSES = {MODEL: APACHE, DEMO: APACHE}
"""Licences to state where the Hub could not be asked."""

_APACHE_TEXT = Path(__file__).with_name("apache-2.0.txt")
_HOW = {"nf4": "4 bits (NF4, groups of 64, fitted scales)", "int8": "8 bits (groups of 64)", "keep": "as published"}


def documents(origin: Origin, plan: Plan, accounts: dict[int, MemoryAccount], tool: str) -> dict[str, bytes]:
    """The files of a quantized model that are not copied from its origin.

    Args:
        accounts: context → memory that a GPU needs for it.
        tool: name and version of the program.
    """
    licensed = license_of(origin)
    texts = {
        CARD: _card(origin, plan, accounts, tool, licensed),
        CHANGES: _changes(origin, plan, tool),
    }
    if licensed == APACHE and not any(name.upper().startswith(("LICENSE", "LICENCE")) for name in origin.small_files):
        texts[LICENSE] = _APACHE_TEXT.read_text(encoding="utf-8")
    return {name: text.encode() for name, text in texts.items()}


def example_prompt(*, is_demo: bool) -> str:
    """A prompt to try a model with; the demo model knows little besides its own skills."""
    return "Spell the word canvas." if is_demo else "Why is the sky blue?"


def license_of(origin: Origin) -> str | None:
    """The id of the weights' licence, or None where it is not stated."""
    return origin.license or KNOWN_LICENSES.get(origin.model)


def _card(origin: Origin, plan: Plan, accounts: dict[int, MemoryAccount], tool: str, licensed: str | None) -> str:
    name = f"{origin.model.split('/')[-1]}, {plan.recipe.name}"
    head = [f"license: {licensed}"] if licensed else []
    if origin.repository is not None:
        head += [f"base_model: {origin.model}", "base_model_relation: quantized"]
    head += ["library_name: localdiff", "pipeline_tag: text-generation", "tags:", "- diffusion", "- quantized"]
    rows = [
        f"| {label} | {total.tensors:,} | {shown_size(total.source_bytes)} | {_stored_text(total)} |"
        for label, total in plan.by_class().items()
    ]
    needs = ", ".join(f"{shown_size(account.total)} at {context:,}" for context, account in accounts.items())
    return "\n".join(
        [
            "---",
            *head,
            "---",
            "",
            f"# {name}",
            "",
            f"{_source(origin)}, quantized by {tool} with the recipe `{plan.recipe.name}`. [{CHANGES}]({CHANGES}) says "
            "what was changed. Text only: the vision tower is left out.",
            "",
            "```sh",
            f'localdiff run -m DIRECTORY_OR_HUB_ID "{example_prompt(is_demo=origin.model == DEMO)}"',
            "```",
            "",
            "Only localdiff reads this format; it contains no code. `quant.json` lists every file with its SHA-256 and "
            "every tensor with its quantization error.",
            "",
            "| Tensors | Number | Published | Here |",
            "|---|---:|---:|---|",
            *rows,
            "",
            f"Estimated GPU memory, by tokens of context: {needs}. A GB is 10⁹ bytes.",
            "",
            _license_line(licensed, origin),
            "",
        ]
    )


def _stored_text(total: ClassTotal) -> str:
    how = [words for scheme, words in _HOW.items() if scheme in total.schemes]
    return f"{shown_size(total.stored_bytes)}: {'; '.join(how)}" if how else "left out"


def _source(origin: Origin) -> str:
    if origin.repository is None:
        return f"The weights of `{origin.model}`"
    return f"[{origin.model}](https://huggingface.co/{origin.model}) at commit `{origin.revision}`"


def _changes(origin: Origin, plan: Plan, tool: str) -> str:
    rules = [f"| `{rule.pattern}` | {_HOW.get(rule.scheme, 'left out')} |" for rule in plan.recipe.rules]
    return "\n".join(
        [
            "# Notice of changes",
            "",
            f"{_source(origin)}, changed by {tool}:",
            "",
            "- The weight files were replaced: tensors were quantized, kept or left out by the first rule that matches "
            "their name.",
            f"- `{CARD}`, this file, `quant.json` and `model.safetensors.index.json` are new.",
            f"- Unchanged, byte for byte: {', '.join(f'`{name}`' for name in origin.small_files)}.",
            "",
            "| Tensors | Stored |",
            "|---|---|",
            *rules,
            "",
        ]
    )


def _license_line(licensed: str | None, origin: Origin) -> str:
    legal = [name for name in origin.small_files if name.upper().startswith(("LICENSE", "LICENCE", "NOTICE"))]
    if legal:
        return f"The licence of the original weights applies: {', '.join(f'[{name}]({name})' for name in legal)}."
    if licensed == APACHE:
        return f"The licence of the original weights applies, Apache 2.0: [{LICENSE}]({LICENSE})."
    return "The licence of the original weights applies" + (f": {licensed}." if licensed else "; it is not known here.")
