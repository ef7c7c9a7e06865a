"""Files of weights, and the manifest of a quantized model.

    source, reader    headers and index; weights read in order, large tensors a slice at a time
    writer, disk      a shard written; disk operations, one per method
    manifest          `quant.json`

Know names, shapes and bytes; know nothing about jobs.
"""
