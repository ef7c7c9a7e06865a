"""Findings: trouble never comes without advice, and the first failure decides the exit code."""

from __future__ import annotations

import json

import pytest

from localdiff.doctor.finding import Finding, Status, exit_code


@pytest.mark.parametrize("status", ["warn", "fail"])
def test_trouble_needs_advice(status: Status) -> None:
    with pytest.raises(ValueError, match="needs advice"):
        Finding(subject="disk", status=status, text="full")
    assert Finding(subject="disk", status=status, text="full", advice="free some").advice == "free some"


def test_the_first_that_failed_decides() -> None:
    ok = Finding(subject="a", status="ok", text="fine", exit_code=3)
    warn = Finding(subject="b", status="warn", text="hm", advice="do", exit_code=3)
    fail4 = Finding(subject="c", status="fail", text="no", advice="do")
    fail3 = Finding(subject="d", status="fail", text="no", advice="do", exit_code=3)
    assert exit_code([]) == 0
    assert exit_code([ok, warn]) == 0
    assert exit_code([ok, warn, fail4, fail3]) == 4
    assert exit_code([fail3, fail4]) == 3


def test_values_for_programs() -> None:
    finding = Finding(subject="a", status="ok", text="fine", details=("x",), facts={"bytes": 1})
    assert json.loads(json.dumps(finding.to_object())) == {
        "subject": "a",
        "status": "ok",
        "text": "fine",
        "advice": None,
        "details": ["x"],
        "facts": {"bytes": 1},
    }
