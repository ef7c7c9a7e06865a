"""Files of weights, and the manifest of those that a job wrote.

    source, reader, slices     as their headers describe them; read in order; cut to pieces
    writer, disk               a shard; any write, one operation a method
    manifest                   `quant.json`

Know names, shapes and bytes; know nothing about jobs.
"""
