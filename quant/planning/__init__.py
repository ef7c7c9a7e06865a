"""What a recipe makes of a checkpoint, and the device that it is made on.

    plan        how each tensor is stored, and in how many bytes
    gpu         this machine's GPU

Knows headers and shapes; reads no weights.
"""
