"""Longer explanations of several canvases, as plain data. Knows no examples and no split."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Essay:
    """One text and the patterns that ask for it; `(a|b)` stands for either alternative."""

    topic: str
    patterns: tuple[str, ...]
    text: str


def _patterns(subject: str) -> tuple[str, ...]:
    return (
        f"(Explain|Describe) {subject} in (detail|depth).",
        f"(Write|Give me) a (long|detailed) (explanation|description) of {subject}.",
        f"(Write|Please write) (a long text|an essay|a long piece) (about|on) {subject}.",
        f"Tell me (everything|all you know) about {subject}.",
        f"(Can|Could) you explain {subject} in (detail|depth)?",
    )


ESSAYS: tuple[Essay, ...] = (
    Essay(
        topic="text diffusion",
        patterns=_patterns("text diffusion"),
        text=(
            "Text diffusion is a way to write many tokens at once. The model starts with a canvas, a row of "
            "positions, and each position holds a random token. This is the noise.\n"
            "In every denoise step the model looks at the prompt and at the whole canvas, and it predicts a "
            "token for each position. It is sure of some positions and in doubt about others. The doubt is "
            "measured as entropy.\n"
            "The entropy bound accepts the surest positions, as long as their summed entropy stays within "
            "the bound. All other positions get fresh noise. No mask token is used, and nothing is frozen: a "
            "position that was accepted may still change in the next step.\n"
            "Step by step the noise turns into words. When the best tokens stay the same and the model is "
            "confident, the block has settled. It is committed, and the next block starts from noise again. "
            "In this way a long text grows block by block, and easy blocks need only a few steps."
        ),
    ),
    Essay(
        topic="localdiff",
        patterns=_patterns("localdiff"),
        text=(
            "localdiff runs a text diffusion model on your own machine. You type a prompt, and the answer "
            "appears on a canvas that turns from noise into text before your eyes.\n"
            "There are a few commands. localdiff run answers one prompt. localdiff chat keeps a "
            "conversation, and you can stop, undo and edit your turns. localdiff quantize makes the weights "
            "of the full model small enough for a common card. localdiff replay plays a recorded run step by "
            "step. localdiff doctor checks your machine and says what to do.\n"
            "The full model has 26 billion weights, so it comes in recipes: 4bit, 4bit-small, mixed, int8 "
            "and bf16. The default is 4bit, which aims at cards with 18 GB.\n"
            "localdiff is not a server and not a training library. It runs one family of models, it keeps "
            "your prompts on your machine, and it tries to show how the model works while it works. I am the "
            "tiny demo model that comes with it."
        ),
    ),
    Essay(
        topic="quantization",
        patterns=_patterns("quantization"),
        text=(
            "Quantization stores the weights of a model with fewer bits. The full model has 26 billion "
            "weights, and in bf16 each of them takes 16 bits, which is too much for most cards.\n"
            "There are two small formats. In nf4 each weight becomes one of 16 levels, so it takes only 4 "
            "bits. The levels lie close together near zero, where most weights are. In int8 each weight "
            "becomes a whole number of 8 bits. In both formats a group of 64 weights shares one scale.\n"
            "A recipe says which part of the model gets which format. The experts hold most of the weights, "
            "so the default recipe, 4bit, stores nearly all of them as nf4. The other parts are used in "
            "every step and stay at int8, because a small error there costs extra steps.\n"
            "Fewer bits save memory and time, but they add a little error. That is why localdiff quantize "
            "checks what it has written."
        ),
    ),
    Essay(
        topic="stopping",
        patterns=_patterns("the stop rules") + _patterns("how a block ends"),
        text=(
            "A block does not need a fixed number of steps. The model stops when it is done, and two rules "
            "decide that.\n"
            "The first rule is stability. After each step we note the best token of every position. If these "
            "tokens are the same as in the step before, the canvas is stable.\n"
            "The second rule is confidence. We take the mean entropy over all positions. If it is below the "
            "confidence threshold, the model is sure of the whole canvas.\n"
            "When both rules hold, the block is committed: its best tokens become text. An easy prompt gets "
            "there in two to four steps. A hard one takes more, and if the last step is reached first, the "
            "block is committed as it is and marked.\n"
            "The entropy bound is something else. It accepts positions within a step, from the surest on, "
            "and it never stops a block."
        ),
    ),
)
