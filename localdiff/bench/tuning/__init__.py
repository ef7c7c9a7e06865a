"""`localdiff tune`: the tiles with which a GPU takes its steps fastest.

    tune         from random weights to the file that later runs read
    note         what is known of tiles until a search has finished, in a file
    search       tries all tiles of one product after the other
    step_clock   the time of a whole step, captured anew
    candidates   the tiles that are tried, and their names
    report_text  what was found, as text

A tile is judged by what it does to a step, not by its product's time alone. Knows a GPU's kernels and the shapes of a
model; knows nothing about prompts or terminals.
"""
