"""Words for spelling and sorting: common ones, and pronounceable made-up ones.

Knows word lists; knows nothing about prompts.
"""

from __future__ import annotations

from random import Random


def listed(text: str) -> tuple[str, ...]:
    """The words of a text, a compact way to write a long list."""
    return tuple(text.split())


COMMON: tuple[str, ...] = listed(
    """
    apple arrow autumn baby bakery ball banana bank barn basket beach bear bed bee bell bench berry
    bicycle bird boat book bottle box boy branch bread brick bridge brother brown bucket butter button
    cabin cake camel camera candle canvas car card carpet castle cat cave chair cheese cherry child circle
    city clock cloud coat coffee coin cold color comet cook copper corn cotton cow crab cream crow crown
    cup dance day deer desert desk diamond dinner doctor dog dolphin donkey door dragon dream drum duck
    eagle ear earth east egg elephant engine evening eye face family farm farmer father feather field
    finger fire fish flag flower flute fog forest fork fox friend frog fruit garden garlic gate ghost
    giant gift girl glass glove goat gold goose grain grape grass green ground guitar hammer hand harbor
    hat hawk heart hedge hen hill honey horse hotel house ice ink iron island jacket jar jelly jewel
    jungle kettle key king kitchen kite kitten knife ladder lake lamp leaf lemon letter light lighthouse
    lion lizard llama lock magnet map maple market meadow medal melon milk mirror monkey moon morning moss
    mother mountain mouse museum music nest night noodle north nurse ocean olive onion orange orbit otter
    oven owl page paint palace panda paper parrot path peach pear pebble pencil penguin pepper piano
    picture pillow pilot pine pirate planet plate plum pocket poem pond pony potato prince puzzle queen
    quiet rabbit radio rain raven ribbon rice ring river road robot rocket roof room rope rose sailor
    salad salt sand scarf school sea seed shadow sheep shell ship shoe silver sister sky snail snow soap
    song soup south spider spoon spring squirrel stable star station stone storm story street sugar summer
    sun swan table tailor tea teacher temple tent thunder ticket tiger toast tomato tower town toy train
    tree truck tulip turtle uncle valley velvet village violin wagon wall walnut water wave weather well
    west whale wheat wheel whisper willow wind window winter wizard wolf wood wool yard year yellow zebra
    """
)

_ONSETS = listed("b c d f g h j k l m n p r s t v w z br ch cl dr fl gr kl pl pr sh sk sl sn sp st th tr")
_VOWELS = listed("a e i o u a e i o ai ee oa oo ou")
_CODAS = ("", "", "", "", "l", "m", "n", "r", "s", "t", "ck", "nd", "ng", "st")


def made_up(rng: Random) -> str:
    """A word of one to three syllables that no dictionary lists, 3 to 11 letters."""
    while True:
        word = "".join(
            rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(rng.choice((1, 2, 2, 3)))
        )
        if 3 <= len(word) <= 11:
            return word


def with_article(noun: str) -> str:
    """`owl` becomes `an owl`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
