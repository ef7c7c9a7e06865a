"""`localdiff doctor`: check this machine, compute, compare, and say what to do.

Knows the output formats of findings, and their exit code; checks nothing itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TextIO

from localdiff import __version__
from localdiff.doctor.checks import Examination
from localdiff.doctor.field_report import field_report
from localdiff.doctor.finding import Finding, Status, exit_code
from localdiff.errors import UsageError
from localdiff.failures import gpu_failure, keep_what_failed
from localdiff.identity import DEMO
from localdiff.quoting import printable
from localdiff.ui.output import DIM, GREEN, RED, YELLOW, Output, Stream
from localdiff.ui.status import status_line
from localdiff.view.columns import folded

_STYLES: Mapping[Status, str] = {"ok": GREEN, "warn": YELLOW, "fail": RED, "skip": DIM}
_BENCH_STEPS, _BENCH_CONTEXT = 4, 256


def doctor(output: Output, *, quick: bool, as_json: bool, as_report: bool, keyboard: TextIO | None) -> int:
    """Examine this machine.

    Args:
        quick: leave out whatever needs torch.
        as_json: print an object in place of lines.
        as_report: print a block to paste in place of lines.
        keyboard: where the terminal answers a query, or None.

    Returns:
        0, or the code of the first check that failed.

    Raises:
        UsageError: two forms are asked for, or nobody could see the findings.
    """
    if as_json and as_report:
        raise UsageError("`--json` and `--report` exclude each other", "`--report` already contains a line of JSON")
    output.stdout.require()
    examination = Examination(stderr=output.stderr.file, keyboard=keyboard, quick=quick)
    # Lines that go through a pipe may reach the same screen at any time, even in the middle of a status line.
    alone = output.stdout.terminal or as_json or as_report
    findings: list[Finding] = []
    bench = None
    with status_line(output, shown=alone) as status:
        for finding in examination.findings(lambda name: status.show(f"checking: {name}")):
            findings.append(finding)
            if not (as_json or as_report):
                status.clear()
                output.stdout.write(_finding_text(finding, output.stdout))
        if as_report and not quick:
            status.show("checking: the time of a step")
            bench = _bench_line()
    code = exit_code(findings)
    if as_report:
        output.stdout.write(field_report(findings, bench=bench))
    elif as_json:
        content = {
            "version": __version__,
            "exit_code": code,
            "findings": [finding.to_object() for finding in findings],
        }
        output.stdout.write_json(content)
    return code


def measure_step() -> str:
    """The line of JSON of `localdiff bench step` on the demo model, which every machine can measure in seconds."""
    from localdiff.bench.step.report_text import json_line
    from localdiff.commands.bench_step import StepRequest, measure
    from localdiff.commands.model_choice import ModelChoice

    choice = ModelChoice(model=DEMO, offline=True)
    request = StepRequest(choice=choice, steps=_BENCH_STEPS, context=_BENCH_CONTEXT)
    # Every option is spelled out: the command would take its defaults from settings, which this measurement ignores.
    command = (
        "localdiff bench step -m demo --device auto --dtype auto --activations auto "
        f"--steps {_BENCH_STEPS} --context {_BENCH_CONTEXT} --offline --json"
    )
    return json_line(measure(request, lambda _progress: None), command)


def _bench_line() -> str:
    """The line of a measurement; a failed one must not cost the rest of the report."""
    try:
        return measure_step()
    except Exception as error:
        keep_what_failed(error)
        # The cause may be a kernel's own error; its message is left out, since it may name a folder.
        kind = " from ".join(type(one).__name__ for one in (error, error.__cause__) if one is not None)
        words = gpu_failure(error)
        return json.dumps({"bench_step": None, "error": kind if words is None else f"{kind}: {words}"})


def _finding_text(finding: Finding, stream: Stream) -> str:
    """The finding as lines, wrapped with a hanging indent on a terminal."""
    word, arrow = f"{finding.status:<5} ", "→ " if stream.encodes("→") else "-> "
    lines = _folded(word, 6, f"{finding.subject}: {finding.text}", stream)
    lines[0] = stream.styled(word[:-1], _STYLES[finding.status]) + lines[0][len(word) - 1 :]
    for detail in finding.details:
        lines += _folded(" " * 8, 10, detail, stream)
    if finding.advice:
        advice = _folded(" " * 6 + arrow, 6 + len(arrow), finding.advice, stream)
        lines += [advice[0].replace(arrow, stream.styled(arrow, DIM), 1), *advice[1:]]
    return "".join(line + "\n" for line in lines)


def _folded(start: str, indent: int, text: str, stream: Stream) -> list[str]:
    """Lines of a text: `start` before the first, `indent` columns before the others."""
    width = None if stream.room is None else stream.room - 1
    return folded(printable(text), width, start=start, indent=indent)
