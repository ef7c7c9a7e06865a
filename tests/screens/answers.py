"""An answer of two lines, and what is said about it: as the scripted engine gives it to a prompt."""

SCRIPT = {"blocks": [{"text": "First line.\nSecond "}, {"text": "line."}]}
ANSWER = "First line.\nSecond line."
FOOTER = "21 tokens · 2 blocks · 6 steps · 14 tok/s · prompt 6 tok in 0.50 s ·"
VERBOSE = [
    "seed 7",
    "block 1: 3 steps, 0.75 s, converged",
    "First line.",
    "block 2: 3 steps, 0.75 s, converged",
    "Second line.",
    f"{FOOTER} ctx 27/8,192",
]
RUN = ("run", "-m", "demo", "hi")
