"""What one position shows."""

from __future__ import annotations

import pytest

from localdiff.view.cells import Cell, CellMaker, byte_of, sign_name
from localdiff.view.palette import ASCII, DARK, FORMING, LEANING, NOISE, SETTLED, Palette
from tests.fakes.canvas import Vocabulary

PIECES = [" the", "\u2581the", "ing", "\n\n", "    ", "日本", "internationalization", "\u093f", "a\tb", "", "🙂"]
VOCABULARY = Vocabulary()
ID = {piece: VOCABULARY.id_of(piece) for piece in PIECES}


def maker(palette: Palette = DARK) -> CellMaker:
    return CellMaker(pieces=VOCABULARY, palette=palette)


def cells_of(piece: str, stage: int = SETTLED, changed: bool = False, palette: Palette = DARK) -> tuple[Cell, ...]:
    cells = maker(palette).token(ID[piece], stage, changed)
    assert cells is not None
    return cells


def text_of(cells: tuple[Cell, ...]) -> str:
    return "".join(" " * cell.lead + cell.span.text for cell in cells)


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (" the", " the"),
        ("\u2581the", " the"),
        ("ing", "ing"),
        ("    ", "    "),
        ("a\tb", "a    b"),
        ("", ""),
        ("日本", "日本"),
        ("\n\n", " ↵ ↵"),
        ("\u093f", "◌\u093f"),
    ],
)
def test_settled_pieces(piece: str, shown: str) -> None:
    assert text_of(cells_of(piece)) == shown


def test_only_a_word_with_a_space_before_it_may_move_to_another_row() -> None:
    assert [cell.soft for cell in cells_of(" the")] == [True]
    assert [cell.soft for cell in cells_of("ing")] == [False]
    assert all(cell.soft for cell in cells_of("日本"))


def test_long_words_come_in_chunks() -> None:
    assert [cell.span.text for cell in cells_of("internationalization")] == ["internat", "ionaliza", "tion"]
    assert [cell.span.text for cell in maker().committed("日本abc")] == ["日", "本", "abc"]


def test_a_newline_breaks_the_row_once_it_is_settled_and_no_sooner() -> None:
    assert [cell.breaks for cell in cells_of("\n\n", SETTLED)] == [1, 1]
    assert [cell.breaks for cell in cells_of("\n\n", LEANING)] == [0, 0]
    assert [cell.breaks for cell in cells_of("\n\n", FORMING)] == [0, 0]


def test_noise_is_the_same_whatever_the_token() -> None:
    cells = maker()
    assert text_of((cells.noise,)) == " ··"
    assert cells.noise.span.style == DARK.stages[NOISE]


def test_emoji_wait_until_their_width_matters_no_more() -> None:
    assert text_of(cells_of("🙂", FORMING)) == "▯"
    assert text_of(cells_of("🙂", LEANING)) == "🙂"


def test_what_changed_is_underlined_and_its_space_is_not() -> None:
    (cell,) = cells_of(" the", SETTLED, True)
    assert (cell.lead, cell.span.text, cell.span.style.underline) == (1, "the", True)


@pytest.mark.parametrize(
    ("piece", "name"),
    [
        ("<|channel>", "channel"),
        ("<channel|>", "/channel"),
        ("<|think|>", "think"),
        ("<bos>", "bos"),
        ("<>", "special"),
    ],
)
def test_names_of_special_tokens(piece: str, name: str) -> None:
    assert sign_name(piece) == name


def test_special_tokens_are_signs() -> None:
    cells = maker().token(2, SETTLED, False)
    assert cells is not None
    assert text_of(cells) == " ⟨channel⟩"
    assert cells[0].span.style == DARK.chrome
    assert text_of((maker().end,)) == " ⟨end⟩"


def test_a_hostile_special_token_is_safe() -> None:
    assert sign_name("<|\x1b[2J\u202e|>") == "▯[2J"


@pytest.mark.parametrize(("piece", "value"), [("<0x1B>", 27), ("<0xe2>", 226), ("<0x1>", None), ("x<0x1B>", None)])
def test_bytes_by_name(piece: str, value: int | None) -> None:
    assert byte_of(piece) == value


def byte_ids(data: bytes) -> list[int]:
    return [3 + byte for byte in data]


def test_a_byte_piece_is_no_text_by_itself() -> None:
    assert maker().token(byte_ids(b"a")[0], SETTLED, False) is None
    assert maker().token(ID["ing"], SETTLED, False) is not None


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a", ["a"]),
        ("é".encode(), ["é", ""]),
        ("🦜".encode(), ["🦜", "", "", ""]),
        ("🦜".encode()[:3], ["▯", "▯", "▯"]),
        (b"\x1b[", ["▯", "["]),
        (b"\xff" + "é".encode(), ["▯", "é", ""]),
        (b"\xed\xa0\x80", ["▯", "▯", "▯"]),
        (b"\n", [" ↵"]),
    ],
)
def test_adjacent_bytes_are_read_together(data: bytes, shown: list[str]) -> None:
    ids = byte_ids(data)
    cells = maker().byte_run(ids, [SETTLED] * len(ids), [False] * len(ids))
    assert [text_of(part) for part in cells] == shown


def test_a_character_of_several_bytes_is_as_uncertain_as_its_least_certain_one() -> None:
    cells = maker().byte_run(byte_ids("é".encode()), [SETTLED, LEANING], [False, True])
    assert cells[0][0].span.style == DARK.stages[LEANING].underlined()


def test_ascii_signs() -> None:
    assert text_of(cells_of("日本", palette=ASCII)) == "????"
    assert text_of(cells_of("\n\n", palette=ASCII)) == " \\n \\n"
    assert text_of((maker(ASCII).end, maker(ASCII).noise)) == " <end> .."


def test_committed_text_has_real_line_breaks_and_no_signs() -> None:
    cells = maker().committed("two words\n\n\x1b[2Jx")
    assert text_of(cells) == "two words▯[2Jx"
    assert sum(cell.breaks for cell in cells) == 2
