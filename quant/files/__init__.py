"""Files of weights, and the manifest of a quantized model.

    source, reader, slices     headers and index; weights read in order; large tensors cut into slices
    writer, disk               a shard written; disk operations, one per method
    manifest                   `quant.json`

Know names, shapes and bytes; know nothing about jobs.
"""
