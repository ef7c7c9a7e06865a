"""The command that makes the table of docs/quantization.md."""

from __future__ import annotations

from localdiff.bench.quality.answers import Answer
from localdiff.bench.quality.comparison import Pair, tabulate
from localdiff.bench.quality.questions import skill_questions
from tests.bench.quality_table import HEAD, LABELS, PAGE, Share, page_table, with_table


def share(number: int) -> Share:
    return Share(
        number=number,
        processes=2,
        model="demo",
        folder="nowhere",
        variants=("int8",),
        skills=("add", "sort"),
        count=5,
        seeds=1,
        width=1,
    )


def answer(steps: int, right: bool) -> Answer:
    return Answer(ids=(steps,), steps=(steps,), right=right)


def test_the_shares_are_all_questions() -> None:
    parts = [share(number).questions for number in (0, 1)]
    everything = {question.prompt for question in skill_questions(("add", "sort"), 5)}
    assert len(everything) == 10
    assert {question.prompt for part in parts for question in part} == everything
    assert [len(part) for part in parts] == [5, 5]
    assert {question.group for question in parts[1]} == {"add", "sort"}


def test_a_line_has_the_values_of_its_own_weights() -> None:
    pairs = [
        Pair(first=[answer(4, True)], second=[answer(5, False)], divergence=0.01, agreement=0.5),
        Pair(first=[answer(4, True)], second=[answer(4, True)], divergence=None, agreement=None),
    ]
    row = tabulate(["a", "a"], pairs)[-1]
    lines = page_table({"int8": row})
    assert lines[2] == "| `bf16` | 100.0 % |  | 4.00 |  |  |  |  |"
    cells = [cell.strip() for cell in lines[3].strip("|").split("|")]
    assert cells[:4] == ["`int8`", "50.0 %", "-50.0 ± ?", "4.50"]
    assert cells[4].startswith("+12.5 ± ") and cells[6:] == ["50.0 %", "50.0 %"]
    assert len({line.count("|") for line in lines}) == 1


def test_the_page_gets_the_table_and_keeps_the_rest() -> None:
    page = PAGE.read_text()
    assert HEAD[0] in page
    lines = [*HEAD, *(f"| {label} | | | | | | | |" for label in LABELS.values())]
    once = with_table(page, lines, "Measured with this.")
    assert once == with_table(once, lines, "Measured with this.")
    assert once.count("Measured with") == max(1, page.count("Measured with"))
    before, after = page.split(HEAD[0])
    assert once.startswith(before)
    assert once.endswith(after[after.index("\nA small model says little") :])
