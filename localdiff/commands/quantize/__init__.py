"""The command `localdiff quantize`, assembled from its parts.

    command         the command, and which requests are contradictory
    flow            its steps, from a request to a verified directory
    existing        an output that already exists
    source_check    whether the source can be run at all
    display         progress of a job, and of the downloads that feed it
    verification    `--verify-only`, and the messages of any verification

They know the order of the steps and the user's answers; `localdiff.quantizing` and `quant.jobs` carry them out.
"""
