"""`localdiff trace diff`: two traces compared, as text or as a page.

Knows files, forms and streams; compares nothing itself, and needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from localdiff.commands.output_file import OutputFile, output_file
from localdiff.errors import UsageError
from localdiff.trace.comparison.compare import compare
from localdiff.trace.comparison.page import diff_page
from localdiff.trace.comparison.report import report
from localdiff.trace.opening import STDIN, open_trace, shown_name
from localdiff.trace.trace import Trace
from localdiff.ui.output import Output

Form: TypeAlias = Literal["text", "html"]
_SUFFIXES: Mapping[str, Form] = {"": "text", ".txt": "text", ".html": "html", ".htm": "html"}


def trace_diff(files: tuple[str, str], output: Output, *, to: Form | None, target: Path | None) -> int:
    """Compare two traces.

    Args:
        to: the form; None follows the suffix of `target`, and is text on stdout.
        target: file that gets what would go to stdout.
    """
    form = diff_form(to, target, output)
    if files == (STDIN, STDIN):
        raise UsageError("standard input has one trace, and is named twice", "give the other one as a file")
    file = None if target is None else output_file(target, inputs=files)
    traces = (open_trace(files[0]), open_trace(files[1]))
    write_diff(traces, (shown_name(files[0]), shown_name(files[1])), form, file, output)
    return 0


def diff_form(to: Form | None, file: Path | None, output: Output) -> Form:
    """The requested form.

    Raises:
        UsageError: a page for a terminal, nowhere to write to, or a file suffix of neither form.
    """
    if file is None:
        output.stdout.require()
    form = to or ("text" if file is None else _SUFFIXES.get(file.suffix.lower()))
    if form is None:
        raise UsageError(f"`{file}` does not say what to write", "add `--to` text or html")
    if form == "html" and file is None and output.stdout.terminal:
        raise UsageError("`--to html` would fill the terminal", "add `-o FILE.html`, or send it into a pipe")
    return form


def write_diff(
    traces: tuple[Trace, Trace],
    names: tuple[str, str],
    form: Form,
    file: OutputFile | None,
    output: Output,
) -> None:
    """Compare, and write the result to the file, or to stdout without one."""
    comparison = compare(*traces)
    if form == "html":
        text = diff_page(*traces, comparison, names)
    else:
        text = report(*traces, comparison, names, width=output.stdout.room if file is None else None)
    if file is not None:
        file.save_and_say(text, output)
    elif form == "html":
        output.stdout.write_utf8(text)
    else:
        output.stdout.write(text)
