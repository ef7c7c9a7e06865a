"""What a recipe makes of a checkpoint, and the device that it is made on.

    plan        how each tensor is stored, and in how many bytes
    gpu         the GPUs that are here, and the device that encodes

Knows headers and shapes; reads no weights.
"""
