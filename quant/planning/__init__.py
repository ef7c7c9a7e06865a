"""What a recipe makes of a checkpoint, and the device that it is made on.

    plan        how each tensor is stored, and in how many bytes
    encoder     the device that encodes weights, and the GPUs of this machine

Knows headers and shapes; reads no weights.
"""
