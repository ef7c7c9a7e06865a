"""What a recipe makes of a checkpoint, and what that takes to run.

    plan        how each tensor is stored, and in how many bytes
    memory      the account of a device's memory
    gpu         the GPUs that are here, and the device that encodes

Knows headers and shapes; reads no weights.
"""
