"""The finding of a check.

Knows statuses and that problems come with advice; knows nothing about checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from localdiff.errors import ResourceError

Status: TypeAlias = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the doctor.

    Attributes:
        subject: what was looked at, in a word or two.
        status: `ok`; `warn` where something works less well or not yet; `fail` where something here does not work;
            `skip` where it was not checked.
        text: what was found, one sentence without a period.
        advice: what to do about it; never missing where something is wrong.
        details: further lines.
        facts: the same as values, for programs.
        public: `text` without names of people, machines, folders and models; None where `text` has none.
        public_details: `details` in the same way.
        exit_code: of the process, if this is the first that failed.
    """

    subject: str
    status: Status
    text: str
    advice: str | None = None
    details: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    public: str | None = None
    public_details: Sequence[str] | None = None
    exit_code: int = ResourceError.exit_code

    def __post_init__(self) -> None:
        if self.status in ("warn", "fail") and not self.advice:
            raise ValueError(f"{self.subject=}: {self.status=} needs advice")

    def to_object(self) -> dict[str, Any]:
        """The finding as values for JSON."""
        return {
            "subject": self.subject,
            "status": self.status,
            "text": self.text,
            "advice": self.advice,
            "details": list(self.details),
            "facts": dict(self.facts),
        }


def exit_code(findings: Sequence[Finding]) -> int:
    """0, or the code of the first that failed."""
    return next((finding.exit_code for finding in findings if finding.status == "fail"), 0)
