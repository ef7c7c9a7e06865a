"""How a line looks while it is typed: every character takes as many columns as a line editor counts for it.

Knows prompt-toolkit's way of showing a line as something else; knows nothing about keys. Terminals join emoji, flags
and skin tones into pictures of their own width, each terminal differently, and some reorder a line with marks of
direction; moving the cursor by columns then ends in the wrong place and overwrites the prompt.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from itertools import accumulate

from prompt_toolkit import utils
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput

from localdiff.view.widths import character_width, separate_characters

# prompt-toolkit's cache of widths, not part of its public interface. By itself it gives vowel signs of Indic scripts
# no column, but most terminals give them one.
_KNOWN_WIDTHS: dict[str, int] = getattr(utils, "_CHAR_SIZES_CACHE", {})


class SeparateCharacters(Processor):
    """Shows the parts of characters that a terminal might join, and no invisible characters."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """One line as it is shown, and where each of its characters is in it."""
        fragments = transformation_input.fragments
        text = "".join(fragment[1] for fragment in fragments)
        if text.isascii():
            return Transformation(fragments)
        _KNOWN_WIDTHS.update((c, character_width(c)) for c in text if unicodedata.category(c) == "Mc")
        shown = separate_characters(text)
        ends = list(accumulate(map(len, shown), initial=0))
        changed: StyleAndTextTuples = []
        start = 0
        for style, part, *_handler in fragments:
            changed.append((style, "".join(shown[start : start + len(part)])))
            start += len(part)
        return Transformation(
            changed,
            source_to_display=lambda position: ends[min(position, len(shown))],
            display_to_source=lambda position: min(bisect_right(ends, position) - 1, len(shown)),
        )
