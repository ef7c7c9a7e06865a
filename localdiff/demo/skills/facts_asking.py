"""Answers that tell how to ask for each skill, for prompts that name a skill without input, as plain data."""

from __future__ import annotations

from localdiff.demo.skills.fact import Fact

ASKING_FACTS: tuple[Fact, ...] = (
    Fact(
        name="ask spelling",
        answer="Tell me the word, for example: Spell the word planet.",
        plain=("Spell a word.", "Spell.", "Spelling."),
        patterns=(
            "(Please spell|Can you spell|Could you spell|I want you to spell) (a word|words|something).",
            "Spell (words|something|something for me|a word for me).",
            "(Can|Could) you help me (spell|with spelling)?",
            "How do I ask you to spell( a word|)?",
        ),
    ),
    Fact(
        name="ask sorting",
        answer="Give me two to five words, for example: Sort the words temple, button, copper.",
        plain=("Sort words.", "Sort.", "Sort a list."),
        patterns=(
            "(Please sort|Can you sort|Could you sort|I want you to sort) (words|a list|some words|something).",
            "Sort (some words|my list|something|a list for me|words for me).",
            "(Can|Could) you put words in (order|alphabetical order)?",
            "How do I ask you to sort( words| a list|)?",
        ),
    ),
    Fact(
        name="ask sums",
        answer="Give me two numbers from 0 to 99, for example: How much is 63 + 75?",
        plain=("Add numbers.", "Add.", "Math.", "Calculate.", "Subtract numbers."),
        patterns=(
            "(Please add|Can you add|Could you add|I want you to add|Add) (numbers|two numbers|some numbers).",
            "(Can|Could) you (do math|calculate|count|add|subtract|do a sum)?",
            "(Do|Solve) (some math|a sum|a math problem|a calculation).",
            "(Help me with|I need help with) (math|a sum|numbers).",
            "How do I ask you to (add|add numbers|subtract|calculate)?",
        ),
    ),
    Fact(
        name="ask dates",
        answer="Give me a date and a form, for example: What is 25.06.1910 as DD/MM/YYYY?",
        plain=("Reformat a date.", "Dates.", "Date."),
        patterns=(
            "(Please reformat|Can you reformat|Could you reformat|I want you to reformat) (a date|dates|my date).",
            "(Reformat|Convert|Change) (dates|my date|a date for me|some dates).",
            "(Which|What) (date formats|formats of dates|forms of dates) do you know?",
            "How do I ask you to (reformat|convert|change) a date?",
        ),
    ),
    Fact(
        name="ask json",
        answer="Give me names with their values, for example: name: Anna, age: 31 as JSON",
        plain=("Write JSON.", "JSON.", "Make JSON.", "Write json."),
        patterns=(
            "(Please write|Can you write|Could you write|I want you to write|Give me|Can you make) (JSON|some JSON).",
            "(Write|Make|Give me) (some JSON|a JSON object|JSON for me|a JSON file).",
            "(Convert|Turn) (text|something|my data) (into|to) JSON.",
            "How do I ask you (for JSON|to write JSON)?",
        ),
    ),
    Fact(
        name="ask sudoku",
        answer="Give me four rows with dots for empty cells, for example: Solve this 4x4 Sudoku: .3.. .4.1 3.4. 4.1.",
        plain=("Solve a Sudoku.", "Solve a 4x4 Sudoku.", "Sudoku.", "Solve a sudoku.", "Solve sudoku."),
        patterns=(
            "(Please solve|Can you solve|Could you solve|I want you to solve) (a Sudoku|a 4x4 Sudoku|Sudokus).",
            "Solve (Sudokus|a puzzle|my Sudoku|a Sudoku for me|this Sudoku).",
            "(Can|Could) you help me with (a|my) (Sudoku|puzzle)?",
            "How do I ask you to solve (a Sudoku|a 4x4 Sudoku|a puzzle)?",
        ),
    ),
)
