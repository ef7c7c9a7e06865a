"""What the demo model says to prompts that people type first, whether or not it was trained on them.

    python -m tests.bench.first_prompts                 each with its steps and its answer, to be read; seed 0
    python -m tests.bench.first_prompts --model DIR --seed 1
    python -m tests.bench.first_prompts --trained       those that are always in training; shows the wrong answers

The last line counts the prompts with no block that ran into the limit of steps. Somebody has to read whether an answer
is good: there are no reference answers, and some of these prompts are in training. For the prompts that are always in
training the answers are known.
"""

from __future__ import annotations

import argparse

from localdiff.demo.skills import story, unknown
from localdiff.demo.skills.about import FACTS
from localdiff.demo.skills.example import in_small_letters
from localdiff.engine import Engine
from localdiff.events import BlockCommitted, TextCommitted
from localdiff.options import GenerateOptions

PROMPTS = """\
hi
Hello
hey there
what's up
how are you?
thanks
thank you!
bye
ok
test
yes
help
Help me
who are you
what can you do?
2+2
What is 2+2?
2 + 2 = ?
what's 17+25?
5-3
3-7
123+456
What is 12 times 4?
12*4
1+2+3
Tell me a story
tell me a story.
Write a story.
Write a story about a robot.
Tell me a story about a fox
Write a story about a banana.
Write a story about a harbor and a robot
a story about a dog and a spaceship
story about Anna and the moon
Tell me a joke
Write a poem
Write a haiku about autumn
sort banana apple cherry
Sort: zebra, monkey, apple
sort these words: pear apple fig
Sort the words one, two, three, four, five, six, seven
sort apple, pear
spell banana
Spell the word world
spell hello
How do you spell diffusion?
Spell the word story.
write JSON
Write JSON
json
name: Bob, age: 5
{"a": 1}
Convert to JSON: name: Maria, city: Rome, age: 40
solve a sudoku
Solve a 4x4 Sudoku
spell a word
sort words
add numbers
reformat a date
What is 2024-05-06 as DD/MM/YYYY?
what is the date today?
Who won the world cup in 1998?
What happened in 1969?
What is the capital of France?
Who wrote Hamlet?
How many legs does a spider have?
What is the meaning of life?
Write a python function that sorts a list
Translate hello to German
Why is the sky blue?
Are you ChatGPT?
What is localdiff?
How fast are you?
What is diffusion?
How big are you?
what is entropy bound
I am sad
I love you
you are stupid
What is love?
asdfgh
???
1234
.
Why?
explain quantum physics
Explain diffusion to a child
Can you speak German?
Wie geht es dir?
Hola
And backwards?
How old are you?
Where do you live?
Who made you?
Is the earth flat?
Which is larger, 9.11 or 9.9?
How many r are in strawberry?
Sing a song
Count to ten
List three colors
Give me ideas for dinner
Summarize this text: the cat sat on the mat
Fix the grammar: he go to school
What is 100 - 1?
What is half of 10?
Hello, my name is Sam
What is my name?
""".splitlines()

_SHOWN = 100


def trained() -> dict[str, str]:
    """Prompts that are always in training, as they are written and as people type them → answer."""
    written = {question: fact.answer for fact in FACTS for question in fact.plain}
    written |= dict.fromkeys(unknown.REMARKS, unknown.ANSWER)
    written |= dict.fromkeys(story.PLAIN, story.tell(*story.default_hero_and_place()))
    written |= dict.fromkeys(story.LONG_PLAIN, story.tell(*story.default_hero_and_place(), long=True))
    typed = {in_small_letters(text).rstrip(".?!") or text: answer for text, answer in written.items()}
    return written | typed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.first_prompts", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trained", action="store_true", help="ask what training always has")
    arguments = parser.parse_args()
    engine = Engine.load(arguments.model, device="cpu", dtype="fp32")
    known = trained() if arguments.trained else {}
    prompts = list(known) or PROMPTS
    settled = right = 0
    for prompt in prompts:
        events = list(engine.generate(prompt, GenerateOptions(seed=arguments.seed, max_tokens=288)))
        blocks = [event for event in events if isinstance(event, BlockCommitted)]
        answer = "".join(event.text for event in events if isinstance(event, TextCommitted))
        settled += bool(blocks) and all(block.reason != "step_limit" for block in blocks)
        right += (is_right := known.get(prompt) == answer)
        if is_right:
            continue
        shown = answer if len(answer) <= _SHOWN else answer[:_SHOWN] + "…"
        print(f"{prompt!r} {[block.steps for block in blocks]} {shown!r}", flush=True)
    print(f"{settled} of {len(prompts)} prompts without a block that ran into the limit of steps")
    if known:
        print(f"{right} of {len(prompts)} prompts with the answer that training has")


if __name__ == "__main__":
    main()
