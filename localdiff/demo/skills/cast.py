"""Heroes, places and plots of the stories, as plain data. Knows no prompts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hero:
    """The hero of a story; `pronouns` are he, him and his."""

    noun: str
    kind: str
    pronouns: tuple[str, str, str]
    trait: str
    food: str
    wish: str
    gift: str


@dataclass(frozen=True)
class Place:
    """The place of a story; `at` is the preposition, `find` what is there, `keeper` who lives there."""

    noun: str
    kind: str
    at: str
    look: str
    keeper: str
    find: str


_MALE, _FEMALE, _THING = ("he", "him", "his"), ("she", "her", "her"), ("it", "it", "its")

HEROES: tuple[Hero, ...] = (
    Hero("fox", "animal", _MALE, "clever", "berries", "to see the world", "a red feather"),
    Hero("owl", "animal", _FEMALE, "wise", "nuts", "to read every book", "a silver key"),
    Hero("bear", "animal", _MALE, "gentle", "honey", "to learn to dance", "a jar of honey"),
    Hero("rabbit", "animal", _FEMALE, "quick", "carrots", "to win a race", "a green ribbon"),
    Hero("cat", "animal", _FEMALE, "proud", "fish", "to find a warm home", "a small bell"),
    Hero("dog", "animal", _MALE, "loyal", "bread", "to find a true friend", "a round stone"),
    Hero("mouse", "animal", _FEMALE, "tiny", "cheese", "to be brave for once", "a piece of cheese"),
    Hero("whale", "animal", _FEMALE, "calm", "sea grass", "to sing a new song", "a white pearl"),
    Hero("penguin", "animal", _MALE, "cheerful", "fish", "to fly over the clouds", "a paper kite"),
    Hero("turtle", "animal", _MALE, "patient", "leaves", "to reach the sea", "a blue shell"),
    Hero("wolf", "animal", _MALE, "lonely", "apples", "to hear a kind word", "a wooden flute"),
    Hero("squirrel", "animal", _FEMALE, "busy", "nuts", "to plant a forest", "a golden nut"),
    Hero("hedgehog", "animal", _MALE, "shy", "pears", "to make a friend", "a warm scarf"),
    Hero("frog", "animal", _MALE, "loud", "berries", "to sing for a king", "a copper coin"),
    Hero("pony", "animal", _FEMALE, "strong", "apples", "to run to the east", "a new saddle"),
    Hero("baker", "person", _MALE, "kind", "warm bread", "to bake the best bread", "a sweet cake"),
    Hero("sailor", "person", _FEMALE, "bold", "fish soup", "to find a new island", "an old map"),
    Hero("painter", "person", _FEMALE, "quiet", "apple cake", "to paint the wind", "a tiny picture"),
    Hero("farmer", "person", _MALE, "careful", "potatoes", "to rest for one day", "a sack of seeds"),
    Hero("teacher", "person", _FEMALE, "curious", "rice", "to answer every question", "a thick book"),
    Hero("pilot", "person", _FEMALE, "brave", "toast", "to fly to the moon", "a paper plane"),
    Hero("tailor", "person", _MALE, "neat", "noodles", "to sew a coat for the sky", "a velvet hat"),
    Hero("king", "person", _MALE, "tired", "plum cake", "to live in peace", "a gold ring"),
    Hero("queen", "person", _FEMALE, "fair", "melon", "to know all her people", "a garden rose"),
    Hero("wizard", "person", _MALE, "old", "onion soup", "to forget one spell", "a glass ball"),
    Hero("nurse", "person", _FEMALE, "warm", "chicken soup", "to heal a broken heart", "a cup of tea"),
    Hero("robot", "machine", _THING, "polite", "sunlight", "to feel the rain", "a bright lamp"),
    Hero("dragon", "creature", _THING, "friendly", "hot pepper", "to have a birthday", "a candle"),
    Hero("ghost", "creature", _THING, "forgetful", "cold fog", "to be seen again", "a small mirror"),
    Hero("giant", "creature", _MALE, "slow", "whole pumpkins", "to hold a butterfly", "a huge drum"),
    Hero("snowman", "creature", _MALE, "happy", "ice cream", "to see the summer", "a long carrot"),
    Hero("scarecrow", "creature", _MALE, "lonesome", "dry corn", "to walk to the town", "a straw hat"),
)

PLACES: tuple[Place, ...] = (
    Place("lighthouse", "sea", "in", "white and tall", "an old keeper", "a lamp that had gone out"),
    Place("harbor", "sea", "at", "full of boats", "a fisher girl", "a boat without a sail"),
    Place("island", "sea", "on", "small and green", "a talking parrot", "a chest of letters"),
    Place("beach", "sea", "on", "long and bright", "a sleepy crab", "a bottle with a note"),
    Place("ship", "sea", "on", "wide and wooden", "a young captain", "a torn sail"),
    Place("bridge", "sea", "on", "high and narrow", "a toll keeper", "a missing plank"),
    Place("mountain", "hill", "on", "steep and cold", "a mountain goat", "a frozen bell"),
    Place("castle", "hill", "in", "gray and silent", "a forgotten prince", "a locked door"),
    Place("tower", "hill", "in", "round and crooked", "a star watcher", "a cracked telescope"),
    Place("cave", "hill", "in", "deep and dark", "a shy bat", "a wall of crystals"),
    Place("mill", "hill", "in", "old and dusty", "a gray miller", "a wheel that stood still"),
    Place("temple", "hill", "in", "quiet and wide", "a silent monk", "a broken drum"),
    Place("forest", "wood", "in", "dark and mossy", "a lost child", "a circle of stones"),
    Place("garden", "wood", "in", "wild and sweet", "a blind gardener", "a rose that did not bloom"),
    Place("lake", "wood", "at", "clear and still", "a swan", "a sunken boat"),
    Place("meadow", "wood", "on", "soft and yellow", "a busy bee", "a nest on the ground"),
    Place("cabin", "wood", "in", "warm and small", "a tired hunter", "a cold oven"),
    Place("valley", "wood", "in", "wide and misty", "a shepherd boy", "a stray lamb"),
    Place("market", "town", "at", "loud and colorful", "a spice seller", "a lost purse"),
    Place("school", "town", "in", "bright and noisy", "a new pupil", "an empty book"),
    Place("museum", "town", "in", "huge and still", "a night guard", "a picture without a face"),
    Place("station", "town", "at", "busy and gray", "a ticket seller", "a forgotten suitcase"),
    Place("hotel", "town", "in", "grand and empty", "a lonely cook", "a room without a number"),
    Place("bakery", "town", "in", "small and sweet", "a young baker", "a recipe without an end"),
)

# Slots: {hero} {a_hero} {trait} {food} {wish} {gift} {he} {He} {him} {his} and {place} {At} {a_place} {look} {keeper}
# {the_keeper} {The_keeper} {find}; a slot with a capital starts a sentence.
# A story names all that it is about at its beginning, where positions differ little from story to story. Later text
# depends on it, at positions that shift with the words before.
SCENE = "{At} {a_place}, {look}, there lived {keeper}, and there was {find}."
OPENINGS: dict[str, str] = {
    "animal": (
        "Not far from there lived {a_hero}, known in the whole land for being {trait}. Every day {he} ate {food} in "
        "the shade of an old tree, and every night {he} dreamed the same dream: {wish}. All {he} had was {gift}."
    ),
    "person": (
        "In a small town nearby lived {a_hero}, and everybody knew how {trait} {he} was. {He} worked from morning to "
        "evening, ate {food} by the fire, and kept one secret wish: {wish}. In {his} bag {he} carried {gift}."
    ),
    "machine": (
        "Far away, in a room full of wires, {a_hero} woke up for the first time. It was {trait}, it lived on {food}, "
        "and it had only one wish: {wish}. In its chest it carried {gift}."
    ),
    "creature": (
        "Long ago, when the hills were young, there was also {a_hero}. {He} was {trait}, {he} lived on {food}, and "
        "nobody knew that {he} had a wish: {wish}. Under {his} arm {he} kept {gift}."
    ),
}
JOURNEYS: dict[str, str] = {
    "sea": (
        "One morning the wind smelled of salt, and the {hero} followed it down to the water. The waves sang around "
        "the {place}, and there {he} met {the_keeper}."
    ),
    "hill": (
        "One day the {hero} packed some {food} and climbed a long and stony path. At the top, with clouds above it, "
        "stood the {place}, and there {he} found {the_keeper}."
    ),
    "wood": (
        "One evening the {hero} lost the way among the trees. The birds fell silent, and behind the last branches "
        "lay the {place} under the first stars. There {he} saw {the_keeper}."
    ),
    "town": (
        "One Monday the {hero} took the early train to the city. After many streets {he} came to the {place}, just "
        "as the clock struck nine, and {the_keeper} was waiting there."
    ),
}
PROBLEMS: dict[str, str] = {
    "sea": (
        '"A storm is coming," said {the_keeper}, "and look what we have here: {find}." The {hero} was afraid '
        "of the dark water, but {he} did not run away."
    ),
    "hill": (
        '"Nobody comes up here any more," said {the_keeper}, "because of this: {find}." The {hero} looked at '
        "it for a long time and began to think."
    ),
    "wood": (
        '"Please be quiet," said {the_keeper}, "for I have found something strange: {find}." The {hero} came '
        "closer, step by step, and listened."
    ),
    "town": (
        '"We are in trouble," said {the_keeper}, "and nobody has time to help. It is about {find}." The '
        "{hero} put down {his} bag and smiled."
    ),
}
DETOURS: dict[str, str] = {
    "sea": (
        "All night the rain beat on the {place}. Twice a wave took everything away, and twice they started "
        "again from the beginning. They sang old songs to stay awake."
    ),
    "hill": (
        "The work was hard. Snow fell on the {place}, and their hands grew cold. They shared the last of the "
        "{food} and told each other stories until the sun came back."
    ),
    "wood": (
        "They searched the whole {place} for help. An old tree gave them shade, a spring gave them water, "
        "and a small light in the distance gave them hope."
    ),
    "town": (
        "They asked at every door around the {place}. Some people laughed, some people shook their heads, "
        "but a little girl showed them the right way."
    ),
}
TURNS: dict[str, str] = {
    "animal": (
        "Then the {hero} had an idea. {He} was {trait}, after all. {He} gave {the_keeper} {gift}, asked "
        "{his} friends to help, and before the sun was up the work was done."
    ),
    "person": (
        "The {hero} rolled up {his} sleeves. Being {trait} helps with almost everything. With {gift} and a "
        "little luck {he} put things right, and {the_keeper} could hardly believe it."
    ),
    "machine": (
        "The {hero} counted, measured and planned. It took {gift} from its chest, turned three small screws, "
        "and in the end everything worked as it should. {The_keeper} clapped."
    ),
    "creature": (
        "The {hero} took a deep breath. For the first time somebody needed {him}. {He} gave {the_keeper} "
        "{gift}, and suddenly the whole place was full of light."
    ),
}
ENDINGS: dict[str, str] = {
    "sea": (
        "When the sea was calm again, they sat together and watched the ships. The {hero} had wished {wish}, "
        "and now {he} knew that a friend is the better wish. The {place} was never lonely again."
    ),
    "hill": (
        "From the top they could see the whole land. The {hero} still wished {wish}, but there was time for "
        "that. {He} stayed the winter at the {place}, and every evening there was music."
    ),
    "wood": (
        "In the morning the birds sang louder than ever. The {hero} found the way home, and {he} came back "
        "to the {place} every spring. Sometimes a wish comes true in another form."
    ),
    "town": (
        "That night the whole city was talking about the {hero}. There was cake for everyone, and a new sign "
        "hung at the {place}. It said: here somebody had time."
    ),
}
