"""The sampler: pure functions of tensors that turn logits into the next canvas.

    settings           sampler settings of a run
    noise              sources of randomness, for one run or for two runs that are compared
    reading, search    statistics of logits in one pass; maxima and samples along long rows
    sampler            temperature, accept and renoise
    stopping           when a block is done

Knows no network, no text, no files.
"""
