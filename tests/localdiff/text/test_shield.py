"""`Shield`: typed control tokens are distinguished from those of the template, whatever the template does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.text.shield import MARK, Segment, Shield
from tests.checkpoints.tokenizers import CONTROL

shield = Shield(CONTROL)
fragments = st.sampled_from([*CONTROL, "<", "|", ">", "<|", "|>", "turn", "channel", "a", " ", "\n", MARK])
typed = st.lists(fragments, max_size=12).map("".join)


def plain(*texts: str) -> list[Segment]:
    return [Segment(text=text, literal=False) for text in texts]


def literal(text: str) -> Segment:
    return Segment(text=text, literal=True)


def joined(text: str) -> str:
    return "".join(segment.text for segment in shield.segments(text))


def test_text_without_control_tokens_stays_in_one_piece() -> None:
    assert shield.segments(shield.cover("2 < 3, <div> and |>")) == plain("2 < 3, <div> and |>")
    assert shield.segments("") == []


def test_tokens_of_the_template_stay_tokens() -> None:
    assert shield.segments("<|turn>user\nhi<turn|>") == plain("<|turn>user\nhi<turn|>")
    assert Shield(["§"]).segments("hi§") == plain("hi§")


def test_typed_tokens_become_literal_segments() -> None:
    rendered = f"<|turn>user\n{shield.cover('a<turn|>b<bos>')}<turn|>\n"
    assert shield.segments(rendered) == [
        *plain("<|turn>user\na"),
        literal("<turn|>"),
        *plain("b"),
        literal("<bos>"),
        *plain("<turn|>\n"),
    ]


def test_a_token_that_the_template_puts_together_out_of_typed_parts_is_literal() -> None:
    covered = shield.cover("<chan<channel|>nel|>", keep=("<channel|>",))
    rendered = "".join(covered.split("<channel|>"))
    assert shield.segments(rendered) == [literal("<channel|>")]
    parts = [shield.cover(part) for part in ("<tu", "rn|>")]
    assert shield.segments("".join(parts)) == [literal("<turn|>")]


def test_a_mark_that_was_typed_is_replaced() -> None:
    assert shield.cover(f"a{MARK}b<{MARK}") == f"a\ufffdb<{MARK}\ufffd"
    assert shield.segments(shield.cover(f"{MARK}<turn|>")) == [*plain("\ufffd"), literal("<turn|>")]


def test_kept_tokens_stay_tokens_and_the_others_do_not() -> None:
    covered = shield.cover("<|channel>x<channel|><turn|>", keep=("<|channel>", "<channel|>", "<|absent>"))
    assert shield.segments(covered) == [*plain("<|channel>x<channel|>"), literal("<turn|>")]


def test_nested_values_are_covered_and_other_values_come_back() -> None:
    value = {"a": ["<", {"b<c": "<turn|>"}], "n": 3, "none": None, "<turn|>": True}
    assert shield.cover(value) == {
        "a": [f"<{MARK}", {"b<c": f"<{MARK}turn|>"}],
        "n": 3,
        "none": None,
        f"<{MARK}turn|>": True,
    }


def test_the_longest_of_two_tokens_counts() -> None:
    both = Shield(["<a>", "<a>b"])
    assert both.segments(both.cover("<a>bc")) == [literal("<a>b"), *plain("c")]


def test_tokens_of_white_space_are_left_to_the_template() -> None:
    spaced = Shield(["\n", " x", ""])
    assert spaced.cover("\n x") == "\n x"


def test_without_control_tokens_nothing_is_marked() -> None:
    empty = Shield([])
    assert empty.cover("<turn|>", keep=("<turn|>",)) == "<turn|>"
    assert empty.segments("<turn|>") == plain("<turn|>")


def test_characters_with_a_meaning_in_patterns_are_only_characters() -> None:
    odd = Shield(["^a", "]b", "-c", "\\d"])
    text = "^a]b-c\\d"
    assert odd.segments(odd.cover(text)) == [literal("^a"), literal("]b"), literal("-c"), literal("\\d")]


@settings(max_examples=60, deadline=None)
@given(before=typed, middle=typed, after=typed)
def test_no_typed_text_ever_holds_a_token(before: str, middle: str, after: str) -> None:
    rendered = f"<|turn>{shield.cover(before)}<turn|>{shield.cover(middle)}<bos>{shield.cover(after)}"
    written = [token for segment in shield.segments(rendered) for token in tokens_in(segment)]
    assert written == ["<|turn>", "<turn|>", "<bos>"]
    clean = (before + "\0" + middle + "\0" + after).replace(MARK, "\ufffd").split("\0")
    assert joined(rendered) == f"<|turn>{clean[0]}<turn|>{clean[1]}<bos>{clean[2]}"


def tokens_in(segment: Segment) -> list[str]:
    """The control tokens that a tokenizer reads in a segment that is not literal, the longest at each place."""
    found, at = [], 0
    while not segment.literal and at < len(segment.text):
        here = [token for token in CONTROL if segment.text.startswith(token, at)]
        found += [max(here, key=len)] if here else []
        at += len(max(here, key=len)) if here else 1
    return found
