"""The public report: the findings without names of people, machines, folders and models.

Knows the public form of a finding. Names of the user, the machine and the home directory, and tokens, are removed a
second time by their values.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence

from localdiff.doctor.finding import Finding

_TOKEN = re.compile(r"\b(hf|api_org)_[A-Za-z0-9]{8,}\b")
_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACEHUB_API_TOKEN")
_LEAST = 3
"""Shorter names occur in too many words."""


def field_report(findings: Sequence[Finding], *, bench: str | None, env: Mapping[str, str] = os.environ) -> str:
    """The report, as a block to paste.

    Args:
        bench: the line of JSON of `localdiff bench step`, or why there is none.
        env: environment, for the names that must not be in it.
    """
    lines = ["```text", "localdiff doctor --report"]
    for finding in findings:
        lines.append(f"{finding.status:<5} {finding.subject}: {finding.public or finding.text}")
        details = finding.details if finding.public_details is None else finding.public_details
        lines += [f"        {detail}" for detail in details]
    lines += ["```", "", "```json", bench or '{"bench_step": null}', "```"]
    return without_names("\n".join(lines) + "\n", env)


def without_names(text: str, env: Mapping[str, str]) -> str:
    """The text without tokens, the home directory, and the names of user and machine."""
    for name in _SECRETS:
        if value := env.get(name):
            text = text.replace(value, "(token)")
    text = _TOKEN.sub("(token)", text)
    # Some shells on Windows set `HOME`, while Python uses another home directory.
    for home in (env.get("HOME"), env.get("USERPROFILE"), os.path.expanduser("~")):
        if home and len(home) > 1:
            text = text.replace(home, "~")
    user = env.get("USER") or env.get("LOGNAME") or env.get("USERNAME") or ""
    for kind, name in (("user", user), ("host", platform.node()), ("host", platform.node().split(".")[0])):
        if len(name) >= _LEAST:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", f"({kind})", text)
    return text
